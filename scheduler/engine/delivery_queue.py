"""What is due to the outside when a job has ended: done at least once, whichever scheduler lives.

The transaction that ends a job says in its head what is due, and whoever has done it takes that back. So it survives
every scheduler; one that dies between the two is followed by another one, which does it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from onager.clock import Clock
from onager.errors import OnagerError
from onager.ids import JobId
from onager.redaction import without_logins
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.jobs.job_heads import DueFlag, JobHead, JobHeads
from onager.waiting import is_set_within

log = structlog.get_logger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 600.0
_IN_HAND: Final = 1_000
"""At most so many jobs are being delivered or wait for their next try; others wait in their heads."""
_TURN_S: Final = 30.0
"""What each place in the order of schedulers is worth: longer than a request takes, so that only one of them does it
while all live and the receiver answers."""
_LOOK_S: Final = 1.0


class NotDeliveredError(Exception):
    """The receiver did not take it; the text says why."""


Deliver = Callable[[JobId, JobHead, str], Awaitable[None]]
"""Tells somebody of a job, once; `NotDeliveredError` when that is to be tried again."""


class DeliveryQueue:
    """One kind of what is due, as one scheduler sees it."""

    def __init__(
        self,
        flag: DueFlag,
        heads: JobHeads,
        precedence: Precedence,
        clock: Clock,
        *,
        give_up_s: int,
        whom: Collection[str],
    ) -> None:
        """Take the jobs whose heads have *flag* set: each of *whom* is to be notified of each of them.

        *give_up_s* after a job's end it is no longer tried.
        """
        self.flag = flag
        self.is_on = bool(whom)
        self._heads = heads
        self._precedence = precedence
        self._clock = clock
        self._give_up_s = give_up_s
        self._due: set[JobId] = set()
        self._waiting: dict[str, dict[JobId, float]] = {each: {} for each in whom}
        """The jobs of which each is still to be notified, and since when this scheduler knows."""
        self._tries: dict[str, dict[JobId, asyncio.Task[None]]] = {each: {} for each in whom}
        self._wake = asyncio.Event()

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Take in whether a delivery is still due for the job."""
        if not self.is_on:
            return
        if head is None or not getattr(head, self.flag):
            self._due.discard(job_id)
            for waiting in self._waiting.values():
                waiting.pop(job_id, None)
        elif job_id not in self._due:
            self._due.add(job_id)
            for waiting in self._waiting.values():
                waiting[job_id] = self._clock.monotonic_s()
            self._wake.set()

    async def run(self, deliver: Deliver) -> None:
        """Do what is due for as long as the scheduler lives.

        Each try calls *deliver* anew, so that what waits for its next try holds nothing in memory.
        """
        try:
            while True:
                self._begin(deliver)
                self._wake.clear()
                # Another scheduler's turn passes to this one without an event.
                await is_set_within(self._wake, _LOOK_S if any(self._waiting.values()) else None)
        finally:
            tasks = [task for tries in self._tries.values() for task in tries.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _try(self, deliver: Deliver, job_id: JobId, head: JobHead, whom: str) -> None:
        """Call *deliver* until it has delivered, another scheduler has, or it is too late."""
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(NotDeliveredError),
                wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
                stop=lambda _: self._is_too_late(head) or self._is_done(job_id),
                before_sleep=partial(self._log_again, job_id, whom),
                reraise=True,
            ):
                with attempt:
                    if not self._is_done(job_id):
                        await deliver(job_id, head, whom)
        except NotDeliveredError as error:
            if not self._is_done(job_id):
                log.error("delivery_given_up", job_id=job_id, whom=shown(whom), error=str(error))  # noqa: TRY400 the text says all

    def _begin(self, deliver: Deliver) -> None:
        now_s = self._clock.monotonic_s()
        for whom, waiting in self._waiting.items():
            tries = self._tries[whom]
            room = _IN_HAND - len(tries)
            for job_id, since_s in [*waiting.items()] if room else ():
                head = self._heads.get(job_id)
                if head is None or job_id in tries or not self._precedence.has_come(job_id, now_s - since_s, _TURN_S):
                    continue
                tries[job_id] = task = asyncio.create_task(self._settle(deliver, job_id, head, whom))
                task.add_done_callback(partial(self._over, job_id, whom))
                room -= 1
                if not room:
                    break

    def _over(self, job_id: JobId, whom: str, task: "asyncio.Task[None]") -> None:
        del self._tries[whom][job_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            # It stays due: the next scheduler to start tries it again.
            log.error("delivery_failed", job_id=job_id, what=self.flag, error=repr(error))
            self._due.discard(job_id)
            self._waiting[whom].pop(job_id, None)
        self._wake.set()

    async def _settle(self, deliver: Deliver, job_id: JobId, head: JobHead, whom: str) -> None:
        await self._try(deliver, job_id, head, whom)
        self._waiting[whom].pop(job_id, None)
        if job_id in self._due and not any(job_id in waiting for waiting in self._waiting.values()):
            await self.note_done(job_id)

    async def note_done(self, job_id: JobId) -> None:
        """Write into the head that the delivery is no longer due."""
        while True:
            head = self._heads.get(job_id)
            if head is None or not getattr(head, self.flag):
                return
            try:
                if await self._heads.put([head.model_copy(update={self.flag: False})]):
                    return
            except OnagerError as error:
                log.warning("delivery_not_noted", job_id=job_id, error=str(error))
            await asyncio.sleep(_LOOK_S)  # the head has changed, and the change is on its way here

    def _is_done(self, job_id: JobId) -> bool:
        """Return whether another scheduler has done it."""
        return job_id not in self._due

    def _is_too_late(self, head: JobHead) -> bool:
        return self._clock.now_ms() - (head.ended_ms or 0) > 1000 * self._give_up_s

    def _log_again(self, job_id: JobId, whom: str, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        pause_s = state.next_action.sleep if state.next_action is not None else 0.0
        log.warning("delivery_again", job_id=job_id, whom=shown(whom), error=str(error), pause_s=round(pause_s, 1))


def shown(url: str) -> str:
    """Return an address without what may be secret in it."""
    return without_logins(url.partition("?")[0])
