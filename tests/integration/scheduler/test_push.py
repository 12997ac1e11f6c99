"""Push mode over real gRPC and real stores: the real agent, and an executor that does what a test says."""

import asyncio
import json
import secrets
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest

from onager.clock import SystemClock
from onager.errors import UnknownExecutorError
from onager.executor.agent.agent import Ending
from onager.protocol import onager_pb2 as pb
from onager.protocol import status
from onager.protocol.limits import CHANNEL_OPTIONS, PROTOCOL_VERSION, SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import (
    OnagerExecutorGatewayStub,
    OnagerExecutorServicer,
    add_OnagerExecutorServicer_to_server,
)
from onager.scheduler.app import Replica
from onager.scheduler.executors.slots import SlotsRecord
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from tests.integration.scheduler.conftest import Running
from tests.integration.scheduler.test_jobs import RESULT, eventually, planned, two_stages
from tests.integration.scheduler.test_process import process
from tests.integration.scheduler.test_replicas import connect as connect  # noqa: PLC0414 - a fixture
from tests.support.fakes.agents import agent
from tests.support.fakes.scripted_executor import Client, arrow_stream, executor, identity, plan_outcome, success
from tests.support.processes.children import free_ports

WIDE = 12


async def slots(running):
    """Return the slots by the store, by executor."""
    page = await running.replica._backend.get_from_prefix(Keyspace.Slots, "")
    return {item.key: SlotsRecord.decoded(item.value, item.key) for item in page}


async def all_free(running, timeout_s=10.0):
    """Wait until nobody holds a slot."""

    async def is_so():
        return all(not record.holders for record in (await slots(running)).values())

    await eventually(is_so, timeout_s)


def wide(task_set, task):
    """Plan one stage of many tasks; each has an empty result."""
    if task_set.work == pb.PLAN:
        return planned(task_set, task, plan_outcome([(WIDE, 1, "result")]))
    return success(task_set, task, "?", inline=arrow_stream([]), rows=0)


def key_of(task_set, task):
    return identity(task_set, task).SerializeToString(deterministic=True)


class Held:
    """Tasks of the wide stage go on until the test ends them."""

    def __call__(self, task_set, task):
        return wide(task_set, task) if task_set.work == pb.PLAN else None


# -------------------------------------------------------------------- one scheduler, real agents


async def test_a_job_runs_on_an_executor_that_asks_for_nothing(scheduler, client):
    async with agent([scheduler.address], "e1", two_stages(), mode="push") as e1:
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert await client.fetch("job-1") == RESULT
        assert set(Counter(e1.worker.ran).values()) == {1}
        (record,) = (await slots(scheduler)).values()
        assert (record.executor_id, record.incarnation, record.total) == ("e1", e1.incarnation, 2)
        await all_free(scheduler)


async def test_executors_of_both_modes_share_the_work(scheduler, client):
    async with (
        agent([scheduler.address], "e1", Held(), mode="push") as pushed,
        agent([scheduler.address], "e2", Held(), mode="pull") as pulling,
    ):
        await client.submit("job-1")
        await eventually(lambda: len(pushed.worker.going_on) == len(pulling.worker.going_on) == 2)

        async def is_done():
            pushed.worker.finish(wide)
            pulling.worker.finish(wide)
            return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

        await eventually(is_done)
        ran = Counter([*pushed.worker.ran, *pulling.worker.ran])
        assert (len(ran), set(ran.values())) == (1 + WIDE, {1})
        assert (await slots(scheduler)).keys() == {"e1"}
        infos = await client.stub.ListExecutors(pb.ListExecutorsRequest())
        assert [(i.executor_id, i.mode, bool(i.address)) for i in infos.executors] == [
            ("e1", "push", True),
            ("e2", "pull", False),
        ]


