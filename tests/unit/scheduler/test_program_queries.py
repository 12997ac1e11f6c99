"""What clients see of programs, at any scheduler, from the moment on at which one is stored."""

import pytest

from onager.errors import JobNotFoundError, NotFoundError
from onager.exchange_layout import program_output
from onager.program_output import STDOUT, Frame, OutputFolder
from onager.protocol import onager_pb2 as pb
from onager.scheduler.program_records import ProgramKey
from tests.unit.scheduler.pair import FakeContext, Pair

CONTEXT = FakeContext()
SPEC = pb.JobSpec(program=pb.ProgramSpec(file_name="app.py", source=b"print(1)"))


@pytest.fixture
async def stored(clock, tmp_path):
    """Two schedulers, one of which has just stored the program `p`, and the job `q`; the other has seen nothing."""
    pair = Pair(clock, tmp_path)
    await pair.start()
    for job_id, spec in (("p", SPEC), ("q", pb.JobSpec(sql=pb.SqlScript(text="SELECT 1")))):
        await pair.here.service.SubmitJob(pb.SubmitJobRequest(job_id=job_id, spec=spec), CONTEXT)
    assert pair.there.heads.get("p") is None
    return pair


async def printed(scheduler, program_id="p"):
    request = pb.WatchOutputRequest(program_id=program_id)
    return [each.content async for each in scheduler.of_programs.output(request)]


async def test_any_scheduler_knows_it(stored, tmp_path):
    assert await printed(stored.there.service) == []
    info = await stored.there.service.GetProgram(pb.GetProgramRequest(program_id="p"), CONTEXT)
    assert (info.program_id, info.attempt, info.ended) == ("p", 0, False)
    assert not (await stored.there.service.ListProgramCalls(pb.ListProgramCallsRequest(program_id="p"), CONTEXT)).calls
    begun = pb.BeginProgramRequest(program_id="p", secret="5" * 32, user="ann", digest="d", arguments="[]")
    await stored.here.programs.begin("", begun)
    folder = tmp_path / program_output(await stored.there.programs.folder(ProgramKey("", "p")))
    OutputFolder(folder, 1).add(Frame(STDOUT, 0, "0", b"one\n"))
    assert await printed(stored.there.service) == [b"one\n"]


async def test_what_is_none_is_refused(stored):
    queries = stored.there.service.of_programs
    for program_id, error in (("nothing", JobNotFoundError), ("..", JobNotFoundError), ("q", NotFoundError)):
        with pytest.raises(error):
            await queries.get(pb.GetProgramRequest(program_id=program_id))
        with pytest.raises(error):
            await queries.calls(pb.ListProgramCallsRequest(program_id=program_id))
        with pytest.raises(error):
            await printed(stored.there.service, program_id)
