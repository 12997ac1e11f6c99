"""Jobs that have ended are submitted again: once, as they were, and not while they go on."""

import pytest

from onager.errors import InvalidRequestError, JobConflictError, JobNotEndedError, JobNotFoundError, NotFoundError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import caller_of
from onager.scheduler.app import Replica
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Delete, Keyspace
from tests.unit.scheduler.pair import Peer

SPEC = pb.JobSpec(
    name="mine",
    sql=pb.SqlScript(text="SELECT 1"),
    conf={"onager.session": "nightly", "onager.weight": "2"},
    sink=pb.Sink(path="/data/out", format="parquet", mode="error"),
)
PEER = Peer()


@pytest.fixture
async def replica(backend, clock):
    made = Replica(SchedulerSettings(exchange_dir="/x", scheduler_id="s", listen="127.0.0.1:1"), backend, clock)
    await made.start()
    yield made
    await made.close()


async def submit(replica, job_id="job-1", spec=SPEC):
    await replica.service.SubmitJob(pb.SubmitJobRequest(job_id=job_id, spec=spec, client_id="c"), PEER)


async def end(replica, job_id="job-1"):
    await replica.service.CancelJob(pb.CancelJobRequest(job_id=job_id), PEER)


async def retry(replica, job_id="job-1", new="job-2"):
    request = pb.RetryJobRequest(job_id=job_id, new_job_id=new)
    return await replica.service.retries.retry(request, caller_of(PEER))


async def audited(replica):
    entries = (await replica.service.ListAudit(pb.ListAuditRequest(), PEER)).entries
    return [(entry.action, entry.target, entry.detail, entry.outcome) for entry in entries if entry.action == "retry"]


async def test_a_retry_is_a_job_of_its_own_with_the_same_specification_and_terms(replica):
    await submit(replica)
    await end(replica)
    answer = await retry(replica)
    assert (answer.job_id, answer.existed) == ("job-2", False)
    new = await replica.service.GetJob(pb.GetJobRequest(job_id="job-2"), PEER)
    assert (new.spec.sql.text, dict(new.spec.conf), new.spec.sink.mode) == ("SELECT 1", dict(SPEC.conf), "error")
    assert (new.progress.state, new.progress.retry_of, new.progress.session) == (pb.QUEUED, "job-1", "nightly")
    first, second = (replica.jobs.cached(JobId(j)).graph for j in ("job-1", "job-2"))
    assert second.spec_digest == first.spec_digest
    assert replica.heads.get(JobId("job-2")).weight == 2
    assert await audited(replica) == [("retry", "job-1", "as job-2", "done")]


async def test_a_repeated_call_finds_the_retry_and_is_audited_once(replica):
    await submit(replica)
    await end(replica)
    await retry(replica)
    assert (await retry(replica)).existed
    await replica._backend.put_txn([Delete(Keyspace.FailedJobs, "job-1")])
    replica.jobs.forget(JobId("job-1"))
    assert (await retry(replica)).existed
    assert len(await audited(replica)) == 1


async def test_a_retry_of_a_retry_names_the_job_that_it_repeats(replica):
    await submit(replica)
    await end(replica)
    await retry(replica)
    await end(replica, "job-2")
    await retry(replica, "job-2", "job-3")
    assert replica.heads.get(JobId("job-3")).retry_of == "job-2"


async def test_a_job_that_goes_on_is_not_retried(replica):
    await submit(replica)
    with pytest.raises(JobNotEndedError) as caught:
        await retry(replica)
    assert str(caught.value) == "job job-1 is queued: it can be retried once it has ended; onager cancel ends it now"
    assert await audited(replica) == []


async def test_an_id_that_another_job_has_is_refused(replica):
    await submit(replica)
    await end(replica)
    await submit(replica, "job-2", pb.JobSpec(sql=pb.SqlScript(text="SELECT 2")))
    with pytest.raises(JobConflictError):
        await retry(replica)
    await submit(replica, "job-3")  # the same specification, but no retry
    with pytest.raises(JobConflictError):
        await retry(replica, new="job-3")


@pytest.mark.parametrize("new", ["", "Job", "job-1", "../x"])
async def test_an_id_that_cannot_be_one_is_refused(replica, new):
    await submit(replica)
    await end(replica)
    with pytest.raises(InvalidRequestError, match="the retry needs an id of its own"):
        await retry(replica, new=new)


async def test_an_unknown_job_is_told(replica):
    for job_id in ("nothing", "NO/ID"):
        with pytest.raises(JobNotFoundError):
            await retry(replica, job_id)


async def test_a_specification_that_is_gone_is_told(replica, backend):
    await submit(replica)
    await end(replica)
    await backend.delete_range(Keyspace.Plans, "")
    replica.blobs._at_hand.clear()
    with pytest.raises(NotFoundError, match="the specification of job job-1 cannot be read any more"):
        await retry(replica)
