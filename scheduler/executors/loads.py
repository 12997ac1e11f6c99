"""The load of every executor: what any scheduler receives goes to the store, so that all of them show the same."""

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from onager.clock import Clock
from onager.errors import LeaseExpiredError
from onager.protocol import onager_pb2 as pb
from onager.scheduler import timing
from onager.scheduler.executors.records import ExecutorRecord, ExecutorSession
from onager.scheduler.loops import a_few_at_once, every, watching
from onager.scheduler.records import Record
from onager.scheduler.watched_records import WatchedRecords
from onager.state_backend import Keyspace, LeaseId, StateBackendClient
from onager.supervision import run_loops

_FIGURES: Final = tuple(field.name for field in pb.ExecutorLoad.DESCRIPTOR.fields)
_NOTICEABLE: Final = {"heap_used_bytes": 32 << 20, "rss_bytes": 32 << 20, "cpu_percent": 5, "gc_ms": 100}
"""By how much a figure must differ to be written again; others: at all."""

log = structlog.get_logger(__name__)


class ExecutorLoadRecord(Record):
    """What one life of an executor used when a scheduler last learned of a noticeable change."""

    executor_id: str
    incarnation: str
    at_ms: int
    """When it was received, by that scheduler's clock."""
    heap_used_bytes: int = 0
    heap_max_bytes: int = 0
    rss_bytes: int = 0
    cpu_percent: int = 0
    gc_ms: int = 0
    python_workers: int = 0
    running: int = 0
    free_slots: int = 0

    def differs(self, other: "ExecutorLoadRecord") -> bool:
        """Return whether the two are of different lives, or noticeably different."""
        return self.incarnation != other.incarnation or any(
            abs(getattr(self, name) - getattr(other, name)) >= _NOTICEABLE.get(name, 1) for name in _FIGURES
        )

    def add_to(self, info: pb.ExecutorInfo) -> None:
        """Add the load to the information shown to people."""
        info.load.CopyFrom(pb.ExecutorLoad(**{name: getattr(self, name) for name in _FIGURES}))
        info.load_ms = self.at_ms
        info.running = self.running


class ExecutorLoads:
    """A cache of `ExecutorLoads`, kept fresh by a watch; and what executors say here, on its way there.

    A key is bound to its executor's lease, and so is gone with that life of it.
    """

    def __init__(
        self, backend: StateBackendClient, clock: Clock, sessions: Callable[[], Iterable[ExecutorSession]]
    ) -> None:
        """*sessions* returns those with executors that talk with this scheduler."""
        self._backend = backend
        self._clock = clock
        self._sessions = sessions
        self.known = WatchedRecords(backend, Keyspace.ExecutorLoads, ExecutorLoadRecord, "executor_id")

    def find(self, executor: ExecutorRecord) -> ExecutorLoadRecord | None:
        """Return the load of this life of an executor, by the store as last seen."""
        found = self.known.find(executor.executor_id)
        is_its = found is not None and found.incarnation == executor.incarnation and executor.state != "lost"
        return found if is_its else None

    async def run(self) -> None:
        """Write and watch loads for as long as the scheduler lives."""
        await run_loops(
            writes_of_loads=every(timing.LOADS_LOOK_S, self.write_due), watch_of_loads=watching(self.known.watch)
        )

    async def write_due(self) -> None:
        """Write the loads that were received and differ noticeably, each executor's now and then."""
        now_s = self._clock.monotonic_s()
        due = []
        for session in self._sessions():
            if session.load is None or session.is_gone or now_s < session.load_due_s:
                continue
            load, session.load = session.load, None
            record = ExecutorLoadRecord(
                executor_id=session.executor_id,
                incarnation=session.incarnation,
                at_ms=session.seen_ms,
                **{name: getattr(load, name) for name in _FIGURES},
            )
            known = self.known.find(session.executor_id)
            if known is None or record.differs(known):
                session.load_due_s = now_s + timing.LOAD_WRITTEN_EVERY_S
                due.append(self._write(session, record))
        await a_few_at_once(due)

    async def _write(self, session: ExecutorSession, record: ExecutorLoadRecord) -> None:
        lease = LeaseId(session.record.lease_id)
        try:
            revision = await self._backend.put(
                Keyspace.ExecutorLoads, session.executor_id, record.encoded(), lease=lease
            )
        except LeaseExpiredError:
            return  # it is lost; or it gets another lease, and says its load again
        self.known.seen(record, revision)
