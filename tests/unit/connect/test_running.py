"""Operations that run at any scheduler, and those whose jobs are forgotten: two schedulers with silent watches."""

import base64
import uuid

import pyarrow as pa
import pytest
from msgspec.structs import replace

from onager.execution_graph import JobState
from onager.protocol import onager_pb2 as pb
from onager.protocol.security.principal import note_principal
from onager.protocol.spark_connect import ExecutePlanRequest, ExecutePlanResponse, request_of
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import job_id_of
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.state_backend import Keyspace
from tests.unit.scheduler.pair import SLOT, FakeContext, Pair
from tests.unit.scheduler.small_graphs import planned

SESSION = str(uuid.UUID(int=0xABC))
OPERATION = str(uuid.UUID(int=0xDEF))
KEY = SessionKey("ann", SESSION)
JOB = job_id_of(KEY, OPERATION)


class Executor:
    """Says of each command that it is a job."""

    async def call(self, *_):
        response = ExecutePlanResponse()
        response.sql_command_result.relation = b"nothing"
        return pb.ConnectReply(job=pb.ConnectJob(work="write", responses=[response.SerializeToString()]))


@pytest.fixture(autouse=True)
def ann():
    note_principal("ann")
    yield
    note_principal("")


@pytest.fixture
async def pair(clock):
    made = Pair(clock)
    await made.start()
    for scheduler in made.schedulers.values():
        scheduler.spark_connect.operations.calls = Executor()
    return made


def asked(kind, **fields):
    request = kind(session_id=SESSION, **fields)
    request.user_context.user_id = "ann"
    return request


def write(text="INSERT INTO t VALUES (1)", operation_id=OPERATION):
    request = asked(ExecutePlanRequest, operation_id=operation_id, tags=["nightly"])
    request.plan.command.sql_command.sql = text
    return request


async def begun(scheduler, request):
    """Begin an operation, and leave it."""
    responses = scheduler.spark_connect.ExecutePlan(request, b"")
    await anext(responses)
    await responses.aclose()


async def decoded(responses):
    return [ExecutePlanResponse.FromString(response) async for response in responses]


async def end(scheduler):
    await scheduler.local.coordinator(JOB).cancel_job("enough", "")


async def acts(scheduler, action):
    """Return what the audit has of an action: who did it, to what, and more about it."""
    await scheduler.notes.store()
    audit = await scheduler.service.ListAudit(pb.ListAuditRequest(action=action), FakeContext())
    return [(act.principal, act.target, act.detail) for act in audit.entries]


async def forget(pair):
    """Remove all records of the job, as after its retention."""
    backend = pair.here._backend
    for keyspace in (Keyspace.ActiveJobs, Keyspace.CompletedJobs, Keyspace.FailedJobs, Keyspace.JobHeads):
        await backend.delete(keyspace, JOB)
    for scheduler in pair.schedulers.values():
        await scheduler.heads.refresh()
        scheduler.jobs.forget(JOB)


async def test_a_write_whose_job_is_forgotten_is_not_carried_out_again(pair):
    await begun(pair.here, write())
    await end(pair.here)
    await forget(pair)
    for scheduler in pair.schedulers.values():
        reattached = asked(request_of("ReattachExecute"), operation_id=OPERATION)
        for ask in (lambda at: at.ExecutePlan(write(), b""), lambda at: at.ReattachExecute(reattached, b"")):  # noqa: B023
            with pytest.raises(ConnectError, match=r"INVALID_HANDLE\.OPERATION_ABANDONED.*look at what"):
                await decoded(ask(scheduler.spark_connect))
    assert not await pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)


