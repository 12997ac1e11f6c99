"""Whether the exchange has space, once a task has found none: until then no work is taken."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from onager.errors import ExchangeFullError, OnagerError
from onager.executor.agent.backoff import Backoff

_FIRST_S: Final = 0.5
_LONGEST_S: Final = 5.0


class SpaceWatch:
    """What schedulers know about the space in the exchange."""

    def __init__(self, check: Callable[[], Awaitable[None]], on_change: Callable[[], None], executor_id: str) -> None:
        """Make it; *check* raises `ExchangeFullError` while there is no space, *on_change* is called at each change."""
        self._check = check
        self._on_change = on_change
        self._log = structlog.get_logger().bind(executor_id=executor_id)
        self._is_doubtful = asyncio.Event()
        self.why = ""
        """Why nothing can be written; empty as long as no failure to write is known."""

    def doubt(self) -> None:
        """Note that a task has found no space."""
        self._is_doubtful.set()

    async def run(self) -> None:
        """Check whenever a task has found no space, and again until there is space, for ever."""
        while True:
            await self._is_doubtful.wait()
            self._is_doubtful.clear()
            backoff = Backoff(first_s=_FIRST_S, limit_s=_LONGEST_S)
            while await self._is_full():
                await backoff.sleep()
            if self.why:
                self._log.info("exchange_has_space")
                self._tell("")

    async def _is_full(self) -> bool:
        try:
            await self._check()
        except ExchangeFullError as e:
            if not self.why:
                self._log.warning("exchange_full", error=str(e), advice="no work is taken until there is space")
                self._tell(str(e))
            return True
        except OnagerError as e:
            self._log.warning("exchange_not_checked", error=str(e))  # tasks fail for the same reason, and report it
        return False

    def _tell(self, why: str) -> None:
        self.why = why
        self._on_change()
