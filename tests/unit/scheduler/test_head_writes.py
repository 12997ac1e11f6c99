"""When the head of a job is written: each change is one more write, and wakes all schedulers."""

from onager.state_backend import Keyspace
from tests.support.large_jobs import LargeJob


async def test_tasks_that_succeed_leave_the_head_as_it_is(backend):
    job = await LargeJob.submitted(backend, "job", 40, 2)

    async def revision():
        return (await backend.get(Keyspace.JobHeads, "job")).mod_revision

    planned = await revision()
    await job.run(39, a_batch=1)
    assert await revision() == planned, "its stage goes on"
    await job.run(1, a_batch=1)
    assert await revision() > planned, "the stage is done"
