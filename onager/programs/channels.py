"""The way to the schedulers: a channel to one of them at a time."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc.experimental import ChannelOptions

from onager.programs.terms import Terms

PROGRAM_HEADER = "onager-program"
ERROR = "onager-error-bin"
_WITHOUT_S = 60
"""How long the only scheduler may not be reached before another channel is made, which looks for its address again."""


class Way:
    """A stub of one of the schedulers, and of the next one when that is not reached.

    Each channel resolves its scheduler's name, and reads the certificates, anew. It checks the certificate of this
    scheduler alone. What runs over an earlier channel goes on.
    """

    def __init__(self, addresses: Sequence[str], connect: Callable[[str], Any]) -> None:
        self._addresses = addresses
        self._connect = connect
        self._lock = threading.Lock()
        self._number = 0
        self._made_s = time.monotonic()
        self.stub = connect(addresses[0])
        """The stub to use now."""

    def failed(self, stub: Any, error: Any) -> None:
        """Take in that a call by *stub* has failed."""
        if not _is_of_way(error):
            return
        with self._lock:
            now_s = time.monotonic()
            is_only = len(self._addresses) == 1
            if stub is not self.stub or (is_only and now_s - self._made_s < _WITHOUT_S):
                return
            self._number = (self._number + 1) % len(self._addresses)
            self.stub, self._made_s = self._connect(self._addresses[self._number]), now_s

    def close(self) -> None:
        """Do nothing when a session of PySpark's ends: the others use the channel, too."""


def _is_of_way(error: Any) -> bool:
    """Return whether a scheduler was not reached, or stops."""
    trailing = dict(error.trailing_metadata() or ())
    name = str(json.loads(trailing[ERROR]).get("class", "")) if ERROR in trailing else "SchedulerUnreachableError"
    return bool(error.code() is grpc.StatusCode.UNAVAILABLE and name == "SchedulerUnreachableError")


def way(terms: Terms, options: Sequence[tuple[str, Any]], make: Callable[[Any], Any]) -> Way:
    """Return the way by channels with *options* of gRPC's; *make* makes a stub of a channel."""
    files = {name: Path(path) for name, path in terms.files.items()}
    token = _token(files)
    shown = ((PROGRAM_HEADER, f"{terms.program_id}/{terms.attempt}/{terms.secret}"),)

    options = [*options, (ChannelOptions.SingleThreadedUnaryStream, 1)]  # else each stream starts a thread

    def connect(address: str) -> Any:
        if "tls_ca" not in files:
            channel = grpc.insecure_channel(address, options=options)
        else:
            content = [
                files[name].read_bytes() if name in files else None for name in ("tls_ca", "tls_key", "tls_cert")
            ]
            channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(*content), options=options)
        return make(grpc.intercept_channel(channel, _Shown(lambda: (*shown, *token()))))

    return Way(terms.addresses, connect)


def _token(files: dict[str, Path]) -> Callable[[], tuple[tuple[str, str], ...]]:
    """Return what gives the metadata that shows the token, as its file has it now."""
    if not files:
        return lambda: ()
    from onager.protocol.security import ClientAccess, ClientSecurity

    return ClientAccess(ClientSecurity(**files, insecure=True), ()).metadata  # who gave the terms has checked the rest


class _Shown(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Shows with every call which attempt makes it, and the token as its file has it now."""

    def __init__(self, shown: Callable[[], Any]) -> None:
        self._shown = shown

    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        return go_on(_Details(details, self._shown()), request)

    intercept_unary_stream = intercept_stream_unary = intercept_unary_unary


class _Details(grpc.ClientCallDetails):
    def __init__(self, given: Any, shown: Any) -> None:
        self.method, self.timeout, self.credentials = given.method, given.timeout, given.credentials
        self.wait_for_ready, self.compression = given.wait_for_ready, given.compression
        self.metadata = [*(given.metadata or ()), *shown]
