"""Jobs whose state is in a real etcd, in push mode: `kill -9` of the scheduler and of etcd, standalone, stock tools."""

import json
import re
import subprocess
import sys

import pytest

import onager
from tests.e2e.conftest import rows
from tests.support.processes.children import free_port
from tests.support.processes.cluster import Cluster
from tests.support.selection import some
from tests.support.waiting import HANGS_S, until

ONE_SESSION = """
import os, sys, uuid
from pyspark.sql import SparkSession
session_id = uuid.uuid4()
one, other = (
    SparkSession.builder.remote(f"sc://{address}/;user_id=ann;session_id={session_id}").create()
    for address in sys.argv[1:3]
)
one.conf.set("spark.sql.shuffle.partitions", "5")
one.range(3).createOrReplaceTempView("v")
print(other.conf.get("spark.sql.shuffle.partitions"), other.table("v").count())
other.conf.set("spark.sql.shuffle.partitions", "6")
other.sql("SELECT * FROM v UNION ALL SELECT 7").createOrReplaceTempView("v")
print(one.conf.get("spark.sql.shuffle.partitions"), one.table("v").count(), flush=True)
os._exit(0)
"""


@pytest.fixture
def cluster(pushed_cluster) -> Cluster:
    return pushed_cluster


def failures_reported(cluster: Cluster) -> int:
    return cluster.scheduler.text().count("etcd_endpoint_failed")


def assert_nothing_ran_twice(before: dict, after: dict) -> None:
    assert {at: task["successes"] for at, task in after.items() if task["successes"] != 1} == {}
    assert {at for at, task in before.items() if after[at]["attempts"] > max(1, task["attempts"])} == set()


@pytest.mark.parametrize("gate_opens", some(["while the scheduler is down", "after it is back"]))
def test_scheduler_killed_in_the_middle(cluster, gated_q18, gate, right_answer, gate_opens):
    before = cluster.tasks(gated_q18.id)
    cluster.scheduler.kill()
    if gate_opens == "while the scheduler is down":
        gate.open()
    cluster.start_scheduler()
    gate.open()
    assert rows(gated_q18.to_arrow()) == right_answer
    assert_nothing_ran_twice(before, cluster.tasks(gated_q18.id))


@pytest.mark.parametrize("gate_opens", some(["after it is back", "while etcd is down"]))
def test_etcd_killed_in_the_middle(cluster, store, gated_q18, gate, right_answer, gate_opens):
    before, reported = cluster.tasks(gated_q18.id), failures_reported(cluster)
    store.kill(0)
    if gate_opens == "while etcd is down":
        gate.open()
    until(lambda: failures_reported(cluster) > reported, "the scheduler's word of that")
    store.restart(0)
    gate.open()
    assert rows(gated_q18.to_arrow()) == right_answer
    assert cluster.scheduler.popen.poll() is None
    assert_nothing_ran_twice(before, cluster.tasks(gated_q18.id))


def test_etcdctl_prints_a_running_jobs_state(cluster, store, gated_q18, gate):
    def get(prefix: str) -> dict[str, str]:
        lines = store.etcdctl("get", "--prefix", f"/jobs/{prefix}").splitlines()
        return dict(zip(lines[::2], lines[1::2], strict=True))

    assert json.loads(get("JobHeads/")[f"/jobs/JobHeads/{gated_q18.id}"])["state"] == "running"
    assert json.loads(get("ActiveJobs/")[f"/jobs/ActiveJobs/{gated_q18.id}"])["schema_version"] == "1.0"
    log = store.etcdctl("get", "--prefix", "--keys-only", f"/jobs/JobLog/{gated_q18.id}/").split()
    assert all(re.fullmatch(rf"/jobs/JobLog/{gated_q18.id}/\d+/\d+", key) for key in log)
    # Large records (that of planning is one) are compressed; the others are read as they are.
    last = json.loads(get(log[-1].removeprefix("/jobs/"))[log[-1]])
    assert {event["type"] for event in last["events"]} & {"tasks_launched", "task_succeeded", "stages_started"}
    assert "/jobs/Executors/e-1" in get("Executors/")
    gate.open()
    gated_q18.wait()


def test_another_scheduler_has_the_same_catalog_and_the_same_sessions(cluster, tmp_path):
    (tmp_path / "people.csv").write_text("Ann\nBob\n")
    made = f"CREATE DATABASE shop; CREATE TABLE shop.people (name STRING) USING csv LOCATION '{tmp_path}'"
    cluster.client.sql(made).wait()
    address = f"127.0.0.1:{free_port()}"
    arguments = ["scheduler", "--backend", cluster.backend, "--listen", address]
    second = cluster.start("scheduler-2", [*arguments, "--exchange-dir", str(cluster.exchange_dir)])
    until(lambda: "scheduler_ready" in second.text(), "a second scheduler")
    with onager.connect(address) as other:
        assert [entry.name for entry in other.catalog("shop")] == ["people"]
        names = other.sql("SELECT name FROM shop.people ORDER BY name").to_arrow()
        assert names.to_pylist() == [{"name": "Ann"}, {"name": "Bob"}]
        other.sql("DROP TABLE shop.people").wait()
    assert list(cluster.client.catalog("shop")) == []
    asked = [sys.executable, "-c", ONE_SESSION, cluster.address, address]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert (done.stdout.split(), done.returncode) == (["5", "3", "6", "4"], 0), done.stderr[-3000:]
    second.terminate()


def test_standalone_says_why_it_cannot_start(tmp_path):
    dead = f"127.0.0.1:{free_port()}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "onager", "standalone", "--backend", f"etcd://{dead}?timeout=1s"),
            *("--listen", f"127.0.0.1:{free_port()}", "--exchange-dir", str(tmp_path / "exchange")),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert done.returncode == 2
    assert f"onager scheduler: no etcd answered within 1 s: {dead}: nobody listens there" in done.stderr
