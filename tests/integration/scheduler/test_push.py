"""Push mode over real gRPC and real stores: the real agent, and an executor that does what a test says."""

import asyncio
import secrets
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest

from onager.clock import SystemClock
from onager.errors import UnknownExecutorError
from onager.executor.agent.endings import Ending
from onager.protocol import onager_pb2 as pb
from onager.protocol import status
from onager.protocol.limits import CHANNEL_OPTIONS, PROTOCOL_VERSION, SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import (
    OnagerExecutorGatewayStub,
    OnagerExecutorServicer,
    add_OnagerExecutorServicer_to_server,
)
from onager.scheduler.app import SchedulerApp
from onager.scheduler.server import serve
from onager.scheduler.settings import SchedulerSettings
from tests.integration.scheduler.conftest import Running, serving
from tests.integration.scheduler.test_jobs import RESULT, planned, two_stages
from tests.integration.scheduler.test_process import process
from tests.integration.scheduler.test_several_schedulers import connect as connect  # noqa: PLC0414 - a fixture
from tests.support.fakes.agents import agent
from tests.support.fakes.scripted_executor import Client, arrow_stream, executor, identity, plan_outcome, success
from tests.support.processes.children import free_ports
from tests.support.waiting import HANGS_S, eventually

WIDE = 12


def wide(task_set, task):
    """Plan one stage of many tasks; each has an empty result."""
    if task_set.work == pb.PLAN:
        return planned(task_set, task, plan_outcome([(WIDE, 1, "result")]))
    return success(task_set, task, "?", inline=arrow_stream([]), rows=0)


def key_of(task_set, task):
    return identity(task_set, task).SerializeToString(deterministic=True)


class Held:
    """Tasks of the wide stage run until the test ends them."""

    def __call__(self, task_set, task):
        return wide(task_set, task) if task_set.work == pb.PLAN else None


# -------------------------------------------------------------------- one scheduler, real agents


async def test_a_job_runs(scheduler, client):
    async with agent([scheduler.address], "e1", two_stages(), mode="push") as e1:
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert await client.fetch("job-1") == RESULT
        assert set(Counter(e1.worker.ran).values()) == {1}


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
        infos = await client.stub.ListExecutors(pb.ListExecutorsRequest())
        assert [(i.executor_id, i.mode, bool(i.address)) for i in infos.executors] == [
            ("e1", "push", True),
            ("e2", "pull", False),
        ]


async def test_a_freed_slot_is_filled_in_the_same_append(scheduler, client):
    async with agent([scheduler.address], "e1", Held(), mode="push", slots=1) as e1:
        await client.submit("job-1")
        for n in range(WIDE):
            await eventually(lambda n=n: len(e1.worker.ran) == 2 + n)
            e1.worker.finish(wide)
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        # Submission and planning; every other append records a result and launches the next task.
        assert (await client.detail("job-1")).log_seq <= WIDE + 4


async def test_cancelling_stops_what_runs_at_once(store, tmp_path):
    """Long before the next heartbeat, which comes after a third of the lease's time."""
    async with (
        serving(store, tmp_path, executor_lease_ttl_ms=300_000) as scheduler,
        agent([scheduler.address], "e1", Held(), mode="push") as e1,
    ):
        client = Client(scheduler.address)
        await client.submit("job-1")
        await eventually(lambda: len(e1.worker.going_on) == 2)
        await client.stub.CancelJob(pb.CancelJobRequest(job_id="job-1"))
        await eventually(lambda: len(e1.worker.cancelled) == 2)
        await client.submit("job-2")
        await eventually(lambda: len(e1.worker.going_on) == 2)
        await client.close()


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
        async with asyncio.timeout(HANGS_S):
            assert (await leaving.running).ending is Ending.DRAINED
        assert len(leaving.worker.ran) == 3
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
    assert (await client.detail("job-1")).progress.stages[1].tasks_lost == 2


# -------------------------------------------------------------------- one scheduler, a scripted executor


