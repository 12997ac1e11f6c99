"""Calls to a store, and their results, as Prometheus metrics (`METRICS`): a wrapper for any adapter."""

# ruff: noqa: SLF001 a wrapper stands where the public methods stand, and calls the primitives as they do

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from onager.clock import Clock, SystemClock
from onager.errors import (
    LeaseExpiredError,
    LockTimeoutError,
    OutcomeUnknownError,
    StateUnavailableError,
    WatchCompactedError,
)
from onager.metric import Whose, counter, gauge, histogram
from onager.state_backend.forwarding import ForwardingBackend, read_operation
from onager.state_backend.locks import is_fence_broken
from onager.state_backend.model import (
    Conflict,
    Delete,
    DeleteRange,
    KeyRange,
    Keyspace,
    KeyValue,
    Lease,
    LeaseId,
    LockToken,
    OutcomeUnknown,
    Page,
    Put,
    SingleOp,
    Snapshot,
    TxnResult,
    WatchEvent,
)
from onager.state_backend.port import StateBackendClient

T = TypeVar("T")

REQUEST_BUCKETS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
LOCK_BUCKETS_S: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

REQUESTS: Final = histogram(
    "onager_state_request_seconds",
    "Time that calls of the store took. Outcomes: ok; conflict, fenced, unknown, unavailable; lease_expired; cancelled "
    "by the caller; error is anything else.",
    REQUEST_BUCKETS_S,
    "operation",
    "outcome",
)
LOCK_WAITS: Final = histogram(
    "onager_state_lock_wait_seconds", "Time that callers waited for locks of the store.", LOCK_BUCKETS_S, "outcome"
)
BYTES: Final = counter(
    "onager_state_bytes_total",
    "Bytes of values read and written; a write counts when it is sent, whatever becomes of it.",
    "direction",
)
WATCHES: Final = gauge("onager_state_watches", Whose.PROCESS, "Watches of the store that are open.")
WATCH_EVENTS: Final = counter(
    "onager_state_watch_events_total", "Events that watches of the store delivered.", "keyspace"
)
WATCH_BREAKS: Final = counter(
    "onager_state_watch_breaks_total", "Watches of the store that broke off: compacted, or unavailable.", "reason"
)
METRICS: Final = (REQUESTS, LOCK_WAITS, BYTES, WATCHES, WATCH_EVENTS, WATCH_BREAKS)

_RESULTS: Final[Mapping[type[object], str]] = {Conflict: "conflict", OutcomeUnknown: "unknown"}
_ERRORS: Final[Mapping[type[BaseException], str]] = {
    StateUnavailableError: "unavailable",
    OutcomeUnknownError: "unknown",
    LeaseExpiredError: "lease_expired",
    LockTimeoutError: "timeout",
    WatchCompactedError: "compacted",
    CancelledError: "cancelled",
}
_SINGLE_WRITES: Final[Mapping[type[object], str]] = {Put: "put", Delete: "delete", DeleteRange: "delete_range"}


