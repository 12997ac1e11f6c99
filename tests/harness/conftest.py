"""One SparkSession, made as anybody makes one, and small tables for all tests of this directory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

# As the plugin gives them where Onager is installed anew; an older installation does not know of it.
from onager.testing.kernel import jvm_with_kernel
from onager.testing.plugin import assert_distributed_eq, onager_config
from tests.integration.planning.small_tables import FORMATS, write_tables
from tests.support.spark.one_spark import stop_with_its_jvm
from tests.support.waiting import until

__all__ = ["assert_distributed_eq", "onager_config"]

QUERIES = Path(__file__).resolve().parents[2] / "benchmarks" / "tpch" / "queries"


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[4]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        # Plain Spark's part of a comparison: a few rows need neither 200 partitions nor plans that change as they run.
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.python.task.killTimeout", "500ms")
        .getOrCreate()
    )
    yield session
    await_nothing_left(session, "none")
    stop_with_its_jvm(session)


@pytest.fixture(scope="package")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make small tables in every format, most in several files, one partitioned, one empty, and views of them."""
    root = tmp_path_factory.mktemp("tables")
    write_tables(root)
    for name, file_format in FORMATS.items():
        reader = spark.read.format(file_format)
        if file_format == "csv":
            reader = reader.options(header=True, inferSchema=True)
        reader.load(str(root / name)).createOrReplaceTempView(name)
    return root


@pytest.fixture(scope="package")
def tpch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the tables of TPC-H at scale factor 0.01, and views of them."""
    directory = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).parent / "tpcgen-cli"
    assert generator.is_file(), f"{generator} is missing: run make setup-dev"
    subprocess.run([generator, "tpch", "parquet", "-s", "0.01", f"--output-dir={directory}"], check=True)
    for path in directory.iterdir():
        spark.read.parquet(str(path)).createOrReplaceTempView(path.stem)


def left_behind(spark, netty: str = "boss|client|server") -> list[str]:
    """Return threads and Spark jobs of runs that go on, but for those of *netty*, which end two seconds later."""
    thread = jvm_with_kernel(spark).java_class("java.lang.Thread")
    threads = thread.getAllStackTraces().keySet().toString()  # all in one call
    return re.findall(rf"Thread\[(?:#\d+,)?(onager-(?!(?:{netty})-)[^,]*)", threads) + list(
        spark.sparkContext.statusTracker().getActiveJobsIds()
    )


def await_nothing_left(spark, *arguments):
    until(lambda: not left_behind(spark, *arguments), what=lambda: f"{left_behind(spark, *arguments)} have ended")


@pytest.fixture(autouse=True)
def nothing_is_left(spark):
    yield
    await_nothing_left(spark)
