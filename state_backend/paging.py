"""Listings of any length, page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from onager.state_backend.model import Keyspace, KeyValue, Page

_T = TypeVar("_T", str, KeyValue)


async def each_page(
    scan: Callable[..., Awaitable[Page[_T]]],
    keyspace: Keyspace,
    prefix: str = "",
    *,
    limit: int = 1_000,
    start_after: str | None = None,
) -> AsyncIterator[Page[_T]]:
    """Yield all that is below *prefix* and comes after *start_after*, in pages of up to *limit*.

    *scan* is the `scan` or `scan_keys` of a `StateBackendClient`. Each page is as of its own revision.
    """
    while True:
        page = await scan(keyspace, prefix, limit=limit, start_after=start_after)
        yield page
        if not page.has_more:
            return
        last = page.items[-1]
        start_after = last if isinstance(last, str) else last.key
