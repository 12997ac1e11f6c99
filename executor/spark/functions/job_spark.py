# ruff: noqa: SLF001 - PySpark has no public way to make these objects
"""PySpark's objects over the executor's running Spark, for the process of one job's function."""

import sys
from collections.abc import Mapping
from typing import Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import JavaObject
from pyspark import SparkConf, SparkContext, SparkFiles, accumulators
from pyspark.core.broadcast import BroadcastPickleRegistry
from pyspark.errors.exceptions.captured import install_exception_handler
from pyspark.profiler import BasicProfiler, MemoryProfiler, ProfilerCollector, UDFBasicProfiler
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.profiler import AccumulatorProfilerCollector
from pyspark.sql.session import _monkey_patch_RDD
from pyspark.traceback_utils import CallSite


def described_context(context: SparkContext) -> dict[str, Any]:
    """Return the facts about the executor's context that a `JobContext` needs, as JSON values."""
    made: Any = context
    return {
        "environment": dict(made.environment),
        "master": made.master,
        "app_name": made.appName,
        "spark_home": made.sparkHome,
        "python": made.pythonExec,
        "is_encrypted": bool(made._encryption_enabled),
        "is_profiled": made.profiler_collector is not None,
    }


class Connection:
    """The connection to the JVM, and the job's objects in it."""

    def __init__(self, port: int, token: str, ids: str) -> None:
        """Connect to this process's gateway at *port*; each thread here gets its own thread in the JVM.

        *ids*: the ids of the gateway's objects that are needed here, since fetching each would take a round trip.
        """
        self.gateway = ClientServer(
            java_parameters=JavaParameters(port=port, auth_token=token, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        self.gateway.proc = None
        self.entry_point: Any = self.gateway.entry_point
        session, context, settings, accumulator = ids.split()
        client = self.gateway._gateway_client
        self.session = JavaObject(session, client)
        self.context = _JavaContext(self.entry_point, context, client)
        self.settings = JavaObject(settings, client)
        self.accumulator = JavaObject(accumulator, client)


class _JavaContext(JavaObject):  # type: ignore[misc]
    """The JVM's side of the job's context, without access to what other jobs share."""

    def __init__(self, entry_point: Any, target_id: str, client: Any) -> None:
        super().__init__(target_id, client)
        self._entry_point = entry_point

    def stop(self, *_: Any) -> None:
        """Do nothing: all jobs share Spark."""

    close = stop

    def hadoopConfiguration(self) -> Any:  # noqa: N802 - Spark's
        return self._entry_point.hadoopConfiguration()


class JobContext(SparkContext):  # type: ignore[misc]
    """A context over the executor's SparkContext that owns no resources of it."""

    def __init__(self, connection: Connection, described: Mapping[str, Any], directory: str) -> None:
        """Make this the context of the process; *directory* is for files that are needed until the job is planned.

        The attributes that `SparkContext` sets when it starts Spark come from the executor's own context.
        """
        SparkContext._gateway = connection.gateway
        SparkContext._jvm = connection.gateway.jvm
        SparkContext._active_spark_context = self
        self._callsite = CallSite("the executor", "onager", 0)  # in the error for making a second context
        self._jsc = connection.context
        self._conf = SparkConf(_jconf=connection.settings)
        self.environment = dict(described["environment"])
        self.master = described["master"]
        self.appName = described["app_name"]
        self.sparkHome = described["spark_home"]
        self.pythonExec = described["python"]
        self.pythonVer = f"{sys.version_info.major}.{sys.version_info.minor}"
        self._batchSize = 0
        self._unbatched_serializer = CPickleSerializer()
        self.serializer = AutoBatchedSerializer(self._unbatched_serializer)
        self._encryption_enabled = described["is_encrypted"]
        self._pickled_broadcast_vars = BroadcastPickleRegistry()
        self._python_includes: list[str] = []
        self._temp_dir = directory
        self.profiler_collector: Any = _profilers() if described["is_profiled"] else None
        self._accumulatorServer: Any = None
        self._javaAccumulator = connection.accumulator
        SparkFiles._sc = self

    def accumulator(self, value: Any, accum_param: Any = None) -> Any:
        """Make an accumulator, which receives updates of tasks until this process ends."""
        if self._accumulatorServer is None:
            token = self._gateway.gateway_parameters.auth_token
            self._accumulatorServer = accumulators._start_update_server(token, is_unix_domain_sock=False)
            self._javaAccumulator = self._gateway.entry_point.accumulator(*self._accumulatorServer.server_address)
        return super().accumulator(value, accum_param)

    def cancelAllJobs(self) -> None:  # noqa: N802 - PySpark's
        """Cancel the Spark jobs of this function only, since other jobs share Spark."""
        self._gateway.entry_point.cancelJobs()


def _profilers() -> ProfilerCollector:
    return ProfilerCollector(BasicProfiler, UDFBasicProfiler, MemoryProfiler, None)


def job_session(connection: Connection, context: JobContext) -> SparkSession:
    """Return the job's own session, which ``SparkSession.builder.getOrCreate()`` then returns, too."""
    session: Any = SparkSession.__new__(SparkSession)
    # Without __init__, which would make it the default session of the whole JVM.
    session._sc = context
    session._jsc = context._jsc
    session._jvm = context._jvm
    session._jsparkSession = connection.session
    session._profiler_collector = AccumulatorProfilerCollector()
    _monkey_patch_RDD(session)
    install_exception_handler()
    SparkSession._instantiatedSession = SparkSession._activeSession = session
    return session
