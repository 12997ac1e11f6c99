"""One Spark and one runner for all tests of this directory; a job of its own for each test."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onager.clock import SystemClock
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session
from onager.private_paths import SYSTEM, PrivatePaths
from tests.support.spark.one_spark import stop_with_its_jvm
from tests.support.spark.runner import PLANNING_CONF, JobRun

SLOTS = 2
PLANTED = "a-planted-secret"
"""A variable of Onager's and a secret setting have this value."""
_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def exchange_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exchange")


OUTLIVES_ERRORS = {"spark.driver.extraJavaOptions": "-XX:-ExitOnOutOfMemoryError"}
"""All tests share a JVM, and some tasks run out of memory."""


@pytest.fixture(scope="package")
def private_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where no query reads."""
    return tmp_path_factory.mktemp("above") / "private"


@pytest.fixture(scope="package")
def spark(exchange_dir: Path, private_dir: Path) -> Iterator[SparkSession]:
    private_dir.mkdir()
    conf = {
        **PLANNING_CONF,
        **OUTLIVES_ERRORS,
        "spark.hadoop.planted.secret.key": PLANTED,
        "spark.driver.planted.secret": "shown",
        "spark.hadoop.fs.anew.impl": "org.apache.hadoop.yarn.conf.YarnConfiguration",
    }
    private = PrivatePaths([private_dir, *SYSTEM])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ONAGER_ETCD_PASSWORD", PLANTED)
        environment.setenv("USERS_VARIABLE", "kept")
        session = start_session(SLOTS, conf, str(exchange_dir), private=private, allow=["viewfs:", "anew:"])
    yield session
    stop_with_its_jvm(session)


@pytest.fixture(scope="package")
def runner(spark: SparkSession, exchange_dir: Path) -> Iterator[StageRunner]:
    made = StageRunner(
        spark, executor_id="executor-1", exchange_dir=str(exchange_dir), slots=SLOTS, clock=SystemClock()
    )
    yield made
    made.close()


@pytest.fixture
def new_job(runner: StageRunner, exchange_dir: Path) -> Iterator[Callable[..., JobRun]]:
    made = []

    def make(**kwargs) -> JobRun:
        job = JobRun(runner, f"job-{next(_numbers)}", str(exchange_dir), **kwargs)
        made.append(job)
        return job

    yield make
    for job in made:
        runner.close_job(job.job_id)


@pytest.fixture
def job(new_job: Callable[..., JobRun]) -> JobRun:
    return new_job()
