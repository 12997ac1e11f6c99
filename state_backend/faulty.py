"""A store that fails on purpose: a wrapper for tests and simulations, over any adapter.

A *plan* decides call by call what fails: `scripted`, or `seeded` with randomness from outside. It is asked in the order
of the calls, so that under one event loop the same seed gives the same faults. Every fault is one that the port allows:
code that keeps to the contract survives them.
"""

# ruff: noqa: SLF001 a wrapper stands where the public methods stand, and calls the primitives as they do

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from typing import Any, Final, TypeVar

from onager.clock import Clock, SystemClock
from onager.errors import OutcomeUnknownError, StateBackendError, StateUnavailableError, WatchCompactedError
from onager.state_backend.forwarding import ForwardingBackend, read_operation
from onager.state_backend.model import (
    ABSENT,
    KeyRange,
    Keyspace,
    Lease,
    LeaseId,
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

_LOST_ANSWER: Final = "the answer was lost, by a fault that was asked for"
_TICK_S: Final = 0.005


class FaultKind(StrEnum):
    """A fault of a call; `APPLIES_TO` says which calls it fits."""

    UNAVAILABLE = "unavailable"
    """The store cannot be reached: nothing is sent."""
    SLOW_REQUEST = "slow_request"
    """The request arrives late, so that others come first: what was read before may have changed."""
    SLOW_ANSWER = "slow_answer"
    """The request is carried out at once, and the answer comes late."""
    UNKNOWN_UNWRITTEN = "unknown_unwritten"
    """The outcome is unknown, and nothing was written."""
    UNKNOWN_WRITTEN = "unknown_written"
    """The outcome is unknown, and the write took place: only the answer was lost."""
    UNKNOWN_LATE = "unknown_late"
    """The outcome is unknown, and the request arrives later, after the caller got the error."""
    LEASE_LOST = "lease_lost"
    """The lease that the call depends on ends just before."""
    COMPACTED = "compacted"
    """The watch lost events."""
    CUT = "cut"
    """The watch breaks off, as when the store goes away."""


_ANY: Final = frozenset({FaultKind.UNAVAILABLE, FaultKind.SLOW_REQUEST, FaultKind.SLOW_ANSWER})
_UNKNOWN: Final = frozenset({FaultKind.UNKNOWN_UNWRITTEN, FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_LATE})

APPLIES_TO: Final[Mapping[str, frozenset[FaultKind]]] = {
    **dict.fromkeys(("get", "get_from_prefix", "scan", "scan_keys", "read_txn"), _ANY),
    "put_txn": _ANY | _UNKNOWN | {FaultKind.LEASE_LOST},
    "lease": _ANY | _UNKNOWN - {FaultKind.UNKNOWN_LATE},
    "keep_alive": _ANY | {FaultKind.LEASE_LOST},
    "revoke": _ANY | _UNKNOWN,
    "watch": frozenset({FaultKind.UNAVAILABLE, FaultKind.SLOW_REQUEST, FaultKind.COMPACTED}),
    "watch_event": frozenset({FaultKind.SLOW_ANSWER, FaultKind.COMPACTED, FaultKind.CUT}),
}
"""The operations that a plan is asked about, and the faults that fit each.

``put_txn`` is every write, ``watch_event`` each event that a watch is about to yield.
"""

FaultPlan = Callable[[str], FaultKind | None]
"""Takes the operation of the next call and returns its fault; `None` for no fault."""


def scripted(faults: Mapping[str, Iterable[FaultKind | None]]) -> FaultPlan:
    """Return a plan that hands out the *faults* of each operation call by call; after the last one nothing fails."""
    left = {operation: deque(kinds) for operation, kinds in faults.items()}
    for operation, kinds in left.items():
        for kind in kinds:
            if kind is not None and kind not in APPLIES_TO[operation]:
                raise ValueError(f"{kind} cannot happen to {operation}")

    def plan(operation: str) -> FaultKind | None:
        kinds = left.get(operation)
        return kinds.popleft() if kinds else None

    return plan


def seeded(draw: Callable[[], float], rates: Mapping[FaultKind, float]) -> FaultPlan:
    """Return a plan that gives each call one of the faults that fit it, each at its rate from 0 to 1.

    *draw* returns numbers from 0 up to 1, such as ``random.Random(seed).random``; it is called once for each call.
    """

    def plan(operation: str) -> FaultKind | None:
        number = draw()
        for kind, rate in rates.items():
            if kind not in APPLIES_TO[operation]:
                continue
            if number < rate:
                return kind
            number -= rate
        return None

    return plan


class FaultyBackend(ForwardingBackend):
    """Does what *inner* does, except for the faults that *plan* asks for; `met` counts them.

    A slow or late request takes as many seconds of *clock* as *delay_s* returns for it (0: as long as one step of
    others); under a clock that stands still it waits until the clock is moved.
    """

    def __init__(
        self,
        inner: StateBackendClient,
        plan: FaultPlan,
        clock: Clock | None = None,
        *,
        delay_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(inner)
        self.met: Counter[FaultKind] = Counter()
        self._plan = plan
        self._clock = SystemClock() if clock is None else clock
        self._delay_s = delay_s
        self._late: set[asyncio.Task[object]] = set()

    async def settle(self) -> None:
        """Return when all late requests have arrived."""
        while self._late:
            await asyncio.wait(self._late)

    async def close(self) -> None:
        """Close *inner*; late requests never arrive."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await super().close()

    async def keep_alive(self, lease: LeaseId) -> None:
        """Renew *lease* for its whole time, unless it is lost."""
        await self._call("keep_alive", lambda: self.inner.keep_alive(lease), leases=[lease])

    async def revoke(self, lease: LeaseId) -> None:
        """End *lease* now."""
        await self._call("revoke", lambda: self.inner.revoke(lease))

    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        return await self._call(read_operation(keys, ranges), lambda: self.inner._read(keys, ranges))

    async def _read_keys(self, key_range: KeyRange) -> Page[str]:
        return await self._call("scan_keys", lambda: self.inner._read_keys(key_range))

    async def _commit(self, ops: Collection[SingleOp], expect: Mapping[tuple[Keyspace, str], int]) -> TxnResult:
        leases = [op.lease for op in ops if isinstance(op, Put) and op.lease is not None]
        if locks := [place for place, revision in expect.items() if place[0] is Keyspace.Locks and revision != ABSENT]:
            held = (await self.inner._read(locks, ())).values.values()
            leases += [LeaseId(json.loads(lock.value)["lease"]) for lock in held if lock is not None]
        try:
            return await self._call("put_txn", lambda: self.inner._commit(ops, expect), leases=leases)
        except OutcomeUnknownError as error:
            return OutcomeUnknown(str(error))

    async def _grant(self, ttl_s: float) -> Lease:
        return await self._call("lease", lambda: self.inner._grant(ttl_s))

    @asynccontextmanager
    async def _watch(
        self, keyspace: Keyspace, prefix: str, from_revision: int | None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with AsyncExitStack() as stack:
            events = await self._call(
                "watch",
                lambda: stack.enter_async_context(self.inner._watch(keyspace, prefix, from_revision)),
                revision=from_revision or 0,
            )
            yield _FaultyEvents(self, events)

    async def _call(
        self,
        operation: str,
        call: Callable[[], Coroutine[Any, Any, T]],
        *,
        leases: Sequence[LeaseId] = (),
        revision: int = 0,
    ) -> T:
        """Make *call* with the planned fault; *leases* are those that it depends on."""
        fault = self.next_fault(operation)
        match fault:
            case FaultKind.UNAVAILABLE | FaultKind.CUT:
                raise StateUnavailableError(f"{operation} did not reach the store, by a fault that was asked for")
            case FaultKind.COMPACTED:
                raise WatchCompactedError(revision, revision)
            case FaultKind.UNKNOWN_UNWRITTEN:
                raise OutcomeUnknownError(_LOST_ANSWER)
            case FaultKind.UNKNOWN_LATE:
                self._send_late(call)
                raise OutcomeUnknownError(_LOST_ANSWER)
            case FaultKind.SLOW_REQUEST:
                await self.pause()
            case FaultKind.LEASE_LOST:
                for lease in leases:
                    await self.inner.revoke(lease)
        result = await call()
        if fault is FaultKind.SLOW_ANSWER:
            await self.pause()
        elif fault is FaultKind.UNKNOWN_WRITTEN:
            raise OutcomeUnknownError(_LOST_ANSWER)
        return result

    def next_fault(self, operation: str) -> FaultKind | None:
        """Return the planned fault of the next *operation*, and count it."""
        fault = self._plan(operation)
        if fault is not None:
            self.met[fault] += 1
        return fault

    async def pause(self) -> None:
        """Return when the delay has passed by the clock, and other tasks have run."""
        until_s = self._clock.monotonic_s() + self._delay_s()
        await asyncio.sleep(0)
        # A clock that is moved by hand notifies no waiter, so it is polled.
        while (left_s := until_s - self._clock.monotonic_s()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, _TICK_S))

    def _send_late(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async def arrive() -> None:
            await self.pause()
            try:
                await call()
            except StateBackendError:
                return  # no caller waits for that answer

        task: asyncio.Task[object] = asyncio.create_task(arrive(), name="late request")
        self._late.add(task)
        task.add_done_callback(self._late.discard)


class _FaultyEvents(AsyncIterator[WatchEvent]):
    def __init__(self, backend: FaultyBackend, events: AsyncIterator[WatchEvent]) -> None:
        self._backend = backend
        self._events = events

    async def __anext__(self) -> WatchEvent:
        event = await anext(self._events)
        match self._backend.next_fault("watch_event"):
            case FaultKind.COMPACTED:
                raise WatchCompactedError(event.mod_revision, event.mod_revision)
            case FaultKind.CUT:
                raise StateUnavailableError("the watch broke off, by a fault that was asked for")
            case FaultKind.SLOW_ANSWER:
                await self._backend.pause()
        return event
