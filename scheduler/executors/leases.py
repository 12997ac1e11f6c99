"""The leases of executors that talk with this scheduler: a heartbeat, or another call, renews one."""

import structlog

from onager.clock import Clock
from onager.errors import LeaseExpiredError, UnknownExecutorError
from onager.scheduler.executors.records import ExecutorSession
from onager.scheduler.executors.registry import ExecutorRegistry
from onager.state_backend import Committed, Keyspace, LeaseId, Put, StateBackendClient, commit_settled

log = structlog.get_logger(__name__)


class ExecutorLeases:
    """Each executor has one, to which its key in `Heartbeats` is bound."""

    def __init__(self, backend: StateBackendClient, clock: Clock, registry: ExecutorRegistry, ttl_s: float) -> None:
        self._backend = backend
        self._clock = clock
        self._registry = registry
        self.ttl_s = ttl_s

    async def renew(self, session: ExecutorSession, *, is_heartbeat: bool = False) -> None:
        """Renew the executor's lease for its whole time, at most every sixth of it.

        After a heartbeat, the store has taken a renewal that is no older than that. After other calls it may still be
        on its way. A lease that ran out while no scheduler declared the executor lost is granted again.
        `UnknownExecutorError` when it is lost, and with it the executor's tasks.
        """
        now_s = self._clock.monotonic_s()
        last_s = session.renewed_s if is_heartbeat else session.asked_s
        if now_s - last_s < self.ttl_s / 6 and self._registry.is_beating(session.executor_id):
            return
        session.asked_s = now_s
        try:
            await self._backend.keep_alive(LeaseId(session.record.lease_id))
        except LeaseExpiredError as error:
            if not await self.grant_again(session):
                await self._registry.read(session.executor_id)
                raise UnknownExecutorError(session.executor_id) from error
        except BaseException:
            session.asked_s = session.renewed_s
            raise
        session.renewed_s = max(session.renewed_s, now_s)

    async def grant_again(self, session: ExecutorSession) -> bool:
        """Bind the executor to a new lease; return False when it was declared lost, or registered again."""
        executor_id = session.executor_id
        known = self._registry.find(executor_id) or session.record
        if session.is_gone or known.incarnation != session.incarnation or known.state == "lost":
            return False
        revision = self._registry.revision(executor_id)
        lease = await self._backend.lease(self.ttl_s)
        record = known.model_copy(update={"lease_id": lease.id})
        puts = [
            Put(Keyspace.Executors, executor_id, record.encoded()),
            Put(Keyspace.Heartbeats, executor_id, record.incarnation.encode(), lease=lease.id),
        ]
        result = await commit_settled(self._backend, puts, {(Keyspace.Executors, executor_id): revision})
        if not isinstance(result, Committed):
            await self._backend.revoke(lease.id)
            await self._registry.read(executor_id)  # another scheduler that learns of it may have done the same
            latest = self._registry.find(executor_id)
            is_granted = latest is not None and latest.lease_id != known.lease_id
            return is_granted and self._registry.is_alive(executor_id, session.incarnation)
        self._registry.seen(record, result.revision)
        self._registry.beats(executor_id, result.revision)
        log.info("executor_lease_granted_again", executor_id=executor_id)
        return True
