"""The way to push executors, against a real gRPC server that answers as the test says."""

import asyncio
import hashlib
from contextlib import asynccontextmanager

import grpc
import pytest
from structlog.testing import capture_logs

from onager.clock import SystemClock
from onager.errors import NotFoundError, UnknownExecutorError
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol import status
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import OnagerExecutorServicer, add_OnagerExecutorServicer_to_server
from onager.protocol.security import ClientAccess, ClientSecurity
from onager.protocol.task_keys import task_id, task_key
from onager.scheduler.engine.launcher import Launcher
from onager.scheduler.executors.records import ExecutorRecord

PLAN = b"the plan"
DIGEST = hashlib.sha256(PLAN).hexdigest()


def task_set(*partitions, stage=1, digest=DIGEST):
    tasks = [pb.TaskAttempt(partition=p) for p in partitions]
    return pb.TaskSet(job_id="j", stage_id=stage, work=pb.QUERY, plan_digest=digest, tasks=tasks)


def key(partition, stage=1):
    return TaskKey(JobId("j"), stage, 0, partition, 0)


class Executor(OnagerExecutorServicer):
    def __init__(self):
        self.launches, self.cancels = [], []
        self.answers = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def LaunchTasks(self, request, context):  # noqa: N802
        self.launches.append(request)
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            await status.abort(context, answer)
        if answer == "lost":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
        return answer or pb.LaunchTasksResponse(list_number=7)

    async def CancelTasks(self, request, context):  # noqa: ARG002, N802
        self.cancels += [task_key(task) for task in request.tasks]
        return pb.CancelTasksResponse()

    def tasks(self, n):
        return [[t.partition for t in s.tasks] for s in self.launches[n].task_sets]


class Blobs:
    async def get(self, digest):
        if digest != DIGEST:
            raise NotFoundError(digest)
        return PLAN


class Told:
    def __init__(self):
        self.events = []
        self.failures = 0

    def failed(self):
        self.failures += 1

    def taken(self, record, keys, list_number):
        assert record.executor_id == "e1"
        self.events.append(("taken", sorted(keys), list_number))

    def refused(self, record, keys, reason, *, pause_s):
        assert record.executor_id == "e1"
        assert reason
        self.events.append(("refused", sorted(keys), pause_s))

    def elsewhere(self, record, keys):
        assert record.executor_id == "e1"
        self.events.append(("elsewhere", sorted(keys)))

    def withdrawn(self, record, keys):
        assert record.executor_id == "e1"
        self.events.append(("withdrawn", sorted(keys)))

    def given_up(self, record, keys):
        assert record.executor_id == "e1"
        self.events.append(("given up", sorted(keys)))


class Rig:
    def __init__(self, executor, launcher, record, told, alive):
        self.executor, self.launcher, self.record, self.told, self.alive = executor, launcher, record, told, alive

    def launch(self, *task_sets):
        self.launcher.launch(self.record, task_sets)

    async def until(self, condition):
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - conditions of a test have no events
                await asyncio.sleep(0.002)


@pytest.fixture
async def rig():
    async with launching() as made:
        yield made


