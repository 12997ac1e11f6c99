"""The base of all wrappers of a client of the store."""

# ruff: noqa: SLF001 a wrapper stands where the public methods stand, and calls the primitives as they do

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from onager.state_backend.model import (
    KeyRange,
    Keyspace,
    Lease,
    LeaseId,
    Page,
    SingleOp,
    Snapshot,
    TxnResult,
    WatchEvent,
)
from onager.state_backend.port import StateBackendClient


class ForwardingBackend(StateBackendClient):
    """A client that does what *inner* does; a subclass overrides the primitives that it changes.

    The public methods check arguments once, here; *inner* gets what they pass on. Closing it closes *inner*.
    """

    def __init__(self, inner: StateBackendClient) -> None:
        self.inner = inner

    async def keep_alive(self, lease: LeaseId) -> None:
        """Renew *lease* for its whole time."""
        await self.inner.keep_alive(lease)

    async def revoke(self, lease: LeaseId) -> None:
        """End *lease* now."""
        await self.inner.revoke(lease)

    async def close(self) -> None:
        """Close *inner*."""
        await self.inner.close()

    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        return await self.inner._read(keys, ranges)

    async def _read_keys(self, key_range: KeyRange) -> Page[str]:
        return await self.inner._read_keys(key_range)

    async def _commit(self, ops: Collection[SingleOp], expect: Mapping[tuple[Keyspace, str], int]) -> TxnResult:
        return await self.inner._commit(ops, expect)

    async def _grant(self, ttl_s: float) -> Lease:
        return await self.inner._grant(ttl_s)

    def _watch(
        self, keyspace: Keyspace, prefix: str, from_revision: int | None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self.inner._watch(keyspace, prefix, from_revision)


def read_operation(keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> str:
    """Return which public method a read most likely came from."""
    match len(keys), len(ranges):
        case 1, 0:
            return "get"
        case 0, 1:
            return "get_from_prefix" if ranges[0].limit is None else "scan"
        case _:
            return "read_txn"
