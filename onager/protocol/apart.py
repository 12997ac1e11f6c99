"""Work on large requests, outside of the event loop: a small pool of its own, so that it delays nobody's calls.

Python runs one thread at a time, so what is done here has to be made of steps that take little time each; and large
requests lie in memory, so only so many bytes of them are taken at once.
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
"""What is smaller is worked off at once."""
_THREADS: Final = 2
_BYTES_AT_ONCE: Final = 2 * MAX_MESSAGE_BYTES

_P = ParamSpec("_P")
_R = TypeVar("_R")
_pool: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="large-requests")


async def apart(size_bytes: int, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Return what *work* returns: done at once for what is small, else in the pool."""
    if size_bytes < LARGE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(work, *args, **kwargs))


class Room:
    """How many bytes of large requests of one kind of caller a process may have in hand."""

    def __init__(self, most_bytes: int = _BYTES_AT_ONCE) -> None:
        self._left = most_bytes

    @contextmanager
    def taken(self, size_bytes: int) -> Iterator[None]:
        """Keep room for a request while it is worked off; `BusyError` when there is none."""
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
