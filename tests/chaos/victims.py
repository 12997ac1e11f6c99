"""Small clusters whose processes can be killed by name, and start again at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import psutil

import onager
from deploy.local_cluster import LocalCluster
from tests.chaos.cluster import children
from tests.chaos.kills import cluster as three_schedulers
from tests.support.processes.cluster import Cluster

SCHEDULER: Final = "scheduler"
EXECUTOR: Final = "executor"
JVM: Final = "jvm"
_PATIENCE_S: Final = 300.0
_MAX_FAILURES: Final = {"ONAGER_SCHEDULER_TASK_MAX_FAILURES": "1000"}
"""What is killed more often than a task may fail is none of the task's fault here."""


class Victims(Protocol):
    """A cluster of schedulers, and of executors of one slot each."""

    client: onager.OnagerClient
    schedulers: tuple[str, ...]
    executors: tuple[str, ...]

    def kill(self, kind: str, name: str, *, is_alone: bool = False) -> bool:
        """Kill a scheduler, an executor, or its JVM; return whether it was there.

        All that an executor has started is killed with it, unless *is_alone*.
        """
        ...

    def kill_schedulers(self) -> None:
        """Kill all schedulers at once."""
        ...

    def process(self, name: str) -> psutil.Process:
        """Return the process of a scheduler or an executor."""
        ...


class _One:
    """One scheduler on LevelDB, and two executors."""

    schedulers = (SCHEDULER,)
    executors = ("e-0", "e-1")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.client = onager.connect(cluster.address, retry_timeout_s=_PATIENCE_S)

    def kill(self, kind: str, name: str, *, is_alone: bool = False) -> bool:
        if kind == SCHEDULER:
            assert self._cluster.scheduler is not None
            self._cluster.scheduler.kill()
            self._cluster.start_scheduler()
            return True
        process = self._cluster.executors[name]
        if kind == JVM:
            return _kill([jvm] if (jvm := process.jvm()) else [])
        below = process.descendants()
        process.kill()
        _kill([] if is_alone else below)
        self._cluster.launch_executor(name, slots=1)
        return True

    def kill_schedulers(self) -> None:
        self.kill(SCHEDULER, SCHEDULER)

    def process(self, name: str) -> psutil.Process:
        found = self._cluster.scheduler if name == SCHEDULER else self._cluster.executors[name]
        assert found is not None
        return psutil.Process(found.pid)


class _Three:
    """Three schedulers over three members of etcd, and two executors."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.schedulers = tuple(part.name for part in cluster.named(SCHEDULER))
        self.executors = tuple(part.name for part in cluster.named(EXECUTOR))
        self.client = onager.connect(cluster.addresses, retry_timeout_s=_PATIENCE_S)

    def kill(self, kind: str, name: str, *, is_alone: bool = False) -> bool:
        part = self._cluster.parts[name]
        below = children(psutil.Process(part.pid)) if part.is_running else []
        if kind == JVM:
            return _kill([each for each in below if each.name() == "java"])
        part.kill()
        _kill([] if is_alone else below)
        part.start()
        return True

    def kill_schedulers(self) -> None:
        parts = [self._cluster.parts[name] for name in self.schedulers]
        for part in parts:
            part.kill()
        for part in parts:
            part.start()

    def process(self, name: str) -> psutil.Process:
        return psutil.Process(self._cluster.parts[name].pid)


def _kill(processes: list[psutil.Process]) -> bool:
    for process in processes:
        if process.is_running():
            process.kill()
    return bool(processes)


@contextmanager
def one(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Victims]:
    """Run one scheduler on LevelDB, with its logs in *directory*; *environment* goes to all processes."""
    cluster = Cluster(directory)
    cluster.environment.update({**_MAX_FAILURES, **(environment or {})})
    try:
        cluster.start_scheduler()
        for name in _One.executors:
            cluster.launch_executor(name, slots=1)
        cluster.await_executors(*_One.executors)
        made = _One(cluster)
        with made.client:
            yield made
    finally:
        cluster.stop()


@contextmanager
def three(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Victims]:
    """Run three schedulers over etcd, with their logs in *directory*; *environment* goes to all processes."""
    with three_schedulers(directory, {**_MAX_FAILURES, **(environment or {})}) as cluster:
        made = _Three(cluster)
        with made.client:
            yield made
