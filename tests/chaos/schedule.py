"""The schedule of faults, drawn from a seed before the run."""

import random  # noqa: TID251 seeded
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class FaultKind(StrEnum):
    """What can be done to a cluster."""

    KILL_SCHEDULER = "kill -9 scheduler"
    KILL_ALL_SCHEDULERS = "kill -9 all schedulers"
    KILL_EXECUTOR = "kill -9 executor"
    KILL_JVM = "kill -9 JVM of executor"
    KILL_PYTHON_WORKER = "kill -9 Python worker of executor"
    KILL_ETCD_FOLLOWER = "kill -9 follower of etcd"
    KILL_ETCD_LEADER = "kill -9 leader of etcd"
    KILL_ETCD_MAJORITY = "kill -9 two members of etcd"
    PAUSE_SCHEDULER = "SIGSTOP scheduler"
    PAUSE_EXECUTOR = "SIGSTOP executor and JVM"
    PAUSE_JVM = "SIGSTOP JVM of executor"
    PAUSE_ETCD_LEADER = "SIGSTOP leader of etcd"
    PAUSE_ETCD_FOLLOWER = "SIGSTOP follower of etcd"
    CUT = "cut connections"
    REFUSE = "cut and refuse connections"
    HOLD = "hold what is sent"
    DELAY = "delay what is sent"
    DROP_ANSWER = "drop the next answer and cut"
    FILL_DISK = "fill the exchange disk"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: at *at_s* from the start of the chaos, undone *lasts_s* later."""

    at_s: float
    kind: FaultKind
    target: str
    """A part, or all ``schedulers``; who connects, for faults of connections; ``etcd``, for a member of it that is
    chosen when the fault strikes."""
    lasts_s: float

    def earlier(self, by_s: float) -> "Fault":
        """Return the same fault, striking *by_s* earlier."""
        return replace(self, at_s=self.at_s - by_s)


@dataclass(frozen=True, slots=True)
class _Rule:
    pool: str
    shortest_s: float
    longest_s: float
    recovery_s: float = 0.0
    """How long the target counts as faulty after the fault has ended."""


_LINKS: Final = "links"
_RULES: Final = {
    FaultKind.KILL_SCHEDULER: _Rule("scheduler", 0.5, 8, 3),
    FaultKind.PAUSE_SCHEDULER: _Rule("scheduler", 0.5, 9, 2),
    FaultKind.KILL_ALL_SCHEDULERS: _Rule("schedulers", 0.2, 5, 5),
    FaultKind.KILL_EXECUTOR: _Rule("executor", 0.5, 10, 15),
    FaultKind.PAUSE_EXECUTOR: _Rule("executor", 0.5, 12, 5),
    FaultKind.PAUSE_JVM: _Rule("executor", 0.5, 12, 3),
    FaultKind.KILL_JVM: _Rule("executor", 0, 0, 15),
    FaultKind.KILL_PYTHON_WORKER: _Rule("executor", 0, 0, 3),
    FaultKind.KILL_ETCD_FOLLOWER: _Rule("etcd", 1, 8, 4),
    FaultKind.KILL_ETCD_LEADER: _Rule("etcd", 1, 8, 4),
    FaultKind.PAUSE_ETCD_LEADER: _Rule("etcd", 1, 8, 4),
    FaultKind.PAUSE_ETCD_FOLLOWER: _Rule("etcd", 1, 8, 4),
    FaultKind.KILL_ETCD_MAJORITY: _Rule("etcd", 1, 4, 6),
    FaultKind.CUT: _Rule(_LINKS, 0, 0, 1),
    FaultKind.REFUSE: _Rule(_LINKS, 0.2, 5, 1),
    FaultKind.HOLD: _Rule(_LINKS, 0.5, 8, 1),
    FaultKind.DELAY: _Rule(_LINKS, 3, 12),
    FaultKind.DROP_ANSWER: _Rule(_LINKS, 1, 2),
    FaultKind.FILL_DISK: _Rule("disk", 1, 4, 5),
}
"""Leases are 4 s (schedulers) and 6 s (executors): many pauses outlast them."""
_AT_ONCE: Final = 2
_MAX_HURT: Final = {"scheduler": 2, "schedulers": 1, "executor": 2, "etcd": 1, "disk": 1, _LINKS: 2}
_CALM_S: Final = 3.0
_MEAN_GAP_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Targets:
    """The possible targets of faults."""

    schedulers: Sequence[str]
    executors: Sequence[str]
    links: Sequence[str]
    has_small_disk: bool = True

    def pool(self, name: str) -> Sequence[str]:
        """Return the targets of one kind."""
        pools = {"scheduler": self.schedulers, "executor": self.executors, _LINKS: self.links}
        return pools.get(name, (name,))


def schedule(seed: int, seconds: float, targets: Targets) -> tuple[Fault, ...]:
    """Return the faults of *seconds* of chaos, in the order in which they strike; all are undone by then.

    Two may overlap, etcd has one at a time, and one executor is always left alone. Kinds come from a shuffled deck, so
    that even a short run has met most of them.
    """
    rng = random.Random(seed)
    deck: list[FaultKind] = []
    faults: list[Fault] = []
    now_s = _CALM_S
    while now_s < seconds:
        if len(_under_way(faults, now_s)) < _AT_ONCE:
            fault = _next(rng, now_s, deck, faults, targets)
            if fault is not None and fault.at_s + fault.lasts_s <= seconds:
                faults.append(fault)
        now_s += rng.expovariate(1 / _MEAN_GAP_S)
    return tuple(faults)


def _next(
    rng: random.Random, now_s: float, deck: list[FaultKind], faults: Sequence[Fault], targets: Targets
) -> Fault | None:
    """Remove from *deck* and return the first fault that may strike now; an empty deck is refilled."""
    if not deck:
        deck += [kind for kind in FaultKind if kind is not FaultKind.FILL_DISK or targets.has_small_disk]
        rng.shuffle(deck)
    for kind in deck:
        rule = _RULES[kind]
        hurt = {f.target for f in faults if _RULES[f.kind].pool == rule.pool and _hurts_until(f) > now_s}
        unhurt = [target for target in targets.pool(rule.pool) if target not in hurt]
        if unhurt and len(hurt) < _MAX_HURT[rule.pool]:
            deck.remove(kind)
            lasts_s = rng.uniform(rule.shortest_s, rule.longest_s)
            return Fault(round(now_s, 2), kind, rng.choice(unhurt), round(lasts_s, 2))
    return None


def _under_way(faults: Sequence[Fault], now_s: float) -> list[Fault]:
    return [fault for fault in faults if fault.at_s + fault.lasts_s > now_s]


def _hurts_until(fault: Fault) -> float:
    return fault.at_s + fault.lasts_s + _RULES[fault.kind].recovery_s
