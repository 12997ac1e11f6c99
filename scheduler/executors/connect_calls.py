"""What sessions of Spark Connect ask of Spark: executors wait here for it, a few calls of each, and bring the replies.

Requests of one session go to the same executor while it is there, since that one has the session at hand. None of them
has an effect, so one whose executor is gone is given to another.
"""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from onager.errors import BusyError, ConnectGivenUpError, ConnectUnservedError, PlaceNotSeenError
from onager.ids import ExecutorId
from onager.protocol import onager_pb2 as pb
from onager.protocol.call_limits import StreamLimit
from onager.protocol.security import caller
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.policy.rendezvous import first

_WAIT_MAX_MS: Final = 300_000
_QUEUED: Final = StreamLimit(64)
"""Requests that wait for one executor."""
_MOST_LOST: Final = 3
"""This many executors are lost, or leave, before a request that they had counts as what ends them."""
_NONE_FOR_S: Final = 15.0
"""How long a request waits while no executor is there: one may be starting."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A request under way."""

    call: pb.ConnectCall
    client: str
    reply: "asyncio.Future[pb.ConnectReply | None]"
    """None: its executor is gone."""
    is_in_hand: bool = False
    """Whether an executor has taken it."""


class _Queue:
    """Requests that wait. Clients take turns, so that none waits for all that another one has asked.

    A client of which more is in hand waits for those of which less is: what a client has asked for may take minutes.
    """

    def __init__(self) -> None:
        self._of: dict[str, deque[_Asked]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[_Asked]:
        return chain.from_iterable(self._of.values())

    def count(self, client: str) -> int:
        """Return how many requests of a client wait."""
        return len(self._of.get(client, ()))

    def add(self, asked: _Asked) -> None:
        """Have a request wait."""
        self._of.setdefault(asked.client, deque()).append(asked)

    def take(self, in_hand: Counter[str]) -> _Asked | None:
        """Return the next request for which somebody still waits; *in_hand*: how many each client has in hand."""
        while self._of:
            client = min(self._of, key=in_hand.__getitem__)  # the first of those with the fewest
            mine = self._of.pop(client)
            asked = mine.popleft()
            if mine:
                self._of[client] = mine  # after all others
            if not asked.reply.done():
                return asked
        return None

    def remove(self, asked: _Asked) -> None:
        """Forget a request."""
        mine = self._of.get(asked.client, deque())
        if asked in mine:
            mine.remove(asked)
        if not mine:
            self._of.pop(asked.client, None)


@dataclass(slots=True, eq=False)
class _Lane:
    """One life of an executor: its calls that wait, what is queued for it, and what it has in hand."""

    incarnation: str
    waiters: "deque[asyncio.Future[None]]" = field(default_factory=deque)
    queue: _Queue = field(default_factory=_Queue)
    in_hand: dict[int, _Asked] = field(default_factory=dict)

    def wake(self) -> None:
        """Have one call look into the queue."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def take(self) -> _Asked | None:
        """Return the next request; it is in hand from now on."""
        if (asked := self.queue.take(Counter(each.client for each in self.in_hand.values()))) is not None:
            self.in_hand[asked.call.number] = asked
            asked.is_in_hand = True
        return asked


class ConnectCalls:
    """The executors that wait at this scheduler for requests of sessions."""

    def __init__(self, executors: ExecutorManager, *, share_percent: int) -> None:
        """*share_percent*: of the requests that may wait for an executor, how many may be of one client."""
        self._executors = executors
        self._share = _QUEUED.share(share_percent)
        self._lanes: dict[ExecutorId, _Lane] = {}
        self._numbers = itertools.count(1)
        self._came = asyncio.Event()
        self._is_closed = False

    # ---------------------------------------------------------------- for executors

    async def wait(self, request: pb.AwaitConnectRequest) -> pb.AwaitConnectResponse:
        """Take the reply that an executor brings, and return the next request for it, once there is one."""
        lane = self._lane(ExecutorId(request.executor_id), request.incarnation)
        if request.HasField("reply"):
            done = lane.in_hand.pop(request.reply.number, None)
            if done is not None and not done.reply.done():
                done.reply.set_result(request.reply)
        asked = lane.take()
        if asked is None and not self._is_closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lane.waiters.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=min(request.wait_ms, _WAIT_MAX_MS) / 1000)
            except asyncio.CancelledError:
                # Its connection is broken, or it leaves. If it lives, it is here again in a moment.
                self._drop(ExecutorId(request.executor_id), lane)
                raise
            finally:
                waiter.cancel()
            asked = lane.take()
        return pb.AwaitConnectResponse(call=None if asked is None else asked.call)

    def _lane(self, executor_id: ExecutorId, incarnation: str) -> _Lane:
        lane = self._lanes.get(executor_id)
        if lane is None or lane.incarnation != incarnation:
            if lane is not None:
                self._drop(executor_id, lane)
            lane = self._lanes[executor_id] = _Lane(incarnation)
            self._came.set()
        return lane

    def _drop(self, executor_id: ExecutorId, lane: _Lane) -> None:
        """Give what an executor has, or was to get, to others."""
        if self._lanes.get(executor_id) is lane:
            del self._lanes[executor_id]
        for asked in (*lane.queue, *lane.in_hand.values()):
            if not asked.reply.done():
                asked.reply.set_result(None)
        while lane.waiters:
            lane.wake()

    # ---------------------------------------------------------------- for those who ask

    async def call(self, call: pb.ConnectCall, key: str, timeout_s: float) -> pb.ConnectReply:
        """Return the reply to *call*, from the executor that comes first for *key*.

        One that does not see the tables is passed over, unless no other is there.
        `BusyError` where too many wait for it; `ConnectUnservedError` when there is none, or none takes it in time;
        `ConnectGivenUpError` when one has worked on it all that time, or too many were lost over it.
        """
        blind: dict[ExecutorId, pb.ConnectReply] = {}
        asked, lost = None, 0
        try:
            async with asyncio.timeout(timeout_s):
                while lost < _MOST_LOST:
                    executor_id = await self._first(key, blind.keys())
                    lane = self._lanes[executor_id]
                    asked = self._asked(lane, call, timeout_s)
                    reply = await self._reply(lane, asked, timeout_s)
                    if reply is None:
                        lost += asked.is_in_hand
                        asked = None
                    elif reply.failure.error_class != PlaceNotSeenError.__name__:
                        return reply
                    else:
                        blind[executor_id] = reply
                        if not self._lanes.keys() - blind.keys():
                            return next(iter(blind.values()))
        except TimeoutError:
            if asked is not None and asked.is_in_hand:
                raise ConnectGivenUpError(f"it took more than {timeout_s:g} s, and was stopped") from None
            raise ConnectUnservedError(f"no executor took it within {timeout_s:g} s") from None
        raise ConnectGivenUpError(f"{lost} executors, one after the other, ended or left while they had it")

    async def _first(self, key: str, blind: AbstractSet[ExecutorId]) -> ExecutorId:
        try:
            async with asyncio.timeout(_NONE_FOR_S):
                while True:
                    for executor_id, lane in list(self._lanes.items()):
                        if not self._executors.is_alive(executor_id, lane.incarnation):
                            self._drop(executor_id, lane)
                    if self._lanes:
                        return ExecutorId(first(key, self._lanes.keys() - blind or self._lanes))
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise ConnectUnservedError(f"for {_NONE_FOR_S:g} s no executor was there to ask Spark") from None

    def _asked(self, lane: _Lane, call: pb.ConnectCall, timeout_s: float) -> _Asked:
        client = caller().client
        if len(lane.queue) >= _QUEUED.most:
            raise BusyError(f"{_QUEUED.most} requests of Spark Connect wait for one executor, which is the limit")
        if lane.queue.count(client) >= self._share:
            why = f"{self._share} requests of Spark Connect of {client} wait for one executor"
            raise BusyError(f"{why}, which is the share of one client")
        numbered = pb.ConnectCall()
        numbered.CopyFrom(call)
        numbered.number, numbered.deadline_ms = next(self._numbers), int(timeout_s * 1000)
        asked = _Asked(numbered, client, asyncio.get_running_loop().create_future())
        lane.queue.add(asked)
        lane.wake()
        return asked

    async def _reply(self, lane: _Lane, asked: _Asked, timeout_s: float) -> pb.ConnectReply | None:
        try:
            return await asked.reply
        finally:
            lane.queue.remove(asked)
            if (number := asked.call.number) in lane.in_hand:  # Spark works on it until it replies, or its time is over
                asyncio.get_running_loop().call_later(timeout_s, lane.in_hand.pop, number, None)

    def close(self) -> None:
        """Let all executors go, for good."""
        self._is_closed = True
        for executor_id, lane in list(self._lanes.items()):
            self._drop(executor_id, lane)
