"""Release 0.1 and this one meet as real processes: each refuses the other by name, and the store stays as it is.

`tests/integration/scheduler/test_release_before.py` tests the same with what release 0.1 left in a file.
"""

import json
import shutil
from pathlib import Path
from typing import Self

import plyvel
import pytest

from onager.version import __version__
from tests.e2e.conftest import clusters
from tests.support.etcd import EtcdCluster
from tests.support.processes import children
from tests.support.processes.cluster import Cluster
from tests.support.processes.earlier_release import VERSION, EarlierRelease
from tests.support.waiting import HANGS_S, until

JOB = "SELECT id % 3 AS k, count(*) AS n FROM range(100) GROUP BY k"
TO_DO = "use the release of Onager that wrote it (CHANGELOG.md says how to move to a newer one)"
EXECUTOR_REFUSED = "speaks version {} of the protocol, and this scheduler version {}: run the same Onager on both sides"
CLIENT_REFUSED = (
    "the client speaks version {} of the protocol, and this scheduler version {}: install the same Onager on both sides"
)


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> EarlierRelease:
    return EarlierRelease(tmp_path_factory.mktemp("release"))


@pytest.fixture
def cluster(tmp_path_factory, request):
    """A cluster of this release, of which nothing runs yet."""
    for make in clusters(tmp_path_factory, request):
        yield make()


class SchedulerBefore:
    """A scheduler of release 0.1, until the block ends."""

    def __init__(self, release: EarlierRelease, cluster: Cluster, backend: str) -> None:
        self._release, self._cluster, self._backend = release, cluster, backend
        self._log = cluster.directory / "scheduler-before.log"

    def __enter__(self) -> Self:
        flags = ["--backend", self._backend, "--listen", self._cluster.address]
        seen = self._log.stat().st_size if self._log.exists() else 0
        self._process = self._release.start(
            self._log, "scheduler", *flags, "--exchange-dir", str(self._cluster.exchange_dir)
        )
        until(lambda: b"scheduler_ready" in self._log.read_bytes()[seen:], "a scheduler of release 0.1")
        return self

    def __exit__(self, *_: object) -> None:
        children.end(self._process)

    def onager(self, *arguments: str, code: int = 0) -> str:
        """Run a command of release 0.1 against it; return its output, or why it failed."""
        return onager_before(self._release, self._cluster, *arguments, code=code)


def onager_before(release: EarlierRelease, cluster: Cluster, *arguments: str, code: int = 0) -> str:
    done = release.run(*arguments, "--scheduler", cluster.address)
    assert done.returncode == code, done
    return done.stderr if code else done.stdout


class LevelDBStore:
    def __init__(self, directory: Path) -> None:
        self.url = f"leveldb:{directory}"
        self.name = f"state directory {directory}"
        self._directory = directory

    def copy(self) -> None:
        """Go on with a copy, as a careful admin does."""
        target = self._directory.with_name("copy")
        shutil.copytree(self._directory, target)
        self.__init__(target)

    def content(self) -> object:
        db = plyvel.DB(str(self._directory))
        try:
            return list(db)
        finally:
            db.close()


class EtcdStore:
    def __init__(self, cluster: EtcdCluster) -> None:
        self.url = cluster.url("before")
        self.name = "namespace /before of etcd"
        self._cluster = cluster

    def copy(self) -> None:
        """Wait until what is bound to leases is gone, so that nothing changes by itself."""
        until(lambda: '"lease"' not in self._cluster.etcdctl("get", "/before/", "--prefix", "-w", "json"), "the leases")

    def content(self) -> object:
        """Return each record with its revisions, the store's revision, and how many leases there are."""
        found = json.loads(self._cluster.etcdctl("get", "/before/", "--prefix", "-w", "json"))
        return found["kvs"], found["header"]["revision"], self._cluster.etcdctl("lease", "list").split()


@pytest.fixture(params=["leveldb", "etcd"])
def store(request, cluster):
    if request.param == "leveldb":
        yield LevelDBStore(cluster.state_dir)
        return
    with EtcdCluster(1) as made:
        yield EtcdStore(made)


def refusal(what: str) -> str:
    return (
        f"{what} is of an older release of Onager: it has schema version 1, and Onager {__version__} reads 2; {TO_DO}"
    )


