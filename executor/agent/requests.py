"""Requests of schedulers besides tasks: calls wait for them at schedulers, and the next call brings the answers.

One call waits at the scheduler that this executor polls: for requests for logs, and for the one to leave. A few more
wait at each scheduler for requests of Spark Connect, so that these do not hold up the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import structlog

from onager.errors import OnagerError, SchedulerUnreachableError, UnknownExecutorError
from onager.executor.agent.backoff import Backoff, Pace, spread
from onager.executor.agent.gateway import tell
from onager.executor.agent.threads import Calls
from onager.executor.work import SparkLostError
from onager.ids import ExecutorId, Incarnation
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayStub
from onager.protocol.security import ClientAccess

CONNECT_AT_ONCE: Final = 4
"""Requests of Spark Connect that are served at once, of each scheduler."""
_LOGS_WAIT_MS: Final = 30_000
_CONNECT_WAIT_MS: Final = 300_000
_CALL_TIMEOUT_S: Final = 10.0
_MAX_SCHEDULERS: Final = 32
_CALM_S: Final = 0.05
_EMPTY_AT_ONCE: Final = 20
"""So many calls may end at once without a request before there is a pause between them."""

log = structlog.get_logger()

Await = Callable[[pb.AwaitRequestsRequest, float], Awaitable[pb.AwaitRequestsResponse]]
"""Makes one call, with a time limit in seconds."""


class Requests:
    """The calls that wait at schedulers, and what is served for them."""

    def __init__(
        self,
        access: ClientAccess,
        *,
        executor_id: ExecutorId | str,
        incarnation: Incarnation,
        read_logs: Callable[[pb.LogsAsk], Awaitable[pb.LogsAnswer]],
        connect: Callable[[pb.ConnectCall], pb.ConnectReply],
        is_draining: Callable[[], bool],
        on_drain: Callable[[], None],
        on_quiet: Callable[[], None] = lambda: None,
    ) -> None:
        """*connect* answers a request in a thread; an exception of it, other than `SparkLostError`, is a defect.

        *on_drain* is called when this executor shall leave, unless *is_draining*; *on_quiet* when no request of Spark
        Connect is being served any more.
        """
        self._access = access
        self._executor_id = executor_id
        self._incarnation = incarnation
        self._read_logs = read_logs
        self._connect = connect
        self._is_draining = is_draining
        self._on_drain = on_drain
        self._on_quiet = on_quiet
        self._connects_served = 0
        self._threads = Calls("connect", CONNECT_AT_ONCE)
        self._waits: dict[str, asyncio.Task[None]] = {}

    @property
    def is_quiet(self) -> bool:
        """Whether no request of Spark Connect is served, even for a scheduler that has given it to another executor."""
        return not self._connects_served

    async def serve_logs(self, await_requests: Await) -> None:
        """Serve requests for logs, and the one to leave, for ever; *await_requests* calls the scheduler to wait at."""
        await self._serve(await_requests, is_connect=False)

    def serve_connect_at(self, addresses: Iterable[str]) -> None:
        """Wait for requests of Spark Connect at the schedulers at *addresses*, and no longer at others."""
        wanted = list(dict.fromkeys(addresses))[:_MAX_SCHEDULERS]
        for address in set(self._waits) - set(wanted):
            self._waits.pop(address).cancel()
        for address in wanted:
            if address not in self._waits or self._waits[address].done():
                self._waits[address] = asyncio.create_task(self._connect_at(address), name=f"connect at {address}")

    async def _connect_at(self, address: str) -> None:
        channel: grpc.aio.Channel | None = None
        try:
            self._access.check(address)
            channel = self._access.aio_channel(address)
            method = OnagerExecutorGatewayStub(channel).AwaitRequests

            def await_requests(request: pb.AwaitRequestsRequest, timeout_s: float) -> Awaitable[Any]:
                return self._access.call(method, request, address, timeout_s)

            async with asyncio.TaskGroup() as calls:
                for _ in range(CONNECT_AT_ONCE):
                    calls.create_task(self._serve(await_requests, is_connect=True))
        except* (OnagerError, SparkLostError) as errors:
            # Its scheduler sees the connection close, and asks another executor.
            log.warning("connect_not_served", scheduler=address, error=str(errors.exceptions[0]))
        finally:
            if channel is not None:
                await channel.close(None)

    async def _serve(self, await_requests: Await, *, is_connect: bool) -> None:
        """Make one call after the other, each with the answers to the requests that the one before brought."""
        wait_ms = _CONNECT_WAIT_MS if is_connect else _LOGS_WAIT_MS
        backoff, pace = Backoff(first_s=0.1, limit_s=2.0), Pace(_CALM_S, _EMPTY_AT_ONCE)
        loop = asyncio.get_running_loop()
        answers: list[pb.RequestAnswer] = []
        while True:
            request = pb.AwaitRequestsRequest(
                executor_id=self._executor_id,
                incarnation=self._incarnation,
                wait_ms=spread(wait_ms),
                connect=is_connect,
                draining=self._is_draining(),
                answers=answers,
            )
            began_s = loop.time()
            try:
                response = await await_requests(request, wait_ms / 1000 + _CALL_TIMEOUT_S)
            except OnagerError as error:
                answers = _to_send_after(error, answers)
                if not isinstance(error, UnknownExecutorError):
                    tell(log, "requests_not_awaited", error)
                await backoff.sleep()
                continue
            backoff.reset()
            if response.drain:
                self._on_drain()
            answers = [await self._answer(each) for each in response.requests]
            if not answers and loop.time() - began_s < _CALM_S:
                await asyncio.sleep(pace.wait_s(loop.time()))

    async def _answer(self, request: pb.ExecutorRequest) -> pb.RequestAnswer:
        if request.HasField("logs"):
            return pb.RequestAnswer(number=request.number, logs=await self._read_logs(request.logs))
        work = asyncio.ensure_future(self._threads(self._connect, request.connect))
        self._connects_served += 1
        work.add_done_callback(self._note_end)  # the call may be gone before
        return pb.RequestAnswer(number=request.number, connect=await asyncio.shield(work))

    def _note_end(self, work: "asyncio.Future[pb.ConnectReply]") -> None:
        if not work.cancelled():
            work.exception()  # it is that of the call, if there still is one
        self._connects_served -= 1
        if self.is_quiet:
            self._on_quiet()

    async def close(self) -> None:
        """End every call at the schedulers for Spark Connect."""
        for wait in self._waits.values():
            wait.cancel()
        await asyncio.gather(*self._waits.values(), return_exceptions=True)
        self._threads.close()


def _to_send_after(error: OnagerError, answers: list[pb.RequestAnswer]) -> list[pb.RequestAnswer]:
    """Return the answers to send after *error*: those of Spark Connect again, or the failure where one was refused.

    A scheduler would refuse the same answer again. Requests for logs do not wait for long.
    """
    replies = [answer for answer in answers if answer.HasField("connect")]
    if isinstance(error, UnknownExecutorError | SchedulerUnreachableError):
        return replies
    why = f"the answer cannot be passed on: {error}"
    failure = pb.ConnectReply(failure=pb.ConnectFailure(error_class=type(error).__name__, message=why))
    return [
        pb.RequestAnswer(number=reply.number, connect=failure)
        for reply in replies
        if not reply.connect.HasField("failure")
    ]
