"""Pages of jobs' histories, encoded once for all readers at about the same time."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from onager.scheduler.http.coalescing import Coalesced

PAGE_EVENTS: Final = 1_000
"""About so many events are a page: batches are not cut."""
KEPT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of pages that are kept, of all jobs together."""
KEPT_S: Final = 10.0
"""How long a page is kept. A reader reads on within that time; later the job's id may be that of another job."""


class Kept(NamedTuple):
    """A batch of events, encoded as JSON objects, and their size in bytes."""

    position: int
    events: list[bytes]
    size: int


class Pages:
    """Reads each page once for all that wait for it, and keeps recent pages."""

    def __init__(self, read: Callable[[str, int], Awaitable[list[Kept]]]) -> None:
        """Read by *read*: batches of a job's log after a position, `PAGE_EVENTS` if there are that many."""
        self._read = read
        self._coalesced: Coalesced[list[Kept]] = Coalesced()
        self._pages: OrderedDict[tuple[str, int], tuple[int, list[Kept]]] = OrderedDict()
        """The pages, each with the number under which it was kept."""
        self._number = 0
        self._size = 0

    async def get(self, job_id: str, after: int) -> list[Kept]:
        """Return batches that follow the position *after* in a job's log; none at its end."""
        key = (job_id, after)
        known = self._known(key)
        if known is not None:
            return known

        async def read() -> list[Kept]:
            # Another caller may have read it meanwhile.
            if (known := self._known(key)) is not None:
                return known
            page = await self._read(job_id, after)
            if sum(len(batch.events) for batch in page) >= PAGE_EVENTS:  # else the log may go on after it
                self.put(job_id, after, page)
            return page

        return await self._coalesced.get(key, read)

    def _known(self, key: tuple[str, int]) -> list[Kept] | None:
        known = self._pages.get(key)
        if known is None:
            return None
        self._pages.move_to_end(key)
        return known[1]

    def put(self, job_id: str, after: int, page: list[Kept]) -> None:
        """Keep batches that follow the position *after* for some time; others may follow them."""
        key = (job_id, after)
        if key in self._pages:
            self._forget(key, self._pages[key][0])
        self._number += 1
        self._pages[key] = self._number, page
        self._size += _size(page)
        while self._size > KEPT_BYTES:
            _, (_, gone) = self._pages.popitem(last=False)
            self._size -= _size(gone)
        # It is named by its number: a timer would hold the page itself, even when others have taken its place.
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, key, self._number)

    def _forget(self, key: tuple[str, int], number: int) -> None:
        known = self._pages.get(key)
        if known is not None and known[0] == number:
            del self._pages[key]
            self._size -= _size(known[1])


def _size(page: list[Kept]) -> int:
    return sum(batch.size for batch in page)
