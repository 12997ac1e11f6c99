"""Calls to any scheduler that answers: deadlines, retries, and fail-over from one address to the next.

Every call of the protocol is idempotent (a submission carries its job id), so a broken call is repeated at the next
address. If no scheduler has ever answered, calls fail after `connect_timeout_s`; if one has, they are retried for
`retry_timeout_s`, because it is probably restarting.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import grpc
from grpc import StatusCode
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_before_delay, wait_random_exponential

from onager.errors import InvalidSettingError, OnagerError
from onager.protocol.onager_pb2_grpc import OnagerSchedulerStub
from onager.protocol.security import ClientAccess, ClientSecurity
from onager.protocol.spark_connect import METHODS, SERVICE, answer_of

T = TypeVar("T")

CALL_DEADLINE_S: Final = 20.0
"""How long one unary call may take before the next address is tried."""

STREAM_DEADLINE_S: Final = 300.0
"""How long one stream may last before it is reopened where it stopped."""

_BROKEN: Final = frozenset(
    {
        StatusCode.UNAVAILABLE,
        StatusCode.DEADLINE_EXCEEDED,
        # A server that shuts down cancels its calls; the client ignores calls that it cancels itself.
        StatusCode.CANCELLED,
        # A write with an unknown outcome, or one that lost too many races.
        StatusCode.ABORTED,
    }
)
_SOUND_STREAM_S: Final = 1.0
_REOPEN_WAIT_S: Final = 0.05
_RESET_DETAILS: Final = ("RST_STREAM", "Stream removed", "Connection reset", "GOAWAY")


class BrokenCallError(Exception):
    """One attempt at every address failed; holds the last error."""

    def __init__(self, address: str, cause: grpc.RpcError) -> None:
        super().__init__(str(cause))
        self.address = address
        self.cause = cause


def parse_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return the addresses in ``"host:port,host:port"``; raises `InvalidSettingError` for anything else."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise InvalidSettingError("scheduler", text, "expected host:port, or several separated by commas")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:  # noqa: PLR2004 - the range of ports
            raise InvalidSettingError("scheduler", address, "expected host:port with a port from 1 to 65535")
    return addresses


class Connection:
    """Channels to the given schedulers, of which one is used at a time; thread-safe."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        security: ClientSecurity | None = None,
        *,
        connect_timeout_s: float = 3.0,
        retry_timeout_s: float = 60.0,
    ) -> None:
        self.addresses = parse_addresses(addresses)
        self._access = ClientAccess(security or ClientSecurity(), self.addresses)
        self._connect_timeout_s = connect_timeout_s
        self._retry_timeout_s = retry_timeout_s
        self._channels = [self._access.channel(address) for address in self.addresses]
        self._stubs = [_stub(channel) for channel in self._channels]
        self._lock = threading.Lock()
        self._current = 0
        self._has_answered = False
        self._closing = threading.Event()

    def close(self) -> None:
        """Close every channel; in-flight calls fail."""
        self._closing.set()
        for channel in self._channels:
            channel.close()

    def call(self, method: str, request: Any, *, deadline_s: float = CALL_DEADLINE_S) -> Any:
        """Return the answer to *request* from the first scheduler that gives one.

        Raises the scheduler's own error, or `SchedulerUnreachableError`.
        """
        return self._retrying()(self._on_any, lambda stub: getattr(stub, method)(request, timeout=deadline_s))

    def call_connect(self, method: str, request: Callable[[], Any], *, deadline_s: float = CALL_DEADLINE_S) -> Any:
        """Return the answer to a call of Spark Connect; *request* makes the request, or the stream of requests.

        Errors as in `call`.
        """
        return self._retrying()(self._on_any, lambda stub: stub.of_connect(method)(request(), timeout=deadline_s))

    def pages(self, method: str, request: Any) -> Iterator[Any]:
        """Yield the answers to *request*, each of which says in `next` where the rest begins, until one is the last."""
        while True:
            answer = self.call(method, request)
            yield answer
            if not answer.next:
                return
            request.cursor = answer.next

    def stream(self, open_stream: Callable[[Any, float], Iterator[T]]) -> Iterator[T]:
        """Yield the messages of a stream, which is reopened, at the next address, whenever it breaks.

        *open_stream* takes a stub and a deadline in seconds, and resumes the stream after the last message that the
        caller has processed. A stream that lasted for a second or more resets the retry timeout.
        """
        trouble_since_s: float | None = None
        while True:
            opened_s = time.monotonic()
            messages = self._retrying()(self._first, open_stream)
            try:
                yield from messages
            except BrokenCallError as broken:
                now_s = time.monotonic()
                if now_s - opened_s >= _SOUND_STREAM_S:
                    trouble_since_s = None
                elif trouble_since_s is None:
                    trouble_since_s = now_s
                elif now_s - trouble_since_s > self._retry_timeout_s:
                    raise self._unreachable(broken) from broken.cause
                self._closing.wait(_REOPEN_WAIT_S)
                continue
            return

    def _first(self, open_stream: Callable[[Any, float], Iterator[T]]) -> Iterator[T]:
        """Open a stream and wait for its first message, so that a dead address fails here and is retried."""
        call, first = self._on_any(lambda stub: _opened(open_stream(stub, STREAM_DEADLINE_S)))
        return self._messages(call, first)

    def _messages(self, call: Any, first: list[T]) -> Iterator[T]:
        index = self._current
        try:
            yield from first
            yield from call
        except grpc.RpcError as error:
            if self._closing.is_set() or not _is_broken(error):
                raise self._access.error_of(error, self.addresses[index]) from error
            self._move_on(index)
            raise BrokenCallError(self.addresses[index], error) from error
        finally:
            if hasattr(call, "cancel"):
                call.cancel()

    def _on_any(self, attempt: Callable[[Any], T]) -> T:
        """Make one attempt at each address, starting with the current one."""
        failure: BrokenCallError | None = None
        for _ in self.addresses:
            index = self._current
            try:
                answer = attempt(self._stubs[index])
            except grpc.RpcError as error:
                if self._closing.is_set() or not _is_broken(error):
                    self._has_answered = True
                    raise self._access.error_of(error, self.addresses[index]) from error
                failure = BrokenCallError(self.addresses[index], error)
                failure.__cause__ = error
                self._move_on(index)
            else:
                self._has_answered = True
                return answer
        assert failure is not None
        raise failure

    def _move_on(self, index: int) -> None:
        with self._lock:
            if self._current == index:
                self._current = (index + 1) % len(self.addresses)

    def _retrying(self) -> Retrying:
        patience_s = self._retry_timeout_s if self._has_answered else self._connect_timeout_s
        return Retrying(
            retry=retry_if_exception_type(BrokenCallError),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            stop=stop_before_delay(patience_s),
            sleep=self._pause,
            retry_error_callback=self._give_up,
        )

    def _pause(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def _give_up(self, state: RetryCallState) -> Any:
        failure = state.outcome.exception() if state.outcome else None
        assert isinstance(failure, BrokenCallError)
        raise self._unreachable(failure) from failure.cause

    def _unreachable(self, failure: BrokenCallError) -> OnagerError:
        """Return the error to raise when retries end: the scheduler's own error if there is one."""
        return self._access.error_of(failure.cause, ",".join(self.addresses))


def _stub(channel: grpc.Channel) -> Any:
    """Return the methods of a scheduler; `of_connect` has those of Spark Connect that have one answer."""
    stub: Any = OnagerSchedulerStub(channel)

    def of_connect(method: str) -> Any:
        kind = channel.stream_unary if METHODS[method].client_streaming else channel.unary_unary
        return kind(f"/{SERVICE}/{method}", lambda request: request.SerializeToString(), answer_of(method).FromString)

    stub.of_connect = of_connect
    return stub


def _opened(call: Any) -> tuple[Any, list[Any]]:
    try:
        return call, [next(call)]
    except StopIteration:
        return call, []


def _is_broken(error: grpc.RpcError) -> bool:
    if not isinstance(error, grpc.Call):
        return False
    if error.code() in _BROKEN:
        return True
    details = error.details() or ""
    return error.code() in {StatusCode.INTERNAL, StatusCode.UNKNOWN} and any(text in details for text in _RESET_DETAILS)