@asynccontextmanager
async def launching():
    executor, told, alive = Executor(), Told(), [True]
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_OnagerExecutorServicer_to_server(executor, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    record = ExecutorRecord(
        executor_id="e1", incarnation="life", host="h", pid=1, slots=2, spark_version="4.3.0", python_version="3.11",
        exchange_dir="/", registered_ms=1, lease_id=1, mode="push", address=f"127.0.0.1:{port}",
    )  # fmt: skip
    launcher = Launcher(
        Blobs(),
        ClientAccess(ClientSecurity(), ()),
        told,
        SystemClock(),
        holder="me",
        reply_to=lambda: "here:1",
        live_holders=lambda: ["you", "me"],
        is_alive=lambda *_: alive[0],
    )
    try:
        yield Rig(executor, launcher, record, told, alive)
    finally:
        executor.gate.set()
        await launcher.close()
        await server.stop(None)


async def test_what_is_launched_together_travels_together_with_its_plan(rig):
    rig.launch(task_set(0, 1), task_set(5, stage=2, digest=""))
    rig.launch(task_set(2))
    await rig.until(lambda: rig.told.events)
    (request,) = rig.executor.launches
    assert rig.executor.tasks(0) == [[0, 1, 2], [5]]
    assert [(b.digest, b.content) for b in request.blobs] == [(DIGEST, PLAN)]
    assert (request.executor_id, request.incarnation, request.holder, request.reply_to) == (
        "e1",
        "life",
        "me",
        "here:1",
    )
    assert list(request.live_holders) == ["me", "you"]
    assert rig.told.events == [("taken", [key(0), key(1), key(2), key(5, 2)], 7)]
    assert rig.launcher.has_plan("e1", "life", DIGEST)
    rig.launch(task_set(3))
    await rig.until(lambda: len(rig.executor.launches) == 2)
    assert not rig.executor.launches[1].blobs


async def test_of_the_plans_that_were_sent_the_latest_are_known(rig):
    """An executor lives for months, and is sent a plan for each stage that it runs."""
    rig.launch(task_set(0))
    await rig.until(lambda: rig.told.events)
    assert rig.launcher.has_plan("e1", "life", DIGEST)
    count = 1100
    rig.launch(*[task_set(0, stage=stage, digest=f"{stage:064}") for stage in range(2, 2 + count)])
    await rig.until(lambda: sum(len(event[1]) for event in rig.told.events) == 1 + count)
    assert not rig.launcher.has_plan("e1", "life", DIGEST)
    known = [rig.launcher.has_plan("e1", "life", f"{stage:064}") for stage in range(2, 2 + count)]
    assert known == [False] * (count - 1024) + [True] * 1024
    rig.launch(task_set(7))
    await rig.until(lambda: rig.launcher.has_plan("e1", "life", DIGEST))
    assert [blob.digest for blob in rig.executor.launches[-1].blobs] == [DIGEST], "it is sent once more"


async def test_a_plan_that_is_not_there_is_left_to_the_executor(rig):
    rig.launch(task_set(0, digest="0" * 64))
    await rig.until(lambda: rig.told.events)
    assert not rig.executor.launches[0].blobs


async def test_a_launch_without_an_answer_is_repeated(rig):
    rig.executor.answers = ["lost", "lost"]
    rig.launch(task_set(0))
    await rig.until(lambda: rig.told.events)
    assert [rig.executor.tasks(n) for n in range(3)] == [[[0]]] * 3
    assert rig.executor.launches[2].blobs


async def test_an_executor_that_does_not_answer_is_told_by_its_name(rig):
    rig.executor.answers = ["lost"]
    with capture_logs() as logs:
        rig.launch(task_set(0))
        await rig.until(lambda: rig.told.events)
    (entry,) = (entry for entry in logs if entry["event"] == "launches_not_delivered")
    assert entry["error"].startswith(f"executor e1 does not answer at {rig.record.address} (connection reset)")


async def test_what_comes_while_a_call_is_under_way_goes_with_the_next(rig):
    rig.executor.gate.clear()
    rig.executor.answers = ["lost"]
    rig.launch(task_set(0))
    await rig.until(lambda: rig.executor.launches)
    rig.launch(task_set(1))
    rig.executor.gate.set()
    await rig.until(lambda: rig.told.events)
    assert rig.executor.tasks(1) == [[0, 1]]


async def test_refusals_are_told(rig):
    rig.executor.answers = [
        pb.LaunchTasksResponse(
            refused=[task_id(key(0))], reason="full", over=[task_id(key(1))], elsewhere=[task_id(key(2))]
        )
    ]
    rig.launch(task_set(0, 1, 2, 3))
    await rig.until(lambda: len(rig.told.events) == 4)
    assert rig.told.events == [
        ("refused", [key(0)], 0.5),
        ("refused", [key(1)], 0.0),
        ("elsewhere", [key(2)]),
        ("taken", [key(3)], 0),
    ]


async def test_another_life_refuses_all_and_is_not_asked_again(rig):
    rig.executor.answers = [UnknownExecutorError("e1")]
    rig.launch(task_set(0, 1))
    await rig.until(lambda: rig.told.events)
    assert rig.told.events == [("refused", [key(0), key(1)], 0.0)]
    await asyncio.sleep(0.1)
    assert len(rig.executor.launches) == 1


async def test_an_executor_that_is_lost_is_not_sent_anything_more(rig):
    rig.executor.answers = ["lost"] * 100
    rig.launch(task_set(0))
    await rig.until(lambda: len(rig.executor.launches) > 1)
    rig.alive[0] = False
    await rig.until(rig.launcher._outboxes["e1", "life"].sending.done)
    sent = len(rig.executor.launches)
    await asyncio.sleep(0.15)
    assert len(rig.executor.launches) == sent
    assert rig.told.events == [("given up", [key(0)])]


async def test_an_executor_that_lives_and_is_not_reached_gets_its_tasks_taken_back(rig, monkeypatch):
    monkeypatch.setattr("onager.scheduler.timing.UNREACHED_AFTER_S", 0.2)
    rig.executor.answers = ["lost"] * 100
    rig.launch(task_set(0))
    await rig.until(lambda: rig.told.events)
    assert rig.told.events == [("refused", [key(0)], 15.0)]
    rig.executor.answers.clear()
    rig.launch(task_set(1))
    await rig.until(lambda: len(rig.told.events) == 2)
    assert rig.told.events[1] == ("taken", [key(1)], 7)


async def test_what_is_cancelled_before_it_is_sent_is_not_sent(rig):
    rig.executor.gate.clear()
    rig.executor.answers = ["lost"]
    rig.launch(task_set(0, 1))
    await rig.until(lambda: rig.executor.launches)
    rig.launch(task_set(7, stage=2))
    rig.launcher.cancel(rig.record, [key(1), key(7, 2)])
    assert rig.told.events == [("withdrawn", [key(7, 2)])], "the others may come there"
    rig.executor.gate.set()
    await rig.until(lambda: len(rig.told.events) > 1)
    assert rig.executor.cancels == [key(1), key(7, 2)]
    assert rig.executor.tasks(1) == [[0]]
    assert rig.told.events[1:] == [("taken", [key(0)], 7)]


async def test_what_was_sent_without_an_answer_may_be_there_though_it_is_sent_no_more(rig):
    rig.executor.answers = ["lost"] * 100
    rig.launch(task_set(0))
    await rig.until(lambda: rig.told.failures)
    rig.launcher.cancel(rig.record, [key(0)])
    await rig.until(rig.launcher._outboxes["e1", "life"].sending.done)
    assert rig.executor.cancels == [key(0)]
    assert rig.told.events == []
