"""Who the executors are: registration, leases, drain, and loss by lease, by connection, by process and by farewell."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from execution_graph import ExecutorLost
from onager.clock import Clock
from onager.errors import (
    LeaseExpiredError,
    OnagerError,
    SchemaVersionError,
    StateBackendError,
    StateCorruptError,
    StateUnavailableError,
    UnknownExecutorError,
    WatchCompactedError,
)
from onager.ids import ExecutorId
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key
from scheduler.admission import Admission
from scheduler.executor_records import (
    ExecutorRecord,
    ExecutorSession,
    executor_info,
    has_died,
    local_process,
)
from state_backend import ABSENT, Committed, Delete, EventKind, Keyspace, LeaseId, Put, StateBackendClient

log = structlog.get_logger(__name__)

_LOOK_S: Final = 0.25
"""How often silent executors are looked after."""
_TRIES: Final = 10

OnLost = Callable[[ExecutorLost], Awaitable[None]]


class ExecutorManager:
    """The executors of the cluster. The store says who lives (a key bound to a lease); sessions say what they do."""

    def __init__(
        self,
        backend: StateBackendClient,
        clock: Clock,
        *,
        lease_ttl_s: float,
        connection_grace_s: float,
        lost_retention_s: float,
        on_lost: OnLost,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self.lease_ttl_s = lease_ttl_s
        self._grace_s = connection_grace_s
        self._lost_retention_s = lost_retention_s
        self._on_lost = on_lost
        self._sessions: dict[ExecutorId, ExecutorSession] = {}
        self._records: dict[ExecutorId, tuple[int, ExecutorRecord]] = {}
        self._hearts: set[ExecutorId] = set()
        self._owed: dict[tuple[str, str], ExecutorLost] = {}
        self._looked_s = clock.monotonic_s()
        self._admission = Admission()

    # ---------------------------------------------------------------- looking

    def require(self, executor_id: str, incarnation: str) -> ExecutorSession:
        """Return the session of a registered life; `UnknownExecutorError` when it has to register (again)."""
        session = self._sessions.get(ExecutorId(executor_id))
        if session is None or session.incarnation != incarnation:
            raise UnknownExecutorError(executor_id)
        return session

    def heard(self, session: ExecutorSession) -> None:
        """Note that the executor lives; `renew` makes the store know it."""
        session.seen_s = self._clock.monotonic_s()
        session.seen_ms = self._clock.now_ms()
        session.suspect_s = None

    def is_alive(self, executor_id: str, incarnation: str) -> bool:
        """Return whether, by the store as last seen, this life of the executor goes on."""
        found = self._records.get(ExecutorId(executor_id))
        return found is not None and found[1].incarnation == incarnation and found[1].state != "lost"

    @property
    def total_slots(self) -> int:
        """Return the slots of all executors that take work."""
        return sum(r.slots for _, r in self._records.values() if r.state == "alive")

    @property
    def sessions(self) -> Iterable[ExecutorSession]:
        """Return the executors that this replica talks with."""
        return list(self._sessions.values())

    def infos(self) -> list[pb.ExecutorInfo]:
        """Return what people are told of all executors, by id."""
        found = []
        for executor_id, (_, record) in sorted(self._records.items()):
            session = self._sessions.get(executor_id)
            found.append(executor_info(record) if session is None else session.info())
        return found

    # ---------------------------------------------------------------- registration

    async def register(self, request: pb.RegisterExecutorRequest, peer: str) -> ExecutorSession:
        """Take in one life of an executor, and declare an earlier one lost at once; repeating it is harmless.

        Errors as of `Admission.check`.
        """
        self._admission.check(request, (r for _, r in self._records.values() if r.state != "lost"))
        executor_id = ExecutorId(request.executor_id)
        for _ in range(_TRIES):
            stored = await self._backend.get(Keyspace.Executors, executor_id)
            revision, before = ABSENT, None
            if stored is not None:
                revision = stored.mod_revision
                try:
                    before = ExecutorRecord.decoded(stored.value, f"executor {executor_id}")
                except StateCorruptError as error:
                    log.error("executor_record_damaged", executor_id=executor_id, error=str(error))  # noqa: TRY400
            if before is not None and before.incarnation != request.incarnation and before.state != "lost":
                self._admission.replaced(before)
                await self._tell_lost(before, "it started again")
            lease = await self._backend.lease(self.lease_ttl_s)
            record = ExecutorRecord(
                executor_id=request.executor_id,
                incarnation=request.incarnation,
                host=request.host,
                pid=request.pid,
                slots=request.slots,
                spark_version=request.spark_version,
                python_version=request.python_version,
                exchange_dir=request.exchange_dir,
                registered_ms=self._clock.now_ms(),
                lease_id=lease.id,
            )
            result = await self._backend.put_txn(
                [
                    Put(Keyspace.Executors, executor_id, record.encoded()),
                    Put(Keyspace.Heartbeats, executor_id, request.incarnation.encode(), lease=lease.id),
                ],
                expect={(Keyspace.Executors, executor_id): revision},
            )
            if isinstance(result, Committed):
                if before is not None:
                    await self._backend.revoke(LeaseId(before.lease_id))
                return self._begin(record, result.revision, request, peer)
            await self._backend.revoke(lease.id)
        raise StateUnavailableError(f"executor {executor_id} could not be registered in {_TRIES} tries; try again")

    def _begin(
        self, record: ExecutorRecord, revision: int, request: pb.RegisterExecutorRequest, peer: str
    ) -> ExecutorSession:
        executor_id = ExecutorId(record.executor_id)
        now_s = self._clock.monotonic_s()
        known = self._sessions.get(executor_id)
        session = ExecutorSession(
            record=record,
            seen_s=now_s,
            seen_ms=self._clock.now_ms(),
            renewed_s=now_s,
            local_process=local_process(peer, record.pid),
        )
        if known is not None and known.incarnation == record.incarnation:
            session.list_number = known.list_number
        if known is not None:
            known.is_gone = True
        session.held = dict.fromkeys((task_key(task) for task in request.running), now_s)
        self._sessions[executor_id] = session
        self._records[executor_id] = (revision, record)
        self._hearts.add(executor_id)
        log.info("executor_registered", executor_id=executor_id, slots=record.slots, host=record.host, pid=record.pid)
        return session

    # ---------------------------------------------------------------- life

    async def renew(self, session: ExecutorSession) -> None:
        """Give the executor's lease its whole time again, at most every sixth of it.

        A lease that ran out while nobody declared the executor lost (this process was held up) is granted anew.
        `UnknownExecutorError` when it is lost, and with it the executor's tasks.
        """
        now_s = self._clock.monotonic_s()
        if now_s - session.renewed_s < self.lease_ttl_s / 6:
            return
        session.renewed_s = now_s
        try:
            await self._backend.keep_alive(LeaseId(session.record.lease_id))
        except LeaseExpiredError as error:
            if not await self._grant_again(session):
                await self.refresh()
                raise UnknownExecutorError(session.executor_id) from error

    async def _grant_again(self, session: ExecutorSession) -> bool:
        """Bind the executor to a new lease; return False when somebody has declared it lost, or it registered anew."""
        executor_id = session.executor_id
        revision, known = self._records.get(executor_id, (ABSENT, session.record))
        if session.is_gone or known.incarnation != session.incarnation or known.state == "lost":
            return False
        lease = await self._backend.lease(self.lease_ttl_s)
        record = known.model_copy(update={"lease_id": lease.id})
        result = await self._backend.put_txn(
            [
                Put(Keyspace.Executors, executor_id, record.encoded()),
                Put(Keyspace.Heartbeats, executor_id, record.incarnation.encode(), lease=lease.id),
            ],
            expect={(Keyspace.Executors, executor_id): revision},
        )
        if not isinstance(result, Committed):
            await self._backend.revoke(lease.id)
            return False
        session.record = record
        self._records[executor_id] = (result.revision, record)
        self._hearts.add(executor_id)
        log.info("executor_lease_granted_again", executor_id=executor_id)
        return True

    async def drain(self, session: ExecutorSession) -> None:
        """Note that the executor takes no more work."""
        if session.is_draining:
            return
        record = session.record.model_copy(update={"state": "draining"})
        session.record = record
        revision = self._records[session.executor_id][0]
        result = await self._backend.put_txn(
            [Put(Keyspace.Executors, session.executor_id, record.encoded())],
            expect={(Keyspace.Executors, session.executor_id): revision},
        )
        if isinstance(result, Committed):
            self._records[session.executor_id] = (result.revision, record)
        log.info("executor_draining", executor_id=session.executor_id, running=len(session.held))

    def suspect(self, session: ExecutorSession) -> None:
        """Note that the executor's connection broke while it waited for work."""
        if session.suspect_s is None and not session.is_gone:
            session.suspect_s = self._clock.monotonic_s()

    async def deregister(self, executor_id: str, incarnation: str, reason: str) -> None:
        """End a life of an executor at its own word; what it still ran is handed out again."""
        found = self._records.get(ExecutorId(executor_id))
        if found is not None and found[1].incarnation == incarnation and found[1].state != "lost":
            await self.lose(found[1], reason or "it left")

    async def lose(self, record: ExecutorRecord, reason: str) -> None:
        """End a life of an executor: nobody counts on it any more, and its tasks are handed out again."""
        executor_id = ExecutorId(record.executor_id)
        revision, known = self._records.get(executor_id, (ABSENT, record))
        if known.incarnation == record.incarnation and known.state != "lost":
            gone = known.model_copy(update={"state": "lost", "ended_ms": self._clock.now_ms(), "reason": reason})
            self._records[executor_id] = (revision, gone)
            result = await self._backend.put_txn(
                [Put(Keyspace.Executors, executor_id, gone.encoded()), Delete(Keyspace.Heartbeats, executor_id)],
                expect={(Keyspace.Executors, executor_id): revision},
            )
            if isinstance(result, Committed):
                self._records[executor_id] = (result.revision, gone)
            else:
                await self.refresh()
                if self.is_alive(executor_id, record.incarnation):
                    return  # somebody has heard of it meanwhile
            self._hearts.discard(executor_id)
            await self._backend.revoke(LeaseId(record.lease_id))
        session = self._sessions.get(executor_id)
        if session is not None and session.incarnation == record.incarnation:
            session.is_gone = True
            del self._sessions[executor_id]
        await self._tell_lost(known if known.incarnation == record.incarnation else record, reason)

    async def _tell_lost(self, record: ExecutorRecord, reason: str) -> None:
        is_drained = record.state == "draining"
        log.warning("executor_lost", executor_id=record.executor_id, incarnation=record.incarnation, reason=reason)
        await self.declare_lost(record.executor_id, record.incarnation, reason, is_drained=is_drained)

    async def declare_lost(self, executor_id: str, incarnation: str, reason: str, *, is_drained: bool = False) -> None:
        """Tell the jobs; what could not be stored now is told again until it is."""
        lost = ExecutorLost(
            executor_id=executor_id,
            incarnation=incarnation,
            reason=f"executor {executor_id}: {reason}",
            at_ms=self._clock.now_ms(),
            is_drained=is_drained,
        )
        self._owed[executor_id, incarnation] = lost
        try:
            await self._on_lost(lost)
        except OnagerError as error:
            log.warning("executor_loss_not_applied", executor_id=executor_id, error=str(error))
        else:
            self._owed.pop((executor_id, incarnation), None)

    # ---------------------------------------------------------------- loops

    async def start(self, *, is_strict: bool = True) -> None:
        """Read who the executors are. Those that live have one lease to report to this replica."""
        await self.refresh(is_strict=is_strict)

    async def refresh(self, *, is_strict: bool = False) -> int:
        """Read all executors and their hearts at one revision; return it."""
        hearts = await self._backend.get_from_prefix(Keyspace.Heartbeats, "")
        page = await self._backend.get_from_prefix(Keyspace.Executors, "")
        records: dict[ExecutorId, tuple[int, ExecutorRecord]] = {}
        for item in page:
            try:
                record = ExecutorRecord.decoded(item.value, f"Executors/{item.key}")
            except (StateCorruptError, SchemaVersionError) as error:
                if is_strict and isinstance(error, SchemaVersionError):
                    raise
                log.error("executor_record_unreadable", executor_id=item.key, error=str(error))  # noqa: TRY400
                continue
            records[ExecutorId(item.key)] = (item.mod_revision, record)
        for executor_id, known in list(self._records.items()):
            if known[0] > hearts.revision or (executor_id in records and known[0] > records[executor_id][0]):
                records[executor_id] = known
        self._records = records
        self._hearts = {ExecutorId(item.key) for item in hearts} | {
            e for e, (revision, r) in records.items() if revision > hearts.revision and r.state != "lost"
        }
        return hearts.revision

    async def run(self) -> None:
        """Watch over the executors for as long as the scheduler lives."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_hearts())
            group.create_task(self._look_after())

    async def _watch_hearts(self) -> None:
        while True:
            try:
                revision = await self.refresh()
                await self.bury()
                async with self._backend.watch(Keyspace.Heartbeats, from_revision=revision + 1) as events:
                    async for event in events:
                        executor_id = ExecutorId(event.key)
                        if event.kind is EventKind.PUT:
                            self._hearts.add(executor_id)
                            if not self.is_alive(executor_id, event.value.decode(errors="replace")):
                                await self.refresh()  # it registered with another replica
                        elif await self._backend.get(Keyspace.Heartbeats, executor_id) is None:
                            self._hearts.discard(executor_id)
                            await self.bury()
            except WatchCompactedError:
                continue
            except StateBackendError as error:
                log.warning("heartbeats_watch_failed", error=str(error))
                await asyncio.sleep(1.0)

    async def bury(self) -> None:
        """Declare lost whose heart has stopped by the store's clock; forget those that are long gone."""
        for executor_id, (_, record) in list(self._records.items()):
            if record.state == "lost" or executor_id in self._hearts:
                continue
            session = self._sessions.get(executor_id)
            was_held_up = self._clock.monotonic_s() - self._looked_s > self.lease_ttl_s / 3
            if session is not None and was_held_up and await self._grant_again(session):
                continue  # its word may be waiting to be read: the silence was ours
            await self.lose(record, "its lease ran out: it was not heard of in time")

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except StateBackendError as error:
                log.warning("executors_not_looked_after", error=str(error))

    async def look(self) -> None:
        """Declare lost whose process has died, or whose connection broke and who then was silent.

        Repeat what is owed.
        """
        now_s = self._looked_s = self._clock.monotonic_s()
        for session in self.sessions:
            if session.local_process is not None:
                if has_died(session.local_process):
                    await self.lose(session.record, f"its process {session.record.pid} died")
                continue
            if session.suspect_s is None:
                continue
            # A connection may break for a moment; somebody who lives sends a heartbeat every third of the lease.
            if now_s - session.suspect_s >= max(self._grace_s, self.lease_ttl_s / 2):
                await self.lose(session.record, "its connection broke, and it was not heard of again")
        for lost in list(self._owed.values()):
            await self.declare_lost(lost.executor_id, lost.incarnation, lost.reason, is_drained=lost.is_drained)
        horizon_ms = self._clock.now_ms() - int(self._lost_retention_s * 1000)
        for executor_id, (revision, record) in list(self._records.items()):
            if record.state == "lost" and (record.ended_ms or 0) < horizon_ms:
                await self._backend.put_txn(
                    [Delete(Keyspace.Executors, executor_id)], expect={(Keyspace.Executors, executor_id): revision}
                )
                self._records.pop(executor_id, None)
