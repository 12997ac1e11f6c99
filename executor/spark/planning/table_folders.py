"""Keeps outputs out of the folders in which tables of the catalog have their rows."""

import os
import re
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from onager.errors import SinkError
from onager.exchange_layout import has_scheme, location_path
from onager.executor.exchange import read_description
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.job_settings import OVERWRITE_ANYTHING
from onager.private_paths import real_path
from onager.protocol import onager_pb2 as pb

_TABLE: Final = re.compile(r".+-[0-9a-f]{16}", re.DOTALL)
"""The name of a managed table's folder, which is in that of its database."""


def check_no_table_at(session: SparkSession, sink: pb.Sink) -> None:
    """Raise `SinkError` if *sink* is at, in or above a managed table's folder, unless it may replace anything.

    Only for a place that looks like one, the catalog is asked where the databases lie.
    """
    if sink.replaces_anything:
        return
    real = Path(real_path(sink.path))
    found = [path for path in (real, *real.parents) if _TABLE.fullmatch(path.name)]
    if sink.mode == "append" and real.is_dir() and read_description(str(real)) is None:
        found += [real / name for name in os.listdir(real) if _TABLE.fullmatch(name)]  # noqa: PTH208 - names are enough
    homes = _database_folders(session) if found else ()
    for path in found:
        if str(path.parent) in homes:
            raise SinkError(
                f"{sink.path} cannot be written: a table of the catalog has its rows in {path}; write that with INSERT "
                f"INTO or saveAsTable, give another directory, or force it with --conf {OVERWRITE_ANYTHING}=true"
            )


def _database_folders(session: SparkSession) -> set[str]:
    catalog = jvm_session(session).sessionState().catalog().externalCatalog()
    databases = Jvm.of(session).items(catalog.listDatabases().toIndexedSeq())
    locations = (catalog.getDatabase(name).locationUri().toString() for name in databases)
    return {real_path(location_path(location)) for location in locations if not has_scheme(location)}
