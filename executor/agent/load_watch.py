"""Samples what the executor's processes use, for people."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb

_EVERY_S: Final = 2.0


class LoadWatch:
    """What this executor used when it was last sampled."""

    def __init__(self, sample: Callable[[], Awaitable[pb.ExecutorLoad | None]]) -> None:
        self._sample = sample
        self._load: pb.ExecutorLoad | None = None
        self._stages_reported: set[tuple[str, int, int]] = set()
        """The stage attempts with which the memory of the latest sample was reported."""

    async def run(self) -> None:
        """Sample for ever, or until there is nothing to be known."""
        while True:
            self._load = await self._sample()
            self._stages_reported.clear()
            if self._load is None:
                return
            await asyncio.sleep(_EVERY_S)

    def rss_bytes(self, key: TaskKey) -> int:
        """Return the memory in use, to be reported with a task: once a sample for each stage, 0 otherwise."""
        stage = (key.job_id, key.stage_id, key.stage_attempt)
        if self._load is None or stage in self._stages_reported:
            return 0
        self._stages_reported.add(stage)
        return self._load.rss_bytes

    def add_to(self, request: pb.HeartbeatRequest, free_slots: int) -> None:
        """Add the latest sample to a heartbeat that lists what runs."""
        if self._load is not None:
            request.load.CopyFrom(self._load)
            request.load.running = len(request.running)
            request.load.free_slots = free_slots
