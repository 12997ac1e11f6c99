"""Whether this scheduler sees the exchange directory: it is compared as that of executors is, and finds their marks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from onager import place_files
from onager.clock import Clock
from onager.errors import DiskError, OnagerError, PlaceNotSeenError
from onager.ids import Incarnation, new_nonce
from onager.place_files import EXCHANGE, Seen
from onager.scheduler import timing
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.disk import EXCHANGE as DISK
from onager.scheduler.executors.place_admission import PlaceAdmission, next_generation
from onager.scheduler.executors.place_records import PlaceRecord
from onager.scheduler.policy.place_rules import Admit, Ask, Begin, Make, Refuse, Renew, Tell, View, copy_text, judged
from onager.state_backend import ABSENT, Committed, Keyspace, Put, StateBackendClient, commit_settled
from onager.waiting import is_set_within

log = structlog.get_logger(__name__)

_NEW_MARK_S: Final = 10.0
_UNFOUND_S: Final = 15.0
"""A mark that nobody has found for so long tells a copy: longer than a process counts as a witness that has died."""
_TOUCH_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look has found."""

    seen: Seen
    mark: str
    """This scheduler's mark; empty: it has none there."""


class OwnExchange:
    """The exchange directory as this scheduler sees it; see `place_admission.OwnLook`."""

    def __init__(
        self,
        path: str,
        backend: StateBackendClient,
        schedulers: LiveSchedulers,
        admission: PlaceAdmission,
        clock: Clock,
        make: Callable[[], None],
    ) -> None:
        """Make it for the directory at *path*, which *make* makes."""
        self._path = path
        self._make_directory = make
        self._backend = backend
        self._schedulers = schedulers
        self._admission = admission
        self._clock = clock
        self._incarnation = Incarnation(schedulers.record.incarnation)
        self._place_id = ""
        """The id that the cluster's exchange directory has, as last read; empty: it has none, or it is not known."""
        self._made = ""
        """The id that this scheduler has made, because the place had none."""
        self._mark = ""
        self._marked_s = self._touched_s = clock.monotonic_s()
        self._found: set[str] = set()
        """Marks of schedulers that were found."""
        self._why = ""
        self._asked_s: float | None = None
        """Since when others have been asked to find its marks, by the monotonic clock; None: they are not."""
        self._failed_s: float | None = None
        """Since when its looks have failed, by the monotonic clock; None: the last one has not."""
        self._wake = asyncio.Event()

    @property
    def is_admitted(self) -> bool:
        """Whether this scheduler sees the cluster's exchange directory."""
        return bool(self._schedulers.record.sees_exchange)

    @property
    def is_seen_better_elsewhere(self) -> bool:
        """Whether another scheduler sees the exchange directory, and this one does not, or gets no answers there."""
        if not (self._why and self._place_id):
            return False
        others = [other for other in self._schedulers.others() if other.scheduler_id in self._schedulers.live]
        return any(other.sees_exchange == self._place_id and not other.is_exchange_silent for other in others)

    @property
    def pending_mark(self) -> str:
        """The mark of this scheduler that somebody has to find; empty: none."""
        return "" if self.is_admitted else self._mark

    def was_found(self, mark: str) -> None:
        """Note that a process that sees the exchange directory has found the *mark* of a scheduler there."""
        self._found.add(mark)
        if mark == self._mark:
            self._wake.set()
        else:
            living = {record.mark for record in self._schedulers.others()}
            self._found &= living | {self._mark}
            self._schedulers.change(found=tuple(sorted(self._found - {self._mark})))

    async def finds(self, mark: str) -> bool | None:
        """Return whether it finds *mark*; None when it cannot tell, or does not see the directory itself."""
        if not self.is_admitted:
            return None
        try:
            found: bool = await DISK.call(self._finds, mark, within_s=timing.PLACE_FIND_S)
        except OnagerError:
            return None
        return found

    def _finds(self, mark: str) -> bool:
        self.check()
        return place_files.has_mark(self._path, mark, self._place_id)

    def check(self) -> None:
        """Raise `PlaceNotSeenError` unless the directory is the cluster's; calls the disk, so in one of its threads."""
        if not self._place_id:
            return  # nobody has given it an id yet
        if self._why:
            raise PlaceNotSeenError(EXCHANGE, f"scheduler {self._schedulers.id} reads nothing there: {self._why}")
        if not place_files.has_id(self._path, self._place_id):
            raise PlaceNotSeenError(
                EXCHANGE,
                f"scheduler {self._schedulers.id} does not see the exchange directory {self._path} any more: mount its "
                "volume again",
            )

    # ---------------------------------------------------------------- looks

    async def run(self) -> None:
        """Look for as long as the scheduler lives: often until it is admitted."""
        self._schedulers.listen(self._wake.set)
        while not self._schedulers.is_registered:  # noqa: ASYNC110 - the store answers, or does not
            await asyncio.sleep(timing.PLACE_PENDING_S)
        while True:
            await self.look_once()
            self._wake.clear()
            pause_s = timing.PLACE_REFUSED_S if self._why else timing.PLACE_PENDING_S
            pause_s = timing.PLACE_LOOK_S if self.is_admitted else pause_s
            await is_set_within(self._wake, pause_s)

    async def look_once(self) -> None:
        """Look once, and settle what can be."""
        try:
            stored = await self._backend.get(Keyspace.Places, EXCHANGE)
            known = None if stored is None else PlaceRecord.decoded(stored.value, f"Places/{EXCHANGE}")
            self._place_id = "" if known is None else known.place_id
            try:
                wanted = self._place_id or self._made
                found: _Look = await DISK.call(self._look, wanted, self._mark, within_s=timing.PLACE_ANSWER_S)
            except DiskError as error:
                self._fail(str(error))
                return
            if self._failed_s is not None:
                self._failed_s, self._why = None, ""
            self._mark = found.mark
            await self._settle(found, known, ABSENT if stored is None else stored.mod_revision)
            await self._look_for_others()
        except OnagerError as error:
            log.warning("place_not_settled", place=EXCHANGE, path=self._path, error=str(error))
            await asyncio.sleep(timing.STORE_AGAIN_S)

    async def _look_for_others(self) -> None:
        """Look for the marks of schedulers that are not admitted yet."""
        for other in self._schedulers.others():
            is_pending = other.mark and not other.sees_exchange and other.mark not in self._found
            if is_pending and await self.finds(other.mark):
                self.was_found(other.mark)

    def _look(self, wanted: str, mark: str) -> _Look:
        """Look for the id *wanted*, and leave a mark beside it; calls the disk, and raises its errors."""
        seen, now_s = place_files.look(self._path, wanted), self._clock.monotonic_s()
        if not seen.id:
            return _Look(seen, "")
        is_old = not self.is_admitted and now_s - self._marked_s > _NEW_MARK_S
        kept = place_files.kept_mark(self._path, self._incarnation, seen.id, mark, is_old=is_old)
        if kept != mark:
            self._marked_s = now_s
        elif kept and self.is_admitted and now_s - self._touched_s > _TOUCH_S:
            try:
                place_files.remove_old_marks(self._path, kept, seen.id)
            except OSError as error:
                log.debug("marks_not_removed", place=EXCHANGE, path=self._path, error=str(error))
            self._touched_s = now_s
        return _Look(seen, kept)

    async def _settle(self, found: _Look, known: PlaceRecord | None, revision: int) -> None:
        record, seen = self._schedulers.record, found.seen
        if known is not None and record.sees_exchange == known.place_id == seen.id and record.mark == found.mark:
            self._accept(found.mark)
            if seen.generation < known.generation:
                await DISK.call(place_files.make_generation, self._path, known.place_id, known.generation)
            return
        view = View(
            place=EXCHANGE,
            path=self._path,
            host=record.host,
            wanted=self._place_id or self._made,
            id=seen.id,
            generation=seen.generation,
            mark=found.mark,
            problem=seen.problem,
        )
        is_like = known is not None and seen.id == known.place_id
        has_witness = is_like and await self._admission.has_witness(EXCHANGE, known, self._incarnation)
        match judged(known, view, has_witness=has_witness):
            case Make():
                await DISK.call(self._make)
                self._wake.set()
            case Begin():
                made = PlaceRecord(place_id=seen.id, generation=seen.generation)
                await self._admit(made, ABSENT, found)
            case Renew():
                assert known is not None
                made = next_generation(known, seen.generation)
                await self._admit(made, revision, found)
            case Admit():
                self._accept(found.mark)
            case Ask():
                self._ask(view, found)
            case Refuse(why):
                self._asked_s = None
                self._refuse(why)
            case Tell():
                raise AssertionError("it looks for the id that the store has")

    def _make(self) -> None:
        self._make_directory()
        self._made = new_nonce()
        place_files.make_id(self._path, self._made)

    async def _admit(self, made: PlaceRecord, revision: int, found: _Look) -> None:
        """Be admitted, together with a change of the place, so that no other process misses that this one lives."""
        schedulers = self._schedulers
        if schedulers.lease is None:
            return  # it registers again, and looks again
        shown = schedulers.changed(mark=found.mark, sees_exchange=made.place_id)
        puts = [
            Put(Keyspace.Places, EXCHANGE, made.encoded()),
            Put(Keyspace.Schedulers, schedulers.id, shown.encoded(), lease=schedulers.lease.id),
        ]
        result = await commit_settled(self._backend, puts, {(Keyspace.Places, EXCHANGE): revision})
        if isinstance(result, Committed):
            self._place_id = made.place_id
            self._accept(found.mark)
            await DISK.call(place_files.make_generation, self._path, made.place_id, made.generation)
        elif revision == ABSENT:
            await DISK.call(place_files.remove_id, self._path, self._made, self._incarnation)  # another was faster
            self._made = ""

    def _ask(self, view: View, found: _Look) -> None:
        """Be admitted if a process that sees the directory has found the mark; else wait for that."""
        others = self._schedulers.others()
        if found.mark in self._found or any(found.mark in other.found for other in others):
            self._accept(found.mark)
            return
        self._schedulers.change(mark=found.mark, sees_exchange="")
        now_s = self._clock.monotonic_s()
        self._asked_s = now_s if self._asked_s is None else self._asked_s
        if now_s - self._asked_s > _UNFOUND_S:
            self._refuse(copy_text(view, "no process that sees that finds what this scheduler has written"))
        elif now_s - self._marked_s > _NEW_MARK_S / 2:
            self._why = f"no process that sees it has found yet what this scheduler has written to {self._path}"

    def _accept(self, mark: str) -> None:
        record = self._schedulers.record
        if record.sees_exchange != self._place_id or record.mark != mark:
            log.info("place_seen", place=EXCHANGE, path=self._path, id=self._place_id)
            self._schedulers.change(mark=mark, sees_exchange=self._place_id)
        self._note_silence(is_silent=False)
        self._why, self._asked_s = "", None

    def _note_silence(self, *, is_silent: bool) -> None:
        if self._schedulers.record.is_exchange_silent != is_silent:
            self._schedulers.change(is_exchange_silent=is_silent)

    def _fail(self, why: str) -> None:
        """Note that the disk does not answer: not another directory, until it lasts too long to count as a witness."""
        self._why, self._asked_s = why, None
        now_s = self._clock.monotonic_s()
        self._failed_s = now_s if self._failed_s is None else self._failed_s
        log.warning("place_not_looked_at", place=EXCHANGE, path=self._path, error=why)
        self._note_silence(is_silent=True)
        if self._mark and now_s - self._failed_s > timing.PLACE_FAILS_S:
            self._mark = ""  # another one has to be found, since others may have taken over another directory meanwhile
            self._schedulers.change(mark="", sees_exchange="")

    def _refuse(self, why: str) -> None:
        if self._why != why:
            log.error("place_not_seen", place=EXCHANGE, path=self._path, why=why)
        self._why = why
        if self.is_admitted:
            self._schedulers.change(sees_exchange="")
