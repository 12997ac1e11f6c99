"""Onager's Java kernel in the JVM of a session that other code has started."""

from typing import Any, Final
from weakref import WeakSet

from pyspark.sql import SparkSession

from onager.errors import OnagerError
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.classes import KERNEL
from onager.executor.spark.kernel_jar import kernel_jar
from onager.executor.spark.session import check_spark_version

_have_it: Final["WeakSet[Jvm]"] = WeakSet()


def jvm_with_kernel(spark: SparkSession) -> Jvm:
    """Return access to the JVM of *spark* with the kernel's classes; their jar is added if it is missing.

    Raises `VersionMismatchError` for a version of Spark that is not a tested one, and `OnagerError` for a session that
    is not in this process (Spark Connect).
    """
    check_spark_version()
    if not hasattr(spark, "_jsparkSession"):
        raise OnagerError(
            "the harness needs a SparkSession with its JVM beside this process, and this one is a client of Spark "
            'Connect: make it with SparkSession.builder.master("local[2]").getOrCreate()'
        )
    jvm = Jvm.of(spark)
    if jvm not in _have_it:
        loader = jvm.java_class("java.lang.Thread").currentThread().getContextClassLoader()
        if not _is_loaded(loader):
            loader.addURL(jvm.java_class("java.io.File")(str(kernel_jar())).toURI().toURL())
            if not _is_loaded(loader):
                raise OnagerError(f"the classes of {kernel_jar()} cannot be loaded into the session's JVM")
        _have_it.add(jvm)
    return jvm


def _is_loaded(loader: Any) -> bool:
    return loader.getResource(KERNEL.replace(".", "/") + ".class") is not None
