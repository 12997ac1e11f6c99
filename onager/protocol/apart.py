"""Handles large requests outside of the event loop, in a small pool of its own, so that they delay no other calls.

Python runs one thread at a time, so the work here has to consist of short steps. Large requests are held in memory, so
the total of their bytes is limited.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, ParamSpec, TypeVar

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
        self._left = most_bytes

    @contextmanager
    def taken(self, size_bytes: int) -> Iterator[None]:
        """Reserve room for a request while it is handled; `BusyError` when there is none."""
        if size_bytes < LARGE_BYTES:
            yield
            return
        if size_bytes > self._left:
            raise BusyError(f"other large requests are being worked off: this one of {size_bytes:,} bytes has to wait")
        self._left -= size_bytes
        try:
            yield
        finally:
            self._left += size_bytes
