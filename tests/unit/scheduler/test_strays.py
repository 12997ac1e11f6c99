"""Executors that jobs name and nobody has registered: lost, if the store agrees."""

import pytest

from onager.execution_graph import running_count
from onager.ids import ExecutorId, Incarnation, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.app import SchedulerApp
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore

JOB = JobId("job-1")


class Context:
    def peer(self):
        return "elsewhere"


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
async def late(store, clock):
    """Return a scheduler that read the executors before the only one came, which another gave the job's one task."""
    settings = SchedulerSettings(exchange_dir="/x", scheduler_id="s1")
    first = SchedulerApp(settings, MemoryBackend(store), clock)
    late = SchedulerApp(settings.model_copy(update={"scheduler_id": "s2"}), MemoryBackend(store), clock)
    await first.start()
    await late.start()
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))
    await first.service.SubmitJob(pb.SubmitJobRequest(job_id=JOB, spec=spec), Context())
    registration = pb.RegisterExecutorRequest(
        executor_id="e1", incarnation="life", slots=1, protocol_version=PROTOCOL_VERSION, spark_version="4.3"
    )
    await first.gateway.RegisterExecutor(registration, Context())
    filled = await first.tasks.fill_reservations([ExecutorReservation(ExecutorId("e1"), Incarnation("life"), 0)])
    assert filled.launches
    assert not late.executors.is_alive("e1", "life")
    yield late
    await first.close()
    await late.close()


async def running(scheduler):
    return running_count((await scheduler.jobs.fresh(JOB)).graph)


async def test_one_that_came_after_executors_were_read_is_not_lost(late):
    await late.heads.refresh()
    await late.sweep()
    assert late.local.strays(lambda *_: False)
    assert await running(late) == 1


async def test_one_that_the_store_does_not_know_either_is_lost(late, store):
    await late.heads.refresh()
    await MemoryBackend(store).delete(Keyspace.Executors, "e1")
    await late.sweep()
    assert await running(late) == 0
