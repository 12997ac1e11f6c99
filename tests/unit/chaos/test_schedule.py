"""The schedule of faults: decided by the seed, never hurting more than it may, and full of variety."""

import pytest

from tests.chaos.schedule import Fault, FaultKind, Targets, schedule

LINKS = ("client-1", "scheduler-1", "executor-1")
TARGETS = Targets(("s-1", "s-2", "s-3"), ("e-1", "e-2", "e-3"), LINKS)
SEEDS = range(1, 40)


def under_way(faults, at_s: float) -> list[Fault]:
    return [fault for fault in faults if fault.at_s <= at_s < fault.at_s + fault.lasts_s]


def test_a_seed_decides_all():
    assert schedule(5, 300, TARGETS) == schedule(5, 300, TARGETS)
    assert schedule(5, 300, TARGETS) != schedule(6, 300, TARGETS)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_more_is_hurt_than_the_cluster_can_bear(seed):
    faults = schedule(seed, 300, TARGETS)
    assert list(faults) == sorted(faults, key=lambda fault: fault.at_s)
    for fault in faults:
        assert fault.at_s > 0
        assert fault.at_s + fault.lasts_s <= 300
        together = under_way(faults, fault.at_s)
        assert len(together) <= 2
        assert sum(other.target == "etcd" for other in together) <= 1
        assert sum(other.kind is FaultKind.KILL_ALL_SCHEDULERS for other in together) <= 1
        for kind in ("s-", "e-"):
            assert len({other.target for other in together if other.target.startswith(kind)}) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_five_minutes_meet_every_kind(seed):
    faults = schedule(seed, 300, TARGETS)
    assert len(faults) >= 25
    assert {fault.kind for fault in faults} == set(FaultKind)


def test_nothing_fills_a_disk_that_others_need():
    targets = Targets(TARGETS.schedulers, TARGETS.executors, LINKS, has_small_disk=False)
    assert all(fault.kind is not FaultKind.FILL_DISK for seed in SEEDS for fault in schedule(seed, 300, targets))
