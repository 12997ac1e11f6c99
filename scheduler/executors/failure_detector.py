"""Looks after silent executors: heartbeats that stopped, processes that died, connections that broke."""

from typing import TYPE_CHECKING

from onager.clock import Clock
from onager.ids import ExecutorId
from onager.scheduler import timing
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.executors.lateness import Lateness
from onager.scheduler.executors.records import ExecutorSession, Loss, has_died
from onager.state_backend import Delete, Keyspace, StateBackendClient

if TYPE_CHECKING:
    from onager.scheduler.executors.manager import ExecutorManager


class FailureDetector:
    """Finds the lost executors, and has the manager declare them lost."""

    def __init__(
        self,
        executors: "ExecutorManager",
        precedence: Precedence,
        backend: StateBackendClient,
        clock: Clock,
        *,
        connection_grace_s: float,
        lost_retention_s: float,
    ) -> None:
        self._executors = executors
        self._precedence = precedence
        self._backend = backend
        self._clock = clock
        self._grace_s = connection_grace_s
        self._lost_retention_s = lost_retention_s
        self._silent_since_s: dict[ExecutorId, float] = {}
        self._began_s = clock.monotonic_s()
        self._lateness = Lateness(timing.EXECUTORS_LOOK_S, self._began_s)

    def begin(self) -> None:
        """Give every executor one lease's time from now: perhaps no scheduler was there to renew any."""
        self._began_s = self._clock.monotonic_s()
        self._lateness.note(self._began_s)

    def note_seen(self, executor_id: ExecutorId) -> None:
        """Note that the executor's record changed: its silence, if any, counts from now on."""
        self._silent_since_s.pop(executor_id, None)

    async def expire_lost(self) -> None:
        """Declare executors lost whose lease has ended by the store's clock, and by this process's own.

        A heartbeat may have come after the one that renewed the lease last; and for as long as this process was late,
        a heartbeat may be waiting to be read.
        """
        registry = self._executors.registry
        for record in registry:
            executor_id = ExecutorId(record.executor_id)
            if record.state == "lost" or registry.is_beating(executor_id):
                self.note_seen(executor_id)
                continue
            now_s = self._clock.monotonic_s()
            since_s = self._silent_since_s.setdefault(executor_id, now_s)
            lease_ttl_s = self._executors.leases.ttl_s
            session = self._executors.session(executor_id)
            seen_s = since_s - lease_ttl_s if session is None else max(session.seen_s, since_s - lease_ttl_s)
            patience_s = lease_ttl_s + self._lateness.since(seen_s, now_s)
            if now_s - seen_s < patience_s or now_s - self._began_s < lease_ttl_s:
                continue
            if self._precedence.has_come(executor_id, now_s - since_s, timing.LOSS_MOMENT_S):
                await self._executors.lose(record, Loss.LEASE, "its lease ran out: it did not call in time")

    async def look(self) -> None:
        """Declare executors lost whose process has died, or that stayed silent after their connection broke.

        Jobs are notified of losses that they do not know yet, and executors lost long ago are forgotten.
        """
        now_s = self._clock.monotonic_s()
        self._lateness.note(now_s)
        for session in self._executors.sessions:
            await self._look_at(session, now_s)
        await self.expire_lost()
        await self._executors.tell_losses()
        await self._forget_dead()

    async def _look_at(self, session: ExecutorSession, now_s: float) -> None:
        lease_ttl_s = self._executors.leases.ttl_s
        if session.local_process is not None:
            if has_died(session.local_process):
                await self._executors.lose(session.record, Loss.PROCESS, f"its process {session.record.pid} died")
                return
        elif session.suspect_s is not None:
            # A connection may break for a moment; a living executor sends a heartbeat every third of the lease.
            silent_s = now_s - session.suspect_s - self._lateness.since(session.suspect_s, now_s)
            if silent_s >= max(self._grace_s, lease_ttl_s / 2):
                if not self._precedence.is_alone:
                    self._executors.end_session(session)  # it may talk with another scheduler: its lease decides
                else:
                    why = "its connection broke, and it did not call again"
                    await self._executors.lose(session.record, Loss.CONNECTION, why)
                return
        if not self._precedence.is_alone and now_s - session.seen_s >= 2 * lease_ttl_s:
            self._executors.end_session(session)  # it talks with another scheduler, or its lease is over

    async def _forget_dead(self) -> None:
        registry = self._executors.registry
        horizon_ms = self._clock.now_ms() - int(self._lost_retention_s * 1000)
        for record in registry:
            overdue_ms = horizon_ms - (record.ended_ms or 0)
            is_overdue = record.state == "lost" and overdue_ms > 0
            if is_overdue and self._precedence.has_come(record.executor_id, overdue_ms, timing.FORGET_MOMENT_MS):
                await self._backend.put_txn(
                    [Delete(Keyspace.Executors, record.executor_id)],
                    expect={(Keyspace.Executors, record.executor_id): registry.revision(record.executor_id)},
                )
                registry.forget(record.executor_id)