class StateMetrics:
    """The metrics of a process's clients of the store, registered once with *registry*."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Histogram(**REQUESTS.arguments, registry=registry)
        self._lock_waits = Histogram(**LOCK_WAITS.arguments, registry=registry)
        transferred = Counter(**BYTES.arguments, registry=registry)
        self.bytes_read = transferred.labels("read")
        self.bytes_written = transferred.labels("written")
        self.watches = Gauge(**WATCHES.arguments, registry=registry)
        events = Counter(**WATCH_EVENTS.arguments, registry=registry)
        self.watch_events = {keyspace: events.labels(keyspace.value) for keyspace in Keyspace}
        breaks = Counter(**WATCH_BREAKS.arguments, registry=registry)
        self.watch_breaks: Mapping[type[BaseException], Counter] = {
            WatchCompactedError: breaks.labels("compacted"),
            StateUnavailableError: breaks.labels("unavailable"),
        }
        # Looking up a child by its labels costs more than observing.
        self._children: dict[tuple[str, str], Histogram] = {}

    def request(self, operation: str, outcome: str, seconds: float) -> None:
        """Count a call that ended."""
        child = self._children.get((operation, outcome))
        if child is None:
            family = self._lock_waits if operation == "lock" else self._requests
            labels = (outcome,) if operation == "lock" else (operation, outcome)
            child = self._children[operation, outcome] = family.labels(*labels)
        child.observe(seconds)


class ObservedBackend(ForwardingBackend):
    """Does what *inner* does and counts it in *metrics*, which several clients may share."""

    def __init__(self, inner: StateBackendClient, metrics: StateMetrics, clock: Clock | None = None) -> None:
        super().__init__(inner)
        self._metrics = metrics
        self._now_s = (SystemClock() if clock is None else clock).monotonic_s

    async def keep_alive(self, lease: LeaseId) -> None:
        """Renew *lease* for its whole time."""
        await self._observed("keep_alive", self.inner.keep_alive(lease))

    async def revoke(self, lease: LeaseId) -> None:
        """End *lease* now."""
        await self._observed("revoke", self.inner.revoke(lease))

    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        seen = await self._observed(read_operation(keys, ranges), self.inner._read(keys, ranges))
        size = sum(len(item.value) for item in seen.values.values() if item is not None)
        self._metrics.bytes_read.inc(size + sum(map(_page_bytes, seen.ranges)))
        return seen

    async def _read_keys(self, key_range: KeyRange) -> Page[str]:
        return await self._observed("scan_keys", self.inner._read_keys(key_range))

    async def _commit(self, ops: Collection[SingleOp], expect: Mapping[tuple[Keyspace, str], int]) -> TxnResult:
        self._metrics.bytes_written.inc(sum(len(op.value) for op in ops if type(op) is Put))
        operation = "put_txn"
        if len(ops) == 1 and not expect:
            operation = _SINGLE_WRITES[type(next(iter(ops)))]
        return await self._observed(operation, self.inner._commit(ops, expect), expect)

    async def _grant(self, ttl_s: float) -> Lease:
        return await self._observed("lease", self.inner._grant(ttl_s))

    async def _acquire(self, keyspace: Keyspace, key: str, lease: LeaseId, timeout_s: float | None) -> LockToken:
        return await self._observed("lock", super()._acquire(keyspace, key, lease, timeout_s))

    @asynccontextmanager
    async def _watch(
        self, keyspace: Keyspace, prefix: str, from_revision: int | None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with AsyncExitStack() as stack:
            watch = self.inner._watch(keyspace, prefix, from_revision)
            events = await self._observed("watch", stack.enter_async_context(watch))
            with self._metrics.watches.track_inprogress():
                yield _CountedEvents(events, self._metrics, keyspace)

    async def _observed(
        self, operation: str, call: Awaitable[T], expect: Mapping[tuple[Keyspace, str], int] | None = None
    ) -> T:
        began_s = self._now_s()
        outcome = "error"
        try:
            result = await call
            outcome = _RESULTS.get(type(result), "ok")
            if expect and isinstance(result, Conflict) and is_fence_broken(result, expect):
                outcome = "fenced"
        except BaseException as error:
            outcome = _ERRORS.get(type(error), "error")
            raise
        finally:
            self._metrics.request(operation, outcome, self._now_s() - began_s)
        return result


class _CountedEvents(AsyncIterator[WatchEvent]):
    def __init__(self, events: AsyncIterator[WatchEvent], metrics: StateMetrics, keyspace: Keyspace) -> None:
        self._events = events
        self._reported = metrics.watch_events[keyspace]
        self._breaks = metrics.watch_breaks

    async def __anext__(self) -> WatchEvent:
        try:
            event = await anext(self._events)
        except (WatchCompactedError, StateUnavailableError) as error:
            if (broken := self._breaks.get(type(error))) is not None:
                broken.inc()
            raise
        self._reported.inc()
        return event


def _page_bytes(page: Page[KeyValue]) -> int:
    return sum(len(item.value) for item in page.items)
