"""The way of a function's process into the JVM."""

from typing import Any

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import JavaObject, Jvm, jvm_context, jvm_session


class FunctionGateway:
    """A py4j gateway into the JVM for the process of one job's function."""

    def __init__(self, session: SparkSession) -> None:
        """Open a gateway for a function that plans in *session*."""
        jvm, context = Jvm.of(session), session.sparkContext
        accumulator = context._javaAccumulator  # noqa: SLF001 - PySpark hides it
        gateways = jvm.java_class("onager.gateway.FunctionGateway")
        self._java = gateways(jvm_context(session), jvm_session(session), accumulator)

    def place(self) -> dict[str, Any]:
        """Return the gateway's port, its token, and the ids of the objects that the process needs."""
        return {"port": int(self._java.port()), "token": str(self._java.token()), "ids": str(self._java.ids())}

    def frame(self) -> JavaObject:
        """Return the Dataset that the function returned."""
        return self._java.frame()

    def error(self) -> JavaObject:
        """Return the exception of Spark that the function did not catch."""
        return self._java.error()

    def close(self, wait_ms: int) -> int:
        """Stop the process's calls and Spark jobs; return how many still ran after *wait_ms*."""
        return int(self._java.close(wait_ms))
