"""Spark in the process of the tests: one at a time, since a process has one JVM with one class path."""

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.waiting import HANGS_S


def stop_with_its_jvm(session: SparkSession) -> None:
    """Stop *session* and its JVM, so that the next directory of tests starts its own with other settings."""
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(HANGS_S)
    SparkContext._gateway = None
    SparkContext._jvm = None
