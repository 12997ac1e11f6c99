"""One Spark standalone cluster, and this process as its driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onager.clock import SystemClock
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session
from tests.support.spark.one_spark import stop_with_its_jvm
from tests.support.spark.runner import PLANNING_CONF
from tests.support.spark.standalone import SparkCluster

SLOTS = 2
INCARNATION = "0123456789abcdef"


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path_factory.mktemp("spark"))
    try:
        made.start(cores=SLOTS)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="package")
def exchange_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exchange")


@pytest.fixture(scope="package")
def spark(cluster: SparkCluster, exchange_dir: Path) -> Iterator[SparkSession]:
    conf = PLANNING_CONF | {"spark.master": cluster.master, "spark.executor.memory": "512m"}
    session = start_session(SLOTS, conf, str(exchange_dir), exchange_shared=True)
    yield session
    stop_with_its_jvm(session)


@pytest.fixture(scope="package")
def runner(spark: SparkSession, exchange_dir: Path) -> Iterator[StageRunner]:
    made = StageRunner(
        spark,
        executor_id="executor-1",
        exchange_dir=str(exchange_dir),
        slots=SLOTS,
        clock=SystemClock(),
        incarnation=INCARNATION,
    )
    yield made
    made.close()
