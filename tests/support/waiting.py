"""Waiting for what nobody tells of: the one place where tests look, pause and look again."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

HANGS_S: Final = 600.0
"""What takes longer hangs. Only a test that fails waits so long, so a slow or busy machine has time."""

FOR_EVER_S: Final = 100 * HANGS_S
"""What nobody should wait for is given so long that pytest's own limit comes before it."""

_PAUSES_S: Final = (0.01, 0.1)
"""The shortest and the longest pause between two looks."""


def _pause_s(since_s: float) -> float:
    """Return the pause after a look, for a wait that began at *since_s*: a tenth of it, since a look can cost much."""
    shortest, longest = _PAUSES_S
    return min(max(shortest, (time.monotonic() - since_s) / 10), longest)


def until(condition: Callable[[], T], what: str | Callable[[], str] = "", *, within_s: float = HANGS_S) -> T:
    """Return the first true value of *condition*; *what* names it, or says at the end how things stand."""
    began_s = time.monotonic()
    while True:
        is_over = time.monotonic() > began_s + within_s
        if found := condition():
            return found
        assert not is_over, _unmet(condition, within_s, what)
        time.sleep(_pause_s(began_s))


async def eventually(
    condition: Callable[[], T | Awaitable[T]], what: str | Callable[[], str] = "", *, within_s: float = HANGS_S
) -> T:
    """Do as `until`, but leave the event loop to others, and cut short a *condition* that itself waits."""
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(within_s) as limit:
            while True:
                found = condition()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(_pause_s(began_s))
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(_unmet(condition, within_s, what)) from error


def _unmet(condition: Callable[[], object], within_s: float, what: str | Callable[[], str]) -> str:
    name = getattr(condition, "__name__", repr(condition))
    source = inspect.getsource(condition).strip() if name == "<lambda>" else name
    return f"not within {within_s:g} s: {(what() if callable(what) else what) or source}"
