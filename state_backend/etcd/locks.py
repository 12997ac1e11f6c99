"""Locks: a key that exists while the lock is held, bound to the holder's lease.

The holder's token is the revision that created the key. A transaction that compares it is refused once the key is gone
or belongs to another holder, whatever the former holder believes.
"""

import asyncio
import json
import os
import secrets
import socket
from contextlib import suppress
from typing import Any, Final

from aetcd import rpc

from onager.errors import LeaseExpiredError, LockTimeoutError, StateBackendError
from onager.state_backend.etcd.calls import Calls, Metadata
from onager.state_backend.etcd.endpoints import Endpoint
from onager.state_backend.etcd.keys import KeyLayout
from onager.state_backend.etcd.messages import get_op, is_created_at
from onager.state_backend.etcd.watch import EtcdWatch
from onager.state_backend.model import Keyspace, LeaseId, LockToken

_LOOK_AGAIN_S: Final = 2.0
"""A watch tells when the lock is free; that the waiter's own lease is gone is found only by looking."""
_EPOCH: Final = 0  # the store has one life: revisions alone tell holders apart


class Locks:
    """The locks that this client takes."""

    def __init__(self, calls: Calls, layout: KeyLayout) -> None:
        self._calls = calls
        self._layout = layout
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._ours: set[str] = set()
        """The names of the locks that are held or waited for."""

    async def acquire(self, keyspace: Keyspace, key: str, lease: LeaseId, timeout_s: float | None) -> LockToken:
        """Wait for the lock, *timeout_s* seconds at most; `LockTimeoutError`, `LeaseExpiredError`."""
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        lock = self._layout.lock(keyspace, key)
        while True:
            token, revision = await self._try(lock, keyspace, key, lease)
            if token is not None:
                return token
            await self._check_lives(lease)
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._wait_freed(lock, revision)
            except TimeoutError as error:
                raise LockTimeoutError(f"lock {keyspace}/{key} is held by another after {timeout_s} s") from error

    async def release(self, token: LockToken) -> None:
        """Free the lock if *token* still holds it."""
        await self._delete(self._layout.lock(token.keyspace, token.key), token.revision)

    async def _try(self, lock: bytes, keyspace: Keyspace, key: str, lease: LeaseId) -> tuple[LockToken | None, int]:
        """Return the token, or `None`, and the revision at which the lock was seen."""
        attempt = asyncio.ensure_future(self._create(lock, lease))
        try:
            created, revision = await asyncio.shield(attempt)
        except asyncio.CancelledError:
            # The caller is gone, but the lock may still be taken in its name: release it.
            with suppress(StateBackendError):
                created, _ = await attempt
                if created:
                    await self._delete(lock, created)
            raise
        return (LockToken(keyspace, key, created, _EPOCH, lease) if created else None), revision

    async def _create(self, lock: bytes, lease: LeaseId) -> tuple[int, int]:
        """Create the lock's key; return its create revision, or 0 if another holds it, and the store's revision.

        The value names this attempt, so that a repeated attempt recognises its own key after an unknown outcome.
        """
        name = secrets.token_hex(8)
        value = json.dumps({"owner": self._owner, "name": name, "lease": lease}).encode()
        request = rpc.TxnRequest(
            compare=[is_created_at(lock, 0)],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=lock, value=value, lease=lease))],
            failure=[get_op(lock)],
        )
        self._ours.add(name)
        created = 0
        try:
            answer = await self._txn(request)
            revision = answer.header.revision
            if answer.succeeded:
                created = revision
            else:
                [held] = answer.responses[0].response_range.kvs
                if held.value == value:
                    created = held.create_revision
                else:
                    await self._free_stray(lock, held)
        finally:
            if not created:
                self._ours.discard(name)
        return created, revision

    async def _check_lives(self, lease: LeaseId) -> None:
        """Raise `LeaseExpiredError` for a lease that is gone: while another holds the lock, nothing else tells."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease)

        async def send(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> Any:
            return await endpoint.lease.LeaseTimeToLive(request, timeout=timeout_s, metadata=metadata)

        if (await self._calls.read(send)).TTL <= 0:
            raise LeaseExpiredError(f"lease {lease} is gone, and a lock cannot be waited for with it")

    async def _free_stray(self, lock: bytes, held: Any) -> None:
        """Delete a lock that an abandoned attempt of ours still took."""
        with suppress(ValueError):
            holder = json.loads(held.value)
            if holder["owner"] == self._owner and holder["name"] not in self._ours:
                await self._delete(lock, held.create_revision)

    async def _delete(self, lock: bytes, created: int) -> None:
        await self._txn(
            rpc.TxnRequest(
                compare=[is_created_at(lock, created)],
                success=[rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=lock))],
            )
        )

    async def _txn(self, request: Any) -> Any:
        async def send(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> Any:
            return await endpoint.kv.Txn(request, timeout=timeout_s, metadata=metadata)

        # Both kinds may be sent twice: their conditions hold only once.
        return await self._calls.read(send)

    async def _wait_freed(self, lock: bytes, revision: int) -> None:
        """Return when the lock was freed after *revision*, or when it is time to look again."""
        async with EtcdWatch(self._calls, lock, lock + b"\x00", revision + 1) as watch:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    async for events in watch:
                        if any(event.type for event in events):
                            return
