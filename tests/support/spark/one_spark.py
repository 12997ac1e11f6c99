"""Spark in the process of the tests: one at a time, since a process has one JVM with one class path."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.waiting import HANGS_S

SPARKS_SUMS: Final = {"spark.sql.optimizer.excludedRules": "onager.decimals.LongSums"}
"""Has decimals added up by Spark's own functions."""


@contextmanager
def settings(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Run the block with *conf*, which *session* does not set otherwise."""
    for key, value in conf.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            session.conf.unset(key)


def stop_with_its_jvm(session: SparkSession) -> None:
    """Stop *session* and its JVM, so that the next directory of tests starts its own with other settings."""
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(HANGS_S)
    SparkContext._gateway = None
    SparkContext._jvm = None
