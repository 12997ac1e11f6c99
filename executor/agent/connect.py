"""Requests of Spark Connect's sessions: a few calls wait for them at each scheduler, and bring the replies."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc
import structlog

from onager.errors import OnagerError, SchedulerUnreachableError, UnknownExecutorError, VersionMismatchError
from onager.executor.agent.backoff import Backoff, spread
from onager.executor.agent.gateway import tell
from onager.executor.agent.threads import Calls
from onager.executor.work import SparkLostError
from onager.ids import ExecutorId, Incarnation
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayStub
from onager.protocol.security import ClientAccess
from onager.supervision import unless_cut

AT_ONCE: Final = 4
"""Requests that are served at once, of each scheduler."""
_WAIT_MS: Final = 300_000
_CALL_TIMEOUT_S: Final = 10.0
_MOST_SCHEDULERS: Final = 32
_WITHOUT_S: Final = 60.0
"""How often schedulers of an earlier version are tried."""

log = structlog.get_logger()

Serve = Callable[[pb.ConnectCall], pb.ConnectReply]


class ConnectLanes:
    """The calls that wait at schedulers."""

    def __init__(
        self,
        access: ClientAccess,
        serve: Serve,
        *,
        executor_id: ExecutorId | str,
        incarnation: Incarnation,
        on_quiet: Callable[[], None] = lambda: None,
    ) -> None:
        """*serve* answers a request, in a thread; what it raises, but `SparkLostError`, is a defect.

        *on_quiet* is called when no request is being served any more.
        """
        self._access = access
        self._serve = serve
        self._on_quiet = on_quiet
        self._served = 0
        self._threads = Calls("connect", AT_ONCE)
        self._executor_id = executor_id
        self._incarnation = incarnation
        self._lanes: dict[str, asyncio.Task[None]] = {}

    @property
    def is_quiet(self) -> bool:
        """Whether no request is being served, even for a scheduler that has given it to another executor."""
        return not self._served

    async def _answered(self, call: pb.ConnectCall) -> pb.ConnectReply:
        work = asyncio.ensure_future(self._threads(self._serve, call))
        self._served += 1
        work.add_done_callback(self._note_end)  # the lane may be gone before
        return await asyncio.shield(work)

    def _note_end(self, work: "asyncio.Future[pb.ConnectReply]") -> None:
        if not work.cancelled():
            work.exception()  # it is the lane's, if there still is one
        self._served -= 1
        if self.is_quiet:
            self._on_quiet()

    def hear(self, addresses: Iterable[str]) -> None:
        """Wait at the schedulers at *addresses*, and no longer at others."""
        wanted = list(dict.fromkeys(addresses))[:_MOST_SCHEDULERS]
        for address in set(self._lanes) - set(wanted):
            self._lanes.pop(address).cancel()
        for address in wanted:
            if address not in self._lanes or self._lanes[address].done():
                self._lanes[address] = asyncio.create_task(self._wait_at(address), name=f"connect at {address}")

    async def _wait_at(self, address: str) -> None:
        channel: grpc.aio.Channel | None = None
        try:
            self._access.check(address)
            channel = self._access.aio_channel(address)
            stub = OnagerExecutorGatewayStub(channel)
            async with asyncio.TaskGroup() as lanes:
                for _ in range(AT_ONCE):
                    lanes.create_task(self._lane(address, stub))
        except* (OnagerError, SparkLostError) as errors:
            # Its scheduler sees the connection close, and asks another executor.
            log.warning("connect_not_served", scheduler=address, error=str(errors.exceptions[0]))
        finally:
            if channel is not None:
                await channel.close(None)

    async def _lane(self, address: str, stub: Any) -> None:
        backoff = Backoff(first_s=0.1, limit_s=2.0)
        reply: pb.ConnectReply | None = None
        while True:
            request = pb.AwaitConnectRequest(
                executor_id=self._executor_id, incarnation=self._incarnation, wait_ms=spread(_WAIT_MS), reply=reply
            )
            try:
                answer = await unless_cut(
                    stub.AwaitConnect(
                        request, timeout=_WAIT_MS / 1000 + _CALL_TIMEOUT_S, metadata=self._access.metadata()
                    ),
                    SchedulerUnreachableError(address, "its connection was closed"),
                )
            except grpc.aio.AioRpcError as raw:
                error = self._access.error_of(raw, address)
                if isinstance(error, VersionMismatchError):
                    await asyncio.sleep(_WITHOUT_S)
                    continue
                if not isinstance(error, UnknownExecutorError | SchedulerUnreachableError):
                    reply = _told(reply, error)
                    tell(log, "connect_not_awaited", error)
                await backoff.sleep()
                continue
            except OnagerError as error:
                tell(log, "connect_not_awaited", error)
                await backoff.sleep()
                continue
            backoff.reset()
            reply = await self._answered(answer.call) if answer.HasField("call") else None

    async def close(self) -> None:
        """End every call."""
        for lane in self._lanes.values():
            lane.cancel()
        await asyncio.gather(*self._lanes.values(), return_exceptions=True)
        self._threads.close()


def _told(reply: pb.ConnectReply | None, error: OnagerError) -> pb.ConnectReply | None:
    """Return what is replied instead of a reply that a scheduler refuses, and would refuse again."""
    if reply is None or reply.HasField("failure"):
        return None
    failure = pb.ConnectFailure(error_class=type(error).__name__, message=f"the answer cannot be passed on: {error}")
    return pb.ConnectReply(number=reply.number, failure=failure)
