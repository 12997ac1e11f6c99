"""Requests of schedulers to executors besides tasks. Executors wait here for them, and bring the answers.

An executor in pull mode cannot be called. So each executor, in either mode, keeps calls waiting: one for logs at the
scheduler that it polls, and a few for Spark Connect at every scheduler. A call ends as soon as there is a request, and
the next one carries the answer. Each kind has its own calls and its own queue: a slow request of Spark Connect does not
hold up a request for logs.
"""

import asyncio
import itertools
import secrets
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Final

from onager.errors import BusyError
from onager.ids import ExecutorId
from onager.protocol import onager_pb2 as pb
from onager.protocol.call_limits import StreamLimit
from onager.protocol.security import caller
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.records import ExecutorSession

_MAX_WAIT_MS: Final = 300_000
_ABSENT_S: Final = 2.0
"""An executor whose call has ended is expected back within this time."""


class RequestKind(Enum):
    """Kinds of requests, each with calls and queues of its own."""

    LOGS = "for logs"
    CONNECT = "of Spark Connect"


_QUEUED: Final = {RequestKind.LOGS: StreamLimit(64, has_shares=False), RequestKind.CONNECT: StreamLimit(64)}
"""Requests that wait for one executor."""
_PER_CALL: Final = {RequestKind.LOGS: 64, RequestKind.CONNECT: 1}
"""Requests that one call takes."""


@dataclass(slots=True, eq=False)
class Pending:
    """A request under way."""

    executor_id: ExecutorId
    lane: "_Lane"
    message: pb.ExecutorRequest
    client: str
    answer: "asyncio.Future[pb.RequestAnswer | None]"
    """None: the executor is gone."""
    is_in_hand: bool = False
    """Whether the executor has taken it."""


