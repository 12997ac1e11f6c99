"""The executors by the store as last seen, whichever scheduler they talk with: records and heartbeats."""

from collections.abc import Awaitable, Callable, Iterator

import structlog

from onager.errors import SchemaVersionError, StateCorruptError
from onager.ids import ExecutorId
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.loops import watching
from onager.state_backend import ABSENT, EventKind, Keyspace, StateBackendClient
from onager.supervision import run_loops

log = structlog.get_logger(__name__)


class ExecutorRegistry:
    """A cache of `Executors` and `Heartbeats`, kept fresh by watches.

    *on_change* is called with each record that is new here, and with the one that it replaced; *on_silence* when
    heartbeats have ended by the store's clock.
    """

    def __init__(
        self,
        backend: StateBackendClient,
        on_change: Callable[[ExecutorRecord, ExecutorRecord | None], None],
        on_silence: Callable[[], Awaitable[None]],
    ) -> None:
        self._backend = backend
        self._on_change = on_change
        self._on_silence = on_silence
        self._records: dict[ExecutorId, tuple[int, ExecutorRecord]] = {}
        self._hearts: set[ExecutorId] = set()
        self._is_one_machine: bool | None = None
        """Whether all are on one machine, until a record changes."""

    # ---------------------------------------------------------------- looking

    def find(self, executor_id: str) -> ExecutorRecord | None:
        """Return the record as last seen."""
        found = self._records.get(ExecutorId(executor_id))
        return None if found is None else found[1]

    def revision(self, executor_id: str) -> int:
        """Return the revision of the record as last seen, `ABSENT` when there is none."""
        found = self._records.get(ExecutorId(executor_id))
        return ABSENT if found is None else found[0]

    @property
    def is_one_machine(self) -> bool:
        """Return whether all executors that are not lost are on one machine."""
        if self._is_one_machine is None:
            self._is_one_machine = len({record.machine for record in self if record.state != "lost"}) <= 1
        return self._is_one_machine

    def __iter__(self) -> Iterator[ExecutorRecord]:
        # In one step for threads that look while a watch changes it.
        return iter([record for _, record in list(self._records.values())])

    def is_alive(self, executor_id: str, incarnation: str) -> bool:
        """Return whether this life of the executor goes on."""
        found = self.find(executor_id)
        return found is not None and found.incarnation == incarnation and found.state != "lost"

    def lives(self, incarnation: str) -> bool:
        """Return whether some executor lives in this incarnation."""
        return any(record.incarnation == incarnation and record.state != "lost" for record in self)

    def is_beating(self, executor_id: str) -> bool:
        """Return whether the executor's lease has not ended."""
        return ExecutorId(executor_id) in self._hearts

    # ---------------------------------------------------------------- learning

    def seen(self, record: ExecutorRecord, revision: int) -> None:
        """Take in a record as of *revision*; a record older than the known one changes nothing."""
        executor_id = ExecutorId(record.executor_id)
        known = self._records.get(executor_id)
        if known is not None and known[0] >= revision:
            return
        self._keep(executor_id, revision, record)
        if known is None or known[1] != record:
            self._on_change(record, None if known is None else known[1])

    def expect(self, record: ExecutorRecord) -> None:
        """Assume *record* while it is being written; the store has the last word."""
        executor_id = ExecutorId(record.executor_id)
        self._keep(executor_id, self.revision(executor_id), record)

    def _keep(self, executor_id: ExecutorId, revision: int, record: ExecutorRecord) -> None:
        self._records[executor_id] = (revision, record)
        self._is_one_machine = None

    def withdraw(self, expected: ExecutorRecord, before: ExecutorRecord) -> None:
        """Take back what `expect` assumed, unless the store has said otherwise meanwhile."""
        if self.find(expected.executor_id) is expected:
            self.expect(before)

    def forget(self, executor_id: str) -> None:
        """Drop the record of an executor that is long gone."""
        self._records.pop(ExecutorId(executor_id), None)

    def beats(self, executor_id: str) -> None:
        """Note that the executor has a lease."""
        self._hearts.add(ExecutorId(executor_id))

    def stopped(self, executor_id: str) -> None:
        """Note that the executor has no lease."""
        self._hearts.discard(ExecutorId(executor_id))

    # ---------------------------------------------------------------- the store

    async def refresh(self, *, is_strict: bool = False) -> int:
        """Read all executors and their heartbeats; return the revision to watch from."""
        hearts = await self._backend.get_from_prefix(Keyspace.Heartbeats, "")
        page = await self._backend.get_from_prefix(Keyspace.Executors, "")
        for item in page:
            try:
                record = ExecutorRecord.decoded(item.value, f"Executors/{item.key}")
            except (StateCorruptError, SchemaVersionError) as error:
                if is_strict and isinstance(error, SchemaVersionError):
                    raise
                log.error("executor_record_unreadable", executor_id=item.key, error=str(error))  # noqa: TRY400
                self.forget(item.key)
                continue
            self.seen(record, item.mod_revision)
        found = {item.key for item in page}
        for executor_id, (revision, _) in list(self._records.items()):
            if executor_id not in found and revision <= hearts.revision:
                del self._records[executor_id]
        self._hearts = {ExecutorId(item.key) for item in hearts} | {
            e for e, (revision, r) in self._records.items() if revision > hearts.revision and r.state != "lost"
        }
        return hearts.revision

    async def read(self, executor_id: str) -> None:
        """Read one executor and its heartbeat; `refresh` costs more the more executors there are."""
        place, heart = (Keyspace.Executors, executor_id), (Keyspace.Heartbeats, executor_id)
        snapshot = await self._backend.read_txn([place, heart])
        found = snapshot.values[place]
        is_old = self.revision(executor_id) <= snapshot.revision
        if is_old if found is None else not self._take(executor_id, found.mod_revision, found.value):
            self.forget(executor_id)
        if snapshot.values[heart] is not None:
            self.beats(executor_id)
        elif self.revision(executor_id) <= snapshot.revision:
            self.stopped(executor_id)

    def _take(self, executor_id: str, revision: int, value: bytes) -> bool:
        """Take in a record as it is stored; return False for one that cannot be read."""
        try:
            record = ExecutorRecord.decoded(value, f"Executors/{executor_id}")
        except (StateCorruptError, SchemaVersionError) as error:
            log.error("executor_record_unreadable", executor_id=executor_id, error=str(error))  # noqa: TRY400
            return False
        self.seen(record, revision)
        return True

    async def run(self) -> None:
        """Watch records and heartbeats for as long as the scheduler lives."""
        await run_loops(watch_of_hearts=watching(self._watch_hearts), watch_of_executors=watching(self._watch_records))

    async def _watch_hearts(self) -> None:
        revision = await self.refresh()
        await self._on_silence()
        async with self._backend.watch(Keyspace.Heartbeats, from_revision=revision + 1) as events:
            async for event in events:
                if event.kind is EventKind.PUT:
                    self.beats(event.key)
                    if not self.is_alive(event.key, event.value.decode(errors="replace")):
                        await self.read(event.key)  # it registered with another scheduler
                elif await self._backend.get(Keyspace.Heartbeats, event.key) is None:
                    self.stopped(event.key)
                    await self._on_silence()

    async def _watch_records(self) -> None:
        revision = await self.refresh()
        async with self._backend.watch(Keyspace.Executors, from_revision=revision + 1) as events:
            async for event in events:
                if event.kind is EventKind.DELETE:
                    if self.revision(event.key) < event.mod_revision:
                        self.forget(event.key)
                    continue
                self._take(event.key, event.mod_revision, event.value)
