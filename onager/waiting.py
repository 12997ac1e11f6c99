"""Waits for events, for a limited time."""

import asyncio


async def is_set_within(event: asyncio.Event, limit_s: float | None) -> bool:
    """Wait until *event* is set, for *limit_s* at most, or without a limit; return whether it is set."""
    # Not `asyncio.wait_for`: before Python 3.12 it may swallow a cancellation, and then its caller cannot end.
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
