"""Scripts of SQL that clients give to spark.sql: programs in the client's session."""

import uuid

import pytest

from onager.execution_graph import JobState
from onager.ids import BlobDigest
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import PROGRAM_HEADER
from onager.protocol.security.principal import note_principal
from onager.protocol.spark_connect import SCRIPT, ExecutePlanRequest, ExecutePlanResponse, Relation, request_of
from onager.scheduler.connect.call_names import CALL_HEADER
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.operation import Operation
from onager.scheduler.connect.records import MAX_OPERATIONS
from onager.scheduler.connect.running import job_id_of
from onager.scheduler.jobs.job_specs import decode_spec
from onager.scheduler.program_records import ProgramKey
from onager.state_backend import Keyspace
from tests.unit.connect.test_running import JOB, KEY, OPERATION, SESSION, asked, begun, write
from tests.unit.scheduler.pair import Pair, register

TEXT = "BEGIN SELECT :n; END"


class Executor:
    """Says of each command that it is a script."""

    async def call(self, *_):
        response = ExecutePlanResponse()
        response.sql_command_result.relation = b"the tree"
        return pb.ConnectReply(job=pb.ConnectJob(work=SCRIPT, responses=[response.SerializeToString()]))


@pytest.fixture
async def pair(clock):
    note_principal("ann")
    made = Pair(clock)
    await made.start()
    for scheduler in made.schedulers.values():
        scheduler.spark_connect.operations.calls = Executor()
    yield made
    note_principal("")


def script():
    request = write("")
    relation = Relation()
    relation.sql.query = TEXT
    relation.sql.named_arguments["n"] = b"an expression"
    request.plan.command.sql_command.sql = ""
    request.plan.command.sql_command.input = relation.SerializeToString()
    return request


async def test_a_script_is_a_program_in_its_clients_session(pair):
    await register(pair, "e1.programs", runs_programs=True)
    await begun(pair.here, script())
    await begun(pair.there, script())
    assert list(await pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)) == [JOB]
    job = await pair.here.jobs.load(JOB)
    assert job.graph.is_program
    assert job.header.labels["connect.session"] == SESSION
    program = decode_spec(await pair.here.blobs.get(BlobDigest(job.graph.spec_digest))).program
    assert (program.source.decode(), program.user, program.script.session_id) == (TEXT, "ann", SESSION)
    assert Relation.FromString(program.script.relation).sql.named_arguments == {"n": b"an expression"}


async def test_a_script_is_refused_while_no_executor_runs_programs(pair):
    await register(pair)
    with pytest.raises(ConnectError, match=r"CONNECT_NO_PROGRAM_SLOTS.*--program-slots above 0"):
        await begun(pair.here, script())
    assert not await pair.here._backend.scan_keys(Keyspace.ConnectOperations, limit=10)
    assert not await pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)


@pytest.mark.parametrize("how", ["interrupt", "session"])
async def test_a_script_that_is_interrupted_has_ended_when_that_is_answered(pair, how):
    await register(pair, "e1.programs", runs_programs=True)
    await begun(pair.there, script())
    key = ProgramKey("ann", JOB)
    await pair.there.programs.begin("ann", pb.BeginProgramRequest(program_id=JOB, secret="a" * 32), job_id=JOB)
    service = pair.here.spark_connect
    if how == "session":
        await service.ReleaseSession(asked(request_of("ReleaseSession")), b"")
    else:
        answer = await service.Interrupt(asked(request_of("Interrupt"), interrupt_type=1), b"")
        assert list(answer.interrupted_ids) == [OPERATION]
    record, _ = await pair.here.programs.read(key)
    assert (bool(record.ended_ms), record.why_ended) == (True, "interrupted by its client")
    assert (await pair.here.jobs.load(JOB)).graph.state is JobState.CANCELLED


async def test_scripts_that_wait_in_a_session_leave_room_for_their_statements(pair):
    await register(pair, "e1.programs", runs_programs=True)
    for number in range(MAX_OPERATIONS):
        request = script()
        request.operation_id = str(uuid.UUID(int=number + 1))
        await begun(pair.here, request)
    request.operation_id = OPERATION
    with pytest.raises(ConnectError, match="CONNECT_LIMIT_EXCEEDED"):
        await begun(pair.here, request)
    first = job_id_of(KEY, str(uuid.UUID(int=1)))
    await pair.here.programs.begin("ann", pb.BeginProgramRequest(program_id=first, secret="a" * 32), job_id=first)
    query = asked(ExecutePlanRequest, operation_id=OPERATION)
    query.plan.root = b"relation"
    named = ((PROGRAM_HEADER, f"{first}/1/{'a' * 32}"), (CALL_HEADER, "0/1"))
    call = await pair.here.spark_connect.of_program("ExecutePlan", query, named)
    session = await pair.here.spark_connect.sessions.open(KEY, call=call)
    operation = Operation(KEY, session.record.server_side_session_id, OPERATION, call)
    await pair.here.spark_connect.operations._submit_query(session, operation, query, "digest")
    assert JOB in list(await pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=100))
