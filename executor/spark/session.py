"""The executor's SparkSession: starting it, warming it up, and detecting its death."""

import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Final

import psutil
import pyspark
import structlog
from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from onager.errors import OnagerError, VersionMismatchError
from onager.executor.attempt_logs import AttemptLogs
from onager.executor.spark import cluster
from onager.executor.spark.jvm_end import exit_option
from onager.executor.spark.jvm_output import JvmOutput
from onager.executor.spark.kernel.access import close_file_systems
from onager.executor.spark.kernel.classes import FOREIGN_CATALOG, FOREIGN_TABLES, GUARD, GUARDED_FILES
from onager.executor.spark.kernel.execution import answer_promptly
from onager.executor.spark.kernel_jar import kernel_jar
from onager.executor.spark.starting import StartingJvm, started_jvms
from onager.executor.work import ClusterAwayError
from onager.private_paths import NO_PATHS, PrivatePaths, real_path

log = structlog.get_logger()

_TESTED: Final = ("4.3",)
"""The minor versions of Spark that the planner and the kernel are tested with."""
_MIB = 1024**2
_GIB = 1024**3
_ARRAY_HEADER = 16
"""The bytes of an array's header: page and header together must fit whole regions of the garbage collector."""
_MEMORY_PER_SLOT = 2 * _GIB
_SHARE_OF_MACHINE = 0.4
_SMALL_HEAP = 4 * _GIB
_JAVA_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables with further JVM options; a JVM does not start when two of them choose a garbage collector."""
_OF_CLIENTS: Final = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")
"""Variables by which PySpark makes a session of Spark Connect; a client sets them, and may start an executor."""
_LOOPBACK = "127.0.0.1"
_DEATH_S = 2.0
"""How long a process whose connection broke may take to exit."""
WORKER_DAEMON: Final = "onager.executor.spark.worker_daemon"
"""The daemon of Spark's Python workers, unless they have another Python."""
_CALM: Final = ("INFO", "WARN", "ERROR", "FATAL", "OFF")
_VERBOSE: Final = ("ALL", "TRACE", "DEBUG")
_NO_ENTITIES: Final = "-Djavax.xml.accessExternalDTD= -Djavax.xml.accessExternalSchema="
"""Options of the JVM by which no XML, nor a schema of it, brings in other files."""
_LOGGING = Path(__file__).with_name("log4j2.properties")


def start_session(
    slots: int,
    conf: Mapping[str, str],
    exchange_dir: str,
    *,
    exchange_shared: bool = False,
    warehouse: str = "",
    private: PrivatePaths = NO_PATHS,
    logs: AttemptLogs | None = None,
    catalogs: Sequence[str] = (),
    allow: Sequence[str] = (),
) -> SparkSession:
    """Start this process's Spark, by default ``local[slots]`` on the loopback interface, without the web UI.

    *conf* overrides every default; queries use only the files that *private* leaves them, and the data sources and file
    systems that are always open or that *allow* names. With a cluster as master, the kernel's jar is shipped to its
    processes, which must share *exchange_dir*. Raises `InvalidSettingError` when the settings do not say that they do,
    `ClusterAwayError` when the cluster does not answer or starts no process for this executor, and
    `VersionMismatchError` when another version of Spark is installed.

    Tables that are made without a location lie in *warehouse*, if it is given. What tasks log goes to *logs*; standard
    error gets only what is at the level `spark.log.level`, by default ERROR. *catalogs*: the names of those besides
    Onager's own.
    """
    check_spark_version()
    own = {"spark.sql.warehouse.dir": warehouse} if warehouse else {}
    settings = _defaults(slots) | own | dict(conf)
    master = settings["spark.master"]
    is_cluster = cluster.is_cluster(master)
    if is_cluster:
        cluster.check_exchange(master, exchange_dir, is_shared=exchange_shared)
        cluster.await_master(master)
    jar = str(kernel_jar())
    if is_cluster:
        settings = _defaults(slots, is_local=False) | own | cluster.settings_for(master, slots, jar, conf)
    if (page := page_size(settings, slots, is_cluster=is_cluster)) is not None:
        settings.setdefault("spark.buffer.pageSize", page)
    level = conf.get("spark.log.level", "ERROR").upper()
    _add_java(settings, jar, level, is_cluster=is_cluster)
    _add_extensions(settings, catalogs)
    settings |= _access(settings, private, allow, has_catalogs=bool(catalogs))
    _prepare_environment(settings)
    builder = SparkSession.builder.config(map={k: v for k, v in settings.items() if k.startswith("spark.")})
    with started_jvms(JvmOutput(logs, level)) as started:
        try:
            spark = builder.getOrCreate()
        except Exception as e:
            raise _start_error(e, started, master) from e
    if is_cluster:
        try:
            cluster.await_executors(spark, master, slots)
        except BaseException:
            spark.stop()
            raise
    close_file_systems(spark)
    answer_promptly(spark.sparkContext._gateway)  # noqa: SLF001  (PySpark keeps it nowhere else)
    _silence_errors_of_queries()
    return spark