async def test_a_freed_slot_is_filled_in_the_same_append(scheduler, client):
    async def is_one_held():
        (record,) = (await slots(scheduler)).values()
        return sum(record.holders.values()) == 1

    async with agent([scheduler.address], "e1", Held(), mode="push", slots=1) as e1:
        await client.submit("job-1")
        for n in range(WIDE):
            await eventually(lambda n=n: len(e1.worker.ran) == 2 + n)
            # For a moment two, where a scheduler's first round takes a launch on its way for one of nobody.
            await eventually(is_one_held)
            e1.worker.finish(wide)
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        # Submitted and planned; every other append takes a result in and hands out the next task.
        assert (await client.detail("job-1")).log_seq <= WIDE + 4


async def test_cancelling_stops_what_runs_at_once(scheduler, client):
    async with agent([scheduler.address], "e1", Held(), mode="push") as e1:
        await client.submit("job-1")
        await eventually(lambda: len(e1.worker.going_on) == 2)
        began_s = time.monotonic()
        await client.stub.CancelJob(pb.CancelJobRequest(job_id="job-1"))
        await eventually(lambda: len(e1.worker.cancelled) == 2)
        assert time.monotonic() - began_s < 1  # a heartbeat would take longer
        await all_free(scheduler)
        await client.submit("job-2")
        await eventually(lambda: len(e1.worker.going_on) == 2)


async def test_an_executor_that_drains_gets_nothing_more(scheduler, client):
    async with (
        agent([scheduler.address], "e1", Held(), mode="push") as leaving,
    ):
        await client.submit("job-1")
        await eventually(lambda: len(leaving.worker.going_on) == 2)
        leaving.agent.request_drain()

        async def is_draining():
            infos = (await client.stub.ListExecutors(pb.ListExecutorsRequest())).executors
            return [i.state for i in infos] == ["draining"]

        await eventually(is_draining)
        leaving.worker.finish(wide)
        async with asyncio.timeout(5):
            assert (await leaving.running).ending is Ending.DRAINED
        assert len(leaving.worker.ran) == 3
        assert not await slots(scheduler)
        async with agent([scheduler.address], "e2", wide, mode="push"):
            assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        stage = (await client.detail("job-1")).progress.stages[1]
        assert (stage.tasks_failed, stage.tasks_lost) == (0, 0)


async def test_an_executor_that_dies_takes_its_slots_along(scheduler, client):
    async with agent([scheduler.address], "e1", Held(), mode="push") as dying:
        await client.submit("job-1")
        await eventually(lambda: len(dying.worker.going_on) == 2)
    async with agent([scheduler.address], "e2", wide, mode="push"):
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        await all_free(scheduler)
        assert (await slots(scheduler)).keys() == {"e2"}
    assert (await client.detail("job-1")).progress.stages[1].tasks_lost == 2


# -------------------------------------------------------------------- one scheduler, a scripted executor


class ScriptedPushExecutor(OnagerExecutorServicer):
    """Takes launches as `on_launch` says: it gets request and answer, and may change the answer or raise."""

    def __init__(self, stub, executor_id, slots=2):
        self.stub, self.executor_id, self.slots = stub, executor_id, slots
        self.incarnation = secrets.token_hex(8)
        self.launches, self.cancelled, self.taken = [], [], {}
        self.on_launch = None
        self.blobs = Counter()

    async def LaunchTasks(self, request, context):  # noqa: N802
        self.launches.append(request)
        answer = pb.LaunchTasksResponse()
        if self.on_launch is not None and await self.on_launch(request, answer, context):
            return answer
        self.blobs.update(blob.digest for blob in request.blobs)
        for task_set in request.task_sets:
            for task in task_set.tasks:
                self.taken.setdefault(key_of(task_set, task), (task_set, task, request.holder))
        return answer

    async def CancelTasks(self, request, context):  # noqa: ARG002, N802
        self.cancelled += request.tasks
        return pb.CancelTasksResponse()

    async def finish(self, run=wide, times=1):
        """Report all that was taken, so many times."""
        reports = []
        for task_set, task, holder in self.taken.values():
            report = run(task_set, task)
            report.holder = holder
            reports.append(report)
        self.taken.clear()
        request = pb.ReportTasksRequest(
            executor_id=self.executor_id, incarnation=self.incarnation, reports=reports, freed_slots=len(reports)
        )
        for _ in range(times):
            await self.stub.ReportTasks(request)

    async def beat(self):
        while True:
            await asyncio.sleep(0.3)
            await self.stub.Heartbeat(pb.HeartbeatRequest(executor_id=self.executor_id, incarnation=self.incarnation))


