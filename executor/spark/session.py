"""The executor's SparkSession: how it is started, warmed up, and found to be dead."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Final

import psutil
import pyspark
import structlog
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from executor.spark.kernel_jar import kernel_jar
from executor.spark.starting import started_jvms
from onager.errors import InvalidSettingError, OnagerError, VersionMismatchError
from onager.exchange_layout import has_scheme

log = structlog.get_logger()

_TESTED: Final = ("4.3",)
"""Minor versions of Spark that planner and kernel are tested against."""
_GIB = 1024**3
_MEMORY_PER_SLOT = 2 * _GIB
_SHARE_OF_MACHINE = 0.4
_LOOPBACK = "127.0.0.1"
_DEATH_S = 2.0
"""How long a process whose connection broke may take to be gone."""
_LOGGING = Path(__file__).with_name("log4j2.properties")


def start_session(slots: int, conf: Mapping[str, str], exchange_dir: str) -> SparkSession:
    """Start this process's Spark, by default ``local[slots]`` on the loopback interface without a user interface.

    *conf* wins over every default. With another master the kernel's jar is handed to that cluster's executors, and
    *exchange_dir* has to be one that they share. `VersionMismatchError` when another version of Spark is installed.
    """
    check_spark_version()
    settings = _defaults(slots) | dict(conf)
    master = settings["spark.master"]
    jar = str(kernel_jar())
    given = settings.get("spark.driver.extraClassPath")
    settings["spark.driver.extraClassPath"] = jar if not given else f"{jar}{os.pathsep}{given}"
    if not master.startswith("local["):
        settings["spark.jars"] = ",".join(filter(None, [jar, settings.get("spark.jars")]))
        if not has_scheme(exchange_dir) and "onager.exchange.shared" not in conf:
            raise InvalidSettingError(
                "--exchange-dir",
                exchange_dir,
                f"the executors of {master} have to reach it: give a shared file system's URI, or, when it is a shared "
                "volume mounted at the same place everywhere, --spark-conf onager.exchange.shared=true",
            )
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    settings["spark.driver.extraJavaOptions"] = f"{logging} {settings.get('spark.driver.extraJavaOptions', '')}".strip()
    if settings["spark.driver.bindAddress"] == _LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for key, value in settings.items():
        if key.startswith("spark."):
            builder = builder.config(key, value)
    with started_jvms() as started:
        try:
            spark = builder.getOrCreate()
        except Exception as e:
            raise (started[-1].error(e) if started else OnagerError(f"Spark could not be started: {e}")) from e
    return spark


def check_spark_version() -> None:
    """Raise `VersionMismatchError` unless the installed Spark is one that is tested."""
    version = str(pyspark.__version__)
    if not version.startswith(tuple(f"{minor}." for minor in _TESTED)):
        raise VersionMismatchError(
            f"PySpark {version} is installed, and this Onager runs on Spark {', '.join(_TESTED)}: install "
            f"pyspark~={_TESTED[-1]}.0"
        )


def _defaults(slots: int) -> dict[str, str]:
    memory = max(_GIB, min(slots * _MEMORY_PER_SLOT, int(psutil.virtual_memory().total * _SHARE_OF_MACHINE)))
    return {
        "spark.master": f"local[{slots}]",
        "spark.app.name": "onager-executor",
        "spark.driver.memory": f"{memory // 1024**2}m",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "onager-warehouse"),  # noqa: PTH118
        "spark.python.authenticate.socketTimeout": "30s",
        # A cancelled Python function gets this long to end by itself before its worker is killed.
        "spark.python.task.killTimeout": "500ms",
    }


def is_alive(spark: SparkSession) -> bool:
    """Return whether the session's JVM still runs."""
    process: Any = spark.sparkContext._gateway.proc  # noqa: SLF001  (PySpark keeps it nowhere else)
    return process.poll() is None


def has_died(spark: SparkSession) -> bool:
    """Return whether the session's JVM has ended, or is just about to."""
    process: Any = spark.sparkContext._gateway.proc  # noqa: SLF001  (as above)
    try:
        process.wait(_DEATH_S)
    except TimeoutExpired:
        return False
    return True


def warm_up(spark: SparkSession) -> None:
    """Load what the first query would wait for: planning, code generation, a shuffle, Python workers for all slots.

    Raises what Spark raises when that fails twice: once may be a Python worker that was killed.
    """
    try:
        _run_something(spark)
    except Exception as e:  # noqa: BLE001 - the second time tells
        log.warning("warm_up_failed", error=str(e).partition("\n")[0])
        _run_something(spark)


def _run_something(spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    plus_one = udf(lambda x: x + 1, LongType())
    frame = spark.range(0, 64 * slots, 1, slots)
    frame.select((frame.id % 7).alias("k"), plus_one(frame.id).alias("v")).groupBy("k").sum("v").orderBy("k").collect()
