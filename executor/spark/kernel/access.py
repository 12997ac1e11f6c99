"""What jobs may read and use."""

from typing import Final

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import Jvm


def close_file_systems(session: SparkSession) -> None:
    """Have all sessions of this Spark refuse the file systems that jobs may not use, whatever they say.

    See Java's `FileSystems` and `FixedProperties`.
    """
    conf = session.sparkContext._jsc.sc().hadoopConfiguration()  # noqa: SLF001  (PySpark offers no public way to it)
    jvm = Jvm.of(session)
    jvm.java_class("onager.access.FileSystems").close(conf)
    getattr(jvm.java_class("onager.spark43.FixedProperties"), "in")(conf)


VARIABLE: Final = "spark.onager.variable."
"""Begins the names under which sessions keep variables with a dot in their names: see Java's `Variables`."""


def kept_as(session: SparkSession, key: str) -> str:
    """Return the setting under which a session keeps *key*: a program's own variable reaches no setting of Hadoop."""
    if key.startswith("spark."):
        return key
    return str(Jvm.of(session).java_class("onager.spark43.Variables").kept(key))


def refused_option(jvm: Jvm, key: str, value: str) -> str | None:
    """Return why no job may give *key* as an option of files with *value*; None: it may."""
    why = jvm.java_class("onager.access.JobSettings").ofOption(key, value)
    return None if why is None else str(why)


def refused_setting(session: SparkSession, key: str, value: str) -> str | None:
    """Return why no job may set *key* to *value*; None: it may, if Spark lets it."""
    why = Jvm.of(session).java_class("onager.access.JobSettings").refusal(key, value)
    return None if why is None else str(why)
