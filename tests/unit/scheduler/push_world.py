"""One replica in push mode whose loops do not run, and executors that take what they are sent."""

from types import SimpleNamespace

from onager.execution_graph import SpeculationPolicy, submit
from onager.ids import ExecutorId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler.app import Replica
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.small_graphs import planned


class Context:
    def peer(self):
        return "elsewhere"


class PushWorld:
    """The replica, and what it has launched: executors and jobs."""

    def __init__(self, clock):
        self.clock = clock
        self.backend = MemoryBackend(MemoryStore(clock))
        self.replica = Replica(SchedulerSettings(exchange_dir="/x", listen="127.0.0.1:1"), self.backend, clock)
        self.launched = []
        self.replica.push.launcher = SimpleNamespace(
            launch=lambda record, task_sets: self.launched.extend((record.executor_id, t.job_id) for t in task_sets),
            check=lambda _: None,
            has_plan=lambda *_: False,
        )

    async def start(self):
        record = self.replica.members.record
        await self.backend.put(Keyspace.Schedulers, self.replica.members.id, record.encoded())
        await self.replica.start()

    async def register(self, executor_id, slots):
        request = pb.RegisterExecutorRequest(
            executor_id=executor_id, incarnation="life", slots=slots, protocol_version=PROTOCOL_VERSION,
            spark_version="4.3", mode="push", address="127.0.0.1:1",
        )  # fmt: skip
        await self.replica.gateway.RegisterExecutor(request, Context())
        await self.replica.slots.refresh()

    async def run_job(self, job_id, tasks, *, speculates=False):
        """Submit a job and have it planned: *tasks* wait."""
        policy = SpeculationPolicy() if speculates else None
        made = submit(
            job_id=job_id, name="j", client_id="c", spec_digest="d" * 64, at_ms=1, speculation=policy
        )  # fmt: skip
        await self.replica.jobs.submit(made)
        await self.fill()
        self.launched.clear()
        await self.replica.writers.record(job_id, lambda _: Decision([planned(tasks)]))
        ledger = self.replica.push.ledger
        ledger.forget(ExecutorId("e1"), [k for *_, k, _ in ledger.launched() if (k.job_id, k.stage_id) == (job_id, 0)])

    async def fill(self):
        """Let waiting tasks find slots; return how often slots were written."""
        writes = []
        commit = self.backend._commit

        async def counted(ops, expect, fence):
            writes.extend(op for op in ops if getattr(op, "keyspace", None) is Keyspace.Slots)
            return await commit(ops, expect, fence)

        self.backend._commit = counted
        try:
            await self.replica.push.fill()
        finally:
            self.backend._commit = commit
        return len(writes)
