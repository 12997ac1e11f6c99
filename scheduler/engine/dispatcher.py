"""Brings waiting polls and waiting tasks together: one loop fills all free slots with one append per job.

Programs wait for slots of their own, in a queue of their own: neither holds up the other.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from onager.clock import Clock
from onager.errors import OnagerError
from onager.ids import ExecutorId
from onager.scheduler import timing
from onager.scheduler.engine.task_manager import TaskManager
from onager.scheduler.executors.records import ExecutorSession, Offer
from onager.scheduler.policy.distribution import Affinity, FreeSlots, TaskDistribution, near_their_input, spread
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.reservations import ExecutorReservation, Filled, Launch
from onager.supervision import Background
from onager.waiting import is_set_within

log = structlog.get_logger(__name__)


class Lane(NamedTuple):
    """What waits for the slots of one kind of executors, and who assigns it."""

    tasks: TaskManager
    queue: FairQueue
    is_of_programs: bool


class Dispatcher:
    """The free slots that this scheduler holds: each belongs to a waiting poll."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        clock: Clock,
        *,
        policy: TaskDistribution = TaskDistribution.ROUND_ROBIN,
        affinity: Affinity = lambda *_: 0.0,
    ) -> None:
        self._lanes = lanes
        self._clock = clock
        self._policy = policy
        self._affinity = affinity
        self._offers: dict[ExecutorId, Offer] = {}
        self._wake = asyncio.Event()
        self._rounds = Background()

    def wake(self) -> None:
        """Wake the loop: tasks or slots may have become free. `SchedulerApp` does so after commits."""
        self._wake.set()

    def nudge(self, matches: Callable[[ExecutorSession], bool], *, at_most: int | None = None) -> None:
        """Answer waiting polls of executors for which there is something else, all of them or *at_most* that many."""
        for offer in self._offers.values():
            if at_most == 0:
                return
            if matches(offer.session) and not offer.answered.is_set():
                offer.is_nudged = True
                offer.answered.set()
                at_most = None if at_most is None else at_most - 1

    def credit(self, session: ExecutorSession, slots: int) -> int:
        """Add free slots to the executor's waiting poll, and return how many were added.

        Without a poll that waits here, the executor offers them itself, with its next poll or to the scheduler that it
        polls.
        """
        offer = self._offers.get(session.executor_id)
        if offer is None or offer.session is not session or slots <= 0:
            return 0
        offer.credit += slots
        self._wake.set()
        return slots

    async def fill(self, session: ExecutorSession, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Assign tasks to slots of an executor that have just become free, those of its kind that wait."""
        lane = next(lane for lane in self._lanes if lane.is_of_programs == session.record.runs_programs)
        return await lane.tasks.fill_reservations(reservations)

    def offer(self, session: ExecutorSession, slots: int) -> Offer:
        """Offer *slots*, replacing the executor's earlier offer here."""
        offer = Offer(session, slots)
        before = self._offers.get(session.executor_id)
        if before is not None:
            before.answered.set()  # its executor no longer waits for this answer, but takes what it brings
            if before.session is session:
                offer.credit = max(0, slots - before.taken)
        self._offers[session.executor_id] = offer
        self._wake.set()
        return offer

    async def wait_for_work(self, offer: Offer, timeout_s: float) -> None:
        """Wait until slots of *offer* are filled, there is something else to tell, or *timeout_s* is over."""
        executor_id = offer.session.executor_id
        try:
            if not await is_set_within(offer.answered, timeout_s):
                log.debug("poll_without_work", executor_id=executor_id)
        finally:
            if self._offers.get(executor_id) is offer:
                del self._offers[executor_id]
        await offer.settled.wait()  # tasks may be about to enter this very answer

    async def run(self) -> None:
        """Fill slots for as long as the scheduler lives."""
        await self._rounds.run(dispatching=self._dispatch())

    async def _dispatch(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            started = self._rounds.start("round of the dispatcher", self._fill())
            await asyncio.wait([started], timeout=timing.DISPATCH_ROUND_S)

    async def _fill(self) -> None:
        try:
            for lane in self._lanes:
                await self._fill_lane(lane)
        except OnagerError as error:
            log.warning("slots_not_filled", error=str(error))
            asyncio.get_running_loop().call_later(timing.DISPATCH_PAUSE_S, self._wake.set)

    async def _fill_lane(self, lane: Lane) -> None:
        """Fill slots while there are some; slots of an executor that fits no task are skipped."""
        passed_over: set[ExecutorId] = set()
        while reservations := self._reservations(lane, passed_over):
            unfilled = await self._fill_some(lane, reservations)
            if not unfilled:
                return
            passed_over |= {reservation.executor_id for reservation in unfilled}

    async def _fill_some(
        self, lane: Lane, reservations: Sequence[ExecutorReservation]
    ) -> Sequence[ExecutorReservation]:
        taken: dict[ExecutorId, int] = {}
        for reservation in reservations:
            taken[reservation.executor_id] = taken.get(reservation.executor_id, 0) + 1
        offers = {executor_id: self._offers[executor_id] for executor_id in taken}
        for executor_id, slots in taken.items():
            offers[executor_id].credit -= slots
            offers[executor_id].taken += slots
            offers[executor_id].filling += 1
            offers[executor_id].settled.clear()
        try:
            filled = await lane.tasks.fill_reservations(reservations)
            for reservation in filled.unfilled:
                self._give_back(offers[reservation.executor_id], 1)
            self._hand_over(filled.launches, offers)
        except BaseException:
            for executor_id, slots in taken.items():
                self._give_back(offers[executor_id], slots)
            raise
        finally:
            for executor_id, offer in offers.items():
                offer.taken -= taken[executor_id]
                offer.filling -= 1
                if not offer.filling:
                    offer.settled.set()
        return filled.unfilled

    def _give_back(self, offer: Offer, slots: int) -> None:
        """Return unfilled slots to the executor's current poll."""
        waiting = self._offers.get(offer.session.executor_id)
        (waiting if waiting is not None and waiting.session is offer.session else offer).credit += slots

    def _hand_over(self, launches: Iterable[Launch], offers: Mapping[ExecutorId, Offer]) -> None:
        """Put launched tasks into the answers of polls; an executor's next list shows those of a poll that broke."""
        now_s = self._clock.monotonic_s()
        for launch in launches:
            offer = offers[ExecutorId(launch.executor_id)]
            offer.session.note_launch(launch.task_set, now_s)
            offer.launches.append(launch.task_set)
            offer.answered.set()

    def _reservations(self, lane: Lane, passed_over: Collection[ExecutorId]) -> list[ExecutorReservation]:
        """Take as many slots from the polls that wait as there are tasks."""
        available = lane.queue.available
        if not available:
            return []
        now_ms = self._clock.now_ms()
        free = [
            FreeSlots(offer.session.executor_id, offer.credit, offer.session.record.slots)
            for offer in self._offers.values()
            if offer.credit > 0
            and offer.can_be_filled
            and offer.session.record.runs_programs == lane.is_of_programs
            and offer.session.record.takes_work(now_ms)
            and offer.session.executor_id not in passed_over
        ]
        if self._policy is TaskDistribution.LOCALITY:
            wanted = min(available, sum(slots.free for slots in free))
            places = near_their_input(free, lane.queue.claims(wanted), self._affinity)
        else:
            places = spread(self._policy, free, available)
        return [ExecutorReservation.of(self._offers[e].session.slot, job_id) for e, job_id in places]
