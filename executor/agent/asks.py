"""What schedulers ask of this executor besides running tasks: to show what tasks logged, and to leave."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from onager.errors import OnagerError, UnknownExecutorError, VersionMismatchError
from onager.executor.agent.backoff import Backoff, Pace, spread
from onager.executor.agent.gateway import SchedulerGateway, tell
from onager.executor.attempt_logs import AttemptLogs
from onager.ids import ExecutorId, Incarnation
from onager.protocol import onager_pb2 as pb

_WAIT_MS: Final = 30_000
_CALL_TIMEOUT_S: Final = 10.0
_CALM_S: Final = 0.05
_AT_ONCE: Final = 20
"""So many calls may be answered at once before there is a pause between them."""
_WITHOUT_S: Final = 60.0
"""How often schedulers of an earlier version, which ask nothing, are tried."""

log = structlog.get_logger()

Read = Callable[[Callable[[pb.LogsAsk], pb.LogsAnswer], pb.LogsAsk], Awaitable[pb.LogsAnswer]]
"""Calls a function in a thread."""


class Asks:
    """Keeps one call waiting at a scheduler, and answers with the next one."""

    def __init__(
        self,
        gateway: SchedulerGateway,
        logs: AttemptLogs,
        *,
        executor_id: ExecutorId | str,
        incarnation: Incarnation,
        is_draining: Callable[[], bool],
        on_drain: Callable[[], None],
        read: Read,
    ) -> None:
        """*on_drain* is called when this executor shall leave, unless *is_draining*; *read* calls in a thread."""
        self._gateway = gateway
        self._logs = logs
        self._executor_id = executor_id
        self._incarnation = incarnation
        self._is_draining = is_draining
        self._on_drain = on_drain
        self._read = read
        self._answers: list[pb.LogsAnswer] = []
        self._backoff = Backoff(first_s=0.1, limit_s=2.0)
        self._pace = Pace(_CALM_S, _AT_ONCE)

    async def serve_once(self) -> None:
        """Make one call, with the answers to what the one before asked; pause if it fails."""
        answers, self._answers = self._answers, []
        request = pb.AwaitAsksRequest(
            executor_id=self._executor_id,
            incarnation=self._incarnation,
            wait_ms=spread(_WAIT_MS),
            draining=self._is_draining(),
            answers=answers,
        )
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            response = await self._gateway.await_asks(request, _WAIT_MS / 1000 + _CALL_TIMEOUT_S)
        except VersionMismatchError:
            await asyncio.sleep(_WITHOUT_S)
            return
        except UnknownExecutorError:
            await self._backoff.sleep()  # it registers again, because its heartbeats are refused, too
            return
        except OnagerError as error:
            tell(log, "asks_not_awaited", error)
            await self._backoff.sleep()
            return
        self._backoff.reset()
        if response.drain:
            self._on_drain()
        self._answers = [await self._read(self._logs.answer, ask) for ask in response.logs]
        if loop.time() - began_s < _CALM_S:
            await asyncio.sleep(self._pace.wait_s(loop.time()))
