"""What a scheduler tells load balancers while it, or everybody, sees the exchange directory badly."""

import asyncio
import errno

import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from onager.scheduler import timing
from onager.scheduler.health import LIVENESS, tell_health
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.disks import HANG, FaultyDisk, settled
from tests.support.fakes.machines import SchedulerMachine
from tests.support.waiting import HANGS_S, eventually


class Two:
    """Two schedulers that see one directory, each by a path of its own, and the disks at these paths."""

    def __init__(self, directory, clock, monkeypatch):
        (directory / "shared").mkdir()
        store, self.schedulers, self.disks = MemoryStore(clock), [], []
        self.monkeypatch = monkeypatch
        for name in ("a", "b"):
            (directory / name).symlink_to("shared")
            self.schedulers.append(SchedulerMachine(name, clock, MemoryBackend(store), directory / name))
            self.disks.append(FaultyDisk(directory / name, monkeypatch))

    async def look(self):
        for _ in range(3):
            for scheduler, disk in zip(self.schedulers, self.disks, strict=True):
                hangs = disk.first is not None and disk.fault == HANG
                self.monkeypatch.setattr(timing, "PLACE_ANSWER_S", 0.05 if hangs else HANGS_S)
                await scheduler.look()
        for scheduler in self.schedulers:
            await scheduler.app.schedulers.refresh()

    def elsewhere(self):
        return [each.own.is_seen_better_elsewhere for each in self.schedulers]


@pytest.fixture
async def two(tmp_path, clock, monkeypatch):
    made = Two(tmp_path, clock, monkeypatch)
    for scheduler in made.schedulers:
        await scheduler.start()
    await made.look()
    yield made
    for disk in made.disks:
        disk.mend()
    await settled()
    for scheduler in made.schedulers:
        await scheduler.app.close()


@pytest.mark.parametrize("fault", [errno.EIO, errno.ESTALE, HANG])
async def test_callers_are_sent_elsewhere_while_only_this_machine_sees_the_exchange_directory_badly(two, fault):
    assert two.elsewhere() == [False, False]
    two.disks[0].fail(fault, 0)
    await two.look()
    assert two.elsewhere() == [True, False]
    two.disks[1].fail(fault, 0)
    await two.look()
    assert two.elsewhere() == [False, False], "nobody sees it better"
    for disk in two.disks:
        disk.mend()
    await settled()
    await two.look()
    assert two.elsewhere() == [False, False]
    assert all(each.own.is_admitted and not each.app.schedulers.record.is_exchange_silent for each in two.schedulers)


async def test_a_scheduler_that_is_gone_sees_nothing_better(two):
    two.disks[0].fail(HANG, 0)
    await two.look()
    assert two.elsewhere() == [True, False]
    schedulers = two.schedulers[0].app.schedulers
    schedulers.end(schedulers.others()[0], "it does not answer")
    assert two.elsewhere()[0] is False


async def test_what_load_balancers_see_follows_and_the_process_counts_as_alive(monkeypatch):
    monkeypatch.setattr(timing, "HEALTH_LOOK_S", 0.001)
    checks, worse = HealthServicer(), [False]
    for name in ("", LIVENESS, "service"):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    telling = asyncio.create_task(tell_health(checks, ["service"], lambda: worse[0]))

    async def reported():
        found = [await checks.Check(health_pb2.HealthCheckRequest(service=s), None) for s in ("", "service", LIVENESS)]
        return [health_pb2.HealthCheckResponse.ServingStatus.Name(each.status) for each in found]

    for is_worse, status in ((True, "NOT_SERVING"), (False, "SERVING")):
        worse[0] = is_worse

        async def is_reported(status=status):
            return await reported() == [status, status, "SERVING"]

        await eventually(is_reported, f"{status} is reported")
    telling.cancel()
