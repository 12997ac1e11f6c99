"""Handles large requests outside of the event loop, in a small pool of its own, so that they delay no other calls.

Python runs one thread at a time, so the work here has to consist of short steps. Large requests are held in memory, so
the total of their bytes is limited.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, Self, TypeVar

from onager.errors import BusyError
from onager.protocol.limits import MAX_MESSAGE_BYTES

LARGE_BYTES: Final = 64 * 1024
"""Smaller requests are handled at once."""
_THREADS: Final = 2
_BYTES_AT_ONCE: Final = 2 * MAX_MESSAGE_BYTES

_P = ParamSpec("_P")
_R = TypeVar("_R")
_pool: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="large-requests")


async def apart(size_bytes: int, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Return the result of *work*: run at once if the request is small, else in the pool."""
    if size_bytes < LARGE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(work, *args, **kwargs))


class Room:
    """Limits the bytes of large requests that a process handles at once for one kind of caller."""

    def __init__(self, most_bytes: int = _BYTES_AT_ONCE) -> None:
        self.left_bytes = most_bytes

    def taken(self, size_bytes: int) -> "Taken":
        """Reserve room for a request while it is handled; `BusyError` when there is none."""
        return _NOTHING if size_bytes < LARGE_BYTES else Taken(self, size_bytes)


class Taken:
    """A part of a room, until the block ends, or before that."""

    def __init__(self, room: Room, size_bytes: int) -> None:
        self._room = room
        self._size = size_bytes

    def __enter__(self) -> Self:
        if self._size > self._room.left_bytes:
            raise BusyError(f"other large requests are being worked off: this one of {self._size:,} bytes has to wait")
        self._room.left_bytes -= self._size
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Give the room back."""
        self._room.left_bytes += self._size
        self._size = 0


_NOTHING: Final = Taken(Room(), 0)
