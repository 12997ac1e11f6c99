"""DataFrames of Spark Connect, built as a client does."""

from collections.abc import Callable
from typing import Any

from pyspark.sql.connect import functions as connect_functions
from pyspark.sql.connect import plan as plans
from pyspark.sql.connect.dataframe import DataFrame

from tests.integration.planning.connect_client import ConnectClient

Build = Callable[[Any, Any], Any]
"""Makes a DataFrame of a session, and of PySpark's functions for it."""


def lazy(client: ConnectClient, text: str) -> Any:
    """Return the DataFrame that `spark.sql` makes of a query."""
    return DataFrame(plans.SQL(text), client.spark)


def built(client: ConnectClient, build: Build) -> Any:
    class Session:
        range = client.spark.range
        table = client.spark.table

        @staticmethod
        def sql(text: str) -> Any:
            return lazy(client, text)

    return build(Session, connect_functions)
