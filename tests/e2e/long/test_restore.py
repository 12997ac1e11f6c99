"""A cluster killed in the middle of a job, its state backed up and restored into a store of another kind, and back."""

import secrets

from tests.e2e.conftest import JOBS, UNFUSED, Gate, query, rows
from tests.support.processes.cluster import Cluster, lives
from tests.support.waiting import until


def kill_everything(cluster: Cluster, gate: Gate) -> None:
    cluster.scheduler.kill()
    workers = gate.held()
    for executor in cluster.executors.values():
        if executor.popen.poll() is None:
            executor.kill()
    until(lambda: not any(map(lives, workers)), "the end of the Python workers")
    gate.forget()


def move_state(cluster: Cluster, target: str) -> None:
    """Take the state of a cluster that is down elsewhere, as an admin does."""
    file = cluster.directory / f"{secrets.token_hex(4)}.zst"
    for command in (("backup", str(file), "--backend", cluster.backend), ("restore", str(file), "--backend", target)):
        done = cluster.cli("state", *command)
        assert done.returncode == 0, done.stderr
    assert "0 errors" in done.stdout or "all is well" in done.stdout, done.stdout
    cluster.backend = target


def test_a_job_goes_on_in_another_store_and_back(lone_cluster, tpch, right_answer, gate, etcd):
    cluster = lone_cluster
    views = {**tpch, "orders_ungated": tpch["orders"]}
    del views["orders"]
    arguments = {"text": query(18), "gate": str(gate.directory), "table": "orders", "key": "o_orderkey"}
    job = cluster.client.python(f"{JOBS}:gated_query", args=arguments, views=views, conf=UNFUSED)
    gate.wait()
    until(lambda: sum(s.successful for s in job.progress().stages) >= 4, "some finished tasks")
    tasks = cluster.tasks(job.id)
    finished = {at: task["attempts"] for at, task in tasks.items() if task["state"] == "successful"}
    other = cluster.client.sql("SELECT 1 AS one")

    for target in (etcd.url(f"test-{secrets.token_hex(8)}"), f"leveldb:{cluster.directory}/again"):
        kill_everything(cluster, gate)
        move_state(cluster, target)
        cluster.start_scheduler()
        cluster.the_executor()
        gate.wait()
        assert cluster.cli("state", "check").returncode == 0

    gate.open()
    assert rows(job.to_arrow()) == right_answer
    assert other.to_arrow().to_pylist() == [{"one": 1}]
    tasks = cluster.tasks(job.id)
    assert {at: task["successes"] for at, task in tasks.items() if task["successes"] != 1} == {}
    again = {at for at, attempts in finished.items() if tasks[at]["attempts"] > max(1, attempts)}
    assert again == set(), "what was finished is not run again"
    checked = cluster.cli("state", "check")
    assert checked.returncode == 0, checked.stdout
