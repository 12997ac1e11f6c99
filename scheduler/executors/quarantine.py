"""Quarantine: an executor that fails everything gets no work for a while; its record says so to all schedulers."""

from collections.abc import Sequence

import structlog

from onager.clock import Clock
from onager.execution_graph import (
    Event,
    ExecutorSlot,
    FeedEnded,
    JobPlanned,
    PartitionsAdded,
    TaskFailed,
    TaskSucceeded,
)
from onager.ids import JobId
from onager.scheduler import timing
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.outcomes import ExecutorHealth, Suspect, Work
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.loops import every
from onager.state_backend import Committed, Keyspace, Put, StateBackendClient, commit_settled

log = structlog.get_logger(__name__)


class Quarantine:
    """Quarantines executors, never the last one that takes work; they come back when their time is over."""

    def __init__(
        self,
        backend: StateBackendClient,
        executors: ExecutorManager,
        jobs: JobStore,
        clock: Clock,
        *,
        failures: int,
        window_s: float,
        for_s: float,
    ) -> None:
        self._backend = backend
        self._executors = executors
        self._jobs = jobs
        self._clock = clock
        self._window_s = window_s
        self._for_ms = int(for_s * 1000)
        self._health = ExecutorHealth(failures=failures, window_s=window_s)
        self._spared: set[str] = set()
        """Executors spared as the last ones, so that it is logged once."""

    def record_events(self, job_id: JobId, executor: ExecutorSlot, events: Sequence[Event]) -> None:
        """Note what an executor reported."""
        record = self._executors.registry.find(executor.executor_id)
        if record is None or record.runs_programs or record.is_quarantined(self._clock.now_ms()):
            return  # it starts afresh when it comes back
        life, now_s = (executor.executor_id, executor.incarnation), self._clock.monotonic_s()
        if not self._health.has_failed(life) and not any(isinstance(event, TaskFailed) for event in events):
            return  # as nearly always
        for event in events:
            match event:
                case TaskFailed() if event.failure.kind.is_counted:
                    self._health.failed(life, Work(job_id, event.stage_id, event.partition), now_s)
                case TaskSucceeded() | PartitionsAdded() | FeedEnded():
                    self._health.succeeded(life, Work(job_id, event.stage_id, event.partition), now_s)
                case JobPlanned():
                    self._health.succeeded(life, Work(job_id, 0, 0), now_s)
                case _:
                    pass

    async def run(self) -> None:
        """Look for as long as the scheduler lives."""
        await every(timing.QUARANTINE_LOOK_S, self.look)

    async def look(self) -> None:
        """Look once whether to quarantine an executor."""
        for suspect in list(self._health.suspects(self._clock.monotonic_s(), self._succeeds_elsewhere)):
            await self._quarantine(suspect)

    async def _quarantine(self, suspect: Suspect) -> None:
        executor_id, incarnation = suspect.life
        registry, now_ms = self._executors.registry, self._clock.now_ms()
        record = registry.find(executor_id)
        if record is None or record.incarnation != incarnation or not record.takes_work(now_ms):
            self._health.forget(suspect.life)
            return
        other = self._another_that_works(executor_id, now_ms)
        if other is None:
            if executor_id not in self._spared:
                self._spared.add(executor_id)
                log.warning("last_executor_fails", executor_id=executor_id, failures=suspect.failures)
            return
        reason = (
            f"{suspect.failures} different tasks failed there within {self._window_s:g} s, {suspect.successes} "
            f"succeeded, and the same stages succeed elsewhere"
        )
        quarantined = record.model_copy(
            update={"quarantined_until_ms": now_ms + self._for_ms, "quarantine_reason": reason}
        )
        keys = {(Keyspace.Executors, e): registry.revision(e) for e in (executor_id, other.executor_id)}
        # The other executor's record must be unchanged: if two schedulers quarantine two at once, one stays.
        result = await commit_settled(
            self._backend, [Put(Keyspace.Executors, executor_id, quarantined.encoded())], keys
        )
        if not isinstance(result, Committed):
            for each in (executor_id, other.executor_id):  # looked at again in a moment
                await registry.read(each)
            return
        registry.seen(quarantined, result.revision)
        self._health.forget(suspect.life)
        self._spared.discard(executor_id)
        log.warning(
            "executor_quarantined", executor_id=executor_id, until_ms=quarantined.quarantined_until_ms, reason=reason
        )

    def _another_that_works(self, executor_id: str, now_ms: int) -> ExecutorRecord | None:
        registry = self._executors.registry
        others = (
            record
            for record in registry.that_run(programs=False)
            if record.executor_id != executor_id
            and record.takes_work(now_ms)
            and registry.is_beating(record.executor_id)
        )
        return min(others, key=lambda record: record.executor_id, default=None)

    def _succeeds_elsewhere(self, work: Work, executor_id: str) -> bool:
        job = self._jobs.cached(work.job_id)
        if job is None or work.stage_id >= len(job.graph.stages):
            return False
        outputs = job.graph.stages[work.stage_id].ledger.outputs
        return any(output.executor_id != executor_id for output in outputs.values())
