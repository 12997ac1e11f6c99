"""The port over an engine in this process.

Memory and LevelDB share it, whichever thread the engine runs on.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

from onager.clock import Clock
from onager.errors import OutcomeUnknownError, StateBackendError, StateUnavailableError
from onager.state_backend.local.engine import Engine, Group
from onager.state_backend.local.hub import WatchHub
from onager.state_backend.model import (
    KeyRange,
    Keyspace,
    Lease,
    LeaseId,
    OutcomeUnknown,
    Page,
    SingleOp,
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
        """Notify watches of what became durable."""
        if group.lost_revision is not None:
            self._hub.lose(group.lost_revision)
        self._hub.publish(group.events)

    async def close(self) -> None:
        """Stop the sweeper, and fail watches."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        self._hub.close()

    # -- primitives of the port

    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        return await self._query(lambda engine: engine.read(keys, ranges))

    async def _read_keys(self, key_range: KeyRange) -> Page[str]:
        return await self._query(lambda engine: engine.read_keys(key_range))

    async def _commit(self, ops: Collection[SingleOp], expect: Mapping[tuple[Keyspace, str], int]) -> TxnResult:
        try:
            return await self._run(lambda engine: engine.commit(ops, expect))
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
