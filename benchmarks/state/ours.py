"""The side that goes through the port."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.state import BATCH, OWN_KEYS, PAGE, SCANNED, VALUE
from benchmarks.state.side import AsyncSide, Call, plain, scanned_keys
from onager.state_backend import Committed, Keyspace, LeaseId, Put, StateBackendClient
from onager.state_backend.model import TxnResult


class PortSide(AsyncSide):
    """Callers of one `StateBackendClient`; locks are held by *lease*, which the caller keeps alive."""

    def __init__(self, backend: StateBackendClient, lease: LeaseId) -> None:
        self._backend = backend
        self._lease = lease
        self._scanned = list(scanned_keys())

    async def fill(self) -> None:
        """Write what is scanned."""
        await self._backend.put_all(Put(Keyspace.JobLog, key, VALUE) for key in self._scanned)

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
        keys = [f"put-{caller}/{number}" for number in range(OWN_KEYS)]

        async def call(number: int) -> None:
            await self._backend.put(Keyspace.Sessions, keys[number % OWN_KEYS], VALUE)

        return call

    @asynccontextmanager
    async def _fenced_txn(self, caller: int) -> AsyncIterator[Call]:
        keys = [f"txn-{caller}/{number}" for number in range(OWN_KEYS)]
        header = (Keyspace.ActiveJobs, f"txn-{caller}")
        revision = await self._backend.put(*header, VALUE)
        async with self._backend.lock(Keyspace.ActiveJobs, f"txn-{caller}", self._lease) as token:
            expect, fence = {header: revision}, [token]

            async def call(number: int) -> None:
                put = Put(Keyspace.Sessions, keys[number % OWN_KEYS], VALUE)
                _must(await self._backend.put_txn([put], expect=expect, fence=fence))

            yield call

    def _batch(self, caller: int) -> Call:
        keys = [f"batch-{caller}/{number}" for number in range(BATCH)]

        async def call(_: int) -> None:
            _must(await self._backend.put_txn([Put(Keyspace.Sessions, key, VALUE) for key in keys]))

        return call

    def _scan(self, caller: int) -> Call:
        pages = SCANNED // PAGE
        after = [None if page == 0 else self._scanned[page * PAGE - 1] for page in range(pages)]

        async def call(number: int) -> None:
            start_after = after[(caller + number) % pages]
            page = await self._backend.scan(Keyspace.JobLog, "job/", limit=PAGE, start_after=start_after)
            if len(page) != PAGE or any(found.value != VALUE for found in page):
                raise AssertionError("a page is not as it was written")

        return call

    @asynccontextmanager
    async def _watch(self, caller: int) -> AsyncIterator[Call]:
        prefix = f"watch-{caller}/"
        key = f"{prefix}one"
        async with self._backend.watch(Keyspace.JobHeads, prefix) as events:

            async def call(_: int) -> None:
                revision = await self._backend.put(Keyspace.JobHeads, key, VALUE)
                async for event in events:
                    if event.mod_revision == revision and event.value == VALUE:
                        return
                raise AssertionError("the watch ended")

            yield call


def _must(result: TxnResult) -> None:
    if not isinstance(result, Committed):
        raise TypeError(f"not committed, but {result}")
