"""A rolling restart of every scheduler and every executor under load: no job fails, and no finished task runs again."""

import threading
from pathlib import Path

import pytest

import onager
from deploy.local_cluster import LocalCluster
from deploy.parts import HOST
from tests.e2e.conftest import UNFUSED, query, rows
from tests.support.waiting import HANGS_S

QUERIES = (3, 6, 12)
CLIENTS = 2
REST_S = 1.5
"""Between a client's queries: load, and not all that two cores can do."""
# Each executor starts twice: what is compiled well is not worth its compilation.
SPARK = ("spark.driver.memory=768m", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
SMALL = tuple(flag for setting in SPARK for flag in ("--spark-conf", setting))
EXECUTORS = {"executor-1": SMALL, "executor-2": (*SMALL, "--mode", "push")}


class Client(threading.Thread):
    """Submits one query after the other until asked to stop, and records failures."""

    def __init__(self, addresses: str, tpch: dict[str, str], right: dict[int, list[tuple]]) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.done = 0
        self.trouble: list[str] = []
        self._addresses, self._tpch, self._right = addresses, tpch, right

    def run(self) -> None:
        with onager.connect(self._addresses, connect_timeout_s=HANGS_S, retry_timeout_s=HANGS_S) as client:
            while not self.stopping.is_set():
                number = QUERIES[self.done % len(QUERIES)]
                try:
                    job = client.sql(query(number), views=self._tpch, conf=UNFUSED)
                    if rows(job.to_arrow()) != self._right[number]:
                        self.trouble.append(f"q{number} differs: job {job.id}")
                    tasks = [task for stage in job.detail().progress.stages for task in stage.tasks]
                    if {task.successes for task in tasks} != {1} or any(task.failures for task in tasks):
                        self.trouble.append(f"tasks of job {job.id} ran again:\n{tasks}")
                except Exception as error:  # noqa: BLE001 whatever a user gets is to be reported
                    self.trouble.append(repr(error))
                self.done += 1
                self.stopping.wait(REST_S)


@pytest.fixture
def cluster(tmp_path: Path):
    # Without a proxy: clients and executors know all schedulers.
    made = LocalCluster(
        tmp_path / "cluster", f"{HOST}:0", executors=2, slots=1, has_proxy=False, executor_flags=EXECUTORS
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_every_scheduler_and_every_executor_is_restarted_under_load(cluster, tpch, spark):
    right = {number: rows(spark.sql(query(number)).toArrow()) for number in QUERIES}
    clients = [Client(cluster.addresses, tpch, right) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    lives = {part.name: part.pid for part in cluster.parts.values()}
    codes = cluster.roll(("scheduler", "executor"))
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.join(HANGS_S)
    assert codes == dict.fromkeys([f"scheduler-{n}" for n in (1, 2, 3)] + [f"executor-{n}" for n in (1, 2)], 0)
    assert all(cluster.parts[name].pid != lives[name] for name in codes)
    assert [trouble for client in clients for trouble in client.trouble] == []
    assert not any(client.is_alive() for client in clients)
    assert all(client.done for client in clients), "there was no load"
