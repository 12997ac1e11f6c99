"""Data, plain Spark for comparison, gates that block tasks, and clusters that always stop."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.etcd import EtcdCluster
from tests.support.processes.children import free_port
from tests.support.processes.cluster import Cluster
from tests.support.spark.one_spark import stop_with_its_jvm
from tests.support.waiting import until

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
QUERIES = Path(__file__).resolve().parents[2] / "benchmarks" / "tpch" / "queries"
JOBS = Path(__file__).with_name("jobs.py")
UNFUSED = {"onager.fusion.maxBytes": 0, "spark.sql.shuffle.partitions": 4, "onager.adaptive": "off"}
"""Every exchange is cut, into few partitions: the data is tiny."""


@pytest.fixture(scope="package")
def tpch(tmp_path_factory) -> dict[str, str]:
    """TPC-H at scale factor 0.01: the path of each table."""
    directory = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).with_name("tpcgen-cli")
    subprocess.run([generator, "tpch", "parquet", "-s", "0.01", f"--output-dir={directory}"], check=True)
    return {table: str(directory / f"{table}.parquet") for table in TABLES}


@pytest.fixture(scope="package")
def spark(tpch) -> Iterator:
    """Plain Spark with the TPC-H tables, for the right answers."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    for table, path in tpch.items():
        session.read.parquet(path).createOrReplaceTempView(table)
    yield session
    stop_with_its_jvm(session)


@pytest.fixture
def make_cluster(tmp_path_factory, request) -> Iterator:
    """Start clusters that end with the test."""
    yield from clusters(tmp_path_factory, request)


@pytest.fixture(scope="module")
def make_module_cluster(tmp_path_factory, request) -> Iterator:
    """Start clusters that end with the module."""
    yield from clusters(tmp_path_factory, request)


@pytest.fixture(scope="session")
def _shared_cluster(tmp_path_factory, request) -> Iterator[Cluster]:
    for make in clusters(tmp_path_factory, request):
        made = make()
        made.environment["ONAGER_SCHEDULER_HTTP_LISTEN"] = f"127.0.0.1:{free_port()}"
        made.environment["ONAGER_EXECUTOR_DRAIN_GRACE_MS"] = "100"  # for signals; a drain waits
        made.start_scheduler()
        yield made


@pytest.fixture
def shared_cluster(_shared_cluster) -> Cluster:
    """A cluster of two executors with a slot each, for tests that leave it as they found it."""
    for name in {"e-1", "e-2"} - _shared_cluster.living_executors().keys():
        _shared_cluster.launch_executor(name, slots=1)
    _shared_cluster.await_executors("e-1", "e-2")
    return _shared_cluster


@pytest.fixture(scope="session")
def _lone_cluster(tmp_path_factory, request) -> Iterator[Cluster]:
    for make in clusters(tmp_path_factory, request):
        made = make()
        made.environment["ONAGER_EXECUTOR_DRAIN_GRACE_MS"] = "60000"
        made.start_scheduler()
        yield made


@pytest.fixture
def lone_cluster(_lone_cluster) -> Cluster:
    """A cluster of one executor with two slots, which tests may kill; the next test then gets another one."""
    executor = _lone_cluster.the_executor()
    _lone_cluster.await_executors(executor.name)
    return _lone_cluster


@pytest.fixture(scope="module")
def empty_cluster(_lone_cluster) -> Cluster:
    """The cluster of `lone_cluster`, in which no executor lives; one that a module starts here stays."""
    for process in _lone_cluster.living_executors().values():
        process.kill()
    return _lone_cluster


@pytest.fixture(scope="session")
def store() -> Iterator[EtcdCluster]:
    with EtcdCluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pushed_cluster(tmp_path_factory, request, store) -> Iterator[Cluster]:
    """A cluster on etcd with one executor in push mode, which the last test that uses it ends."""
    for make in clusters(tmp_path_factory, request):
        made = make(backend=store.url("jobs"))
        made.start_scheduler()
        made.start_executor("e-1", ONAGER_EXECUTOR_MODE="push")
        yield made


def clusters(tmp_path_factory, request) -> Iterator:
    made: list[Cluster] = []

    def make(**settings) -> Cluster:
        made.append(Cluster(tmp_path_factory.mktemp("cluster"), **settings))
        return made[-1]

    failed = request.session.testsfailed
    try:
        yield make
    finally:
        for cluster in made:
            cluster.stop()
            if request.session.testsfailed > failed:
                sys.stderr.write(cluster.logs())


class Gate:
    """A directory in which blocked tasks leave marks until `open` lets them continue."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def held(self) -> list[int]:
        """Return the process ids of the Python workers that wait here."""
        return [int(mark.name.removeprefix("held-")) for mark in self.directory.glob("held-*")]

    def children(self) -> list[int]:
        """Return the process ids of what those that wait here have started."""
        return [int(mark.name.removeprefix("child-")) for mark in self.directory.glob("child-*")]

    def wait(self, count: int = 1) -> list[int]:
        return until(lambda: self.held() if len(self.held()) >= count else None, f"{count} tasks at the gate")

    def forget(self) -> None:
        for mark in self.directory.glob("held-*"):
            mark.unlink()

    def open(self) -> None:
        (self.directory / "open").touch()


@pytest.fixture
def gate(tmp_path) -> Iterator[Gate]:
    directory = tmp_path / "gate"
    directory.mkdir()
    made = Gate(directory)
    yield made
    made.open()


def query(number: int) -> str:
    return (QUERIES / f"q{number}.sql").read_text()


def rows(table: pa.Table) -> list[tuple]:
    """Return the rows in a canonical order, doubles rounded to what summation in any order keeps."""
    plain = zip(*(column.to_pylist() for column in table.columns), strict=True)
    rounded = [tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row) for row in plain]
    return sorted(rounded, key=repr)


@pytest.fixture
def gated_q18(cluster: Cluster, tpch, gate: Gate):
    """Q18 with every exchange cut, held in its scan of orders while its other stages finish."""
    views = {**tpch, "orders_ungated": tpch["orders"]}
    del views["orders"]
    arguments = {"text": query(18), "gate": str(gate.directory), "table": "orders", "key": "o_orderkey"}
    job = cluster.client.python(f"{JOBS}:gated_query", args=arguments, views=views, conf=UNFUSED)
    gate.wait()
    until(lambda: finished_count(cluster, job.id) >= 4, "some finished tasks")
    return job


@pytest.fixture(scope="package")
def right_answer(spark):
    return rows(spark.sql(query(18)).toArrow())


def finished_count(cluster: Cluster, job_id: str) -> int:
    return sum(stage.successful for stage in cluster.client.job(job_id).progress().stages)
