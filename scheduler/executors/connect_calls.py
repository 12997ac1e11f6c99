"""Requests of Spark Connect's sessions that need Spark, to an executor that waits at this scheduler.

Requests of one session go to the same executor while it is there, since that one has the session at hand. None of them
has an effect, so one whose executor is gone is given to another.
"""

import asyncio
from collections.abc import Set as AbstractSet
from typing import Final

from onager.errors import ConnectGivenUpError, ConnectUnservedError, PlaceNotSeenError
from onager.ids import ExecutorId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.executor_requests import ExecutorRequests, RequestKind
from onager.scheduler.policy.rendezvous import first

_MAX_LOST: Final = 3
"""This many executors are lost, or leave, before a request that they had counts as what ends them."""
_NONE_FOR_S: Final = 15.0
"""How long a request waits while no executor is there: one may be starting."""


class ConnectCalls:
    """Calls of Spark, by the executors that wait for requests of sessions."""

    def __init__(self, requests: ExecutorRequests) -> None:
        self._requests = requests

    async def call(self, call: pb.ConnectCall, key: str, timeout_s: float) -> pb.ConnectReply:
        """Return the reply to *call*, from the executor that comes first for *key*.

        One that does not see the tables is passed over, unless no other is there.
        `BusyError` where too many wait for it; `ConnectUnservedError` when there is none, or none takes it in time;
        `ConnectGivenUpError` when one has worked on it all that time, or too many were lost over it.
        """
        call.deadline_ms, call.slots = int(timeout_s * 1000), self._requests.slots
        blind: dict[ExecutorId, pb.ConnectReply] = {}
        pending, lost = None, 0
        try:
            async with asyncio.timeout(timeout_s):
                while lost < _MAX_LOST:
                    executor_id = await self._first(key, blind.keys())
                    request = pb.ExecutorRequest(connect=call)
                    pending = self._requests.add(RequestKind.CONNECT, executor_id, request)
                    try:
                        answer = await pending.answer
                    finally:
                        # Spark works on it until it replies, or its time is over.
                        self._requests.withdraw(pending, in_hand_s=timeout_s)
                    if answer is None:
                        lost += pending.is_in_hand
                        pending = None
                    elif answer.connect.failure.error_class != PlaceNotSeenError.__name__:
                        return answer.connect
                    else:
                        blind[executor_id] = answer.connect
                        if not set(self._requests.waiting(RequestKind.CONNECT)) - blind.keys():
                            return next(iter(blind.values()))
        except TimeoutError:
            if pending is not None and pending.is_in_hand:
                raise ConnectGivenUpError(f"it took more than {timeout_s:g} s, and was stopped") from None
            raise ConnectUnservedError(f"no executor took it within {timeout_s:g} s") from None
        raise ConnectGivenUpError(f"{lost} executors, one after the other, ended or left while they had it")

    async def _first(self, key: str, blind: AbstractSet[ExecutorId]) -> ExecutorId:
        try:
            async with asyncio.timeout(_NONE_FOR_S):
                while not (waiting := self._requests.waiting(RequestKind.CONNECT)):
                    self._requests.came.clear()
                    await self._requests.came.wait()
        except TimeoutError:
            raise ConnectUnservedError(f"for {_NONE_FOR_S:g} s no executor was there to ask Spark") from None
        return ExecutorId(first(key, set(waiting) - blind or waiting))
