"""The port over an engine in this process.

Memory and LevelDB share it, whichever thread the engine runs on.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, TypeVar

from onager.clock import Clock
from onager.errors import LockTimeoutError, OutcomeUnknownError, StateBackendError, StateUnavailableError
from onager.state_backend.local.engine import Engine, Group
from onager.state_backend.local.hub import WatchHub
from onager.state_backend.model import (
    KeyRange,
    Keyspace,
    Lease,
    LeaseId,
    LockToken,
    Op,
    OutcomeUnknown,
    Page,
    Snapshot,
    TxnResult,
    WatchEvent,
)
from onager.state_backend.port import StateBackendClient
from onager.supervision import restarted

T = TypeVar("T")
Command = Callable[[Engine], T]

_SWEEP_MIN_S: Final = 0.01
_SWEEP_MAX_S: Final = 1.0


class LocalBackend(StateBackendClient):
    """A client whose engine runs in this process; an adapter says where (`_run`, `_query`)."""

    def __init__(self, clock: Clock, hub: WatchHub) -> None:
        self._clock = clock
        self._hub = hub
        self._lock_waiters: set[asyncio.Future[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closed = False

    @abstractmethod
    async def _run(self, command: Command[T]) -> T:
        """Run *command* after expired leases have ended; return once its writes are durable.

        Its changes are delivered (`deliver`) before it returns.
        """

    @abstractmethod
    async def _query(self, command: Command[T]) -> T:
        """Run a *command* that only reads.

        It sees all acknowledged writes, and expired leases have ended.
        """

    def deliver(self, group: Group) -> None:
        """Notify watches and waiters for locks of what became durable."""
        if group.lost_revision is not None:
            self._hub.lose(group.lost_revision)
        self._hub.publish(group.events)
        if group.has_freed_lock:
            self._wake_lock_waiters()

    async def close(self) -> None:
        """Stop the sweeper, fail watches and waiters."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        self._hub.close()
        self._wake_lock_waiters()

    # -- primitives of the port

    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        return await self._query(lambda engine: engine.read(keys, ranges))

    async def _read_keys(self, key_range: KeyRange) -> Page[str]:
        return await self._query(lambda engine: engine.read_keys(key_range))

    async def _commit(
        self, ops: Collection[Op], expect: Mapping[tuple[Keyspace, str], int], fence: Collection[LockToken]
    ) -> TxnResult:
        try:
            return await self._run(lambda engine: engine.commit(ops, expect, fence))
        except OutcomeUnknownError as error:
            return OutcomeUnknown(str(error))

    async def _grant(self, ttl_s: float) -> Lease:
        lease = await self._run(lambda engine: engine.grant(ttl_s))
        self._start_sweeper()
        return lease

    async def keep_alive(self, lease: LeaseId) -> None:
        """Renew *lease* for its whole time, without a write."""
        await self._query(lambda engine: engine.keep_alive(lease))

    async def revoke(self, lease: LeaseId) -> None:
        """End *lease* now."""
        await self._run(lambda engine: engine.revoke(lease))

    def _watch(
        self, keyspace: Keyspace, prefix: str, from_revision: int | None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._hub.watch(keyspace, prefix, from_revision)

    # -- locks

    async def _acquire(self, keyspace: Keyspace, key: str, lease: LeaseId, timeout_s: float | None) -> LockToken:
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        while True:
            # Listen before the attempt, or a release in between would be missed.
            freed = loop.create_future()
            self._lock_waiters.add(freed)
            try:
                if (token := await self._try_lock(keyspace, key, lease)) is not None:
                    return token
                async with asyncio.timeout_at(deadline_s):
                    await freed
            except TimeoutError as error:
                raise LockTimeoutError(f"lock {keyspace}/{key} is held by another after {timeout_s} s") from error
            finally:
                self._lock_waiters.discard(freed)

    async def _try_lock(self, keyspace: Keyspace, key: str, lease: LeaseId) -> LockToken | None:
        attempt = asyncio.ensure_future(self._run(lambda engine: engine.lock(keyspace, key, lease)))
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            # The caller is gone, but the lock may still be taken in its name: release it.
            with suppress(StateBackendError):
                if (token := await attempt) is not None:
                    await self._release(token)
            raise

    async def _release(self, token: LockToken) -> None:
        await self._run(lambda engine: engine.unlock(token))

    def _wake_lock_waiters(self) -> None:
        for freed in self._lock_waiters:
            if not freed.done():
                freed.set_result(None)

    # -- leases that end without a call

    def _start_sweeper(self) -> None:
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(restarted("sweeping of leases", self._sweep, again_s=_SWEEP_MAX_S))

    async def _sweep(self) -> None:
        while True:
            try:
                deadline_s = await self._query(Engine.next_deadline_s)
            except StateUnavailableError:
                deadline_s = self._clock.monotonic_s() + _SWEEP_MAX_S
            except StateBackendError:
                return  # the next caller gets the error
            if deadline_s is None:
                return
            delay_s = deadline_s - self._clock.monotonic_s()
            await asyncio.sleep(min(max(delay_s, _SWEEP_MIN_S), _SWEEP_MAX_S))

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateUnavailableError("the state backend is closed")
