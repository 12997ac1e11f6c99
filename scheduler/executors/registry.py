"""The executors by the store as last seen, whichever scheduler they talk with: records and heartbeats."""

from collections.abc import Awaitable, Callable

from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.loops import watching
from onager.scheduler.watched_records import WatchedRecords
from onager.state_backend import EventKind, Keyspace, StateBackendClient
from onager.supervision import run_loops


class ExecutorRegistry(WatchedRecords[ExecutorRecord]):
    """The records of `Executors`, and which of them have a heartbeat in `Heartbeats`."""

    def __init__(
        self,
        backend: StateBackendClient,
        on_change: Callable[[ExecutorRecord, ExecutorRecord | None], None],
        on_silence: Callable[[], Awaitable[None]],
    ) -> None:
        """Make it; *on_change* is called with each record that is new or other here, and with the one before it.

        *on_silence* is called when heartbeats have ended by the store's clock.
        """
        super().__init__(backend, Keyspace.Executors, ExecutorRecord, "executor_id", self._changed)
        self._on_record = on_change
        self._on_silence = on_silence
        self._hearts: dict[str, tuple[int, bool]] = {}
        """By executor: whether it has a lease, and the latest revision of which that is known."""
        self._is_one_machine: bool | None = None
        """Whether all are on one machine, until a record changes."""

    # ---------------------------------------------------------------- looking

    def that_run(self, *, programs: bool) -> list[ExecutorRecord]:
        """Return the executors that run *programs*, or those that run tasks of Spark."""
        return [record for record in self if record.runs_programs == programs]

    @property
    def is_one_machine(self) -> bool:
        """Return whether all executors that are not lost are on one machine."""
        if self._is_one_machine is None:
            self._is_one_machine = len({record.machine for record in self if record.state != "lost"}) <= 1
        return self._is_one_machine

    def is_alive(self, executor_id: str, incarnation: str) -> bool:
        """Return whether this life of the executor goes on."""
        found = self.find(executor_id)
        return found is not None and found.incarnation == incarnation and found.state != "lost"

    def lives(self, incarnation: str) -> bool:
        """Return whether some executor lives in this incarnation."""
        return any(record.incarnation == incarnation and record.state != "lost" for record in self)

    def stays(self, incarnation: str) -> bool:
        """Return whether some executor lives in this incarnation, and is not about to leave."""
        return any(record.incarnation == incarnation and record.state == "alive" for record in self)

    def is_beating(self, executor_id: str) -> bool:
        """Return whether the executor's lease has not ended."""
        return self._hearts.get(executor_id, (0, False))[1]

    # ---------------------------------------------------------------- changes

    def _changed(self, executor_id: str, record: ExecutorRecord | None, before: ExecutorRecord | None) -> None:
        self._is_one_machine = None
        if record is None:
            self._hearts.pop(executor_id, None)
        elif record != before:
            self._on_record(record, before)

    def expect(self, record: ExecutorRecord) -> None:
        """Assume *record* while it is being written; the store has the last word."""
        self._records[record.executor_id] = (self.revision(record.executor_id), record)
        self._is_one_machine = None

    def withdraw(self, expected: ExecutorRecord, before: ExecutorRecord) -> None:
        """Take back what `expect` assumed, unless the store has said otherwise meanwhile."""
        if self.find(expected.executor_id) is expected:
            self.expect(before)

    def beats(self, executor_id: str, revision: int) -> None:
        """Note that the executor has a lease as of *revision*; what is known of a later one stays."""
        self._note_heart(executor_id, revision, is_beating=True)

    def stopped(self, executor_id: str, revision: int) -> None:
        """Note that the executor has no lease as of *revision*; what is known of a later one stays."""
        self._note_heart(executor_id, revision, is_beating=False)

    def _note_heart(self, executor_id: str, revision: int, *, is_beating: bool) -> None:
        if revision >= self._hearts.get(executor_id, (0, False))[0]:
            self._hearts[executor_id] = (revision, is_beating)

    # ---------------------------------------------------------------- the store

    async def refresh(self, *, is_strict: bool = False) -> int:
        """Read all executors and their heartbeats; return the revision to watch from."""
        hearts = await self._backend.get_from_prefix(Keyspace.Heartbeats, "")
        beating = {item.key for item in hearts}
        for executor_id in beating | self._hearts.keys():
            self._note_heart(executor_id, hearts.revision, is_beating=executor_id in beating)
        await super().refresh(is_strict=is_strict)
        return hearts.revision

    async def read(self, executor_id: str) -> None:
        """Read one executor and its heartbeat; `refresh` costs more the more executors there are."""
        place, heart = (Keyspace.Executors, executor_id), (Keyspace.Heartbeats, executor_id)
        snapshot = await self._backend.read_txn([place, heart])
        found = snapshot.values[place]
        is_gone = found is None or not self.take(executor_id, found.value, found.mod_revision)
        if is_gone and self.revision(executor_id) <= snapshot.revision:
            self.forget(executor_id)
        self._note_heart(executor_id, snapshot.revision, is_beating=snapshot.values[heart] is not None)

    async def run(self) -> None:
        """Watch records and heartbeats for as long as the scheduler lives."""
        await run_loops(watch_of_hearts=watching(self._watch_hearts), watch_of_executors=watching(self.watch))

    async def _watch_hearts(self) -> None:
        revision = await self.refresh()
        await self._on_silence()
        async with self._backend.watch(Keyspace.Heartbeats, from_revision=revision + 1) as events:
            async for event in events:
                if event.kind is EventKind.PUT:
                    self.beats(event.key, event.mod_revision)
                    if not self.is_alive(event.key, event.value.decode(errors="replace")):
                        await self.read(event.key)  # it registered with another scheduler
                else:
                    self.stopped(event.key, event.mod_revision)
                    await self._on_silence()