def test_a_store_of_release_0_1_is_refused_and_stays_as_it_is(before, cluster, store, tmp_path):
    backup, own, exchange = tmp_path / "before.zst", tmp_path / "own.zst", tmp_path / "exchange"
    exchange.mkdir()
    with SchedulerBefore(before, cluster, store.url) as scheduler:
        job_id = scheduler.onager("submit", "--detach", "-e", JOB).strip()
        ended = scheduler.onager("submit", "--detach", "-e", JOB).strip()
        scheduler.onager("cancel", ended)
        scheduler.onager("state", "backup", str(backup))
    store.copy()
    content = store.content()

    flags = ["--backend", store.url, "--listen", cluster.address, "--exchange-dir", str(exchange)]
    refused = cluster.start("scheduler", ["scheduler", *flags])
    assert refused.popen.wait(HANGS_S) == 2
    assert refusal(store.name) in refused.text()
    assert list(exchange.iterdir()) == []
    for command in (
        ("ls",),
        ("get", f"JobHeads/{job_id}"),
        ("watch", "JobHeads/"),
        ("rm", "--yes", "--force", "JobHeads/"),
        ("check",),
        ("backup", str(own)),
    ):
        done = cluster.cli("state", *command, "--backend", store.url)
        assert (done.returncode, refusal(store.name) in done.stderr) == (1, True), done
    done = cluster.cli("state", "restore", "--yes", "--replace", str(backup), "--backend", store.url)
    assert (done.returncode, refusal(f"backup {backup}") in done.stderr) == (1, True), done
    assert not own.exists()
    assert store.content() == content

    with SchedulerBefore(before, cluster, store.url) as scheduler:
        states = {job["job_id"]: job["state"] for job in json.loads(scheduler.onager("jobs", "-o", "json"))}
        assert states == {job_id: "queued", ended: "cancelled"}


def test_a_standalone_cluster_of_release_0_1_is_not_continued(before, cluster, tmp_path):
    directory = tmp_path / "standalone"
    with SchedulerBefore(before, cluster, f"leveldb:{directory / 'state'}") as scheduler:
        scheduler.onager("submit", "--detach", "-e", JOB)
    store = LevelDBStore(directory / "state")
    content = store.content()
    done = cluster.cli(
        "standalone",
        "--state-dir",
        str(directory / "state"),
        "--exchange-dir",
        str(directory),
        "--listen",
        cluster.address,
    )
    assert done.returncode != 0
    assert refusal(store.name) in done.stdout + done.stderr, done
    assert store.content() == content


def test_executors_and_clients_of_either_release_are_refused_by_the_other(before, cluster, tmp_path):
    flags = ["--scheduler", cluster.address, "--exchange-dir", str(cluster.exchange_dir)]
    log = cluster.directory / "executor-before.log"
    with SchedulerBefore(before, cluster, cluster.backend) as scheduler:
        process = before.start(log, "executor", *flags, "--executor-id", "executor-before")
        own = cluster.start("executor", ["executor", *flags, "--executor-id", "executor-new"])
        for command in (("submit", "-e", JOB), ("submit", "--detach", "-e", JOB)):
            done = cluster.cli(*command)
            assert (done.returncode, CLIENT_REFUSED.format(2, 1) in done.stderr) == (2, True), done
        done = cluster.cli("state", "backup", str(tmp_path / "backup.zst"))
        assert done.returncode == 1
        assert f"the backup that a scheduler of Onager {VERSION} sends is of an older release of Onager" in done.stderr
        assert list(tmp_path.iterdir()) == []
        assert own.popen.wait(HANGS_S) == 2
        assert f"executor executor-new {EXECUTOR_REFUSED.format(2, 1)}" in own.text()
        until(lambda: b" registered " in log.read_bytes(), "an executor of release 0.1 at its scheduler")
        assert json.loads(scheduler.onager("submit", "-e", "SELECT 3 AS three", "-o", "json")) == [{"three": 3}]
        listed = json.loads(scheduler.onager("executors", "-o", "json"))
        assert [each["executor_id"] for each in listed] == ["executor-before"]

    cluster.backend = f"leveldb:{cluster.directory / 'new'}"
    cluster.start_scheduler()
    # It is unknown there, registers anew, and ends.
    assert process.wait(HANGS_S) == 2
    assert f"executor executor-before {EXECUTOR_REFUSED.format(1, 2)}" in log.read_text()
    assert cluster.client.executors() == []
    printed = onager_before(before, cluster, "submit", "-e", JOB, code=2)
    assert CLIENT_REFUSED.format(1, 2) in printed
    printed = onager_before(before, cluster, "state", "backup", str(tmp_path / "backup.zst"), code=2)
    assert "the client writes backups of format 1, and this scheduler's are of format 2" in printed
    assert list(tmp_path.iterdir()) == []
    assert list(cluster.client.jobs()) == []
