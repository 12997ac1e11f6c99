"""Asks the worker now and then what its running tasks have read, for people who watch their jobs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_REPORTED_ATTEMPTS
from onager.protocol.task_keys import task_key

_EVERY_S: Final = 1.0


class ProgressWatch:
    """What the tasks here had read when they were last looked at."""

    def __init__(
        self, look: Callable[[], Awaitable[Sequence[pb.AttemptProgress]]], is_working: Callable[[], bool]
    ) -> None:
        """*look* asks the worker; nothing is asked while *is_working* returns false."""
        self._look = look
        self._is_working = is_working
        self._seen: Sequence[pb.AttemptProgress] = ()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self._seen = await self._look() if self._is_working() else ()
            await asyncio.sleep(_EVERY_S)

    def add_to(self, request: pb.HeartbeatRequest) -> None:
        """Add to a heartbeat what is known of the attempts that it lists."""
        if self._seen:
            running = {task_key(task) for task in request.running}
            request.progress.extend([p for p in self._seen if task_key(p.task) in running][:MAX_REPORTED_ATTEMPTS])