class ScriptedPushExecutor(OnagerExecutorServicer):
    """Takes answers as `on_answer` says: it gets the request, and may raise."""

    def __init__(self, stub, executor_id, slots=2):
        self.stub, self.executor_id, self.slots = stub, executor_id, slots
        self.incarnation = secrets.token_hex(8)
        self.answers, self.taken = [], {}
        self.on_answer = None
        self.list_number = 0

    async def AnswerPoll(self, request, context):  # noqa: N802
        self.answers.append(request)
        if self.on_answer is not None:
            await self.on_answer(request, context)
        for task_set in request.answer.task_sets:
            for task in task_set.tasks:
                self.taken.setdefault(key_of(task_set, task), (task_set, task))
        return pb.AnswerPollResponse()

    async def poll(self, wait_ms=60_000):
        self.list_number += 1
        running = [identity(task_set, task) for task_set, task in self.taken.values()]
        answer = await self.stub.PollWork(
            pb.PollWorkRequest(
                executor_id=self.executor_id,
                incarnation=self.incarnation,
                free_slots=self.slots - len(running),
                list_number=self.list_number,
                running=running,
                wait_ms=wait_ms,
            )
        )
        for task_set in answer.task_sets:
            for task in task_set.tasks:
                self.taken.setdefault(key_of(task_set, task), (task_set, task))
        return answer

    async def finish(self, run=wide):
        """Report all that was taken."""
        reports = [run(task_set, task) for task_set, task in self.taken.values()]
        self.taken.clear()
        request = pb.ReportTasksRequest(executor_id=self.executor_id, incarnation=self.incarnation, reports=reports)
        await self.stub.ReportTasks(request)

    async def beat(self):
        while True:
            await asyncio.sleep(0.3)
            await self.stub.Heartbeat(pb.HeartbeatRequest(executor_id=self.executor_id, incarnation=self.incarnation))


def registration(made, port, **more):
    return pb.RegisterExecutorRequest(
        executor_id=made.executor_id,
        incarnation=made.incarnation,
        slots=made.slots,
        spark_version="4.3.0",
        python_version="3.11",
        mode="push",
        address=f"127.0.0.1:{port}",
        **{"protocol_version": PROTOCOL_VERSION, **more},
    )


