"""The doctests of PySpark's own modules, through what Onager serves at ``sc://`` and through Spark's Connect server."""

from typing import Final

CONNECT: Final = (
    "catalog",
    "column",
    "conf",
    "dataframe",
    "functions.builtin",
    "functions.partitioning",
    "group",
    "merge",
    "observation",
    "readwriter",
    "session",
    "tvf",
    "window",
)
"""Modules of ``pyspark.sql.connect``, whose doctests know of external servers. Those of avro and protobuf need jars
that the package does not have; those of ``streaming`` are streaming queries."""
SQL: Final = ("pandas.functions", "pandas.group_ops", "pandas.map_ops", "types", "udf", "udtf")
"""Modules of ``pyspark.sql`` whose doctests ask for a session of their own, and get one of the server."""


def module_of(name: str) -> str:
    """Return the full name of a module by its short one: ``conf`` is that of ``pyspark.sql.connect``."""
    return f"pyspark.sql.{name}" if name in SQL else f"pyspark.sql.connect.{name}"
