"""A scheduler whose jobs take outputs of others, and an executor that does what it is given."""

from onager.execution_graph import ExecutorSlot
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_key, task_id, task_keys
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend
from tests.unit.scheduler.small_graphs import graph

SLOT = ExecutorSlot("e1", "life", 1)
USER = JobTerms(principal="ann", reuse="cluster")
PRINTS = [digest_of(b"print 1"), digest_of(b"print 2")]


def plan_of(*prints, deterministic=True, tasks=2):
    """Return what planning reports: stages of which each reads the one before, and the last gives the result."""
    blobs, stages = [], []
    for number, fingerprint in enumerate((*prints, ""), start=1):
        content = f"plan {number}".encode()
        blobs.append(pb.Blob(digest=digest_of(content), content=content))
        stages.append(
            pb.PlannedStage(
                stage_id=number,
                name=f"stage {number}",
                plan_digest=digest_of(content),
                partitions=tasks,
                inputs=[pb.StageInput(stage_id=number - 1, read="bucket")] if number > 1 else [],
                output=pb.OutputLayout(kind="exchange", buckets=2) if fingerprint else pb.OutputLayout(kind="result"),
                deterministic=deterministic,
                fingerprint=fingerprint,
            )
        )
    return pb.PlanOutcome(stages=stages, blobs=blobs)


class Cluster:
    """A scheduler, and an executor that does what it is given."""

    def __init__(self, store, clock, name, **settings):
        self.clock = clock
        self.app = SchedulerApp(
            SchedulerSettings(exchange_dir="/x", scheduler_id=name, listen="127.0.0.1:1", **settings),
            MemoryBackend(store),
            clock,
        )

    async def start(self):
        scheduler = self.app
        await scheduler._backend.put(
            Keyspace.Schedulers, scheduler.schedulers.id, scheduler.schedulers.record.encoded()
        )
        await scheduler.start()

    async def begin(self, job_id, terms=USER, plan=None):
        """Submit a job, have it planned, and return the tasks that were launched then."""
        await self.app.jobs.submit(graph(job_id, at_ms=self.clock.now_ms()), terms)
        await self.app.adoption.adopt_all()
        (planning,) = await self.fill()
        success = pb.TaskSuccess(plan=plan_of(*PRINTS) if plan is None else plan)
        return await self.report(planning, success=success)

    async def fill(self):
        filled = await self.app.tasks.fill_reservations([ExecutorReservation.of(SLOT)] * 2)
        return [launch.task_set for launch in filled.launches]

    async def report(self, task_set, **outcome):
        reports = [pb.TaskReport(task=task_id(key), **outcome) for key in task_keys(task_set)]
        updated = await self.app.tasks.update_task_statuses(SLOT, by_key(reports), len(reports))
        assert len(updated.acknowledged) == len(reports)
        launches = [launch.task_set for launch in updated.launches]
        return launches or await self.fill()

    async def finish(self, task_sets):
        """Do the tasks, and all that follow, and return the stages that were done."""
        done = []
        while task_sets:
            task_set, *task_sets = task_sets
            done.append(task_set.stage_id)
            for task in task_set.tasks:
                nonce = f"{task_set.job_id}-{task_set.stage_id}-{task.partition}".replace(".", "_")
                output = pb.TaskOutput(nonce=nonce, shared=True, rows=1, bytes=1)
                one = pb.TaskSet()
                one.CopyFrom(task_set)
                del one.tasks[:]
                one.tasks.add(partition=task.partition, task_attempt=task.task_attempt)
                task_sets += await self.report(one, success=pb.TaskSuccess(output=output))
        return sorted(set(done))

    async def run(self, job_id, terms=USER, plan=None):
        return await self.finish(await self.begin(job_id, terms, plan))

    def head(self, job_id):
        return self.app.heads.get(JobId(job_id))

    async def refresh(self):
        """Let the scheduler see what others wrote, as its watch would."""
        self.app.heads._watched = await self.app.heads.refresh()

    async def asked(self):
        """Return what an executor is asked to remove."""
        await self.refresh()
        await self.app.clean_ups.prepare()
        asked = self.app.clean_ups.clean_ups_for("e1")
        await self.app.clean_ups.cleaned_up(clean_up.job_id for clean_up in asked)
        return {clean_up.job_id: list(clean_up.keep_files) for clean_up in asked}
