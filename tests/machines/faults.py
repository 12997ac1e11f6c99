"""What is done to the machines, one after the other, and for how long."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from tests.machines.cluster import Cluster

MAX_OWN_S: Final = 16.0
MAX_CONNECT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, for so many seconds."""

    name: str
    seconds: float
    begin: Callable[[Cluster], AbstractContextManager[None]]
    shows: str = ""
    """The executor that is to be listed as one that does not see the share, meanwhile."""
    is_sickness: bool = False
    """Whether all clients talk to one scheduler when it begins, the one whose share is sick for `sick`."""


def _stopped(kind: str, number: int) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: cluster.stopped(kind, number)


def _cut_from_schedulers(number: int, *, both_ways: bool) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: cluster.cut(number, cluster.others(number), both_ways=both_ways)


def _cut_from_store(number: int) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: cluster.cut(number, cluster.others(number, of_store=True))


def _unmounted(number: int, **how: bool) -> Callable[[Cluster], AbstractContextManager[None]]:
    return lambda cluster: cluster.unmounted(number, **how)


def _sick(name: str, fault: str) -> Fault:
    begin = lambda cluster: cluster.sick(cluster.behind_proxy(), fault)  # noqa: E731
    return Fault(f"a scheduler's share {name}", 40, begin, is_sickness=True)


ALL: Final = (
    Fault("scheduler-1 is stopped", 80, _stopped("scheduler", 1)),
    Fault("scheduler-2 is stopped", 30, _stopped("scheduler", 2)),
    Fault("scheduler-3 is stopped", 30, _stopped("scheduler", 3)),
    _sick("hangs", "HANGS"),
    _sick("answers EIO", "EIO"),
    _sick("answers ESTALE", "ESTALE"),
    Fault("machine-2 is gone", 90, lambda cluster: cluster.gone(2)),
    Fault("executor-3 is stopped", 10, _stopped("executor", 3)),
    Fault("executor-3 is stopped", 60, _stopped("executor", 3)),
    Fault("machine-3 is cut off", 10, lambda cluster: cluster.unplugged(3)),
    Fault("machine-1 is cut off", 60, lambda cluster: cluster.unplugged(1)),
    Fault("machine-2 is cut off", 300, lambda cluster: cluster.unplugged(2)),
    Fault("machine-1 is cut from etcd", 40, _cut_from_store(1)),
    Fault("machine-2 is cut from the others", 40, _cut_from_schedulers(2, both_ways=True)),
    Fault("machine-3 does not reach the others", 40, _cut_from_schedulers(3, both_ways=False)),
    Fault("machine-2 loses its mount", 30, _unmounted(2), shows="executor-2"),
    Fault("machine-3 comes up without its mount", 60, _unmounted(3, is_restarted=True), shows="executor-3"),
    Fault("machine-1 comes up with a copy", 60, _unmounted(1, is_restarted=True, has_copy=True), shows="executor-1"),
)
FEW: Final = (
    Fault("scheduler-1 is stopped", 12, _stopped("scheduler", 1)),
    Fault("machine-3 is cut off", 10, lambda cluster: cluster.unplugged(3)),
)
"""In the gate: what takes no longer than a minute with all."""
