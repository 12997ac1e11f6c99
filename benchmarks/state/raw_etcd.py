"""The side of `aetcd`, as its users would write it: one client of one endpoint, without TLS.

Its client has no limit for ranges; who reads pages with it calls its stub. Its watches share one stream. It sends an
operation once, with neither a deadline nor another endpoint to turn to, and does not ask whether there is a leader.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aetcd

from benchmarks.state import BATCH, OWN_KEYS, PAGE, SCANNED, VALUE
from benchmarks.state.side import AsyncSide, Call, plain, scanned_keys


class AetcdSide(AsyncSide):
    """Callers of one `aetcd.Client`; locks are held by *lease*, which the caller keeps alive."""

    def __init__(self, client: Any, lease: int) -> None:
        self._client = client
        self._lease = lease
        self._scanned = [f"/raw/scan/{key}".encode() for key in scanned_keys()]

    async def fill(self) -> None:
        """Write what is scanned."""
        put = self._client.transactions.put
        for start in range(0, SCANNED, BATCH):
            keys = self._scanned[start : start + BATCH]
            await self._client.transaction(compare=[], success=[put(key, VALUE) for key in keys], failure=[])

    def ready(self, operation: str, caller: int) -> AbstractAsyncContextManager[Call]:
        """Make *caller* ready for *operation*."""
        match operation:
            case "put":
                return plain(self._put(caller))
            case "fenced_txn":
                return self._fenced_txn(caller)
            case "batch_100":
                return plain(self._batch(caller))
            case "scan_1000":
                return plain(self._scan(caller))
            case _:
                return self._watch(caller)

    def _put(self, caller: int) -> Call:
        keys = [f"/raw/put-{caller}/{number}".encode() for number in range(OWN_KEYS)]

        async def call(number: int) -> None:
            await self._client.put(keys[number % OWN_KEYS], VALUE)

        return call

    @asynccontextmanager
    async def _fenced_txn(self, caller: int) -> AsyncIterator[Call]:
        keys = [f"/raw/txn-{caller}/{number}".encode() for number in range(OWN_KEYS)]
        header, lock = f"/raw/headers/{caller}".encode(), f"/raw/locks/{caller}".encode()
        ops = self._client.transactions
        revision = (await self._client.put(header, VALUE)).header.revision
        held, answers = await self._client.transaction(
            compare=[ops.create(lock) == 0], success=[ops.put(lock, b"held", lease=self._lease)], failure=[]
        )
        if not held:
            raise AssertionError("the lock is another's")
        token = answers[0].response_put.header.revision

        async def call(number: int) -> None:
            done, _ = await self._client.transaction(
                compare=[ops.create(lock) == token, ops.mod(header) == revision],
                success=[ops.put(keys[number % OWN_KEYS], VALUE)],
                failure=[ops.get(lock), ops.get(header)],
            )
            if not done:
                raise AssertionError("refused")

        try:
            yield call
        finally:
            await self._client.delete(lock)

    def _batch(self, caller: int) -> Call:
        keys = [f"/raw/batch-{caller}/{number}".encode() for number in range(BATCH)]
        put = self._client.transactions.put

        async def call(_: int) -> None:
            done, _ = await self._client.transaction(compare=[], success=[put(key, VALUE) for key in keys], failure=[])
            if not done:
                raise AssertionError("refused")

        return call

    def _scan(self, caller: int) -> Call:
        pages = SCANNED // PAGE
        starts = [self._scanned[page * PAGE] for page in range(pages)]
        prefix = b"/raw/scan/job/"
        end = prefix[:-1] + b"0"

        async def call(number: int) -> None:
            request = aetcd.rpc.RangeRequest(key=starts[(caller + number) % pages], range_end=end, limit=PAGE)
            answer = await self._client.kvstub.Range(request)
            page = [(found.key, found.value, found.mod_revision) for found in answer.kvs]
            if len(page) != PAGE or any(value != VALUE for _, value, _ in page):
                raise AssertionError("a page is not as it was written")

        return call

    @asynccontextmanager
    async def _watch(self, caller: int) -> AsyncIterator[Call]:
        prefix = f"/raw/watch-{caller}/".encode()
        key = prefix + b"one"
        watch = await self._client.watch_prefix(prefix)
        events = aiter(watch)

        async def call(_: int) -> None:
            revision = (await self._client.put(key, VALUE)).header.revision
            async for event in events:
                if event.kv.mod_revision == revision and event.kv.value == VALUE:
                    return
            raise AssertionError("the watch ended")

        try:
            yield call
        finally:
            await watch.cancel()
