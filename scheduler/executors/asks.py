"""What schedulers ask of executors besides running tasks: executors wait here for it, and bring the answers.

An executor in pull mode cannot be called. So each executor keeps one call waiting at the scheduler that it polls, in
either mode. That call ends as soon as there is something to ask, and the next one carries the answer.
"""

import asyncio
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import structlog

from onager.clock import Clock
from onager.ids import ExecutorId, Incarnation
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MIB
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.records import ExecutorSession

log = structlog.get_logger(__name__)

_WAIT_MAX_MS: Final = 60_000
_ABSENT_S: Final = 2.0
"""An executor whose call has ended is expected to be back within this time: it reads its logs meanwhile."""
_MOST_ASKED: Final = 64
"""Asks that wait for one executor."""
_MOST_BYTES: Final = 16 * MIB
"""Text of one answer: more is left out."""


@dataclass(slots=True)
class _Wait:
    """The call of one life of an executor, or the moment since which it has none."""

    incarnation: Incarnation
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_waiting: bool = True
    until_s: float = 0.0
    """When it counts as gone, once it does not wait any more."""
    asks: dict[int, pb.LogsAsk] = field(default_factory=dict)


@dataclass(slots=True)
class _Asked:
    """An ask under way: who has to answer, and what came."""

    left: set[ExecutorId]
    done: asyncio.Event = field(default_factory=asyncio.Event)
    answer: pb.AskExecutorsResponse = field(default_factory=pb.AskExecutorsResponse)
    size: int = 0


class ExecutorAsks:
    """The executors that wait at this scheduler."""

    def __init__(self, executors: ExecutorManager, clock: Clock) -> None:
        self._executors = executors
        executors.on_record = self.changed
        self._clock = clock
        self._waits: dict[ExecutorId, _Wait] = {}
        self._asked: dict[int, _Asked] = {}
        self._numbers = itertools.count(1)
        self._is_closed = False

    # ---------------------------------------------------------------- for executors

    async def wait(self, session: ExecutorSession, request: pb.AwaitAsksRequest) -> pb.AwaitAsksResponse:
        """Take the answers that an executor brings, and return what is asked of it, once there is something."""
        for answer in request.answers:
            self._take(session.executor_id, answer)
        before = self._waits.get(session.executor_id)
        wait = _Wait(session.incarnation)
        if before is not None:
            before.woken.set()
            if before.incarnation == session.incarnation:
                wait.asks = before.asks  # those that an answer which got lost has taken are not asked again
                before.asks = {}
        self._waits[session.executor_id] = wait
        try:
            async with asyncio.timeout(min(request.wait_ms, _WAIT_MAX_MS) / 1000):
                while not (wait.asks or self._is_to_drain(session, request) or self._is_over(session, wait)):
                    wait.woken.clear()
                    await wait.woken.wait()
        except TimeoutError:
            pass
        finally:
            wait.is_waiting = False
            wait.until_s = self._clock.monotonic_s() + _ABSENT_S
        asks, wait.asks = wait.asks, {}
        return pb.AwaitAsksResponse(
            logs=[ask for number, ask in asks.items() if number in self._asked],
            drain=self._is_to_drain(session, request),
        )

    def _is_to_drain(self, session: ExecutorSession, request: pb.AwaitAsksRequest) -> bool:
        return session.record.state == "draining" and not request.draining

    def _is_over(self, session: ExecutorSession, wait: _Wait) -> bool:
        return self._is_closed or session.is_gone or self._waits.get(session.executor_id) is not wait

    def changed(self, executor_id: ExecutorId) -> None:
        """Have an executor told that its record has changed, if it waits here; forget it if it is gone."""
        if (wait := self._waits.get(executor_id)) is not None:
            if not self._executors.is_alive(executor_id, wait.incarnation):
                del self._waits[executor_id]
            wait.woken.set()

    def _take(self, executor_id: ExecutorId, answer: pb.LogsAnswer) -> None:
        asked = self._asked.get(answer.number)
        if asked is None or executor_id not in asked.left:
            return  # too late, or asked of another one
        asked.left.discard(executor_id)
        asked.answer.answered.append(executor_id)
        asked.answer.left_out += answer.left_out
        for each in answer.logs:
            asked.size += len(each.text)
            if asked.size > _MOST_BYTES:
                asked.answer.left_out += 1
                continue
            each.executor_id = executor_id  # it speaks for itself alone
            asked.answer.logs.append(each)
        if not asked.left:
            asked.done.set()

    # ---------------------------------------------------------------- for those who ask

    async def ask(self, ask: pb.LogsAsk, wait_s: float, only: Collection[str] = ()) -> pb.AskExecutorsResponse:
        """Return what the executors that wait here, or those of *only*, answer within *wait_s*."""
        self._forget_gone()
        number = next(self._numbers)
        numbered = pb.LogsAsk()
        numbered.CopyFrom(ask)
        numbered.number = number
        asked = _Asked(
            {e for e, wait in self._waits.items() if (not only or e in only) and len(wait.asks) < _MOST_ASKED}
        )
        if not asked.left:
            return asked.answer
        self._asked[number] = asked
        try:
            for executor_id in asked.left:
                wait = self._waits[executor_id]
                wait.asks[number] = numbered
                wait.woken.set()
            async with asyncio.timeout(wait_s):
                await asked.done.wait()
        except TimeoutError:
            log.debug("executors_did_not_answer", executors=sorted(asked.left), wait_s=wait_s)
        finally:
            del self._asked[number]
        return asked.answer

    def _forget_gone(self) -> None:
        now_s = self._clock.monotonic_s()
        for executor_id, wait in list(self._waits.items()):
            is_absent = not wait.is_waiting and now_s > wait.until_s
            if is_absent or not self._executors.is_alive(executor_id, wait.incarnation):
                del self._waits[executor_id]

    def close(self) -> None:
        """Let all executors go, for good: they turn to another scheduler."""
        self._is_closed = True
        for wait in self._waits.values():
            wait.woken.set()
