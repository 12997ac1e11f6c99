"""Channels over TLS whose certificates and authorities are read again when their files change.

gRPC reads them once for a channel. So a changed file means another channel: new calls begin there, and those that run
go on where they are.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import grpc

from onager.errors import InvalidSettingError
from onager.lazy_logger import LazyLogger

_LOOK_EVERY_S: Final = 1.0
"""How often the files are looked at, at most."""

log = LazyLogger()


class RenewedCredentials:
    """The credentials in *files*, read by *read* now and whenever one of them has changed; thread-safe."""

    def __init__(self, files: Sequence[Path], read: Callable[[], grpc.ChannelCredentials]) -> None:
        """Read them; raises what *read* raises."""
        self._files = files
        self._read = read
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._next_look_s = time.monotonic() + _LOOK_EVERY_S
        self._now = read()

    def current(self) -> grpc.ChannelCredentials:
        """Return what the files hold; the same object while they do not change, or cannot be used."""
        if time.monotonic() < self._next_look_s:
            return self._now
        with self._lock:
            self._next_look_s = time.monotonic() + _LOOK_EVERY_S
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps  # a file that cannot be used is tried again when it changes
                try:
                    self._now = self._read()
                    log.info("certificates_read_again", file=str(self._files[0]))
                except InvalidSettingError as error:
                    log.warning("certificates_not_read_again", error=str(error))
            return self._now

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files]


class RenewedChannel:
    """A channel, for blocking calls or for asyncio, that *open_channel* opens again for other credentials."""

    def __init__(self, credentials: RenewedCredentials, open_channel: Callable[[grpc.ChannelCredentials], Any]) -> None:
        self._credentials = credentials
        self._open = open_channel
        self._lock = threading.Lock()
        self._retired: list[Any] = []
        self._with = credentials.current()
        self._channel = open_channel(self._with)

    def current(self) -> Any:
        """Return the channel for calls that begin now."""
        if self._credentials.current() is not self._with:
            with self._lock:
                wanted = self._credentials.current()
                if wanted is not self._with:
                    self._retired.append(self._channel)  # its calls go on
                    self._with, self._channel = wanted, self._open(wanted)
        return self._channel

    def unary_unary(self, *given: Any, **options: Any) -> Any:
        """Return a method of a service. None of our services takes a stream of requests."""
        return _Method(self, lambda channel: channel.unary_unary(*given, **options))

    def unary_stream(self, *given: Any, **options: Any) -> Any:
        """Return a method."""
        return _Method(self, lambda channel: channel.unary_stream(*given, **options))

    def close(self, *grace: float | None) -> Awaitable[None] | None:
        """Close all of its channels; for asyncio, the result has to be awaited."""
        closed = [channel.close(*grace) for channel in (*self._retired, self._channel)]
        return None if closed[-1] is None else _all(closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(None)  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        """Return what else the channel offers, such as its state."""
        return getattr(self.current(), name)


class _Method:
    """A method of a service, called at the channel of the moment."""

    def __init__(self, channel: RenewedChannel, make: Callable[[Any], Any]) -> None:
        self._channel = channel
        self._make = make
        self._of = channel.current()
        self._made = make(self._of)

    def _current(self) -> Any:
        channel = self._channel.current()
        if channel is not self._of:
            self._of, self._made = channel, self._make(channel)
        return self._made

    def __call__(self, *given: Any, **options: Any) -> Any:
        return self._current()(*given, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def _all(closed: Sequence[Awaitable[None]]) -> None:
    for one in closed:
        await one
