"""Stage plans, job specs and manifests, kept in memory by their digest for as long as there is room."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from onager.ids import BlobDigest

_MAX_BLOBS = 4_096
"""Most blobs that are kept: small ones take more memory than they have bytes."""

Fetch = Callable[[BlobDigest], Awaitable[bytes]]


class BlobCache:
    """Fetches each blob once for all concurrent callers; evicts the least recently used when full.

    It is full above *capacity_bytes*, or above `_MAX_BLOBS` blobs.
    """

    def __init__(self, fetch: Fetch, capacity_bytes: int) -> None:
        self._fetch = fetch
        self._capacity_bytes = capacity_bytes
        self._kept: OrderedDict[BlobDigest, bytes] = OrderedDict()
        self._in_flight: dict[BlobDigest, asyncio.Task[bytes]] = {}
        self.size_bytes = 0

    async def get(self, digest: BlobDigest) -> bytes:
        """Return the blob of *digest*; raises what fetching it raises, and then a later call fetches again."""
        content = self._kept.get(digest)
        if content is not None:
            self._kept.move_to_end(digest)
            return content
        task = self._in_flight.get(digest)
        if task is None:
            task = asyncio.create_task(self._fetch_and_keep(digest), name=f"blob {digest[:12]}")
            self._in_flight[digest] = task
            task.add_done_callback(lambda done: self._settle(digest, done))
        # A caller that stops waiting does not stop the fetch for the others.
        return await asyncio.shield(task)

    def offer(self, digest: BlobDigest, content: bytes) -> None:
        """Keep *content* that came unasked for, if it matches *digest*."""
        if digest not in self._kept and hashlib.sha256(content).hexdigest() == digest:
            self._keep(digest, content)

    def _settle(self, digest: BlobDigest, done: asyncio.Task[bytes]) -> None:
        self._in_flight.pop(digest, None)
        if not done.cancelled():
            done.exception()  # retrieved, even when every caller has gone

    async def _fetch_and_keep(self, digest: BlobDigest) -> bytes:
        content = await self._fetch(digest)
        self._keep(digest, content)
        return content

    def _keep(self, digest: BlobDigest, content: bytes) -> None:
        if digest in self._kept:
            return
        if len(content) <= self._capacity_bytes:
            self._kept[digest] = content
            self.size_bytes += len(content)
        while self.size_bytes > self._capacity_bytes or len(self._kept) > _MAX_BLOBS:
            _, dropped = self._kept.popitem(last=False)
            self.size_bytes -= len(dropped)
