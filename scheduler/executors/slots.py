"""The slots of executors in push mode: who holds how many, by compare-and-set on one key for each executor.

A hold covers a slot in a replica's hand and the task that it has launched into it. What a replica holds it knows best
itself: it takes slots here, and from then on writes down what it has, as often as that changes. So a write that is
lost, late or repeated is put right by the next one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog
from pydantic import Field

from onager.errors import SchemaVersionError, StateBackendError, StateCorruptError
from onager.ids import ExecutorId, Incarnation
from onager.scheduler import timing
from onager.scheduler.loops import watching
from onager.scheduler.records import Record
from onager.state_backend import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    EventKind,
    Keyspace,
    KeyValue,
    Op,
    Put,
    StateBackendClient,
    TxnResult,
)
from onager.supervision import run_loops

log = structlog.get_logger(__name__)

_TRIES: Final = 20


class SlotsRecord(Record):
    """The slots of one executor in one of its lives."""

    executor_id: str
    incarnation: str
    total: int
    holders: dict[str, int] = Field(default_factory=dict)
    """How many slots each life of a scheduler holds."""

    @property
    def free(self) -> int:
        """Return how many slots nobody holds."""
        return max(0, self.total - sum(self.holders.values()))

    def with_holds(self, holder: str, held: int, given_up: Counter[str]) -> "SlotsRecord":
        """Return the record with *holder* holding so many, and others so many less."""
        holders = {**self.holders, holder: held}
        for other, slots in given_up.items():
            if other != holder:
                holders[other] = holders.get(other, 0) - slots
        return self.model_copy(update={"holders": {h: n for h, n in sorted(holders.items()) if n > 0}})


class SlotPool:
    """The slots of all push executors as the store has them, and this replica's part in them."""

    def __init__(
        self, backend: StateBackendClient, holder: str, held: Callable[[ExecutorId, Incarnation], int]
    ) -> None:
        """Act for *holder*, which by *held* holds so many slots of a life of an executor."""
        self._backend = backend
        self.holder = holder
        self._held = held
        self._records: dict[ExecutorId, tuple[int, SlotsRecord]] = {}
        self._locks: dict[ExecutorId, asyncio.Lock] = {}
        self._given_up: dict[ExecutorId, Counter[str]] = {}
        self._dirty: dict[ExecutorId, None] = {}
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    # ---------------------------------------------------------------- looking

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* whenever slots may have become free."""
        self._listeners.append(listener)

    def find(self, executor_id: ExecutorId) -> SlotsRecord | None:
        """Return the record as last seen."""
        found = self._records.get(executor_id)
        return None if found is None else found[1]

    def __iter__(self) -> Iterator[SlotsRecord]:
        # Copied at one go: the thread that serves metrics looks at it, too.
        return iter([record for _, record in list(self._records.values())])

    def free(self, executor_id: ExecutorId, incarnation: Incarnation) -> int:
        """Return how many slots of this life could be taken, by what is known here."""
        found = self.find(executor_id)
        if found is None or found.incarnation != incarnation:
            return 0
        return self._left(found)

    def _left(self, record: SlotsRecord) -> int:
        others = sum(slots for holder, slots in record.holders.items() if holder != self.holder)
        return max(0, record.total - others - self.held(record))

    def held(self, record: SlotsRecord) -> int:
        """Return how many slots of the record's life this replica holds by its books."""
        return self._held(ExecutorId(record.executor_id), Incarnation(record.incarnation))

    # ---------------------------------------------------------------- taking and giving back

    async def take(
        self, executor_id: ExecutorId, incarnation: Incarnation, slots: int, on_taken: Callable[[int], None]
    ) -> int:
        """Take up to *slots*; return how many. *on_taken* is told before anything else can happen to them."""
        async with self._lock(executor_id):
            for _ in range(_TRIES):
                revision, record = self._records.get(executor_id, (ABSENT, None))
                if record is None or record.incarnation != incarnation:
                    return 0
                taken = min(slots, self._left(record))
                if taken <= 0:
                    return 0
                after = record.with_holds(self.holder, self.held(record) + taken, Counter())
                if await self._write(executor_id, revision, after):
                    on_taken(taken)
                    return taken
        return 0

    def settle(self, executor_id: ExecutorId, given_up: Counter[str] | None = None) -> None:
        """Have written down what this replica holds there; *given_up* is what other holders have no more."""
        if given_up:
            self._given_up.setdefault(executor_id, Counter()).update(given_up)
        self._dirty[executor_id] = None
        self._wake.set()

    async def remove(self, executor_id: ExecutorId) -> None:
        """Remove the slots of an executor that is gone, unless they have changed."""
        revision, record = self._records.get(executor_id, (ABSENT, None))
        if record is not None:
            await self._commit(executor_id, [Delete(Keyspace.Slots, executor_id)], revision)
            await self._read(executor_id)

    async def create(self, executor_id: ExecutorId, incarnation: Incarnation, total: int) -> None:
        """Write down the slots of an executor that lives and has none, unless somebody else does."""
        record = SlotsRecord(executor_id=executor_id, incarnation=incarnation, total=total)
        await self._commit(executor_id, [Put(Keyspace.Slots, executor_id, record.encoded())], ABSENT)
        await self._read(executor_id)

    async def _settle(self, executor_id: ExecutorId) -> None:
        async with self._lock(executor_id):
            given_up = self._given_up.pop(executor_id, Counter[str]())
            for _ in range(_TRIES):
                revision, record = self._records.get(executor_id, (ABSENT, None))
                if record is None:
                    return
                after = record.with_holds(self.holder, self.held(record), given_up)
                if after == record or await self._write(executor_id, revision, after):
                    return
            self._given_up.setdefault(executor_id, Counter()).update(given_up)
            self._dirty[executor_id] = None

    async def _write(self, executor_id: ExecutorId, revision: int, record: SlotsRecord) -> bool:
        """Return whether *record* was written in the place of the one at *revision*; else learn what is there."""
        ops = [Put(Keyspace.Slots, executor_id, record.encoded())]
        match await self._commit(executor_id, ops, revision):
            case Committed(written):
                self._learn(executor_id, record, written)
                return True
            case Conflict(found):
                self._take_in(executor_id, found[Keyspace.Slots, executor_id])
            case _:
                # It may yet be written. Then the watch shows more, or less, than is held, and that is settled.
                await self._read(executor_id)
        return False

    async def _commit(self, executor_id: ExecutorId, ops: Sequence[Op], revision: int) -> TxnResult:
        return await self._backend.put_txn(ops, expect={(Keyspace.Slots, executor_id): revision})

    async def _read(self, executor_id: ExecutorId) -> None:
        self._take_in(executor_id, await self._backend.get(Keyspace.Slots, executor_id))

    def _lock(self, executor_id: ExecutorId) -> asyncio.Lock:
        # Held while the store is asked, by who works on the slots of one executor within this process alone.
        return self._locks.setdefault(executor_id, asyncio.Lock())

    # ---------------------------------------------------------------- learning

    async def refresh(self) -> int:
        """Read all slots; return the revision to watch from."""
        page = await self._backend.get_from_prefix(Keyspace.Slots, "")
        for item in page:
            self._take_in(ExecutorId(item.key), item)
        found = {item.key for item in page}
        for executor_id, (revision, _) in list(self._records.items()):
            if executor_id not in found and revision <= page.revision:
                self._forget(executor_id)
        return page.revision

    async def run(self) -> None:
        """Watch, and write down what is to be settled, for as long as the scheduler lives."""
        await run_loops(
            watch_of_slots=watching(self._watch, again_s=timing.SLOTS_AGAIN_S), settling_of_slots=self._settling()
        )

    async def _watch(self) -> None:
        revision = await self.refresh()
        async with self._backend.watch(Keyspace.Slots, from_revision=revision + 1) as events:
            async for event in events:
                executor_id = ExecutorId(event.key)
                if event.kind is EventKind.PUT:
                    self._take_in(executor_id, KeyValue(event.key, event.value, event.mod_revision))
                elif self._records.get(executor_id, (0, None))[0] < event.mod_revision:
                    self._forget(executor_id)

    async def _settling(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            due = list(self._dirty)
            self._dirty.clear()
            results = await asyncio.gather(*map(self._settle, due), return_exceptions=True)
            for executor_id, error in zip(due, results, strict=True):
                if isinstance(error, StateBackendError):
                    log.warning("slots_not_settled", executor_id=executor_id, error=str(error))
                    self._dirty[executor_id] = None
                elif isinstance(error, BaseException):
                    raise error
            if self._dirty:
                await asyncio.sleep(timing.SLOTS_AGAIN_S)
                self._wake.set()

    def _take_in(self, executor_id: ExecutorId, item: KeyValue | None) -> None:
        if item is None:
            self._forget(executor_id)
            return
        try:
            self._learn(executor_id, SlotsRecord.decoded(item.value, f"Slots/{item.key}"), item.mod_revision)
        except (StateCorruptError, SchemaVersionError) as error:
            log.error("slots_unreadable", executor_id=executor_id, error=str(error))  # noqa: TRY400

    def _learn(self, executor_id: ExecutorId, record: SlotsRecord, revision: int) -> None:
        known = self._records.get(executor_id)
        if known is not None and known[0] >= revision:
            return
        self._records[executor_id] = (revision, record)
        if self._left(record):
            self._tell()

    def _forget(self, executor_id: ExecutorId) -> None:
        if self._records.pop(executor_id, None) is not None:
            self._given_up.pop(executor_id, None)
            lock = self._locks.get(executor_id)
            if lock is not None and not lock.locked():
                del self._locks[executor_id]

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
