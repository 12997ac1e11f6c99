"""The head of a scheduler's own write may come by the watch before the store has answered the write."""

import asyncio

import pytest

from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler import timing
from onager.scheduler.app import SchedulerApp
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore

JOB = JobId("job-1")
pytestmark = pytest.mark.virtual_time


class Context:
    def peer(self):
        return "elsewhere"


@pytest.fixture
async def scheduler(clock):
    """Return a scheduler whose loops do not run, but who would adopt a job at once."""
    made = SchedulerApp(SchedulerSettings(exchange_dir="/x"), MemoryBackend(MemoryStore(clock)), clock)
    await made.start()
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await made.service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=spec), Context())
    yield made
    await made.close()


async def move_on(scheduler, monkeypatch, *, is_seen_early):
    """Change the job's head; return which jobs were to be adopted before the store's answer was taken in."""
    commit, to_adopt = scheduler._backend._commit, []

    async def answered_late(*args):
        result = await commit(*args)
        if is_seen_early:
            await scheduler.heads.refresh()
        to_adopt.extend(scheduler.adoption.waiting)
        return result

    monkeypatch.setattr(scheduler._backend, "_commit", answered_late)
    await scheduler.local.coordinator(JOB).revive()
    return to_adopt


async def test_a_job_is_not_read_again_because_of_what_was_just_written(scheduler, monkeypatch):
    assert await move_on(scheduler, monkeypatch, is_seen_early=True) == []
    await asyncio.sleep(2 * timing.NEW_JOB_MOMENT_S)
    assert not scheduler.adoption.waiting
    assert not scheduler.adoption._later


async def test_a_job_that_another_scheduler_moved_on_meanwhile_is_read(scheduler, monkeypatch):
    await move_on(scheduler, monkeypatch, is_seen_early=True)
    stored = await scheduler._backend.get(Keyspace.JobHeads, JOB)
    head = scheduler.heads.get(JOB).model_copy(update={"has_runnable_work": False})
    await scheduler._backend.put(Keyspace.JobHeads, JOB, head.encoded())
    assert stored is not None
    await scheduler.heads.refresh()
    await asyncio.sleep(2 * timing.NEW_JOB_MOMENT_S)
    assert list(scheduler.adoption.waiting) == [JOB]
