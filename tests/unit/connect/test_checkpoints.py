"""Checkpoints: each is one job and one entry of its session, and its files go when nobody can be reading them."""

import asyncio
import uuid
from types import SimpleNamespace

import pytest

from onager.exchange_layout import CHECKPOINTS, checkpoint
from onager.execution_graph import JobState
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import CHECKPOINT, KEPT, ExecutePlanRequest, ExecutePlanResponse
from onager.scheduler.connect.checkpoints import GRACE_MS, Checkpoints
from onager.scheduler.connect.operations import Operation, Operations
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import RunningOperations, job_id_of
from onager.scheduler.connect.sessions import Sessions

ANN = SessionKey("ann", str(uuid.UUID(int=1)))
IDS = [str(uuid.UUID(int=number)) for number in range(2, 5)]


class Jobs:
    """Jobs that succeed as soon as they are submitted."""

    def __init__(self):
        self.submitted = []

    def get(self, job_id):
        return next((job for job in self.submitted if job.job_id == job_id), None)

    def active(self):
        return []

    async def submit(self, request, **_):
        self.submitted.append(SimpleNamespace(job_id=request.job_id, labels=request.spec.labels, spec=request.spec))

    async def progress(self, _job_id):
        yield pb.JobProgress(state=pb.SUCCESSFUL)

    async def fresh(self, _job_id):
        return SimpleNamespace(graph=SimpleNamespace(state=JobState.SUCCESSFUL, plan=None))


def scheduler(backend, clock, jobs, exchange_dir="/nowhere"):
    sessions = Sessions(backend, clock, retention_s=3600)
    running = RunningOperations(backend, jobs, None, None)
    return Operations(
        backend, clock, sessions, None, jobs, jobs, running, jobs, None, None, exchange_dir, None
    ), sessions


async def made(at, operation_id):
    operations, sessions = at
    request = ExecutePlanRequest(operation_id=operation_id)
    request.plan.command.checkpoint_command.relation = b"relation"
    session = await sessions.open(ANN)
    operation = Operation(ANN, session.record.server_side_session_id, operation_id)
    reported = operations.execute(session, operation, request, "checkpoint_command")
    responses = [ExecutePlanResponse.FromString(response) async for response in reported]
    assert responses[-1].HasField("result_complete")
    return responses[-2].checkpoint_command_result.relation.relation_id


async def test_a_checkpoint_is_one_job_and_one_entry_whoever_is_asked_and_however_often(backend, clock):
    jobs = Jobs()
    schedulers = [scheduler(backend, clock, jobs) for _ in range(2)]
    async with asyncio.TaskGroup() as tasks:
        asked = {
            (at, n, op): tasks.create_task(made(schedulers[at], op)) for at in (0, 1) for n in (0, 1) for op in IDS
        }
    for (_, _, operation_id), reported in asked.items():
        assert reported.result() == job_id_of(ANN, operation_id)
    wanted = sorted(job_id_of(ANN, operation_id) for operation_id in IDS)
    session = (await schedulers[0][1].find(ANN)).message
    assert sorted((e.kind, e.name) for e in session.entries) == [(KEPT, name) for name in wanted]
    assert sorted({job.job_id for job in jobs.submitted}) == wanted
    assert {job.spec.connect.work for job in jobs.submitted} == {CHECKPOINT}


class Exchange:
    """An exchange directory with checkpoints, and what a sweep knows of jobs."""

    def __init__(self, directory, clock):
        self.began_ms = []
        self.jobs = set()
        self.folder = directory / CHECKPOINTS
        self.folder.mkdir()
        self.clock = clock
        heads = SimpleNamespace(
            active=lambda: [SimpleNamespace(submitted_ms=at) for at in self.began_ms],
            get=lambda job_id: job_id if job_id in self.jobs else None,
        )
        self.checkpoints = Checkpoints(str(directory), heads, clock)

    def add(self, *names):
        for name in names:
            (self.folder / name).mkdir()
            (self.folder / name / "part-0").write_bytes(b"rows")

    async def left(self, *kept, after_ms=0):
        self.clock.advance(after_ms)
        await self.checkpoints.sweep(set(kept))
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def exchange(tmp_path, clock):
    return Exchange(tmp_path, clock)


async def test_files_go_once_no_session_has_them_for_a_while(exchange):
    exchange.add("connect-1", "connect-2", ".connect-3.onager-connect-3", "other_folder")
    exchange.jobs = {"connect-2", "connect-3"}
    assert len(await exchange.left("connect-1")) == 4
    assert len(await exchange.left("connect-1", after_ms=GRACE_MS)) == 4
    assert await exchange.left("connect-1", after_ms=1) == ["connect-1", "other_folder"]
    assert len(await exchange.left()) == 2
    assert len(await exchange.left("connect-1", after_ms=2 * GRACE_MS)) == 2, "a clone has it"
    assert len(await exchange.left(after_ms=2 * GRACE_MS)) == 2
    assert await exchange.left(after_ms=2 * GRACE_MS) == ["other_folder"]


async def test_files_stay_while_a_job_runs_that_began_when_a_session_had_them(exchange):
    exchange.add("connect-1")
    exchange.began_ms = [exchange.clock.now_ms()]
    await exchange.left("connect-1")
    await exchange.left()
    assert await exchange.left(after_ms=10 * GRACE_MS) == ["connect-1"]
    exchange.began_ms = [exchange.clock.now_ms()]
    assert await exchange.left() == []


async def test_what_sessions_have_is_known_also_from_rounds_of_other_schedulers(exchange):
    exchange.add("connect-1")
    exchange.jobs = {"connect-1"}
    await exchange.left()
    exchange.clock.advance(10 * GRACE_MS)
    exchange.checkpoints.note({"connect-1"})
    assert await exchange.left() == ["connect-1"], "a session had it after all"
    exchange.clock.advance(2 * GRACE_MS)
    assert await exchange.left() == []
    exchange.add("connect-2")
    exchange.checkpoints.note({"connect-2"})
    exchange.checkpoints.note(set())
    assert await exchange.left(after_ms=2 * GRACE_MS) == [], "for how long none has it, too"


async def test_files_that_may_be_of_another_cluster_stay(exchange):
    exchange.add("connect-1")
    await exchange.left()
    assert await exchange.left(after_ms=10 * GRACE_MS) == ["connect-1"]


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b"])
def test_only_a_job_has_a_checkpoint(name):
    with pytest.raises(ValueError, match="no job id"):
        checkpoint(name)
