"""Streaming jobs with scripted executors: which task reads from which, and what ends streaming."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import onager
from onager.cli.admin import exchange_text
from onager.errors import InvalidSettingError
from onager.protocol import onager_pb2 as pb
from tests.integration.scheduler.conftest import serving
from tests.integration.scheduler.test_failover import Watching, schedulers
from tests.integration.scheduler.test_jobs import RESULT, two_stages
from tests.support.fakes.agents import agent
from tests.support.fakes.scripted_executor import failure
from tests.support.waiting import HANGS_S, eventually

WIDTH = 4
STREAMING = {"onager.exchange": "streaming"}
AT = {"e1": "10.0.0.1:7001", "e2": "10.0.0.2:7002"}


class Gate:
    """Runs two stages; streaming tasks of a query run until the gate is open, and are recorded."""

    def __init__(self, executor_id):
        self.executor_id = executor_id
        self.is_open = False
        self.given = []

    def __call__(self, task_set, task):
        copy = pb.TaskSet()
        copy.CopyFrom(task_set)
        self.given.append((copy, task.partition))
        is_kept = task_set.streaming and not self.is_open
        return None if is_kept else two_stages(self.executor_id, width=WIDTH)(task_set, task)

    def attempts(self, stage_id):
        """Return which attempt of each partition of a stage came here."""
        return {p: t.task_attempt for s, p in self.given if s.stage_id == stage_id for t in s.tasks if t.partition == p}

    def sets(self, stage_id):
        return [task_set for task_set, _ in self.given if task_set.stage_id == stage_id]

    def open(self, running):
        self.is_open = True
        running.worker.finish(self)


class Pair:
    """Two executors that together can hold all tasks at once, and not all alone."""

    def __init__(self, stack, addresses, mode):
        self.stack, self.addresses, self.mode = stack, addresses, mode
        self.gates = {name: Gate(name) for name in AT}
        self.agents = {}

    async def start(self, name, *, stream_address=None):
        own = await self.stack.enter_async_context(AsyncExitStack())
        address = AT[name] if stream_address is None else stream_address
        self.agents[name] = await own.enter_async_context(
            agent(
                self.addresses,
                name,
                self.gates[name],
                slots=4,
                mode=self.mode,
                stream_address=address,
                heartbeat_interval_ms=400,
            )
        )
        return own

    def in_hand(self):
        return sum(len(running.worker.going_on) for running in self.agents.values())

    async def all_at_work(self):
        await eventually(lambda: self.in_hand() == WIDTH + 3)

    def open(self):
        for name, running in self.agents.items():
            self.gates[name].open(running)

    def given(self, stage_id):
        return [task_set for gate in self.gates.values() for task_set in gate.sets(stage_id)]


@pytest.fixture
async def stack():
    async with AsyncExitStack() as made:
        yield made


@pytest.fixture
async def patient(store, tmp_path, stack):
    """A scheduler that gives executors time, and quarantines them soon."""
    running = serving(store, tmp_path, executor_lease_ttl_ms=30_000, quarantine_failures=1)
    return await stack.enter_async_context(running)


@pytest.fixture(params=["pull", "push"])
async def pair(request, patient, stack):
    return Pair(stack, [patient.address], request.param)


@pytest.fixture
async def alone(patient, stack):
    return Pair(stack, [patient.address], "pull")


async def submitted(pair, **conf):
    pair.client = pair.stack.enter_context(onager.connect(",".join(pair.addresses)))
    return await asyncio.to_thread(pair.client.sql, "SELECT 1", conf={**STREAMING, **conf})


async def ended(job):
    return (await asyncio.to_thread(lambda: list(job.watch(60))))[-1]


async def rows(job):
    return (await asyncio.to_thread(job.to_arrow)).column(0).to_pylist()


async def committed_once(job):
    """Check that no partition succeeded twice, and each of what was not streamed once.

    A reader's end may be reported before that of those it read from, who are wanted by nobody then.
    """
    detail = await asyncio.to_thread(job.detail)
    successes = {s.stage_id: {t.successes for t in s.tasks} for s in detail.progress.stages}
    assert successes.pop(1) <= {0, 1}
    assert set().union(*successes.values()) == {1}
    return detail


async def test_stages_run_together_and_learn_whom_to_read_from(pair):
    await pair.start("e1")
    await pair.start("e2")
    job = await submitted(pair)
    await pair.all_at_work()
    runs_at = {p: (n, AT[name]) for name, gate in pair.gates.items() for p, n in gate.attempts(1).items()}
    expected = [pb.StreamedTask(task_attempt=n, address=at) for _, (n, at) in sorted(runs_at.items())]
    for task_set in pair.given(2):
        assert task_set.streaming
        assert not task_set.inputs
        (stream,) = task_set.streams
        assert (stream.stage_id, stream.stage_attempt, list(stream.tasks)) == (1, 0, expected)
    assert exchange_text(await asyncio.to_thread(job.progress)) == "streaming"
    pair.open()
    progress = await ended(job)
    assert (progress.state, progress.exchange, progress.durable_because) == ("successful", "streaming", "")
    assert await rows(job) == RESULT
    await committed_once(job)


async def test_an_executor_that_is_gone_ends_the_streaming_and_not_the_job(pair):
    await pair.start("e1")
    gone = await pair.start("e2")
    job = await submitted(pair)
    await pair.all_at_work()
    kept = [entry[2] for entry in pair.agents["e1"].worker.going_on]
    await gone.aclose()
    await pair.start("e2")  # so that nobody waits for the lease of its earlier life to run out
    progress = await ended(job)
    assert (progress.state, progress.exchange) == ("successful", "durable")
    assert "executor e2" in progress.durable_because
    assert await rows(job) == RESULT
    assert exchange_text(progress) == f"durable (streaming was given up: {progress.durable_because})"
    await eventually(lambda: set(kept) <= set(pair.agents["e1"].worker.cancelled))
    again = [task_set for task_set in pair.given(2) if task_set.stage_attempt == 1]
    assert again
    assert all(not s.streaming and not s.streams and len(s.inputs[0].outputs) == WIDTH for s in again)
    assert not any(stage.tasks_failed for stage in progress.stages)


async def test_a_task_that_fails_is_no_mark_against_its_executor(alone):
    """Each of its tasks may have failed because of another executor's."""
    await alone.start("e1")
    await alone.start("e2")
    job = await submitted(alone)
    await alone.all_at_work()
    name = next(name for name, gate in alone.gates.items() if gate.attempts(2))
    first = alone.agents[name].worker
    first.finish(lambda task_set, task: failure(task_set, task, "io_error", "the stream broke"))
    progress = await ended(job)
    assert (progress.state, progress.exchange) == ("successful", "durable")
    assert progress.durable_because.endswith("the stream broke (io_error)")
    assert await rows(job) == RESULT
    with onager.connect(alone.addresses[0]) as client:
        found = await asyncio.to_thread(client.executors)
    assert [e.state for e in found] == ["alive", "alive"]


