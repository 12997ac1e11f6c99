"""Draining executors on request: the record says so to all schedulers, and the executor hears it where it waits."""

from typing import Final, NamedTuple

import structlog

from onager.clock import Clock
from onager.errors import InvalidRequestError, NotFoundError, StateUnavailableError
from onager.ids import ExecutorId
from onager.scheduler.executors.manager import ExecutorManager
from onager.state_backend import Committed, Keyspace, Put, StateBackendClient

log = structlog.get_logger(__name__)

_TRIES: Final = 10


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

        `NotFoundError` for an unknown executor, `InvalidRequestError` for one that is gone.
        """
        registry = self._executors.registry
        for tries in range(_TRIES):
            if tries or registry.find(executor_id) is None:
                await registry.read(executor_id)  # it may just have registered with another scheduler
            record = registry.find(executor_id)
            if record is None:
                raise NotFoundError(f"there is no executor {executor_id}: onager executors lists them")
            if record.state == "lost":
                state, why = record.told(self._clock.now_ms())
                told = "has left" if state == "left" else f"is lost ({why})"
                raise InvalidRequestError(f"executor {executor_id} {told}: there is nothing to drain")
            if record.state == "draining":
                return Drained(was_leaving=True, others=self._others(executor_id))
            draining = record.model_copy(update={"state": "draining"})
            result = await self._backend.put_txn(
                [Put(Keyspace.Executors, executor_id, draining.encoded())],
                expect={(Keyspace.Executors, executor_id): registry.revision(executor_id)},
            )
            if isinstance(result, Committed):
                registry.seen(draining, result.revision)
                log.info("executor_drained_on_request", executor_id=executor_id, reason=reason)
                return Drained(was_leaving=False, others=self._others(executor_id))
        raise StateUnavailableError(f"executor {executor_id} could not be marked in {_TRIES} tries; try again")

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