class _Queue:
    """Requests that wait. Clients take turns, so that none waits for all requests of another one.

    A client with more requests in hand waits for those with fewer: a request may take minutes.
    """

    def __init__(self) -> None:
        self._of: dict[str, deque[Pending]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[Pending]:
        return chain.from_iterable(self._of.values())

    def count(self, client: str) -> int:
        """Return how many requests of a client wait."""
        return len(self._of.get(client, ()))

    def add(self, pending: Pending) -> None:
        """Have a request wait."""
        self._of.setdefault(pending.client, deque()).append(pending)

    def take(self, in_hand: Counter[str]) -> Pending | None:
        """Return the next request that is still needed; *in_hand*: how many each client has in hand."""
        while self._of:
            client = min(self._of, key=in_hand.__getitem__)  # the first of those with the fewest
            waiting = self._of.pop(client)
            pending = waiting.popleft()
            if waiting:
                self._of[client] = waiting  # after all others
            if not pending.answer.done():
                return pending
        return None

    def remove(self, pending: Pending) -> None:
        """Forget a request."""
        waiting = self._of.get(pending.client, deque())
        if pending in waiting:
            waiting.remove(pending)
        if not waiting:
            self._of.pop(pending.client, None)


@dataclass(slots=True, eq=False)
class _Lane:
    """Requests of one kind to one life of an executor, and its calls that wait for them."""

    kind: RequestKind
    incarnation: str
    waiters: "deque[asyncio.Future[bool]]" = field(default_factory=deque)
    """Each gets whether its call may take requests: another one may have taken its place."""
    queue: _Queue = field(default_factory=_Queue)
    in_hand: dict[int, Pending] = field(default_factory=dict)
    left_s: float = 0.0
    """When its latest call ended."""

    @property
    def is_absent(self) -> bool:
        """Whether the executor neither waits, nor works on a request, nor has just been answered."""
        is_idle = not self.waiters and not self.in_hand
        return is_idle and asyncio.get_running_loop().time() > self.left_s + _ABSENT_S

    def note_end(self) -> None:
        """Note that a call ends now."""
        self.left_s = asyncio.get_running_loop().time()

    def wake(self) -> None:
        """End the wait of one call."""
        if self.waiters:
            self.waiters.popleft().set_result(True)
            self.note_end()

    def wake_all(self) -> None:
        """End the wait of every call."""
        while self.waiters:
            self.wake()

    def replace_all(self) -> None:
        """End the wait of every call: a later one takes its place."""
        while self.waiters:
            self.waiters.popleft().set_result(False)

    def take(self) -> list[Pending]:
        """Return the next requests for one call; they are in hand from now on."""
        taken: list[Pending] = []
        while len(taken) < _PER_CALL[self.kind]:
            pending = self.queue.take(Counter(each.client for each in self.in_hand.values()))
            if pending is None:
                break
            self.in_hand[pending.message.number] = pending
            pending.is_in_hand = True
            taken.append(pending)
        return taken


class ExecutorRequests:
    """The executors that wait at this scheduler, and what is requested of them."""

    def __init__(self, executors: ExecutorManager, *, share_percent: int) -> None:
        """*share_percent*: the share of one client in the requests of Spark Connect that may wait for an executor."""
        self._executors = executors
        executors.on_record = self.note_change
        self._shares = {kind: limit.share(share_percent) for kind, limit in _QUEUED.items()}
        self._lanes: dict[RequestKind, dict[ExecutorId, _Lane]] = {kind: {} for kind in RequestKind}
        self._numbers = itertools.count(secrets.randbits(48))
        """No process repeats those of an earlier one at the same address: executors may bring answers to that one."""
        self.came = asyncio.Event()
        """Set whenever an executor begins to wait."""
        self._is_closed = False

    @property
    def slots(self) -> int:
        """Return the slots of all executors that take work."""
        return self._executors.total_slots

    # ---------------------------------------------------------------- for executors

    async def wait(self, request: pb.AwaitRequestsRequest) -> pb.AwaitRequestsResponse:
        """Take the answers that an executor brings, and return requests to it, once there are some.

        `UnknownExecutorError` when it waits for requests for logs and does not talk with this scheduler.
        """
        executor_id, session = ExecutorId(request.executor_id), None
        if not request.connect:
            session = self._executors.require(executor_id, request.incarnation)
        kind = RequestKind.CONNECT if request.connect else RequestKind.LOGS
        lane = self._lane(kind, executor_id, request.incarnation)
        for answer in request.answers:
            pending = lane.in_hand.pop(answer.number, None)
            if pending is not None and not pending.answer.done():
                pending.answer.set_result(answer)
        if kind is RequestKind.LOGS:
            lane.replace_all()
        taken = lane.take()
        if not (taken or self._is_closed or _must_drain(session, request)):
            taken = lane.take() if await self._is_to_take(executor_id, lane, request.wait_ms) else []
        lane.note_end()
        return pb.AwaitRequestsResponse(
            requests=[pending.message for pending in taken], drain=_must_drain(session, request)
        )

    async def _is_to_take(self, executor_id: ExecutorId, lane: _Lane, wait_ms: int) -> bool:
        """Wait for requests, or until the time is over; return whether the call may take some."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        lane.waiters.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=min(wait_ms, _MAX_WAIT_MS) / 1000)
            return not waiter.done() or waiter.result()
        except asyncio.CancelledError:
            # Its connection is broken, or it leaves. If it lives, it is here again in a moment.
            lane.note_end()
            if lane.kind is RequestKind.CONNECT:
                self._drop(executor_id, lane)
            raise
        finally:
            waiter.cancel()
            if waiter in lane.waiters:
                lane.waiters.remove(waiter)

    def _lane(self, kind: RequestKind, executor_id: ExecutorId, incarnation: str) -> _Lane:
        lane = self._lanes[kind].get(executor_id)
        if lane is None or lane.incarnation != incarnation:
            if lane is not None:
                self._drop(executor_id, lane)
            lane = self._lanes[kind][executor_id] = _Lane(kind, incarnation)
            self.came.set()
        return lane

    def _drop(self, executor_id: ExecutorId, lane: _Lane) -> None:
        """Give back what an executor has, or was to get."""
        if self._lanes[lane.kind].get(executor_id) is lane:
            del self._lanes[lane.kind][executor_id]
        for pending in (*lane.queue, *lane.in_hand.values()):
            if not pending.answer.done():
                pending.answer.set_result(None)
        lane.wake_all()

    def note_change(self, executor_id: ExecutorId) -> None:
        """Have an executor look at its record, which has changed, if it waits for requests for logs here."""
        lane = self._lanes[RequestKind.LOGS].get(executor_id)
        if lane is None:
            return
        session = self._executors.session(executor_id)
        if session is None or session.incarnation != lane.incarnation:
            self._drop(executor_id, lane)
        elif session.is_draining:
            lane.wake_all()

    # ---------------------------------------------------------------- for those who make requests

    def waiting(self, kind: RequestKind) -> list[ExecutorId]:
        """Return the executors that take requests of a kind here."""
        for executor_id, lane in list(self._lanes[kind].items()):
            if lane.is_absent or not self._executors.is_alive(executor_id, lane.incarnation):
                self._drop(executor_id, lane)
        return list(self._lanes[kind])

    def add(self, kind: RequestKind, executor_id: ExecutorId, message: pb.ExecutorRequest) -> Pending:
        """Queue a request to one of the executors that are `waiting`; to be ended with `withdraw`.

        `BusyError` when too many requests wait for it.
        """
        lane, client, most = self._lanes[kind][executor_id], caller().client, _QUEUED[kind].most
        if len(lane.queue) >= most:
            raise BusyError(f"{most} requests {kind.value} wait for one executor, which is the limit")
        if lane.queue.count(client) >= self._shares[kind]:
            why = f"{self._shares[kind]} requests {kind.value} of {client} wait for one executor"
            raise BusyError(f"{why}, which is the share of one client")
        message.number = next(self._numbers)
        pending = Pending(executor_id, lane, message, client, asyncio.get_running_loop().create_future())
        lane.queue.add(pending)
        lane.wake()
        return pending

    def withdraw(self, pending: Pending, *, in_hand_s: float = 0.0) -> None:
        """Forget a request; one that is in hand counts for *in_hand_s* more, unless its answer comes before."""
        lane, number = pending.lane, pending.message.number
        lane.queue.remove(pending)
        if number in lane.in_hand:
            asyncio.get_running_loop().call_later(in_hand_s, lane.in_hand.pop, number, None)

    def close(self) -> None:
        """Let all executors go, for good: they turn to another scheduler."""
        self._is_closed = True
        for lane in self._lanes[RequestKind.LOGS].values():
            lane.wake_all()
        for executor_id, lane in list(self._lanes[RequestKind.CONNECT].items()):
            self._drop(executor_id, lane)


def _must_drain(session: ExecutorSession | None, request: pb.AwaitRequestsRequest) -> bool:
    return session is not None and session.is_draining and not request.draining