async def test_a_users_error_fails_the_job_at_once(alone):
    await alone.start("e1")
    await alone.start("e2")
    job = await submitted(alone)
    await alone.all_at_work()
    hands = {name: list(running.worker.going_on) for name, running in alone.agents.items()}
    name = next(name for name, gate in alone.gates.items() if gate.attempts(2))
    worker = alone.agents[name].worker
    failing = next(entry for entry in worker.going_on if entry[0].stage_id == 2)
    worker.going_on.remove(failing)
    failing[3](failure(failing[0], failing[1], "user_error", "[DIVIDE_BY_ZERO] Division by zero"))
    progress = await ended(job)
    assert (progress.state, progress.exchange) == ("failed", "streaming")
    assert "Division by zero" in str(progress.failure)
    left = {n: {entry[2] for entry in mine if entry is not failing} for n, mine in hands.items()}
    await eventually(lambda: all(mine <= set(alone.agents[n].worker.cancelled) for n, mine in left.items()))


async def test_without_an_executor_that_can_stream_the_job_does_not(pair):
    await pair.start("e1", stream_address="")
    job = await submitted(pair)
    progress = await ended(job)
    assert (progress.state, progress.exchange) == ("successful", "durable")
    assert progress.durable_because == "no executor that takes work has an address for streams"
    assert await rows(job) == RESULT
    assert not any(task_set.streaming for task_set in pair.given(1) + pair.given(2))


async def test_executors_that_cannot_stream_get_no_task_that_does(pair):
    await pair.start("e1", stream_address="")
    await pair.start("e2")
    job = await submitted(pair)
    await eventually(lambda: pair.in_hand() == 4)
    pair.open()
    progress = await ended(job)
    assert (progress.state, progress.exchange) == ("successful", "streaming")
    assert await rows(job) == RESULT
    assert not pair.gates["e1"].sets(1)
    assert not pair.gates["e1"].sets(2)


async def test_jobs_for_other_executors_do_not_block_slots_for_later_jobs(pair):
    """Each of them is before it, and has tasks that this executor must not get."""
    await pair.start("e1", stream_address="")
    await pair.start("e2")
    others = [await submitted(pair) for _ in range(20)]  # e1 has four slots, and each may be offered to another

    async def all_are_planned():
        return all([len((await asyncio.to_thread(job.progress)).stages) == 3 for job in others])

    await eventually(all_are_planned)
    await eventually(lambda: len(pair.agents["e2"].worker.going_on) == 4)
    job = await asyncio.to_thread(pair.client.sql, "SELECT 1")
    assert (await asyncio.wait_for(ended(job), HANGS_S)).state == "successful"
    assert not any(task_set.streaming for task_set in pair.gates["e1"].sets(1))


async def test_a_value_that_is_none_is_refused(pair):
    with onager.connect(pair.addresses[0]) as client, pytest.raises(InvalidSettingError, match="durable or streaming"):
        await asyncio.to_thread(client.sql, "SELECT 1", conf={"onager.exchange": "fast"})


async def test_the_death_of_a_scheduler_ends_no_stream(etcd, tmp_path, stack):
    cluster = await stack.enter_async_context(schedulers(etcd, tmp_path, 2))
    pair = Pair(stack, cluster.addresses, "pull")
    await pair.start("e1")
    await pair.start("e2")
    job = await submitted(pair)
    watching = Watching(pair.client, job.id)
    await eventually(lambda: pair.in_hand() >= WIDTH)
    await cluster.kill(cluster.addresses[0])
    await pair.all_at_work()
    pair.open()
    assert await watching.ended == "successful"
    detail = await committed_once(job)
    assert (detail.progress.exchange, detail.progress.durable_because) == ("streaming", "")
    assert await rows(job) == RESULT
    assert not any(running.worker.cancelled for running in pair.agents.values())
