"""Programs of Spark that know nothing of Onager, through Spark Connect: what they see is what plain Spark shows."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.side_by_side import Asked, run_plain
from benchmarks.tpch import QUERY_NUMBERS, query_text
from benchmarks.tpch.comparison import difference
from tests.e2e.conftest import UNFUSED
from tests.e2e.test_connect import FOUND_IN_PLAIN_SPARK
from tests.e2e.test_connect import PROGRAM as SHORT_PROGRAM
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S

PROGRAM = Path(__file__).with_name("connect_program.py")


def run_program(scratch: Path, **environment: str) -> dict:
    """Run the program, and return what it saw by step."""
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, PROGRAM, scratch / "data"],
        cwd=scratch,  # where plain Spark keeps its tables
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads((scratch / "data" / "results.json").read_text())


@pytest.fixture(scope="module")
def seen_by_plain_spark(tmp_path_factory) -> dict:
    return run_program(tmp_path_factory.mktemp("plain") / "run")


def test_what_the_gate_expects_of_a_program_is_what_it_finds_in_plain_spark(tmp_path):
    done = subprocess.run(
        [sys.executable, SHORT_PROGRAM, tmp_path],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(FOUND_IN_PLAIN_SPARK.read_text())


def test_a_program_sees_what_plain_spark_shows(shared_cluster, tmp_path, seen_by_plain_spark):
    assert run_program(tmp_path / "run", SPARK_REMOTE=f"sc://{shared_cluster.address}") == seen_by_plain_spark


def test_a_program_sees_the_same_while_scheduler_and_executors_are_killed(make_cluster, tmp_path, seen_by_plain_spark):
    cluster: Cluster = make_cluster()
    cluster.start_scheduler()
    for name in ("e-1", "e-2"):
        cluster.launch_executor(name, slots=1)
    cluster.await_executors("e-1", "e-2")
    ended, kills = threading.Event(), []

    def kill() -> None:
        pause_s = 4.0
        while not ended.wait(pause_s):
            killed_s = time.monotonic()
            if len(kills) % 3 == 0:
                cluster.scheduler.kill()
                cluster.start_scheduler()
            else:
                name = f"e-{len(kills) % 3}"
                cluster.executors[name].kill()
                cluster.start_executor(name, slots=1)
            kills.append(len(kills))
            # On a slow machine executors start slowly, and the program needs more time between two kills.
            pause_s = max(4.0, 2 * (time.monotonic() - killed_s))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        seen = run_program(tmp_path / "run", SPARK_REMOTE=f"sc://{cluster.address}")
    finally:
        ended.set()
        killer.join()
    assert seen == seen_by_plain_spark
    assert len(kills) >= 3


def test_tpch_with_every_exchange_cut_gives_what_plain_spark_gives(shared_cluster, tpch, tmp_path):
    texts = {f"q{number}": query_text(number) for number in QUERY_NUMBERS}
    conf = {name: str(value) for name, value in UNFUSED.items()}
    before = {job.job_id for job in shared_cluster.client.jobs(limit=1_000)}
    remote = f"sc://{shared_cluster.address}"
    mine = run_plain(Asked(tpch, texts, 0, conf, remote), tmp_path / "mine").results
    plain = run_plain(Asked(tpch, texts, 0), tmp_path / "plain").results
    differing = {name: why for name in texts if (why := difference(mine[name], plain[name], texts[name]))}
    assert differing == {}
    jobs = [job for job in shared_cluster.client.jobs(limit=1_000) if job.job_id not in before]
    assert sum(job.stages_total for job in jobs) > 3 * len(texts), "they are cut"
