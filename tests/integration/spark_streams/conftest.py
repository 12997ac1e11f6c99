"""Two executors' runners, one of them in a process of its own, for all tests of this directory."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.exchange.runner_process import RunnerOptions, RunnerProcess
from onager.clock import SystemClock
from onager.executor.spark.running.streams import StreamSettings
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session
from tests.integration.spark_streams.streaming_job import StartOther, StreamingJob
from tests.support.spark.one_spark import stop_with_its_jvm
from tests.support.spark.runner import PLANNING_CONF

SLOTS = 8
"""More than there are cores: all tasks of a query are to run at once."""
TOKENS = ("a-token-of-the-cluster-1", "a-token-of-the-cluster-2")
CONF = PLANNING_CONF | {"spark.driver.memory": "1g"}
LIMITS = {
    "frame_bytes": 16 << 10,
    "channel_bytes": 64 << 10,
    "prefetch_bytes": 128 << 10,
    "memory_bytes": 4 << 20,
    "connect_ms": 1500,
    "absent_ms": 20_000,
    "poll_ms": 1000,
}
"""Small ones, so that a few megabytes are more than fits."""

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text("\n".join(TOKENS) + "\n")
    return path


@pytest.fixture(scope="package")
def exchange_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exchange")


@pytest.fixture(scope="package")
def start_other(exchange_dir: Path, token_file: Path) -> Iterator[StartOther]:
    """Start executors in processes of their own."""
    started: list[RunnerProcess] = []

    def start() -> RunnerProcess:
        options = RunnerOptions(
            executor_id=f"executor-{len(started) + 2}",
            exchange_dir=str(exchange_dir),
            slots=SLOTS,
            conf=CONF,
            streams=StreamSettings(token_file=token_file, limits=LIMITS),
            incarnation=f"{len(started) + 2:016x}",
        )
        started.append(RunnerProcess(options))
        return started[-1]

    yield start
    for made in started:
        made.close()


@pytest.fixture(scope="package")
def other(start_other: StartOther) -> RunnerProcess:
    """The second executor, which is starting."""
    return start_other()


@pytest.fixture(scope="package")
def spark(other: RunnerProcess, exchange_dir: Path) -> Iterator[SparkSession]:
    session = start_session(SLOTS, CONF, str(exchange_dir))
    other.connect()
    yield session
    stop_with_its_jvm(session)


@pytest.fixture(scope="package")
def runner(spark: SparkSession, exchange_dir: Path, token_file: Path) -> Iterator[StageRunner]:
    made = StageRunner(
        spark,
        executor_id="executor-1",
        exchange_dir=str(exchange_dir),
        slots=SLOTS,
        clock=SystemClock(),
        streams=StreamSettings(token_file=token_file, limits=LIMITS),
        incarnation=f"{1:016x}",
    )
    yield made
    made.close()


@pytest.fixture
def beside(spark: SparkSession, exchange_dir: Path) -> Iterator[Callable[[StreamSettings], StageRunner]]:
    """Make executors with settings of their own, in this process."""
    made: list[StageRunner] = []

    def make(streams: StreamSettings) -> StageRunner:
        made.append(
            StageRunner(
                spark,
                executor_id=f"beside-{len(made)}",
                exchange_dir=str(exchange_dir),
                slots=SLOTS,
                clock=SystemClock(),
                streams=streams,
            )
        )
        return made[-1]

    yield make
    for runner in made:
        runner.close()


@pytest.fixture
def new_job(runner: StageRunner, other: RunnerProcess, exchange_dir: Path) -> Iterator[Callable[..., StreamingJob]]:
    made = []

    def make(*executors: RunnerProcess | StageRunner) -> StreamingJob:
        job = StreamingJob(executors or (runner, other), f"job-{next(_numbers)}", str(exchange_dir))
        made.append(job)
        return job

    yield make
    for job in made:
        job.close()


@pytest.fixture
def job(new_job: Callable[..., StreamingJob]) -> StreamingJob:
    return new_job()
