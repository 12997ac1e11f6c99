"""What is read for a client that shows a job."""

import asyncio

import pytest

from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_specs import encode_spec
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from tests.unit.scheduler.pair import FakeContext
from tests.unit.scheduler.small_graphs import graph

JOB = JobId("job-1")
SQL = f"SELECT {'1' * 70_000}"
"""Larger than the cache."""
SPEC = pb.JobSpec(name="mine", sql=pb.SqlScript(text=SQL))


@pytest.fixture
async def scheduler(backend, clock):
    made = SchedulerApp(SchedulerSettings(exchange_dir="/x", scheduler_id="s", listen="127.0.0.1:1"), backend, clock)
    await made.start()
    content = encode_spec(SPEC)
    await made.blobs.put(JOB, [content])
    await made.jobs.submit(graph(JOB, digest_of(content)))
    yield made
    await made.close()


@pytest.fixture
def reads(backend):
    """Return how many blobs were being read each time that one was."""
    found, under_way, read = [], [], backend._read

    async def counted(keys, ranges):
        if not any(keyspace is Keyspace.Plans for keyspace, _ in keys):
            return await read(keys, ranges)
        under_way.append(1)
        found.append(len(under_way))
        await asyncio.sleep(0.01)
        under_way.pop()
        return await read(keys, ranges)

    backend._read = counted
    return found


async def test_few_specifications_are_read_at_once_however_many_ask(scheduler, reads):
    ask = pb.GetJobRequest(job_id=JOB)
    answers = await asyncio.gather(*(scheduler.service.GetJob(ask, FakeContext()) for _ in range(10)))
    assert [answer.spec.sql.text for answer in answers] == [SQL] * 10
    assert (len(reads), max(reads)) == (10, 2)


async def test_a_request_for_progress_reads_no_specification(scheduler, reads):
    behind_all = await scheduler.service.GetJob(pb.GetJobRequest(job_id=JOB, stage_id=2**32 - 1), FakeContext())
    assert (behind_all.progress.state, len(behind_all.progress.stages)) == (pb.QUEUED, 1)
    assert not behind_all.progress.stages[0].tasks
    assert not behind_all.HasField("next")
    assert not reads


async def test_a_plan_that_has_not_been_made_has_its_planning_alone(scheduler):
    plan = await scheduler.service.GetFinalPlan(pb.GetFinalPlanRequest(job_id=JOB), FakeContext())
    assert (plan.job_id, plan.state, plan.next) == (JOB, pb.QUEUED, 0)
    assert [(stage.info.stage_id, stage.reported) for stage in plan.stages] == [(0, 0)]


@pytest.mark.parametrize(
    "name",
    [
        "SET a.password = hunter2; SELECT 1",
        "SELECT * FROM t OPTIONS (my.word 'hunter2…",
        "load with password=hunter2",
        "SELECT * FROM f(password => 'hunter2')",
    ],
)
async def test_no_secret_is_kept_in_a_name_or_shown_of_it(scheduler, name):
    spec = pb.JobSpec(name=name, sql=pb.SqlScript(text="SELECT 1"), conf={"spark.redaction.regex": "(?i)my.word"})
    request = pb.SubmitJobRequest(job_id="job-2", spec=spec, client_id="c", protocol_version=PROTOCOL_VERSION)
    await scheduler.service.SubmitJob(request, FakeContext())
    job = await scheduler.jobs.load(JobId("job-2"))
    assert "hunter2" not in job.graph.name
    answer = await scheduler.service.GetJob(pb.GetJobRequest(job_id="job-2"), FakeContext())
    assert answer.spec.name == answer.progress.name == job.graph.name
    assert "hunter2" not in str(answer)
    for form in ("timeline", "timeline-svg", "spark-event-log"):
        request = pb.ExportJobRequest(job_id="job-2", format=form)
        assert b"hunter2" not in b"".join(
            [chunk.content async for chunk in scheduler.service.ExportJob(request, FakeContext())]
        )
    stored = await scheduler.service.GetState(pb.GetStateRequest(key=f"Plans/{job.graph.spec_digest}"), FakeContext())
    assert "SELECT 1" in stored.json
    assert "hunter2" not in str(stored)
