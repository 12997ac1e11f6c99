"""Keeps a job's Python function from changing anything while it is planned.

The function runs whenever its job is planned, which can be more than once, so what writes is refused, and what only
asks for speed (``cache``) does nothing. The calls are watched in the thread that plans and nowhere else.
"""

import contextvars
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming import DataStreamWriter

from executor.spark.planner.sql_script import refuse_commands
from onager.errors import SideEffectError

_guarded: contextvars.ContextVar[bool] = contextvars.ContextVar("onager_guarded", default=False)

RETURN_IT = "return the DataFrame instead; where its result goes is said when the job is submitted (--output)"
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
IGNORED: dict[type, tuple[str, ...]] = {ClassicDataFrame: ("cache", "persist", "unpersist")}
IGNORED_IN_CATALOG = ("cacheTable", "uncacheTable", "clearCache")


@contextmanager
def no_side_effects() -> Iterator[None]:
    """Refuse, in this thread and as long as the context lasts, what would change anything outside of the session."""
    _install()
    token = _guarded.set(True)
    try:
        yield
    finally:
        _guarded.reset(token)


@functools.cache
def _install() -> None:
    """Put the watch into PySpark's classes; outside of `no_side_effects` it does nothing."""
    for owner, names in REFUSED.items():
        for name in names:
            if hasattr(owner, name):
                _wrap(owner, name, functools.partial(_refuse, f"{_shown(owner)}.{name}"))
    for owner, names in IGNORED.items():
        for name in names:
            _wrap(owner, name, lambda self, *_args, **_options: self)
    for name in IGNORED_IN_CATALOG:
        _wrap(Catalog, name, lambda *_args, **_options: None)
    plain = SparkSession.sql

    @functools.wraps(plain)
    def sql(self: SparkSession, *args: Any, **options: Any) -> DataFrame:
        if _guarded.get():
            text = args[0] if args else options.get("sqlQuery", "")
            refuse_commands(self, text)
        return plain(self, *args, **options)

    SparkSession.sql = sql


def _wrap(owner: type, name: str, instead: Callable[..., Any]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def watched(*args: Any, **options: Any) -> Any:
        return instead(*args, **options) if _guarded.get() else plain(*args, **options)

    setattr(owner, name, watched)


def _refuse(call: str, *_args: Any, **_options: Any) -> None:
    raise SideEffectError(call, RETURN_IT)


def _shown(owner: type) -> str:
    return "DataFrame" if owner is ClassicDataFrame else owner.__name__
