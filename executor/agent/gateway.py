"""The executor's side of the wire: calls that any scheduler may answer, and blobs by their digest."""

import asyncio
import hashlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc
import structlog

from onager.clock import Clock, SystemClock
from onager.errors import OnagerError, SchedulerUnreachableError, StateCorruptError, TlsError
from onager.executor.agent.reply_channels import ReplyChannels, is_elsewhere_better
from onager.ids import BlobDigest
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayStub
from onager.protocol.security import ClientAccess, ClientSecurity

_BLOB_TIMEOUT_S = 60.0

log = structlog.get_logger()


class SchedulerGateway:
    """Calls the scheduler that answered last; if it does not answer, each of the others once.

    The other side is `onager.scheduler.api.gateway.ExecutorGateway`, which has the methods that `_call` names.

    If a scheduler does not answer one call, and another scheduler does, the other calls that wait for the first are
    given up, too, and made elsewhere: otherwise each of them would notice a hung scheduler in its own time. If none
    answers, they go on waiting: all schedulers are slow, and repeated calls would make them slower.

    Every call raises the error that the scheduler raised, `SchedulerUnreachableError` when none answered, or `TlsError`
    if that was because no safe connection to the last one was made. It is unknown whether a call that failed so was
    carried out: all calls may be repeated.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        access: ClientAccess | None = None,
        *,
        first: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """Begin with the address at index *first*, modulo their number: so executors spread over the schedulers."""
        self._addresses = addresses
        self.access = self._access = access or ClientAccess(ClientSecurity(), addresses)
        self._channels = [self._access.aio_channel(address) for address in addresses]
        self._stubs = [OnagerExecutorGatewayStub(channel) for channel in self._channels]
        self._current = first % len(addresses)
        self._patience: list[dict[asyncio.Timeout, None]] = [{} for _ in addresses]
        """The timeouts of the calls that wait for each address."""
        self._breaking: dict[int, asyncio.Task[None]] = {}
        """Tasks that end when the connection to an address breaks."""
        self._is_lost = False
        self._replies = ReplyChannels(self._access, clock or SystemClock())

    @property
    def addresses(self) -> str:
        """Return the addresses as text for people."""
        return ",".join(self._addresses)

    async def register(self, request: pb.RegisterExecutorRequest, timeout_s: float) -> pb.RegisterExecutorResponse:
        """Register this executor.

        `VersionMismatchError`, `ExecutorReplacedError` or `InvalidRequestError` when it can never work there.
        """
        answer: pb.RegisterExecutorResponse = await self._call("RegisterExecutor", request, timeout_s)
        return answer

    async def heartbeat(self, request: pb.HeartbeatRequest, timeout_s: float) -> pb.HeartbeatResponse:
        """Renew the lease; the answer names tasks that are no longer wanted."""
        answer: pb.HeartbeatResponse = await self._call("Heartbeat", request, timeout_s)
        return answer

    async def poll(
        self, request: pb.PollWorkRequest, timeout_s: float, again: Callable[[], pb.PollWorkRequest] | None = None
    ) -> pb.PollWorkResponse:
        """Wait for work; schedulers after the first get the request of *again*, with a later list.

        A scheduler that did not answer may have launched something, which the list that it got does not disprove.
        """
        answer: pb.PollWorkResponse = await self._call("PollWork", request, timeout_s, again)
        return answer

    async def wait_for_call(self, called: "asyncio.Future[Any]", timeout_s: float) -> None:
        """Wait until the scheduler that was polled has *called*, its connection is broken, or *timeout_s* is over."""
        at = self._current
        # One task for all waits: gRPC keeps each waiter for a change of state until there is one.
        if at not in self._breaking or self._breaking[at].done():
            connected = self._channels[at].wait_for_state_change(grpc.ChannelConnectivity.READY)
            self._breaking[at] = asyncio.create_task(connected, name=f"connection to {self._addresses[at]}")
        try:
            async with asyncio.timeout(None) as patience:
                self._patience[at][patience] = None
                ends = (called, self._breaking[at])
                try:
                    await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    self._patience[at].pop(patience, None)
        except TimeoutError:
            return

    async def report(self, request: pb.ReportTasksRequest, timeout_s: float) -> pb.ReportTasksResponse:
        """Report the outcomes of tasks.

        Only our word says that the slots are free: a scheduler that did not answer may have filled them, so they are
        not offered to another. The next poll offers them, and its list shows which launches were lost.
        """
        again = pb.ReportTasksRequest()
        again.CopyFrom(request)
        again.freed_slots = 0
        answer: pb.ReportTasksResponse = await self._call("ReportTasks", request, timeout_s, lambda: again)
        return answer

    def next_address(self, address: str) -> str:
        """Return the scheduler after the one at *address*, or after the one that answered last; empty: there is one."""
        if len(self._addresses) == 1:
            return ""
        at = self._addresses.index(address) if address in self._addresses else self._current
        return self._addresses[(at + 1) % len(self._addresses)]

    def is_passed_over(self, address: str) -> bool:
        """Return whether the scheduler at *address* did not answer lately, so that another one is asked at once."""
        return self._replies.is_passed_over(address)

    async def report_to(self, address: str, request: pb.ReportTasksRequest) -> pb.ReportTasksResponse | None:
        """Report outcomes to the scheduler at *address*; None when it does not answer."""
        return await self._replies.report(address, request)

    async def await_requests(self, request: pb.AwaitRequestsRequest, timeout_s: float) -> pb.AwaitRequestsResponse:
        """Wait for requests to this executor besides tasks."""
        answer: pb.AwaitRequestsResponse = await self._call("AwaitRequests", request, timeout_s)
        return answer

    async def read_catalog(self, request: pb.ReadCatalogRequest, timeout_s: float) -> pb.ReadCatalogResponse:
        """Return records of the catalog."""
        answer: pb.ReadCatalogResponse = await self._call("ReadCatalog", request, timeout_s)
        return answer

    async def begin_attempt(self, request: pb.BeginAttemptRequest, timeout_s: float) -> pb.BeginAttemptResponse:
        """Begin an attempt of a program; `NotFoundError` when its job does not want it here."""
        answer: pb.BeginAttemptResponse = await self._call("BeginAttempt", request, timeout_s)
        return answer

    async def end_attempt(self, request: pb.EndAttemptRequest, timeout_s: float) -> None:
        """Say that a program has ended by itself; `AttemptSupersededError` when another attempt counts."""
        await self._call("EndAttempt", request, timeout_s)

    async def deregister(self, request: pb.DeregisterExecutorRequest, timeout_s: float) -> None:
        """Say that this incarnation is over."""
        await self._call("DeregisterExecutor", request, timeout_s)

    async def fetch_blob(self, digest: BlobDigest) -> bytes:
        """Return the blob of *digest*; `StateCorruptError` when the received content has another digest."""
        chunks: list[bytes] = await self._call("FetchBlob", pb.FetchBlobRequest(digest=digest), _BLOB_TIMEOUT_S)
        content = b"".join(chunks)
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise StateCorruptError(
                f"the blob {digest} came with content of digest {found}; it is damaged in the store"
            )
        return content

    async def _call(
        self, method: str, request: object, timeout_s: float, again: Callable[[], object] | None = None
    ) -> Any:
        """Return the first answer; schedulers after the first get what *again* returns, if it is given."""
        reasons = []
        silent: list[int] = []
        unsafe: TlsError | None = None
        for _ in self._addresses:
            at = self._current
            try:
                answer = await self._call_at(at, method, request, timeout_s)
            except grpc.aio.AioRpcError as e:
                error = self._access.error_of(e, self._addresses[at])
                if not is_elsewhere_better(e, error):
                    self._give_up_calls(silent)
                    raise error from e
                unsafe = error if isinstance(error, TlsError) else None
                reasons.append(str(unsafe) if unsafe else f"{self._addresses[at]}: {e.details() or e.code().name}")
                if self._current == at:
                    self._current = (at + 1) % len(self._addresses)
                silent.append(at)
            except TimeoutError:
                reasons.append(f"{self._addresses[at]}: it does not answer other calls")
            else:
                self._give_up_calls(silent)
                self._note(is_lost=False)
                return answer
            request = request if again is None else again()
        self._note(is_lost=True, why="; ".join(reasons))
        raise unsafe or SchedulerUnreachableError(self.addresses, "; ".join(reasons))

    async def _call_at(self, at: int, method: str, request: object, timeout_s: float) -> Any:
        """Call one scheduler; `TimeoutError` when the call is given up because another call failed."""
        async with asyncio.timeout(None) as patience:
            self._patience[at][patience] = None
            try:
                call = getattr(self._stubs[at], method)(request, timeout=timeout_s, metadata=self._access.metadata())
                return [chunk.content async for chunk in call] if method == "FetchBlob" else await call
            finally:
                self._patience[at].pop(patience, None)

    def _give_up_calls(self, silent: list[int]) -> None:
        """Give up the calls that wait for schedulers that were silent, now that another one has answered."""
        for at in silent:
            if at != self._current:
                waiting, self._patience[at] = self._patience[at], {}
                for patience in waiting:
                    patience.reschedule(asyncio.get_running_loop().time())

    def _note(self, *, is_lost: bool, why: str = "") -> None:
        if is_lost and not self._is_lost:
            log.warning("schedulers_lost", addresses=self.addresses, why=why)
        elif self._is_lost and not is_lost:
            log.info("scheduler_found", address=self._addresses[self._current])
        self._is_lost = is_lost

    async def close(self) -> None:
        """Close every connection; calls in flight end."""
        for breaking in self._breaking.values():
            breaking.cancel()
        await asyncio.gather(*self._breaking.values(), return_exceptions=True)
        for channel in self._channels:
            await channel.close(None)
        await self._replies.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def tell(logger: structlog.typing.FilteringBoundLogger, event: str, error: OnagerError, **fields: object) -> None:
    """Log a call that failed and will be repeated; the gateway itself logs once that no scheduler answers."""
    if isinstance(error, SchedulerUnreachableError):
        logger.debug(event, error=str(error), **fields)
    else:
        logger.warning(event, error=str(error), **fields)
