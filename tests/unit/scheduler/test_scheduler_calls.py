"""Calls to a scheduler that has died end, and the caller takes its work back."""

# ruff: noqa: N802, ARG002 - gRPC names the methods

import asyncio
import gc

import grpc
import pytest

from onager.clock import SystemClock
from onager.execution_graph import ExecutorSlot
from onager.ids import JobId, SchedulerId
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerSchedulerGatewayServicer, add_OnagerSchedulerGatewayServicer_to_server
from onager.protocol.security import ClientAccess, ClientSecurity
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.cluster.remote_driver import RemoteDriver
from onager.scheduler.cluster.scheduler_calls import SchedulerCalls
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend
from tests.support.waiting import HANGS_S, eventually

SLOT = ExecutorSlot("e1", "life", 1)
HERE, THERE = SchedulerId("here"), SchedulerId("there")


class Silent(OnagerSchedulerGatewayServicer):
    """A scheduler that receives calls, but answers only when asked to."""

    def __init__(self):
        self.calls = 0
        self.answer = asyncio.Event()

    async def Forward(self, request, context):
        self.calls += 1
        await self.answer.wait()
        return pb.ForwardResponse(slots=[pb.FilledSlots() for _ in request.slots])


class World:
    def __init__(self, backend, address):
        clock = SystemClock()
        self.backend, self.address = backend, address
        self.schedulers = LiveSchedulers(backend, clock, scheduler_id=HERE, address="127.0.0.1:1", lease_ttl_s=30)
        ownership = Ownership(self.schedulers)
        loads = JobLoads(FairQueue(), FairQueue(), JobHeads(backend, clock, interval_ms=500), ownership, clock)
        self.calls = SchedulerCalls(self.schedulers, ClientAccess(ClientSecurity(), ()), clock, timeout_s=HANGS_S)
        self.actor = RemoteDriver(THERE, HERE, self.calls, loads)

    async def register(self):
        other = LiveSchedulers(self.backend, SystemClock(), scheduler_id=THERE, address=self.address, lease_ttl_s=30)
        await self.backend.put(Keyspace.Schedulers, THERE, other.record.encoded())
        await self.schedulers.refresh()

    async def leave(self):
        await self.backend.delete(Keyspace.Schedulers, THERE)
        await self.schedulers.refresh()
        await self.calls.close_gone()

    def fill(self, number):
        return self.actor.fill_reservations(JobId(f"job-{number}"), [ExecutorReservation.of(SLOT)])


@pytest.fixture
async def there():
    silent = Silent()
    server = grpc.aio.server()
    add_OnagerSchedulerGatewayServicer_to_server(silent, server)
    silent.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield silent
    silent.answer.set()
    await server.stop(None)


@pytest.fixture
async def world(there):
    async with MemoryBackend() as backend:
        made = World(backend, f"127.0.0.1:{there.port}")
        await made.register()
        yield made
        await made.calls.close()


async def test_a_caller_of_a_leaving_scheduler_takes_over_and_is_not_cancelled(world, there):
    waiting = [asyncio.create_task(world.fill(number)) for number in range(5)]
    await eventually(lambda: there.calls == 2)  # and three parts wait for their turn
    await world.leave()
    async with asyncio.timeout(HANGS_S):
        ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [NotDrivingError] * 5
    assert not world.actor.is_busy_with("e1")


async def test_another_life_at_the_same_place_is_called_anew(world, there):
    waiting = asyncio.create_task(world.fill(0))
    await eventually(lambda: there.calls == 1)
    await world.leave()
    await asyncio.gather(waiting, return_exceptions=True)
    there.answer.set()
    await world.register()
    async with asyncio.timeout(HANGS_S):
        assert (await world.fill(1)).launches == []


async def test_a_caller_that_is_cancelled_is_cancelled_and_the_call_goes_on(world, there):
    first, second = (asyncio.create_task(world.fill(number)) for number in range(2))
    await eventually(lambda: there.calls == 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    there.answer.set()
    async with asyncio.timeout(HANGS_S):
        assert (await second).launches == []


async def test_a_watcher_who_has_gone_misses_no_failure(world, there):
    received = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: received.append(context))
    watcher = asyncio.create_task(world.actor.progress(JobId("job-0")))
    await eventually(lambda: there.calls == 1)
    watcher.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watcher
    await world.leave()
    await eventually(lambda: not world.actor._under_way)
    gc.collect()
    assert received == []


async def test_an_answer_that_cannot_be_worked_off_leaves_nobody_waiting(world, there, monkeypatch):
    there.answer.set()
    monkeypatch.setattr(world.actor._loads, "take_loads", lambda _: 1 / 0)
    async with asyncio.timeout(HANGS_S):
        with pytest.raises(NotDrivingError, match="ZeroDivisionError"):
            await world.fill(0)
