"""Prevents side effects of a job's Python function.

The function runs each time that its job is planned, which can be more than once, so writes are refused. Calls that only
affect speed (``cache``) do nothing, and so do calls that would stop the Spark that all jobs of the executor share.
"""

import functools
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.sql_formatter import SQLStringFormatter
from pyspark.sql.streaming import DataStreamWriter

from onager.errors import SideEffectError
from onager.executor.spark.planning.sql_script import refuse_commands

RETURN_IT = "return the DataFrame instead, and say where its result goes when you submit the job (--output)"
REFUSED: dict[type, tuple[str, ...]] = {
    DataFrameWriter: (
        "save",
        "saveAsTable",
        "insertInto",
        "parquet",
        "csv",
        "json",
        "orc",
        "text",
        "xml",
        "jdbc",
    ),
    DataFrameWriterV2: ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions"),
    DataStreamWriter: ("start", "toTable"),
    ClassicDataFrame: (
        "foreach",
        "foreachPartition",
        "checkpoint",
        "localCheckpoint",
        "createGlobalTempView",
        "createOrReplaceGlobalTempView",
        "mergeInto",
    ),
    Catalog: (
        "createTable",
        "createExternalTable",
        "dropGlobalTempView",
        "recoverPartitions",
    ),
}
OF_EVERY_JOB = {
    "addFile": "give Python files with the job (--py-file), and read others from where all executors see them",
    "addPyFile": "give the file with the job (--py-file)",
    "addArchive": "put it where all executors see it",
    "setCheckpointDir": "a query is not checkpointed",
    "setSystemProperty": "give settings with the job (--conf)",
}
"""Methods of the context that would affect all jobs of the executor, and what to do instead."""
RETURNS_ITSELF: dict[type, tuple[str, ...]] = {ClassicDataFrame: ("cache", "persist", "unpersist")}
DOES_NOTHING: dict[type, tuple[str, ...]] = {
    Catalog: ("cacheTable", "uncacheTable", "clearCache"),
    # Scripts often end with these calls. The session and its context exist until the function returns.
    SparkSession: ("stop",),
    SparkContext: ("stop", "setLogLevel"),
}


def install() -> None:
    """Replace the guarded methods of PySpark's classes in this process."""
    for owner, names in REFUSED.items():
        for name in names:
            if hasattr(owner, name):
                _replace(owner, name, functools.partial(_refuse, f"{_shown(owner)}.{name}", RETURN_IT))
    for name, advice in OF_EVERY_JOB.items():
        _replace(SparkContext, name, functools.partial(_refuse, f"SparkContext.{name}", advice))
    for owner, names in RETURNS_ITSELF.items():
        for name in names:
            _replace(owner, name, lambda self, *_args, **_options: self)
    for owner, names in DOES_NOTHING.items():
        for name in names:
            _replace(owner, name, lambda *_args, **_options: None)
    plain = SparkSession.sql

    @functools.wraps(plain)
    def sql(self: SparkSession, *args: Any, **options: Any) -> DataFrame:
        _check_text(self, *args, **options)
        return plain(self, *args, **options)

    SparkSession.sql = sql


def _check_text(session: SparkSession, sqlQuery: str, args: Any = None, **values: Any) -> None:  # noqa: N803
    """Raise `SideEffectError` if the text would change something; *values* replace its ``{names}``."""
    del args
    formatter = SQLStringFormatter(session)
    try:
        refuse_commands(session, formatter.format(sqlQuery, **values) if values else sqlQuery)
    finally:
        formatter.clear()


def _replace(owner: type, name: str, instead: Any) -> None:
    @functools.wraps(getattr(owner, name))
    def watched(*args: Any, **options: Any) -> Any:
        return instead(*args, **options)

    setattr(owner, name, watched)


def _refuse(call: str, advice: str, *_args: Any, **_options: Any) -> None:
    raise SideEffectError(call, advice)


def _shown(owner: type) -> str:
    return "DataFrame" if owner is ClassicDataFrame else owner.__name__