@asynccontextmanager
async def scripted(address, executor_id="e1", **how):
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        made = ScriptedPushExecutor(OnagerExecutorGatewayStub(channel), executor_id, **how)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        add_OnagerExecutorServicer_to_server(made, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await made.stub.RegisterExecutor(registration(made, port), wait_for_ready=True)
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
            await made.poll()
        return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

    await eventually(is_done)


@pytest.fixture
async def patient(store, tmp_path):
    """A scheduler for executors that do not register again: it does not take one for dead that is slow."""
    async with serving(store, tmp_path, sweep_interval_ms=200, executor_lease_ttl_ms=60_000) as running:
        yield running


@pytest.fixture
async def its_client(patient):
    client = Client(patient.address)
    yield client
    await client.close()


async def test_a_poll_is_answered_by_a_call_as_soon_as_there_is_work(patient, its_client):
    async with scripted(patient.address, slots=4) as made:
        assert (await made.poll()).will_call
        assert not made.answers
        await its_client.submit("job-1")
        await eventually(lambda: made.taken)
        (request,) = made.answers
        assert (request.list_number, len(request.answer.blobs)) == (1, 1)
        await until_ended(its_client, made)
        assert max(len(t.tasks) for request in made.answers for t in request.answer.task_sets) == 4
        assert len(made.answers) < WIDE, "tasks of a stage go together"


async def test_an_answer_that_is_not_known_to_have_come_is_sent_again(patient, its_client):
    async with scripted(patient.address) as made:
        seen = []

        async def lose(request, context):
            seen.append(request)
            if len(seen) in (1, 3):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")

        made.on_answer = lose
        await made.poll()
        await its_client.submit("job-1")
        await until_ended(its_client, made)
        assert (seen[0], seen[2]) == (seen[1], seen[3])
        detail = await its_client.detail("job-1")
        assert [s.tasks_lost for s in detail.progress.stages] == [0, 0]
        assert {t.attempts for s in detail.progress.stages for t in s.tasks} == {1}


async def test_an_executor_that_cannot_be_called_gets_its_work_with_its_polls(patient, its_client):
    async with scripted(patient.address) as made:

        async def refuse(request, context):
            del request
            await context.abort(grpc.StatusCode.UNAVAILABLE, "connection refused")

        made.on_answer = refuse

        async def is_done():
            answer = await made.poll(wait_ms=100)
            if made.taken:
                await made.finish()
            assert answer.will_call or answer.task_sets or answer.clean_ups
            return (await its_client.detail("job-1")).progress.state == pb.SUCCESSFUL

        await its_client.submit("job-1")
        await eventually(is_done)
        detail = await its_client.detail("job-1")
        assert {t.successes for s in detail.progress.stages for t in s.tasks} == {1}


async def test_another_life_at_the_same_address_is_not_called_again_for_the_old_one(patient, its_client):
    async with scripted(patient.address) as made:

        async def be_another(request, context):
            del request
            await status.abort(context, UnknownExecutorError("e1"))

        made.on_answer = be_another
        await made.poll()
        await its_client.submit("job-1")
        await eventually(lambda: made.answers)
        await asyncio.sleep(0.5)  # time enough for many calls, did each bring on the next
        assert len(made.answers) == 1
        made.on_answer = None
        await made.poll()
        await until_ended(its_client, made)


async def test_an_executor_of_the_release_before_is_refused_because_of_its_version(scheduler):
    async with grpc.aio.insecure_channel(scheduler.address, options=CHANNEL_OPTIONS) as channel:
        made = ScriptedPushExecutor(OnagerExecutorGatewayStub(channel), "e1")
        with pytest.raises(grpc.aio.AioRpcError, match="speaks version 1 of the protocol"):
            await made.stub.RegisterExecutor(registration(made, 1, protocol_version=1), wait_for_ready=True)


# -------------------------------------------------------------------- two schedulers


@asynccontextmanager
async def running_app(backend, tmp_path, scheduler_id):
    settings = SchedulerSettings(
        listen="127.0.0.1:0",
        exchange_dir=str(tmp_path),
        sweep_interval_ms=200,
        scheduler_id=scheduler_id,
        scheduler_lease_ttl_ms=1_500,
        executor_lease_ttl_ms=3_000,
    )
    made = SchedulerApp(settings, backend, SystemClock())
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
    """Kill a scheduler silently: its lease expires."""
    running.is_up = False
    running.loops.cancel()
    await running.server.stop(None)
    await running.app.polls.close()
    await asyncio.gather(running.loops, return_exceptions=True)


@pytest.fixture
async def schedulers(connect, tmp_path):
    async with AsyncExitStack() as stack:
        made = []
        for name in ("s1", "s2"):
            backend = await stack.enter_async_context(await connect())
            made.append(await stack.enter_async_context(running_app(backend, tmp_path, name)))
        await eventually(lambda: all(len(r.app.schedulers.live) == 2 and r.app.schedulers.is_registered for r in made))
        yield made


def asked(schedulers, running_agent):
    """Return the scheduler that the executor polls, and the other one."""
    mine = next(r for r in schedulers if r.address == running_agent.address)
    return mine, next(r for r in schedulers if r is not mine)


async def test_a_scheduler_dies_that_an_executor_has_polled(schedulers):
    addresses = [r.address for r in schedulers]
    async with agent(addresses, "e1", Held(), mode="push") as e1, AsyncExitStack() as stack:
        first = Client(addresses[0])
        stack.push_async_callback(first.close)
        await first.submit("job-1")
        await eventually(lambda: len(e1.worker.going_on) == 2)
        dying, living = asked(schedulers, e1)
        await die(dying)
        client = Client(living.address)
        stack.push_async_callback(client.close)

        async def is_done():
            e1.worker.finish(wide)
            return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

        await eventually(is_done)
        assert set(Counter(e1.worker.ran).values()) == {1}
        assert {t.successes for s in (await client.detail("job-1")).progress.stages for t in s.tasks} == {1}


async def test_what_a_scheduler_had_committed_and_not_sent_is_repeated_by_another(schedulers):
    addresses = [r.address for r in schedulers]
    silent = asyncio.Event()

    async def say_nothing(*_):
        silent.set()
        await asyncio.Event().wait()

    for r in schedulers:
        r.answer_poll, r.app.calls.answer_poll = r.app.calls.answer_poll, say_nothing
    async with agent(addresses, "e1", wide, mode="push") as e1, AsyncExitStack() as stack:
        first = Client(addresses[0])
        stack.push_async_callback(first.close)
        await eventually(lambda: any(r.app.executors.session("e1") for r in schedulers))
        await first.submit("job-1")
        await silent.wait()
        dying, living = asked(schedulers, e1)
        assert not e1.worker.ran
        living.app.calls.answer_poll = living.answer_poll
        await die(dying)
        client = Client(living.address)
        stack.push_async_callback(client.close)
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert set(Counter(e1.worker.ran).values()) == {1}
        assert {key.task_attempt for key in e1.worker.ran} == {0}


async def test_any_scheduler_serves_executors_of_both_modes(schedulers):
    addresses = [r.address for r in schedulers]
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


# -------------------------------------------------------------------- processes


async def test_the_only_scheduler_is_killed_and_comes_back(tmp_path):
    """Running tasks continue, and the new incarnation learns of them from the executor's list."""
    (port,) = free_ports(1)
    address, store = f"127.0.0.1:{port}", f"leveldb:{tmp_path / 'state'}"
    async with agent([address], "e1", Held(), mode="push", slots=3) as e1, AsyncExitStack() as stack:
        client = Client(address)
        stack.push_async_callback(client.close)
        async with process(tmp_path, port, backend=store, executor_lease_ttl_ms=9_000) as first:
            await client.submit("job-1")
            await eventually(lambda: len(e1.worker.going_on) == 3)
            first.kill()
            await first.wait()
        async with process(tmp_path, port, backend=store, executor_lease_ttl_ms=9_000):

            async def is_done():
                e1.worker.finish(wide)
                return (await client.detail("job-1")).progress.state == pb.SUCCESSFUL

            await eventually(is_done)
            assert set(Counter(e1.worker.ran).values()) == {1}
            detail = await client.detail("job-1")
            assert {t.attempts for s in detail.progress.stages for t in s.tasks} == {1}