async def test_a_write_that_was_noted_and_not_submitted_is_submitted_once(pair, monkeypatch):
    operations = pair.here.spark_connect.operations

    async def die(*_):
        raise ConnectionError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(operations, "_begin", die)
        with pytest.raises(ConnectionError):
            await begun(pair.here, write())
    assert await pair.here._backend.get(Keyspace.ConnectOperations, f"{KEY.path}/{OPERATION}") is not None
    await begun(pair.there, write())
    await begun(pair.here, write())
    assert list(await pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)) == [JOB]
    with pytest.raises(ConnectError, match="OPERATION_ALREADY_EXISTS"):
        await begun(pair.here, write("INSERT INTO t VALUES (2)"))


@pytest.mark.parametrize("case", [str.lower, str.upper])
@pytest.mark.parametrize("how", ["all", "tag", "operation", "release", "session"])
async def test_what_another_scheduler_has_just_begun_is_interrupted(pair, how, case):
    await begun(pair.there, write(operation_id=case(OPERATION)))
    assert pair.here.heads.get(JOB) is None, "the watch has reported nothing"
    service, operation_id = pair.here.spark_connect, case(OPERATION)
    match how:
        case "release":
            release = asked(request_of("ReleaseExecute"), operation_id=operation_id)
            release.release_all.SetInParent()
            assert (await service.ReleaseExecute(release, b"")).operation_id == operation_id
        case "session":
            await service.ReleaseSession(asked(request_of("ReleaseSession")), b"")
        case _:
            kind = {"all": 1, "tag": 2, "operation": 3}[how]
            wanted = {"tag": {"operation_tag": "nightly"}, "operation": {"operation_id": operation_id}}.get(how, {})
            answer = await service.Interrupt(asked(request_of("Interrupt"), interrupt_type=kind, **wanted), b"")
            assert list(answer.interrupted_ids) == [OPERATION]
    assert (await pair.here.jobs.load(JOB)).graph.state is JobState.CANCELLED
    assert await acts(pair.here, "interrupt") == [("ann", JOB, f"session {SESSION}")]


async def test_rows_that_are_fetched_are_reported_in_the_audit(pair):
    query = asked(ExecutePlanRequest, operation_id=OPERATION)
    query.plan.root = b"relation"
    await begun(pair.here, query)
    assert await acts(pair.here, "fetch") == []
    schema = base64.b64encode(pa.schema([pa.field("n", pa.int64())]).serialize().to_pybytes()).decode()
    event = planned(0)
    described = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
    summary = replace(event.summary, arrow_schema=schema, schema_json=described)
    await pair.here.local.fill_reservations(JOB, [ExecutorReservation.of(SLOT)])
    await pair.here.writers.record_decision(JOB, lambda _: Decision([replace(event, summary=summary)]))
    responses = await decoded(pair.here.spark_connect.ExecutePlan(query, b""))
    assert [response.schema.struct.fields[0].name for response in responses if response.HasField("schema")] == ["n"]
    assert await acts(pair.here, "fetch") == [("ann", JOB, "")]


@pytest.mark.parametrize("case", [str.lower, str.upper])
async def test_the_state_of_what_another_scheduler_has_just_begun_is_reported(pair, case):
    await begun(pair.there, write(operation_id=case(OPERATION)))
    for named in ([], [case(OPERATION)]):
        request = asked(request_of("GetStatus"))
        request.operation_status.operation_ids.extend(named)
        (status,) = (await pair.here.spark_connect.GetStatus(request, b"")).operation_statuses
        assert (status.operation_id, status.state) == ((named or [OPERATION])[0], 2)


async def test_nothing_begins_in_a_session_that_ends_meanwhile(pair):
    service = pair.there.spark_connect
    submit = service.operations.submissions.submit

    async def late(*args, **kwargs):
        await pair.here.spark_connect.ReleaseSession(asked(request_of("ReleaseSession")), b"")
        return await submit(*args, **kwargs)

    service.operations.submissions.submit = late
    query = asked(ExecutePlanRequest, operation_id=OPERATION)
    query.plan.root = b"relation"
    for request in (write(), query):
        with pytest.raises(Exception, match=r"try again|SESSION_CLOSED"):
            await begun(pair.there, request)
    assert not await pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)
