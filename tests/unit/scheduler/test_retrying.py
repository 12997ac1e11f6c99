"""Jobs that have ended are submitted again: once, as they were, and not while they go on."""

import pytest

from onager.errors import InvalidRequestError, JobConflictError, JobNotEndedError, JobNotFoundError, NotFoundError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import caller_of
from onager.scheduler.app import SchedulerApp
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Delete, Keyspace
from tests.unit.scheduler.pair import FakeContext

SPEC = pb.JobSpec(
    name="mine",
    sql=pb.SqlScript(text="SELECT 1"),
    conf={"onager.session": "nightly", "onager.weight": "2"},
    sink=pb.Sink(path="/data/out", format="parquet", mode="error"),
)
CONTEXT = FakeContext()


@pytest.fixture
async def scheduler(backend, clock):
    made = SchedulerApp(SchedulerSettings(exchange_dir="/x", scheduler_id="s", listen="127.0.0.1:1"), backend, clock)
    await made.start()
    yield made
    await made.close()


async def submit(scheduler, job_id="job-1", spec=SPEC):
    await scheduler.service.SubmitJob(pb.SubmitJobRequest(job_id=job_id, spec=spec, client_id="c"), CONTEXT)


async def end(scheduler, job_id="job-1"):
    await scheduler.service.CancelJob(pb.CancelJobRequest(job_id=job_id), CONTEXT)


async def retry(scheduler, job_id="job-1", new="job-2"):
    request = pb.RetryJobRequest(job_id=job_id, new_job_id=new)
    return await scheduler.service.retries.retry(request, caller_of(CONTEXT))


async def audited(scheduler):
    entries = (await scheduler.service.ListAudit(pb.ListAuditRequest(), CONTEXT)).entries
    return [(entry.action, entry.target, entry.detail, entry.outcome) for entry in entries if entry.action == "retry"]


async def test_a_retry_is_a_job_of_its_own_with_the_same_specification_and_terms(scheduler):
    await submit(scheduler)
    await end(scheduler)
    answer = await retry(scheduler)
    assert (answer.job_id, answer.existed) == ("job-2", False)
    new = await scheduler.service.GetJob(pb.GetJobRequest(job_id="job-2"), CONTEXT)
    assert (new.spec.sql.text, dict(new.spec.conf), new.spec.sink.mode) == ("SELECT 1", dict(SPEC.conf), "error")
    assert (new.progress.state, new.progress.retry_of, new.progress.session) == (pb.QUEUED, "job-1", "nightly")
    first, second = (scheduler.jobs.cached(JobId(j)).graph for j in ("job-1", "job-2"))
    assert second.spec_digest == first.spec_digest
    assert scheduler.heads.get(JobId("job-2")).weight == 2
    assert await audited(scheduler) == [("retry", "job-1", "as job-2", "done")]


async def test_a_repeated_call_finds_the_retry_and_is_audited_once(scheduler):
    await submit(scheduler)
    await end(scheduler)
    await retry(scheduler)
    assert (await retry(scheduler)).existed
    await scheduler._backend.put_txn([Delete(Keyspace.FailedJobs, "job-1")])
    scheduler.jobs.forget(JobId("job-1"))
    assert (await retry(scheduler)).existed
    assert len(await audited(scheduler)) == 1


async def test_a_retry_of_a_retry_names_the_job_that_it_repeats(scheduler):
    await submit(scheduler)
    await end(scheduler)
    await retry(scheduler)
    await end(scheduler, "job-2")
    await retry(scheduler, "job-2", "job-3")
    assert scheduler.heads.get(JobId("job-3")).retry_of == "job-2"


async def test_a_job_that_goes_on_is_not_retried(scheduler):
    await submit(scheduler)
    with pytest.raises(JobNotEndedError) as caught:
        await retry(scheduler)
    assert str(caught.value) == "job job-1 is queued: it can be retried once it has ended; onager cancel ends it now"
    assert await audited(scheduler) == []


async def test_an_id_that_another_job_has_is_refused(scheduler):
    await submit(scheduler)
    await end(scheduler)
    await submit(scheduler, "job-2", pb.JobSpec(sql=pb.SqlScript(text="SELECT 2")))
    with pytest.raises(JobConflictError):
        await retry(scheduler)
    await submit(scheduler, "job-3")  # the same specification, but no retry
    with pytest.raises(JobConflictError):
        await retry(scheduler, new="job-3")


@pytest.mark.parametrize("new", ["", "Job", "job-1", "../x"])
async def test_an_id_that_cannot_be_one_is_refused(scheduler, new):
    await submit(scheduler)
    await end(scheduler)
    with pytest.raises(InvalidRequestError, match="the retry needs an id of its own"):
        await retry(scheduler, new=new)


async def test_an_unknown_job_is_reported(scheduler):
    for job_id in ("nothing", "NO/ID"):
        with pytest.raises(JobNotFoundError):
            await retry(scheduler, job_id)


async def test_a_specification_that_is_gone_is_reported(scheduler, backend):
    await submit(scheduler)
    await end(scheduler)
    await backend.delete_range(Keyspace.Plans, "")
    scheduler.blobs._at_hand.clear()
    with pytest.raises(NotFoundError, match="the specification of job job-1 cannot be read any more"):
        await retry(scheduler)
