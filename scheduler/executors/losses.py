"""Tells jobs that an executor is lost: each scheduler those that it drives, however it learned of the loss."""

from typing import Protocol

import structlog

from onager.clock import Clock
from onager.errors import OnagerError
from onager.execution_graph import ExecutorLost, JvmDeath
from onager.scheduler import timing
from onager.scheduler.executors.records import ExecutorRecord, Loss
from onager.scheduler.executors.registry import ExecutorRegistry

log = structlog.get_logger(__name__)


class OnLost(Protocol):
    """Applies a loss to the jobs."""

    async def __call__(self, lost: ExecutorLost) -> None:
        """Apply *lost*; `OnagerError` when the loss could not be stored for some job."""
        ...


class LossObserver:
    """Called once per lost executor, by the scheduler that recorded the loss."""

    def lost(self, how: Loss) -> None:
        """Note that a life has ended."""


class ExecutorLosses:
    """The losses that jobs do not know yet."""

    observer = LossObserver()
    """Observes losses; set where metrics are kept."""

    def __init__(self, clock: Clock) -> None:
        self._on_lost: OnLost = _nobody
        self._clock = clock
        self._due: dict[tuple[str, str], ExecutorLost] = {}
        self._recent: dict[tuple[str, str], tuple[float, ExecutorLost]] = {}

    def serve(self, on_lost: OnLost) -> None:
        """Tell jobs by *on_lost*."""
        self._on_lost = on_lost

    @property
    def recent(self) -> list[ExecutorLost]:
        """Return the losses of the last minute."""
        horizon_s = self._clock.monotonic_s() - timing.LOSSES_REMEMBERED_S
        self._recent = {life: found for life, found in self._recent.items() if found[0] > horizon_s}
        return [lost for _, lost in self._recent.values()]

    async def tell(self, executor_id: str, incarnation: str, reason: str, death: JvmDeath | None = None) -> None:
        """Tell the jobs; `tell_due` repeats what could not be stored now."""
        await self._apply_loss(self._note_due(executor_id, incarnation, reason, death))

    def found_elsewhere(self, record: ExecutorRecord, reason: str, death: JvmDeath | None = None) -> None:
        """Tell the jobs at the next look."""
        if (record.executor_id, record.incarnation) not in self._due:
            self._note_due(record.executor_id, record.incarnation, reason, death)

    async def tell_due(self, registry: ExecutorRegistry) -> None:
        """Tell jobs of losses that could not be stored before, and of those that another scheduler found.

        A life that was declared lost by mistake, and has registered again since, has lost nothing.
        """
        due = list(self._due.values())
        if due:
            await registry.refresh()
        for lost in due:
            if registry.is_alive(lost.executor_id, lost.incarnation):
                self._settle(lost)
            else:
                await self._apply_loss(lost)

    def _note_due(self, executor_id: str, incarnation: str, reason: str, death: JvmDeath | None) -> ExecutorLost:
        lost = self._due[executor_id, incarnation] = ExecutorLost(
            executor_id=executor_id,
            incarnation=incarnation,
            reason=f"executor {executor_id}: {reason}",
            at_ms=self._clock.now_ms(),
            death=death,
        )
        self._recent[executor_id, incarnation] = (self._clock.monotonic_s(), lost)
        return lost

    async def _apply_loss(self, lost: ExecutorLost) -> None:
        try:
            await self._on_lost(lost)
        except OnagerError as error:
            log.warning("executor_loss_not_applied", executor_id=lost.executor_id, error=str(error))
        else:
            self._settle(lost)

    def _settle(self, lost: ExecutorLost) -> None:
        key = (lost.executor_id, lost.incarnation)
        if self._due.get(key) is lost:
            del self._due[key]


async def _nobody(lost: ExecutorLost) -> None:
    """Tell no job: there is none yet."""
