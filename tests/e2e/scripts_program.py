"""Runs scripts of SQL in plain Spark (``plain``) or at a cluster (``sc://…``): prints what came of each, as JSON.

    python -m tests.e2e.scripts_program plain|sc://… NAME…

The names are those of cases of `sql_scripts_beside_spark`.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.integration.planning.sql_scripts_beside_spark import Case, cases, named
from tests.support.spark.one_executor import rows_of


def sessions(where: str) -> Callable[[], Any]:
    """Return what makes a session."""
    if where != "plain":
        return SparkSession.builder.remote(where).create
    quiet = {"spark.ui.enabled": "false", "spark.sql.catalogImplementation": "in-memory"}
    quiet["spark.sql.warehouse.dir"] = tempfile.mkdtemp()
    return SparkSession.builder.master("local[1]").config(map=quiet).getOrCreate().newSession


def outcomes(spark: Any, case: Case) -> list[Any]:
    """Return the columns and rows of a case's script and of what is asked after it, or the conditions of errors."""
    for key, value in case.settings.items():
        spark.conf.set(key, value)
    found: list[Any] = []
    for text in filter(None, (case.text, case.then)):
        try:
            frame = spark.sql(text)
            found.append([named(frame.columns), rows_of(frame.toArrow())])
        except PySparkException as error:
            found.append(error.getCondition())
        except Py4JJavaError as error:
            found.append(error.java_exception.getCondition())
    if "TABLE" in case.text.upper():
        for table in spark.catalog.listTables("default"):
            if not table.isTemporary:
                spark.sql(f"DROP TABLE {table.name}")
    return found


def main() -> None:
    """Run the cases that the command line names."""
    where, *names = sys.argv[1:]
    make = sessions(where)
    for case in cases():
        if case.name in names:
            print(json.dumps([case.name, repr(outcomes(make(), case))]), flush=True)


if __name__ == "__main__":
    main()
