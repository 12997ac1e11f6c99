"""The session in which a job is planned, with its own settings and views."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onager.errors import InvalidSettingError, PlanningError
from onager.exchange_layout import has_scheme
from onager.executor.exchange import Description, null_text, read_description
from onager.executor.spark.jvm import Jvm, jvm_session, session_over
from onager.executor.spark.kernel.access import refused_setting
from onager.executor.spark.kernel.sessions import JavaSession
from onager.executor.spark.planning.formats import check_options, merged, says
from onager.executor.spark.planning.view_schemas import ViewSchemas, schema_key
from onager.job_settings import PREFIX, check_known
from onager.private_paths import NO_PATHS, PrivatePaths
from onager.protocol import onager_pb2 as pb

HADOOP_PREFIX = "spark.hadoop."
FORMATS = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "orc": "orc",
    "txt": "text",
    "text": "text",
}
"""Formats by the extension of a path."""
COMPRESSIONS = frozenset({"gz", "bz2", "zst", "snappy", "lz4", "deflate"})
DEFAULT_OPTIONS: dict[str, dict[str, str]] = {"csv": {"header": "true", "inferSchema": "true"}}

_ANY_NAME = re.compile(r"\b(identifier|show)\b|\$\{")
"""Parts of a lower-case script that may refer to views without their literal names."""

_SCHEMAS = ViewSchemas()

SHIPPED_ALWAYS = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.session.timeZone",
)
"""Settings whose defaults could differ between executors, although all must read and compute alike."""


@contextmanager
def job_session(spec: pb.JobSpec, new: SparkSession) -> Iterator[SparkSession]:
    """Yield the *new* session with the job's settings, active in this thread within the context."""
    with active(new):
        apply_settings(new, spec.conf)
        yield new