def _add_java(settings: dict[str, str], jar: str, level: str, *, is_cluster: bool) -> None:
    """Add the kernel's *jar* and the JVM's options to *settings*; *level* is what standard error shows of logs."""
    given = settings.get("spark.driver.extraClassPath")
    settings["spark.driver.extraClassPath"] = jar if not given else f"{jar}{os.pathsep}{given}"
    given_options = settings.get("spark.driver.extraJavaOptions", "")
    choices = (collector(settings), exit_option(_options(settings)), _NO_ENTITIES)
    options = (_logging(settings, level, is_cluster=is_cluster), *choices, given_options)
    settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))


def _add_extensions(settings: dict[str, str], catalogs: Sequence[str]) -> None:
    """Add our extensions of Spark's SQL to *settings*, and *catalogs*."""
    others = settings.get("spark.sql.extensions")
    extensions = [GUARD, *([FOREIGN_TABLES] if catalogs else []), *([others] if others else [])]
    settings["spark.sql.extensions"] = ",".join(extensions)
    settings |= {f"spark.sql.catalog.{name}": FOREIGN_CATALOG for name in catalogs}


def _prepare_environment(settings: Mapping[str, str]) -> None:
    """Have PySpark start a Spark with *settings* in this process, and Python workers as they say."""
    if settings.get("spark.driver.bindAddress") == _LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    for name in _OF_CLIENTS:
        os.environ.pop(name, None)


def _access(
    settings: Mapping[str, str], private: PrivatePaths, allow: Sequence[str], *, has_catalogs: bool
) -> dict[str, str]:
    """Return the settings from which the kernel knows what jobs may read and use: see Java's `Access`."""
    warehouse = settings["spark.sql.warehouse.dir"]
    has_hive = settings.get("spark.sql.catalogImplementation") == "hive"
    roots = {} if private.roots is None else {"spark.onager.roots": "\n".join(private.roots)}
    return roots | {
        "spark.hadoop.fs.file.impl": GUARDED_FILES,
        # Of the processes of a cluster; those of a local Spark are the driver's.
        "spark.executor.extraJavaOptions": f"{_NO_ENTITIES} {settings.get('spark.executor.extraJavaOptions', '')}",
        "spark.onager.privatePaths": "\n".join(private.paths),
        "spark.onager.warehouse": real_path(warehouse),
        "spark.onager.allow": "\n".join(allow),
        "spark.onager.catalogs": str(has_catalogs or has_hive).lower(),
    }