@asynccontextmanager
async def scripted(address, executor_id="e1", **how):
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        made = ScriptedPushExecutor(OnagerExecutorGatewayStub(channel), executor_id, **how)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        add_OnagerExecutorServicer_to_server(made, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await made.stub.RegisterExecutor(
            pb.RegisterExecutorRequest(
                executor_id=executor_id,
                incarnation=made.incarnation,
                slots=made.slots,
                protocol_version=PROTOCOL_VERSION,
                spark_version="4.3.0",
                python_version="3.11",
                mode="push",
                address=f"127.0.0.1:{port}",
            ),
            wait_for_ready=True,
        )
        beating = asyncio.create_task(made.beat())
        try:
            yield made
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await server.stop(None)


async def until_ended(client, made, run=wide):
    async def is_done():
        if made.taken:
            await made.finish(run)
        return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

    await eventually(is_done)


async def test_a_stages_plan_travels_once_and_its_tasks_together(scheduler, client):
    async with scripted(scheduler.address, slots=4) as made:
        await client.submit("job-1")
        await until_ended(client, made)
        assert set(made.blobs.values()) == {1}
        assert max(len(t.tasks) for launch in made.launches for t in launch.task_sets) == 4
        assert {(launch.holder, launch.reply_to) for launch in made.launches} == {
            (scheduler.replica.members.record.incarnation, scheduler.address)
        }


async def test_what_a_full_executor_refuses_is_handed_out_again(scheduler, client):
    async with scripted(scheduler.address) as made:
        left, refused = [3], []

        async def refuse(request, answer, context):
            del context
            if left[0] and request.task_sets[0].work == pb.QUERY:
                left[0] -= 1
                answer.refused.extend(identity(s, t) for s in request.task_sets for t in s.tasks)
                answer.reason = "full"
                refused.append(len(answer.refused))
                return True
            return False

        made.on_launch = refuse
        await client.submit("job-1")
        await until_ended(client, made)
        stage = (await client.detail("job-1")).progress.stages[1]
        assert (stage.tasks_failed, stage.tasks_lost) == (0, sum(refused))
        assert len(refused) == 3
        assert {t.successes for t in stage.tasks} == {1}
        await all_free(scheduler)


async def test_a_launch_whose_answer_is_lost_is_sent_again_as_the_same_attempt(scheduler, client):
    async with scripted(scheduler.address) as made:
        seen = []

        async def lose(request, answer, context):
            del answer
            seen.append({key_of(s, t) for s in request.task_sets for t in s.tasks})
            if len(seen) in (1, 3):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
            return False

        made.on_launch = lose
        await client.submit("job-1")
        await until_ended(client, made)
        assert seen[0] <= seen[1]
        assert seen[2] <= seen[3]
        detail = await client.detail("job-1")
        assert [s.tasks_lost for s in detail.progress.stages] == [0, 0]
        assert {t.attempts for s in detail.progress.stages for t in s.tasks} == {1}


async def test_another_life_at_the_same_address_is_not_given_the_old_ones_tasks(scheduler, client):
    async with scripted(scheduler.address) as made:
        others = [2]

        async def be_another(request, answer, context):
            del request, answer
            if others[0]:
                others[0] -= 1
                await status.abort(context, UnknownExecutorError("e1"))
            return False

        made.on_launch = be_another
        await client.submit("job-1")
        await until_ended(client, made)
        detail = await client.detail("job-1")
        assert detail.progress.stages[0].tasks_lost == 2
        assert detail.progress.stages[0].tasks[0].attempts == 3


async def test_a_report_that_comes_twice_frees_its_slot_once(scheduler, client):
    async with scripted(scheduler.address, slots=1) as made:
        await client.submit("job-1")

        async def is_done():
            if made.taken:
                assert len(made.taken) == 1
                await made.finish(times=3)
            return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

        await eventually(is_done)
        assert sum(s.tasks_lost for s in (await client.detail("job-1")).progress.stages) == 0
        await all_free(scheduler)


async def test_slots_that_were_removed_by_hand_are_written_down_again(scheduler, client):
    async with agent([scheduler.address], "e1", two_stages(), mode="push"):
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        await scheduler.replica._backend.delete(Keyspace.Slots, "e1")
        await client.submit("job-2")
        assert (await client.wait("job-2")).state == pb.SUCCESSFUL


async def test_slots_of_nobody_go(scheduler):
    async with agent([scheduler.address], "e1", two_stages(), mode="push"):
        stray = SlotsRecord(executor_id="e0", incarnation="gone", total=2, holders={"somebody": 2})
        await scheduler.replica._backend.put(Keyspace.Slots, "e0", stray.encoded())

        async def is_gone():
            return (await slots(scheduler)).keys() == {"e1"}

        await eventually(is_gone)


# -------------------------------------------------------------------- two schedulers


@asynccontextmanager
async def replica(backend, tmp_path, scheduler_id):
    settings = SchedulerSettings(
        listen="127.0.0.1:0",
        exchange_dir=str(tmp_path),
        sweep_interval_ms=200,
        scheduler_id=scheduler_id,
        scheduler_lease_ttl_ms=1_500,
        executor_lease_ttl_ms=3_000,
    )
    made = Replica(settings, backend, SystemClock())
    await made.start()
    server, port = await serve(made, settings.listen)
    running = Running(made, server, port, asyncio.create_task(made.run()))
    running.is_up = True
    try:
        yield running
    finally:
        if running.is_up:
            await running.stop()


async def die(running):
    """End a scheduler without a word to anybody: its lease runs out."""
    running.is_up = False
    running.loops.cancel()
    await running.server.stop(None)
    for outbox in running.replica.push.launcher._outboxes.values():
        if outbox.sending is not None:
            outbox.sending.cancel()
    await asyncio.gather(running.loops, return_exceptions=True)


@pytest.fixture
async def replicas(connect, tmp_path):
    async with AsyncExitStack() as stack:
        made = []
        for name in ("s1", "s2"):
            backend = await stack.enter_async_context(await connect())
            made.append(await stack.enter_async_context(replica(backend, tmp_path, name)))
        await eventually(
            lambda: all(len(r.replica.members.live) == 2 and r.replica.members.is_registered for r in made)
        )
        yield made


def holder_of(replicas, record):
    """Return a replica that holds slots by *record*: now and then, each of them holds one."""
    return next(r for r in replicas if r.replica.members.record.incarnation in record.holders)


async def test_a_scheduler_dies_with_slots_in_its_hand(replicas):
    addresses = [r.address for r in replicas]
    async with agent(addresses, "e1", Held(), mode="push") as e1, AsyncExitStack() as stack:
        first = Client(addresses[0])
        stack.push_async_callback(first.close)
        await first.submit("job-1")
        await eventually(lambda: len(e1.worker.going_on) == 2)
        dying = holder_of(replicas, (await slots(replicas[0]))["e1"])
        (living,) = [r for r in replicas if r is not dying]
        await die(dying)
        client = Client(living.address)
        stack.push_async_callback(client.close)

        async def is_done():
            e1.worker.finish(wide)
            return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

        await eventually(is_done, 20)
        assert set(Counter(e1.worker.ran).values()) == {1}
        assert {t.successes for s in (await client.detail("job-1")).progress.stages for t in s.tasks} == {1}
        await all_free(living, 20)


async def test_what_a_scheduler_had_committed_and_not_sent_is_sent_by_another(replicas):
    addresses = [r.address for r in replicas]
    silent, heard = asyncio.Event(), asyncio.Event()

    def silenced(send):
        async def say_nothing(outbox):
            silent.set()
            await heard.wait()
            await send(outbox)

        return say_nothing

    for r in replicas:
        r.replica.push.launcher._send_launches = silenced(r.replica.push.launcher._send_launches)
    async with agent(addresses, "e1", wide, mode="push") as e1, AsyncExitStack() as stack:
        first = Client(addresses[0])
        stack.push_async_callback(first.close)
        await first.submit("job-1")
        await silent.wait()
        dying = holder_of(replicas, (await slots(replicas[0]))["e1"])
        (living,) = [r for r in replicas if r is not dying]
        assert not e1.worker.ran
        await die(dying)
        heard.set()
        client = Client(living.address)
        stack.push_async_callback(client.close)
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert set(Counter(e1.worker.ran).values()) == {1}
        assert {key.task_attempt for key in e1.worker.ran} == {0}
        await all_free(living, 20)


async def test_any_scheduler_serves_executors_of_both_modes(replicas):
    addresses = [r.address for r in replicas]
    async with (
        agent(addresses, "e1", wide, mode="push"),
        agent(addresses, "e2", wide, mode="push", first=1),
        executor(addresses[1], "e3", wide),
        AsyncExitStack() as stack,
    ):
        clients = [Client(address) for address in addresses]
        for client in clients:
            stack.push_async_callback(client.close)
        jobs = [f"job-{n}" for n in range(8)]
        for n, job_id in enumerate(jobs):
            await clients[n % 2].submit(job_id)
        for n, job_id in enumerate(jobs):
            assert (await clients[(n + 1) % 2].wait(job_id)).state == pb.SUCCESSFUL
            detail = await clients[n % 2].detail(job_id)
            assert {t.successes for s in detail.progress.stages for t in s.tasks} == {1}
        await all_free(replicas[0])


# -------------------------------------------------------------------- processes


async def test_the_only_scheduler_is_killed_and_comes_back(tmp_path):
    """What runs goes on; what its predecessor held is struck out, and the new life knows what runs in which slots."""
    (port,) = free_ports(1)
    address, store = f"127.0.0.1:{port}", f"leveldb:{tmp_path / 'state'}"
    async with agent([address], "e1", Held(), mode="push", slots=3) as e1, AsyncExitStack() as stack:
        client = Client(address)
        stack.push_async_callback(client.close)

        async def holders():
            shown = await client.stub.GetState(pb.GetStateRequest(key="Slots/e1"), wait_for_ready=True)
            return json.loads(shown.json)["holders"]

        async with process(tmp_path, port, backend=store, executor_lease_ttl_ms=9_000) as first:
            await client.submit("job-1")
            await eventually(lambda: len(e1.worker.going_on) == 3)
            ((before, held),) = (await holders()).items()
            assert held == 3
            first.kill()
            await first.wait()
        async with process(tmp_path, port, backend=store, executor_lease_ttl_ms=9_000):

            async def is_taken_over():
                found = await holders()
                return list(found.values()) == [3] and before not in found

            await eventually(is_taken_over, 20)
            assert len(e1.worker.ran) == 4

            async def is_done():
                e1.worker.finish(wide)
                return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

            await eventually(is_done, 20)
            assert set(Counter(e1.worker.ran).values()) == {1}
            detail = await client.detail("job-1")
            assert {t.attempts for s in detail.progress.stages for t in s.tasks} == {1}

            async def is_free():
                return not await holders()

            await eventually(is_free)