@contextmanager
def session_with(base: SparkSession, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a new session with the settings *conf*, active in this thread within the context.

    It shares only the running Spark with *base*; its views, functions and settings end with it.
    """
    session = session_over(base, jvm_session(base).newSession())
    with active(session):
        java_session(session).change(conf)
        yield session


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make *session* the active one of this thread within the context."""
    java = java_session(session)
    before = java.activate()
    try:
        yield
    finally:
        java.restore(before)


def java_session(session: SparkSession) -> JavaSession:
    """Return the access to *session* in the JVM."""
    return JavaSession(Jvm.of(session), jvm_session(session))


def apply_settings(session: SparkSession, conf: Mapping[str, str]) -> None:
    """Set the ``spark.*`` settings of a job; raises `InvalidSettingError` for a setting that a job cannot have."""
    for key, value in sorted(conf.items()):
        if key.startswith(PREFIX):
            check_known(key, value)
            continue  # read by schedulers, or when the job's tasks are sized
        if not key.startswith("spark."):
            raise InvalidSettingError(
                key, value, "settings of a job start with spark. or onager. (for Hadoop: spark.hadoop.NAME=…)"
            )
        name = key.removeprefix(HADOOP_PREFIX)
        if (why := refused_setting(session, key, value)) is not None:
            raise InvalidSettingError(key, value, why)
        if name == key and not session.conf.isModifiable(key):
            raise InvalidSettingError(key, value, _why_fixed(session, key))
        try:
            session.conf.set(name, value)
        except (PySparkException, Py4JJavaError) as e:
            raise InvalidSettingError(key, value, str(e).strip().splitlines()[0]) from e


def _why_fixed(session: SparkSession, key: str) -> str:
    sql_conf = Jvm.of(session).java_class("org.apache.spark.sql.internal.SQLConf")
    if sql_conf.isStaticConfigKey(key):
        return "it is fixed when Spark starts: give it to the executors (onager executor --spark-conf)"
    if key.startswith("spark.sql."):
        return "Spark has no such setting"
    return "a job can set only spark.sql.* and spark.hadoop.*: give it to the executors (onager executor --spark-conf)"


def own_settings(session: SparkSession) -> dict[str, str]:
    """Return the settings that were set in *session* or for its process; defaults are left out."""
    return java_session(session).settings()


def planned_settings(session: SparkSession) -> dict[str, str]:
    """Return all settings under which a stage that was planned in *session* must run."""
    return java_session(session).settings(SHIPPED_ALWAYS)


@contextmanager
def changed_settings(
    session: SparkSession, before: Mapping[str, str], changes: Mapping[str, str | None]
) -> Iterator[None]:
    """Set *changes* in *session* within the context, None: to nothing; then restore the settings *before*."""
    java = java_session(session)
    java.change(changes)
    try:
        yield
    finally:
        java.change({key: before.get(key) for key in changes})


def register_views(session: SparkSession, spec: pb.JobSpec, private: PrivatePaths = NO_PATHS) -> None:
    """Make the job's views; of a SQL job only those that its text may refer to, since each view lists its files."""
    text = spec.sql.text.lower() if spec.HasField("sql") else ""
    could_mean_any = not text or _ANY_NAME.search(text) is not None
    for view in spec.views:
        if not could_mean_any and view.name.isidentifier() and view.name.lower() not in text:
            continue
        register_view(session, view, spec.conf, private)


def register_view(
    session: SparkSession, view: pb.View, conf: Mapping[str, str], private: PrivatePaths = NO_PATHS
) -> None:
    """Make one view over files, for a job under *conf*; `PlanningError` for files that jobs may not read.

    Spark's errors about paths and options are raised unchanged, with a note that names the view.
    """
    if not has_scheme(view.path) and (why := private.refusal(view.path)) is not None:
        raise PlanningError(f"view {view.name}: {view.path} cannot be read: {why}")
    described = read_description(view.path)
    if described is not None and view.format not in {"", described.format}:
        described = None  # an explicit format overrides the description
    file_format = view.format or (described.format if described is not None else format_of(view.path))
    if not file_format:
        raise PlanningError(f"{view.path} does not tell the format of view {view.name}: give one of {_formats()}")
    if file_format not in set(FORMATS.values()):
        raise PlanningError(f"view {view.name} cannot be read as {file_format}: give one of {_formats()}")
    check_options(Jvm.of(session), file_format, view.options, f"view {view.name}", is_written=False)
    options = merged(_default_options(view.path, file_format, described), view.options)
    key = schema_key(view.path, file_format, options, conf)
    has_schema = described is not None and not says(view.options, "inferSchema")
    known = StructType.fromJson(json.loads(described.schema)) if described and has_schema else _SCHEMAS.get(key)
    try:
        frame = DataFrame(java_session(session).read(file_format, options, known, view.path), session)
    except PySparkException as e:
        e.add_note(f"in view {view.name}: executors read {view.path} on their own machines")
        raise
    if known is None:
        _SCHEMAS.put(key, frame.schema)
    frame.createOrReplaceTempView(view.name)


def _formats() -> str:
    return ", ".join(sorted(set(FORMATS.values())))


def _default_options(path: str, file_format: str, described: Description | None) -> dict[str, str]:
    """Return the default options of a view: those that the files were written with, if a description names them."""
    if described is not None:
        unquoted = {"nullValue": null_text(path)} if file_format == "csv" else {}
        return merged(unquoted, described.options)
    tabs = {"sep": "\t"} if path.endswith((".tsv", ".tsv.gz")) else {}
    return DEFAULT_OPTIONS.get(file_format, {}) | tabs


def format_of(path: str) -> str:
    """Return the format by the extension of a path, or of the first file in a directory; "" if neither has one."""
    named = _format_of_name(path.rstrip("/"))
    if named or has_scheme(path):
        return named or "parquet"
    directory = Path(path.removeprefix("file://").removeprefix("file:"))
    for _, directories, files in os.walk(directory):
        directories[:] = sorted(d for d in directories if not d.startswith(("_", ".")))
        for name in sorted(files):
            if not name.startswith(("_", ".")) and _format_of_name(name):
                return _format_of_name(name)
    return "" if directory.exists() else "parquet"


def _format_of_name(path: str) -> str:
    parts = path.rpartition("/")[2].lower().split(".")
    if len(parts) > 1 and parts[-1] in COMPRESSIONS:
        parts.pop()
    return FORMATS.get(parts[-1], "") if len(parts) > 1 else ""