def _silence_errors_of_queries() -> None:
    """Keep what PySpark logs of errors in queries off standard error: they are shown to whoever submitted the query."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _logging(settings: dict[str, str], level: str, *, is_cluster: bool) -> str:
    """Return the JVM's options for its logs, and change *settings* so that tasks log for their attempts.

    *level* is what standard error shows. Of Spark's own lines warnings, at least, are kept with attempts.
    """
    if not is_cluster:
        if level in _CALM:
            # The level of all but what log4j2.properties names: attempts get what standard error leaves out.
            settings["spark.log.level"] = "INFO"
        if "spark.pyspark.python" not in settings:  # another Python may not have our daemon
            settings.setdefault("spark.python.daemon.module", WORKER_DAEMON)
    kept = level if level in (*_VERBOSE, "INFO") else "WARN"
    return f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -Donager.log.level={kept}"


def check_spark_version() -> None:
    """Raise `VersionMismatchError` unless the installed version of Spark is a tested one."""
    version = str(pyspark.__version__)
    if not version.startswith(tuple(f"{minor}." for minor in _TESTED)):
        raise VersionMismatchError(
            f"PySpark {version} is installed, and this Onager runs on Spark {', '.join(_TESTED)}: install "
            f"pyspark~={_TESTED[-1]}.0"
        )


def _start_error(error: Exception, started: list[StartingJvm], master: str) -> Exception:
    if not started:
        return OnagerError(f"Spark could not be started: {error}")
    if not cluster.is_cluster(master) or started[-1].process.poll() is not None:
        return started[-1].error(error)
    why = str(getattr(error, "java_exception", error)).partition("\n")[0]
    return ClusterAwayError(f"{master} did not accept this executor ({why}): see the logs of its master and workers")


def default_heap(slots: int) -> int:
    """Return how many bytes of heap the JVM of a local executor with *slots* gets, unless a setting says otherwise."""
    return max(_GIB, min(slots * _MEMORY_PER_SLOT, int(psutil.virtual_memory().total * _SHARE_OF_MACHINE)))


def _defaults(slots: int, *, is_local: bool = True) -> dict[str, str]:
    local = {
        "spark.master": f"local[{slots}]",
        "spark.driver.memory": f"{default_heap(slots) // _MIB}m",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
    }
    return {
        **(local if is_local else {}),
        "spark.app.name": "onager-executor",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Each run has its own pool, so that a run of many tasks does not delay the others.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "onager-warehouse"),  # noqa: PTH118
        # Compiled code of stages is kept for this many, not for 100: some ten for each of a hundred queries.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # A scan from this size on may be filtered by what it is joined with. Spark's 10 GB are hardly ever reached.
        "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "64MB",
        "spark.python.authenticate.socketTimeout": "30s",
        # A cancelled Python function gets this long to end by itself before its worker is killed.
        "spark.python.task.killTimeout": "500ms",
    }


def collector(settings: Mapping[str, str]) -> str:
    """Return the JVM option that selects the garbage collector; empty if the settings select one, or the heap is large.

    G1, the JVM's default, optimises pauses, which do not matter here, and divides a small heap into regions so small
    that most pages of a hash table take several.
    """
    memory = _bytes(settings["spark.driver.memory"])
    is_chosen = re.search(r"-XX:[+-]Use\w+GC\b", _options(settings)) is not None
    return "" if is_chosen or memory is None or memory > _SMALL_HEAP else "-XX:+UseParallelGC"


def _options(settings: Mapping[str, str]) -> str:
    """Return the options that the JVM is given by others."""
    variables = (os.environ.get(name, "") for name in _JAVA_OPTIONS)
    return " ".join((settings.get("spark.driver.extraJavaOptions", ""), *variables))


def page_size(settings: Mapping[str, str], slots: int, *, is_cluster: bool) -> str | None:
    """Return the page size for hash tables and sorts; None, for Spark's default, if the memory setting is unreadable.

    Each broadcast table takes a whole number of pages, and Spark's default suits few sorts in much memory: 64 MiB for
    one slot with 2 GiB, so that a dozen small tables fill it. Here a page is 1/512 of a slot's memory, but at least
    1/4096 of all memory, since a task can have 8,192 pages.
    """
    memory = _bytes(settings.get("spark.executor.memory", "1g") if is_cluster else settings["spark.driver.memory"])
    if memory is None:
        return None
    wanted = max(memory // slots // 512, memory // 4096, 1)
    page = min(max(1 << (wanted.bit_length() - 1), _MIB), 64 * _MIB)
    return f"{page - _ARRAY_HEADER}b"


def _bytes(text: str) -> int | None:
    """Return the bytes that the JVM's memory size *text* stands for; None if it is not one."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if found is None:
        return None
    factor: int = 1024 ** (1 + "kmgt".index(found[2] or "m"))
    return int(found[1]) * factor


def is_alive(spark: SparkSession) -> bool:
    """Return whether the session's JVM runs, and Spark in it, which a malicious job could stop."""
    context: Any = spark.sparkContext
    process = context._gateway.proc  # noqa: SLF001  (PySpark keeps it nowhere else)
    if process.poll() is not None:
        return False
    try:
        return not context._jsc.sc().isStopped()  # noqa: SLF001
    except (Py4JError, OSError):
        return not has_died(spark)


def has_died(spark: SparkSession) -> bool:
    """Return whether the session's JVM has exited, or does so within 2 s."""
    process: Any = spark.sparkContext._gateway.proc  # noqa: SLF001  (as above)
    try:
        process.wait(_DEATH_S)
    except TimeoutExpired:
        return False
    return True


def warm_up(spark: SparkSession) -> None:
    """Load what the first query would wait for: planning, code generation, a shuffle, Python workers for all slots.

    Retries once, since a Python worker may have been killed; then raises Spark's error.
    """
    try:
        _run_something(spark)
    except Exception as e:  # noqa: BLE001 - retried once
        log.warning("warm_up_failed", error=str(e).partition("\n")[0])
        _run_something(spark)


def _run_something(spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    plus_one = udf(lambda x: x + 1, LongType())
    frame = spark.range(0, 64 * slots, 1, slots)
    frame.select((frame.id % 7).alias("k"), plus_one(frame.id).alias("v")).groupBy("k").sum("v").orderBy("k").collect()
