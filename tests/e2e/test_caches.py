"""What programs cache, on real clusters, beside plain Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect import functions as sf
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.observation import Observation
from pyspark.sql.connect.session import SparkSession

from onager.scheduler.connect.records import MAX_CACHES
from tests.support.processes.cluster import Cluster
from tests.support.selection import IS_ALL
from tests.support.trees import below
from tests.support.waiting import HANGS_S, until

PROGRAM = Path(__file__).with_name("cached_program.py")
DRAWN = Path(__file__).with_name("drawn_caches.py")


@pytest.fixture
def cluster(lone_cluster) -> Cluster:
    return lone_cluster


@pytest.fixture
def connect(cluster) -> Iterator[Callable[[], SparkSession]]:
    """Begin sessions, which end with the test."""
    made: list[SparkSession] = []

    def begin() -> SparkSession:
        made.append(SparkSession(f"{remote(cluster)}/;user_id=ann"))
        return made[-1]

    yield begin
    for session in made:
        if not session.is_stopped:
            session.stop()


def remote(cluster: Cluster) -> str:
    return f"sc://{cluster.address}"


def found(program: Path, *arguments: str | Path, within_s: float = 2 * HANGS_S) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_program_that_caches_finds_what_it_finds_in_plain_spark(cluster, tmp_path):
    here = found(PROGRAM, tmp_path / "here", remote(cluster))
    plain = found(PROGRAM, tmp_path / "plain")
    assert list(here) == list(plain)
    assert {name: value for name, value in here.items() if value != plain[name]} == {}


def test_what_is_written_cached_and_read_in_any_order_is_as_in_plain_spark(cluster, tmp_path):
    count = 200 if IS_ALL else 10
    here = found(DRAWN, "1", count, tmp_path / "here", remote(cluster), within_s=20 * HANGS_S)
    plain = found(DRAWN, "1", count, tmp_path / "plain", within_s=20 * HANGS_S)
    assert list(here) == list(plain)
    for name, expected in plain.items():
        assert here[name] == expected, f"the sequence {name} of {DRAWN.name}"


def drawn(spark: SparkSession, rows: int = 1_000) -> DataFrame:
    """Cache rows that would be others if they were made again, although the plan is the same."""
    return spark.sql(f"SELECT id, rand() AS r, uuid() AS u FROM range(0, {rows}, 1, 4)").cache()


def files(cluster: Cluster) -> list[str]:
    """Return the files of rows that outlive the jobs that have made them."""
    until(lambda: not cluster.client.jobs(state="running"), "the ends of the jobs")
    return sorted(str(path.relative_to(cluster.exchange_dir)) for path in below(cluster.exchange_dir, "*.rows"))


def stages(cluster: Cluster) -> list[str]:
    """Return the names of the last job's stages."""
    (last,) = cluster.client.jobs(limit=1)
    return [stage.name for stage in cluster.client.job(last.job_id).progress().stages]


def test_rows_are_on_disk_until_they_are_given_back_or_their_session_ends(cluster, connect):
    until(lambda: not files(cluster), "the end of what came before")
    spark, other = connect(), connect()
    kept, given_back = drawn(spark), drawn(spark)
    assert not files(cluster), "nothing has read them"
    assert kept.count() == given_back.count() == drawn(other).count() == 1_000
    until(lambda: len(files(cluster)) == 12, "the rows of three caches in four partitions")
    first = kept.collect()
    assert kept.collect() == first
    assert any("reused from" in name for name in stages(cluster)), stages(cluster)
    given_back.unpersist()
    until(lambda: len(files(cluster)) == 8, "the end of what was given back")
    other.stop()
    until(lambda: len(files(cluster)) == 4, "the end of what the session had")
    assert kept.collect() == first
    spark.catalog.clearCache()
    until(lambda: not files(cluster), "the end of all")


def test_rows_outlive_the_processes_that_made_them(cluster, connect):
    spark = connect()
    kept = drawn(spark)
    first = kept.collect()
    cluster.the_executor().kill()
    cluster.scheduler.kill()
    cluster.start_scheduler()
    cluster.the_executor()
    assert kept.collect() == first
    assert kept.where("id < 10").collect() == first[:10]


def test_rows_whose_file_is_gone_are_made_again(cluster, connect):
    spark = connect()
    until(lambda: not files(cluster), "the end of what came before")
    kept = (
        spark.range(0, 1_000, 1, 4).repartition(3, "id").withColumn("n", sf.col("id") + 1).orderBy(sf.desc("n")).cache()
    )
    first = kept.collect()
    assert [row.id for row in first] == list(range(999, -1, -1))
    for name in files(cluster):
        (cluster.exchange_dir / name).unlink()
    assert kept.collect() == first
    assert kept.collect() == first
    assert any("reused from" in name for name in stages(cluster)), stages(cluster)


def test_jobs_that_read_them_first_all_at_once_leave_one_version(cluster, connect):
    spark = connect()
    kept = drawn(spark)
    with ThreadPoolExecutor(4) as threads:
        at_once = list(threads.map(lambda _: kept.collect(), range(4)))
    later = [kept.collect() for _ in range(3)]
    assert later[0] in at_once
    assert later == [later[0]] * 3
    until(lambda: len([name for name in files(cluster) if name.startswith("connect-")]) >= 4, "the rows")


def test_rows_are_not_kept_where_they_cannot_be(cluster, connect):
    """Observed metrics are of all rows, and only a query that runs as a whole sees them."""
    spark = connect()
    kept = spark.range(10).cache()
    observed = Observation("seen")
    assert kept.observe(observed, sf.count(sf.lit(1)).alias("n")).count() == 10
    assert observed.get == {"n": 10}


def test_a_session_caches_a_limited_number(cluster, connect):
    spark = connect()
    for number in range(MAX_CACHES):
        spark.range(number).cache()
    with pytest.raises(PySparkException, match=f"{MAX_CACHES + 1} cached DataFrames.*limit of {MAX_CACHES}"):
        spark.range(MAX_CACHES + 1).cache()
    assert spark.range(3).unpersist().count() == 3
    assert spark.range(MAX_CACHES + 1).cache().count() == MAX_CACHES + 1
