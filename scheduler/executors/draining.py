"""Draining executors on request: the record tells all schedulers, and the waiting poll tells the executor."""

from typing import NamedTuple

import structlog

from onager.clock import Clock
from onager.errors import InvalidRequestError, NotFoundError
from onager.ids import ExecutorId, program_host_id
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.records import ExecutorRecord
from onager.state_backend import Keyspace, Put, StateBackendClient, Write, transact

log = structlog.get_logger(__name__)


class Drained(NamedTuple):
    """What became of a request to drain an executor."""

    was_leaving: bool
    """It takes no work any more, since earlier."""
    others: int
    """Executors that take work besides it."""


class Draining:
    """Has executors take no more work, finish what they run, and leave."""

    def __init__(self, backend: StateBackendClient, executors: ExecutorManager, clock: Clock) -> None:
        self._backend = backend
        self._executors = executors
        self._clock = clock

    async def drain(self, executor_id: str, reason: str) -> Drained:
        """Mark the executor's record, for all schedulers; it goes by itself when it has finished.

        Programs that run beside it go on elsewhere at once.

        `NotFoundError` for an unknown executor, `InvalidRequestError` for one that is gone.
        """
        registry = self._executors.registry

        def decide(record: ExecutorRecord | None) -> Write[Drained] | Drained:
            if record is None or record.runs_programs:  # that one leaves with the executor that it is beside
                raise NotFoundError(f"there is no executor {executor_id}: onager executors lists them")
            if record.state == "lost":
                state, why = record.state_and_reason(self._clock.now_ms())
                how = "has left" if state == "left" else f"is lost ({why})"
                raise InvalidRequestError(f"executor {executor_id} {how}: there is nothing to drain")
            if record.state == "draining":
                return Drained(was_leaving=True, others=self._others(executor_id))
            draining = record.model_copy(update={"state": "draining"})

            def written(revision: int) -> Drained:
                registry.seen(draining, revision)
                log.info("executor_drained_on_request", executor_id=executor_id, reason=reason)
                return Drained(was_leaving=False, others=self._others(executor_id))

            put = Put(Keyspace.Executors, executor_id, draining.encoded())
            return Write([put], {(Keyspace.Executors, executor_id): registry.revision(executor_id)}, written)

        async def read() -> ExecutorRecord | None:
            await registry.read(executor_id)  # it may just have registered with another scheduler, or changed there
            return registry.find(executor_id)

        drained = await transact(self._backend, f"executor {executor_id}", read, decide)
        await self._executors.drain_programs(executor_id)
        return drained

    def programs(self, executor_id: str) -> int:
        """Return how many programs run beside the executor's tasks, as far as this scheduler knows."""
        return self.running(program_host_id(executor_id))

    def running(self, executor_id: str) -> int:
        """Return how many task attempts the executor holds, as far as this scheduler knows."""
        session = self._executors.session(ExecutorId(executor_id))
        if session is not None:
            return len(session.held)
        record = self._executors.registry.find(executor_id)
        load = None if record is None else self._executors.loads.find(record)
        return 0 if load is None else load.running

    def _others(self, executor_id: str) -> int:
        return len(self._executors.taking_work() - {executor_id})
