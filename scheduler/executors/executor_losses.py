"""Telling the jobs that an executor is lost: at once where that was found, elsewhere if it is still to be done."""

from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from execution_graph import ExecutorLost
from onager.clock import Clock
from onager.errors import OnagerError
from scheduler.executors.executor_records import ExecutorRecord
from scheduler.executors.executor_roster import ExecutorRoster

log = structlog.get_logger(__name__)

_MOMENT_S: Final = 0.5
"""How long the scheduler that found a loss has for it, before others look whether jobs were told."""


class OnLost(Protocol):
    """What applies a loss to the jobs."""

    async def __call__(self, lost: ExecutorLost, *, is_late: bool = False) -> None:
        """Apply *lost*; with *is_late* another scheduler is likely to have done it."""
        ...


@dataclass(frozen=True, slots=True)
class _Owed:
    lost: ExecutorLost
    since_s: float
    is_late: bool


class ExecutorLosses:
    """The losses that jobs have not been told of yet."""

    def __init__(self, on_lost: OnLost, clock: Clock) -> None:
        self._on_lost = on_lost
        self._clock = clock
        self._owed: dict[tuple[str, str], _Owed] = {}

    async def tell(
        self, executor_id: str, incarnation: str, reason: str, *, is_drained: bool = False, is_late: bool = False
    ) -> None:
        """Tell the jobs; what could not be stored now is told again by `tell_due`."""
        await self._pay(self._owe(executor_id, incarnation, reason, is_drained=is_drained, is_late=is_late))

    def found_elsewhere(self, record: ExecutorRecord, reason: str) -> None:
        """Tell the jobs in a moment, should the scheduler that found the loss not have done so."""
        if (record.executor_id, record.incarnation) not in self._owed:
            is_drained = record.state == "draining"
            self._owe(record.executor_id, record.incarnation, reason, is_drained=is_drained, is_late=True)

    async def tell_due(self, roster: ExecutorRoster) -> None:
        """Tell what could not be stored before, and what others had their moment for.

        A life that was declared lost by mistake, and has registered again since, has lost nothing.
        """
        now_s = self._clock.monotonic_s()
        due = [owed for owed in self._owed.values() if not owed.is_late or now_s - owed.since_s >= _MOMENT_S]
        if due:
            await roster.refresh()
        for owed in due:
            if roster.is_alive(owed.lost.executor_id, owed.lost.incarnation):
                self._settle(owed)
            else:
                await self._pay(owed)

    def _owe(self, executor_id: str, incarnation: str, reason: str, *, is_drained: bool, is_late: bool) -> _Owed:
        lost = ExecutorLost(
            executor_id=executor_id,
            incarnation=incarnation,
            reason=f"executor {executor_id}: {reason}",
            at_ms=self._clock.now_ms(),
            is_drained=is_drained,
        )
        owed = self._owed[executor_id, incarnation] = _Owed(lost, self._clock.monotonic_s(), is_late)
        return owed

    async def _pay(self, owed: _Owed) -> None:
        try:
            await self._on_lost(owed.lost, is_late=owed.is_late)
        except OnagerError as error:
            log.warning("executor_loss_not_applied", executor_id=owed.lost.executor_id, error=str(error))
        else:
            self._settle(owed)

    def _settle(self, owed: _Owed) -> None:
        key = (owed.lost.executor_id, owed.lost.incarnation)
        if self._owed.get(key) is owed:
            del self._owed[key]
