"""Onager's Java kernel in the JVM of a session that somebody else has started."""

from typing import Any

from pyspark.sql import SparkSession

from executor.spark.jvm import Jvm
from executor.spark.kernel_jar import kernel_jar
from executor.spark.session import check_spark_version
from onager.errors import OnagerError

_PROBE = "onager.kernel.Pipeline"


def jvm_with_kernel(spark: SparkSession) -> Jvm:
    """Return the way into the JVM of *spark*, with the kernel's classes there: their jar is added when it was not.

    Raises `VersionMismatchError` for a version of Spark that is not a tested one, and `OnagerError` for a session
    that is not in this process (Spark Connect).
    """
    check_spark_version()
    if not hasattr(spark, "_jsparkSession"):
        raise OnagerError(
            "the harness needs a SparkSession with its JVM beside this process, and this one is a client of Spark "
            'Connect: make it with SparkSession.builder.master("local[2]").getOrCreate()'
        )
    view: Any = spark._jvm  # noqa: SLF001  (PySpark offers no public way to the JVM)
    loader = view.java.lang.Thread.currentThread().getContextClassLoader()
    if not _is_loaded(loader):
        loader.addURL(view.java.io.File(str(kernel_jar())).toURI().toURL())
        if not _is_loaded(loader):
            raise OnagerError(f"the classes of {kernel_jar()} cannot be loaded into the session's JVM")
    return Jvm.of(spark)


def _is_loaded(loader: Any) -> bool:
    return loader.getResource(_PROBE.replace(".", "/") + ".class") is not None
