"""Sends requests to a cluster: with a deadline, to a member that answers, and again where that is safe.

A request that only reads, or whose repetition changes nothing more, is sent until the time is over. Any other request
is sent again only while it certainly did nothing. For that, a member that may not be connected is asked for its status
first, and a failure after the request went out ends as `OutcomeUnknownError`.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import grpc
import structlog
from aetcd import rpc

from onager.errors import OutcomeUnknownError, StateFullError, StateUnavailableError
from onager.state_backend.etcd.endpoints import Endpoint, Endpoints
from onager.state_backend.etcd.failures import Meaning, access_refused, meaning, refusal
from onager.state_backend.etcd.reasons import reason
from onager.state_backend.etcd.url import EtcdUrl
from onager.supervision import is_cancelled

log = structlog.get_logger(__name__)

T = TypeVar("T")
Metadata = grpc.aio.Metadata
Send = Callable[[Endpoint, float, Metadata], Awaitable[T]]
"""Sends a request to a member with a deadline in seconds and metadata."""

_FULL: Final = (
    "etcd's database reached its quota, and takes no more writes until space is made: compact, defragment, and disarm "
    "the alarm (etcdctl compact --physical, etcdctl defrag, etcdctl alarm disarm), or raise --quota-backend-bytes"
)
_PAUSE_S: Final = 0.05
_CONNECT_S: Final = 1.0
# Without a leader a member refuses at once, and so certainly did nothing.
_HAS_LEADER: Final = ("hasleader", "true")


def unary(call_of: Callable[[Endpoint], Callable[..., Awaitable[T]]], request: object) -> Send[T]:
    """Return what sends *request* by the call that *call_of* returns of a member."""

    async def send(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> T:
        return await call_of(endpoint)(request, timeout=timeout_s, metadata=metadata)

    return send


class Calls:
    """Sends requests as the user of *url*; several may be in flight."""

    def __init__(self, url: EtcdUrl) -> None:
        self._url = url
        self._endpoints = Endpoints(url)
        # Time for an attempt at each of a silent minority, and for one that is answered.
        self._attempt_s = url.timeout_s / max(2, len(url.endpoints) // 2 + 1)
        # Made once, since gRPC would convert a tuple for each call.
        self._metadata = Metadata(_HAS_LEADER)
        self._token = Metadata()
        self._has_token = False
        self._authenticating = asyncio.Lock()
        self._is_full = False
        self._is_closed = False

    @property
    def url(self) -> EtcdUrl:
        """The URL of the cluster, with the user to be."""
        return self._url

    @property
    def timeout_s(self) -> float:
        """The longest that a call may take."""
        return self._url.timeout_s

    async def read(self, send: Send[T]) -> T:
        """Send a request that may be sent any number of times.

        `StateUnavailableError`, which names each endpoint and its failure, when none answered in time.
        """
        return await self._call(send, is_repeatable=True)

    async def write(self, send: Send[T], *, needs_space: bool = True) -> T:
        """Send a request that must not be carried out twice; a full database still takes one with *needs_space* false.

        `OutcomeUnknownError` when it may have been carried out; `StateUnavailableError` and `StateFullError` when not.
        """
        if needs_space and self._is_full:
            await self._check_full()
        return await self._call(send, is_repeatable=False)

    async def connected(self) -> tuple[Endpoint, Metadata]:
        """Return a member that answers, for a stream, and the metadata to open it with."""

        async def ask(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> tuple[Endpoint, Metadata]:
            if not endpoint.is_connected:
                await self._probe(endpoint, timeout_s)
            return endpoint, metadata

        return await self.read(ask)

    async def alarms(self) -> Sequence[Any]:
        """Return the alarms of the members."""
        request = rpc.AlarmRequest(action=rpc.AlarmRequest.GET)
        answer: Any = await self.read(unary(lambda member: member.maintenance.Alarm, request))
        alarms: Sequence[Any] = answer.alarms
        return alarms

    def leave(self, endpoint: Endpoint) -> None:
        """Use another member: a stream to *endpoint* failed."""
        self._endpoints.leave(endpoint)

    def forget_token(self) -> None:
        """Authenticate again before the next request."""
        self._has_token = False

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        await self._endpoints.close()

    # -- one call

    async def _call(self, send: Send[T], *, is_repeatable: bool) -> T:
        try:
            return await self._attempts(send, is_repeatable=is_repeatable)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # Closing the channel cancelled the call; the caller was not cancelled.
            cut = StateUnavailableError if is_repeatable else OutcomeUnknownError
            raise cut("the connection to the state backend was closed during a call") from None

    async def _attempts(self, send: Send[T], *, is_repeatable: bool) -> T:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._url.timeout_s
        failures: dict[str, str] = {}
        for attempt in itertools.count(1):
            if self._is_closed:
                raise StateUnavailableError("the state backend is closed")
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            endpoint = self._endpoints.current
            timeout_s = min(left_s, self._attempt_s)
            is_perhaps_done = False
            metadata = self._metadata
            try:
                await self._prepare(endpoint, timeout_s, must_be_connected=not is_repeatable)
                is_perhaps_done = not is_repeatable
                metadata = self._metadata
                answer = await send(endpoint, timeout_s, metadata)
            except rpc.AioRpcError as error:
                # An attempt that had hardly any time left must not hide an earlier reason.
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or endpoint.address not in failures:
                    failures[endpoint.address] = self._error_text(error)
                self._judge(error, endpoint, metadata, is_perhaps_done=is_perhaps_done)
            else:
                if endpoint.is_failing:
                    endpoint.is_failing = False
                    log.info("etcd_endpoint_answers_again", endpoint=endpoint.address)
                return answer
            if attempt % len(self._endpoints) == 0:
                await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline_s - loop.time())))
        failures = dict.fromkeys(self._url.endpoints, "there was no time left to ask it") | failures
        reasons = "; ".join(f"{address}: {why}" for address, why in failures.items())
        raise StateUnavailableError(
            f"no etcd answered within {self._url.timeout_s:g} s: {reasons}; is etcd running there? (--backend)"
        )

    async def _prepare(self, endpoint: Endpoint, timeout_s: float, *, must_be_connected: bool) -> None:
        if not self._has_token and self._url.user is not None:
            await self._authenticate(endpoint, timeout_s)
        if must_be_connected and not endpoint.is_connected:
            await self._probe(endpoint, min(timeout_s, _CONNECT_S))

    def _judge(self, error: rpc.AioRpcError, endpoint: Endpoint, used: Metadata, *, is_perhaps_done: bool) -> None:
        """Return when the call shall be sent again, switching members if that helps; else raise."""
        match meaning(error, has_user=self._url.user is not None):
            case Meaning.REFUSED:
                raise refusal(error, endpoint.address, self._url) from error
            case Meaning.TOKEN:
                # Of many calls that are refused with one token, only the first gets a new one.
                if used is self._metadata:
                    self._has_token = False
            case Meaning.FULL:
                self._is_full = True
                if is_perhaps_done:
                    raise OutcomeUnknownError(f"{_FULL} (etcd at {endpoint.address})") from error
                raise StateFullError(f"{_FULL} (etcd at {endpoint.address})") from error
            case Meaning.NOT_NOW:
                self._endpoints.leave(endpoint)
            case Meaning.UNKNOWN:
                self._endpoints.leave(endpoint)
                if not endpoint.is_failing:
                    endpoint.is_failing = True
                    log.warning("etcd_endpoint_failed", endpoint=endpoint.address, error=self._error_text(error))
                if is_perhaps_done:
                    raise OutcomeUnknownError(f"etcd at {endpoint.address}: {self._error_text(error)}") from error

    def _error_text(self, error: rpc.AioRpcError) -> str:
        return reason(error, self._url.tls)

    async def _probe(self, endpoint: Endpoint, timeout_s: float) -> None:
        """Connect; raise the reason when that fails."""
        await endpoint.maintenance.Status(rpc.StatusRequest(), timeout=timeout_s, metadata=self._token)

    async def _authenticate(self, endpoint: Endpoint, timeout_s: float) -> None:
        async with self._authenticating:
            if self._has_token:
                return
            request = rpc.AuthenticateRequest(name=self._url.user, password=self._url.password)
            try:
                answer = await endpoint.auth.Authenticate(request, timeout=timeout_s)
            except rpc.AioRpcError as error:
                text = error.details() or ""
                if text.startswith("etcdserver: authentication is not enabled"):
                    log.warning("etcd_has_no_users", endpoint=endpoint.address, user=self._url.user)
                    self._take_token()
                    return
                if text.startswith("etcdserver: authentication failed"):
                    raise access_refused(text, endpoint.address, self._url) from error
                raise
            self._take_token(("token", answer.token))

    def _take_token(self, *token: tuple[str, str]) -> None:
        self._metadata = Metadata(_HAS_LEADER, *token)
        self._token = Metadata(*token)
        self._has_token = True

    async def _check_full(self) -> None:
        """Raise `StateFullError` while the alarm is up: then a write certainly does nothing."""
        if any(alarm.alarm == rpc.NOSPACE for alarm in await self.alarms()):
            raise StateFullError(_FULL)
        self._is_full = False
