"""Push mode with real Spark; and in both modes, that what is cancelled stops."""

import pyarrow.parquet as pq
import pytest

from onager.clock import SystemClock
from onager.errors import JobCancelledError
from tests.e2e.conftest import JOBS, UNFUSED, Gate, rows
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until

CLOCK = SystemClock()


def last_sign(gate: Gate) -> float:
    """Return when a task at the gate has last said that it is there."""
    return max(mark.stat().st_mtime for mark in gate.directory.glob("held-*"))


def check_that_cancelling_stops_sparks_work(cluster: Cluster, gate: Gate) -> float:
    """Cancel a job of which one task is held; return how many seconds its Python code went on."""
    arguments = {"gate": str(gate.directory), "partitions": 2, "held": 0}
    job = cluster.client.python(f"{JOBS}:gated_range", args=arguments, conf=UNFUSED)
    gate.wait()
    began_s = CLOCK.now_ms() / 1000
    job.cancel("no longer wanted")
    with pytest.raises(JobCancelledError, match="no longer wanted"):
        job.wait(timeout=HANGS_S)
    until(lambda: CLOCK.now_ms() / 1000 - last_sign(gate) > 1.0, "silence at the gate")
    assert not (gate.directory / "open").exists()
    until(lambda: sum(executor.running for executor in cluster.client.executors()) == 0, "free slots")
    return last_sign(gate) - began_s


def test_push_mode_runs_a_query_and_stops_what_is_cancelled(pushed_cluster, tpch, gate):
    cluster = pushed_cluster
    (listed,) = cluster.client.executors()
    assert (listed.mode, listed.address.partition(":")[0]) == ("push", "127.0.0.1")
    assert "push" in cluster.cli("executors").stdout
    text = "SELECT c_nationkey AS nation, count(*) AS n, max(c_acctbal) AS most FROM customer GROUP BY 1"
    job = cluster.client.sql(text, views=tpch, conf=UNFUSED)
    customers = pq.read_table(tpch["customer"], columns=["c_nationkey", "c_acctbal"]).group_by("c_nationkey")
    expected = customers.aggregate([([], "count_all"), ("c_acctbal", "max")])
    assert rows(job.to_arrow()) == rows(expected.select(["c_nationkey", "count_all", "c_acctbal_max"]))
    assert {task["attempts"] for task in cluster.tasks(job.id).values()} == {1}

    assert check_that_cancelling_stops_sparks_work(cluster, gate) < 10
    assert cluster.client.sql("SELECT 1 AS one").to_arrow().to_pylist() == [{"one": 1}]

    # Asked to leave, it finishes what it runs and goes.
    cluster.executors["e-1"].popen.terminate()
    assert cluster.executors["e-1"].popen.wait(HANGS_S) == 0
    assert cluster.cli("state", "check").returncode == 0


def test_pull_mode_stops_what_is_cancelled(shared_cluster, gate):
    assert check_that_cancelling_stops_sparks_work(shared_cluster, gate) < 10
