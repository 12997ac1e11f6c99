"""A scheduler whose port refuses connections is recognised as dead before its lease expires."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest

from onager.clock import SystemClock
from onager.execution_graph import JobCancelled
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerSchedulerGatewayStub, add_OnagerSchedulerGatewayServicer_to_server
from onager.protocol.security import ClientAccess, ClientSecurity
from onager.scheduler.api.scheduler_gateway import SchedulerGatewayService
from onager.scheduler.app import SchedulerApp
from onager.scheduler.cluster import scheduler_watch
from onager.scheduler.cluster.cluster_clock import ClusterClock
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy import rendezvous
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.waiting import HANGS_S, eventually
from tests.unit.scheduler.pair import FakeContext
from tests.unit.scheduler.small_graphs import graph


def schedulers_of(store, name, address):
    return LiveSchedulers(MemoryBackend(store), SystemClock(), scheduler_id=name, address=address, lease_ttl_s=30)


class Other:
    """Another scheduler, whose record stays in the store whatever happens to its port."""

    def __init__(self, store):
        self.store = store
        self.port = 0
        self.calls = 0

    async def serve(self, incarnation=None, scheduler_id="b"):
        self.schedulers = schedulers_of(self.store, scheduler_id, "")
        if incarnation is not None:
            self.schedulers.record = self.schedulers.record.model_copy(update={"incarnation": incarnation})
        self.service = SchedulerGatewayService(*[None] * 5, self.schedulers, *[None] * 3)
        attend = self.service.Attend

        async def counted(request, context):
            self.calls += 1
            return await attend(request, context)

        self.service.Attend = counted
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_OnagerSchedulerGatewayServicer_to_server(self.service, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    async def register(self):
        self.schedulers.advertise(f"127.0.0.1:{self.port}")
        await MemoryBackend(self.store).put(Keyspace.Schedulers, "b", self.schedulers.record.encoded())

    @property
    def life(self):
        return self.schedulers.record.incarnation


@pytest.fixture
def store():
    return MemoryStore(SystemClock())


@pytest.fixture
async def other(store):
    made = Other(store)
    await made.serve()
    await made.register()
    yield made
    await made.server.stop(0)


@asynccontextmanager
async def attending(store):
    schedulers = schedulers_of(store, "a", "127.0.0.1:1")
    watch = scheduler_watch.SchedulerWatch(schedulers, ClientAccess(ClientSecurity(), ()), timeout_s=HANGS_S)
    schedulers.listen(watch.on_schedulers)
    loops = [asyncio.create_task(schedulers.run()), asyncio.create_task(watch.run())]
    try:
        await eventually(lambda: "b" in schedulers.live)
        yield schedulers
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


def is_not_attended_to():
    return not any(task.get_name() == "attending to b" for task in asyncio.all_tasks())


async def test_a_scheduler_that_refuses_connections_is_dead_until_it_answers_again(store, other):
    async with attending(store) as schedulers:
        await eventually(lambda: other.calls >= 2)  # it has answered, and is attended to
        received = []
        schedulers.listen(lambda: received.append(sorted(schedulers.live)))
        life = other.life
        await other.server.stop(0)
        await eventually(lambda: "b" not in schedulers.live)
        assert schedulers.find("b") is not None  # its lease goes on
        assert [info.scheduler_id for info in schedulers.infos()] == ["a", "b"]
        await other.serve(incarnation=life)
        await eventually(lambda: "b" in schedulers.live)
        assert schedulers.find("b").incarnation == life
        assert received == [["a"], ["a", "b"]]


async def test_a_life_after_which_another_answers_is_over(store, other):
    async with attending(store) as schedulers:
        await eventually(lambda: other.calls >= 2)
        await other.server.stop(0)
        await other.serve()
        await eventually(lambda: "b" not in schedulers.live)
        await eventually(is_not_attended_to)
        await other.register()
        await eventually(lambda: "b" in schedulers.live)
        assert schedulers.find("b").incarnation == other.life


async def test_an_address_that_never_answered_proves_nothing(store, other, monkeypatch):
    await other.server.stop(0)
    tries = []

    def counted(channel):
        stub = OnagerSchedulerGatewayStub(channel)
        return SimpleNamespace(Attend=lambda *call, **more: tries.append(call) or stub.Attend(*call, **more))

    monkeypatch.setattr(scheduler_watch, "OnagerSchedulerGatewayStub", counted)
    async with attending(store) as schedulers:
        await eventually(lambda: len(tries) > 3)
        assert "b" in schedulers.live


async def test_an_answer_of_another_scheduler_at_the_address_proves_nothing(store, other):
    await other.server.stop(0)
    await other.serve(scheduler_id="c")
    async with attending(store) as schedulers:
        await eventually(lambda: other.calls >= 1)
        await eventually(is_not_attended_to)
        assert "b" in schedulers.live
        assert other.calls == 1


async def test_a_scheduler_that_leaves_does_not_hold_up_others(store, other):
    async with attending(store):
        await eventually(lambda: other.calls >= 2)
        other.service.release()
        async with asyncio.timeout(HANGS_S):
            await other.server.stop(None)


async def test_a_life_that_registers_again_goes_on(store):
    schedulers = schedulers_of(store, "a", "127.0.0.1:1")
    other = schedulers_of(store, "b", "127.0.0.1:2").record
    backend = MemoryBackend(store)
    await backend.put(Keyspace.Schedulers, "b", other.encoded())
    await schedulers.refresh()
    schedulers.end(SimpleNamespace(**{**other.model_dump(), "incarnation": "unknown"}), "a test")
    assert "b" in schedulers.live
    schedulers.end(other, "a test")
    assert sorted(schedulers.live) == ["a"]
    await schedulers.refresh()
    assert sorted(schedulers.live) == ["a"]
    await backend.put(Keyspace.Schedulers, "b", other.encoded())
    await schedulers.refresh()
    assert sorted(schedulers.live) == ["a", "b"]


class SetClock(SystemClock):
    def __init__(self, ahead_ms):
        self.ahead_ms = ahead_ms

    def now_ms(self):
        return super().now_ms() + self.ahead_ms


NEAR_MS = 1000 * HANGS_S
"""However long it took to ask for the time; the clocks that are wrong are so by two hours."""


def is_near(one, other):
    return abs(one.now_ms() - other.now_ms()) < NEAR_MS


async def test_a_scheduler_whose_clock_is_wrong_takes_over_the_time_that_is_there(store, other):
    """Before it acts: it would find that the deadlines of all jobs have passed."""
    clock = SetClock(2 * 3_600_000)
    late = LiveSchedulers(MemoryBackend(store), clock, scheduler_id="late", address="127.0.0.1:1", lease_ttl_s=30)
    watch = scheduler_watch.SchedulerWatch(late, ClientAccess(ClientSecurity(), ()), timeout_s=HANGS_S)
    await late.refresh()
    await watch.set_clock()
    assert is_near(late.clock, other.schedulers.clock)
    assert abs(late.clock.ahead_ms - 2 * 3_600_000) < NEAR_MS
    clock.ahead_ms = -2 * 3_600_000
    assert is_near(late.clock, other.schedulers.clock), "nobody sets a time that others share"
    (mine,) = [info for info in late.infos() if info.scheduler_id == "late"]
    assert abs(mine.clock_ahead_ms + 2 * 3_600_000) < NEAR_MS


async def test_a_scheduler_whose_clock_is_ahead_ends_no_job_and_removes_none_too_early(store, other):
    settings = {"exchange_dir": "/x", "listen": "127.0.0.1:1"}
    before = SchedulerApp(SchedulerSettings(scheduler_id="before", **settings), MemoryBackend(store), SystemClock())
    now_ms = before.clock.now_ms()
    mine, ended = [JobId(n) for n in map(str, range(1_000)) if rendezvous.first(n, ["b", "late"]) == "late"][:2]
    for job_id in (mine, ended):
        await before.jobs.submit(graph(job_id, at_ms=now_ms), JobTerms(deadline_ms=now_ms + 600_000))
    await before.writers.record_decision(ended, lambda _: Decision([JobCancelled(reason="enough", at_ms=now_ms)]))
    await before.close()
    late = SchedulerApp(
        SchedulerSettings(scheduler_id="late", result_retention_s=600, record_retention_s=600, **settings),
        MemoryBackend(store),
        SetClock(2 * 3_600_000),
    )
    await late.start()
    await late.sweep()
    await late.steps.pass_deadlines()
    assert late.heads.get(mine).is_active
    assert late.heads.get(ended).has_result
    await late.close()


async def test_schedulers_keep_to_the_time_of_the_eldest_and_tell_who_differs(store, other):
    other.schedulers.clock._clock = SetClock(-2 * 3_600_000)
    async with attending(store) as schedulers:
        await eventually(lambda: is_near(schedulers.clock, other.schedulers.clock))
        other.schedulers.clock._clock.ahead_ms = 0
        assert schedulers.elders() == [other.schedulers.record]
        # As the other one started to count before its clock was set, it differs now.
        answer = await other.service.Attend(pb.AttendRequest(), FakeContext())
        schedulers.follow_clock(other.schedulers.record, answer)
        assert [i.clock_ahead_ms for i in schedulers.infos() if i.scheduler_id == "b"] == [
            answer.machine_ms - answer.now_ms
        ]


def test_a_scheduler_that_was_never_with_others_has_the_time_of_its_machine():
    clock = SetClock(0)
    alone = ClusterClock(clock)
    clock.ahead_ms = 60_000
    assert abs(alone.now_ms() - clock.now_ms()) < 1_000
    assert abs(alone.ahead_ms) < 1_000
