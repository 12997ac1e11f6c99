"""Two schedulers in one process, each of which drives some jobs, and their callers."""

from onager.execution_graph import ExecutorSlot, RunningStage
from onager.ids import JobId, SchedulerId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.protocol.task_keys import by_key, task_id, task_keys
from onager.scheduler.app import SchedulerApp
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy import rendezvous
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.small_graphs import graph, planned

HERE, THERE = SchedulerId("here"), SchedulerId("there")
SLOT = ExecutorSlot("e1", "life", 1)


def job_of(scheduler_id, number=0):
    """Return the id of a job that the scheduler drives."""
    names = (f"job-{n}" for n in range(1_000))
    return JobId([n for n in names if rendezvous.first(n, [HERE, THERE]) == scheduler_id][number])


class Pair:
    """Two schedulers whose loops do not run; they reach each other as `fate` says: "ok", "silent" or "answer lost"."""

    def __init__(self, clock, exchange_dir="/x"):
        memory = MemoryStore(clock)
        self.clock = clock
        self.schedulers = {
            scheduler_id: SchedulerApp(
                SchedulerSettings(exchange_dir=str(exchange_dir), scheduler_id=scheduler_id, listen="127.0.0.1:1"),
                MemoryBackend(memory),
                clock,
            )
            for scheduler_id in (HERE, THERE)
        }
        self.here, self.there = self.schedulers.values()
        self.fate = "ok"
        self.calls = []

    async def start(self):
        for scheduler in self.schedulers.values():
            await scheduler._backend.put(
                Keyspace.Schedulers, scheduler.schedulers.id, scheduler.schedulers.record.encoded()
            )
        for scheduler in self.schedulers.values():
            await scheduler.start()
            scheduler.forwarding.calls.forward = self.forward

    async def forward(self, scheduler_id, request):
        self.calls.append(request)
        sent = pb.ForwardRequest.FromString(request.SerializeToString())
        if self.fate == "silent":
            raise NotDrivingError("silent")
        answer = await self.schedulers[scheduler_id].for_schedulers.Forward(sent, FakeContext())
        if self.fate == "answer lost":
            raise NotDrivingError("lost")
        return pb.ForwardResponse.FromString(answer.SerializeToString())

    async def settle(self):
        """Let each scheduler receive the other's writes and messages."""
        for scheduler in self.schedulers.values():
            await scheduler.heads.refresh()
            await scheduler.adoption.adopt_all()
            for actor in scheduler.forwarding.drivers().values():
                await actor.tell()
        for scheduler in self.schedulers.values():
            for actor in scheduler.forwarding.drivers().values():
                await actor.tell()

    async def run_job(self, job_id, tasks, *, at_ms=1, terms=None):
        """Submit a job, and have its driver plan it: *tasks* wait."""
        actor = self.schedulers[rendezvous.first(job_id, [HERE, THERE])]
        await actor.jobs.submit(graph(job_id, at_ms=at_ms), terms)
        await actor.local.fill_reservations(job_id, [ExecutorReservation.of(SLOT)])
        await actor.writers.record_decision(job_id, lambda _: Decision([planned(tasks)]))
        await self.settle()

    async def fill(self, slots, scheduler=None):
        scheduler = scheduler or self.here
        filled = await scheduler.tasks.fill_reservations([ExecutorReservation.of(SLOT)] * slots)
        return [key for launch in filled.launches for key in task_keys(launch.task_set)]

    async def finish(self, keys, scheduler=None):
        """Report *keys* to a scheduler as successful, and return the tasks that took their slots."""
        scheduler = scheduler or self.here
        updated = await scheduler.tasks.update_task_statuses(SLOT, by_key(map(report, keys)), len(keys))
        assert set(updated.acknowledged) == set(keys)
        launches = list(updated.launches)
        if updated.reservations:
            launches += (await scheduler.tasks.fill_reservations(updated.reservations)).launches
        return [key for launch in launches for key in task_keys(launch.task_set)]

    async def stored(self, job_id):
        return (await self.here.jobs.load(job_id)).graph.stages[1]

    def running(self, job_id):
        stage = self.schedulers[rendezvous.first(job_id, [HERE, THERE])].jobs.cached(job_id).graph.stages[1]
        return len(stage.running) if isinstance(stage, RunningStage) else 0


def report(key):
    output = pb.TaskOutput(nonce=f"n{key.partition}", executor_id="e1", shared=True, rows=1, bytes=1)
    return pb.TaskReport(task=task_id(key), success=pb.TaskSuccess(output=output))


class FakeContext:
    """The caller's end of a connection, for a service that is called without one."""

    def peer(self):
        return "ipv4:192.0.2.1:1"


async def register(pair, executor_id="e1", *, runs_programs=False):
    """Register an executor with the scheduler here, which it polls."""
    request = pb.RegisterExecutorRequest(
        executor_id=executor_id,
        runs_programs=runs_programs,
        incarnation="life",
        slots=4,
        protocol_version=PROTOCOL_VERSION,
        spark_version="4.3.0",
        python_version="3.11",
        exchange_dir="/x",
    )
    await pair.here.executors.register(request)
    await pair.there.executors.refresh()


def reported(keys, **more):
    return pb.ReportTasksRequest(executor_id="e1", incarnation="life", reports=map(report, keys), **more)
