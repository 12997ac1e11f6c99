"""Wakes callers that wait for a job to change."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from onager.ids import JobId


class JobWatchers:
    """Wakes the followers of a job."""

    def __init__(self) -> None:
        self._events: dict[JobId, dict[asyncio.Event, None]] = defaultdict(dict)

    @contextmanager
    def following(self, job_id: JobId, event: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """Yield *event*, or a new one, which is set at every change of the job; the follower clears it."""
        event = asyncio.Event() if event is None else event
        self._events[job_id][event] = None
        try:
            yield event
        finally:
            del self._events[job_id][event]
            if not self._events[job_id]:
                del self._events[job_id]

    def changed(self, job_id: JobId) -> None:
        """Wake the job's followers."""
        for event in self._events.get(job_id, ()):
            event.set()
