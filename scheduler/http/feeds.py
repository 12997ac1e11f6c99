"""What followers of a job share: one reader for each job, whose messages are encoded once.

A slow follower does not hold up the others, and takes no memory. Of a job's progress it gets the latest. It reads
events that are not kept any more from the history, at its own pace. Followers that read the same at the same time share
pages.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from onager.errors import StateUnavailableError
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.scheduler import timing
from onager.scheduler.api.feeds import Feed, Feeds, pace_s
from onager.scheduler.api.job_queries import Standing
from onager.scheduler.http import encoding
from onager.scheduler.http.pages import PAGE_EVENTS, Kept, Pages

EVENT_BYTES: Final = 300


Source = Callable[[str, Any], AsyncGenerator[Any, None]]
"""Calls a method, with its request, that answers with a stream."""


class JobFeed(Feed):
    """What was read last of a job: its progress, or its log, whose batches are in `Pages`."""

    latest = b""
    """The progress."""
    position = 0
    """Up to which the log was read."""


class JobFeeds:
    """The feeds of jobs' progress and events."""

    def __init__(self, source: Source, standing: Callable[[str], Awaitable[Standing]]) -> None:
        """Read from *source*; *standing* returns how far a job is."""
        self._source = source
        self._standing = standing
        self._progress: Feeds[JobFeed] = Feeds(JobFeed, self._read_progress)
        self._events: Feeds[JobFeed] = Feeds(JobFeed, self._read_events)
        self._pages = Pages(self._read_page)

    async def progress(self, job_id: str) -> AsyncGenerator[bytes, None]:
        """Yield a job's progress as JSON: now, and whenever it has changed since the follower took the last one."""
        async with self._progress.following(job_id) as feed:
            seen, last = 0, b""
            while True:
                seen = await feed.next(seen)
                latest, is_over = feed.latest, feed.is_over
                if latest is not last:
                    yield latest
                    last = latest
                if is_over:
                    if feed.error is not None:
                        raise feed.error
                    return

    async def events(self, job_id: str, after: int) -> AsyncGenerator[Kept, None]:
        """Yield the batches of a job's log after a position, up to the job's end: none twice, and none left out."""
        async with self._events.following(job_id) as feed:
            seen = 0
            while True:
                seen = await feed.next(seen)
                while after < feed.position:
                    page = await self._pages.get(job_id, after)
                    if not page:
                        raise StateUnavailableError(f"events of job {job_id} after position {after} cannot be read now")
                    for batch in page:
                        yield batch
                        after = batch.position
                if feed.is_over and seen == feed.version:
                    if feed.error is not None:
                        raise feed.error
                    return

    async def history(self, job_id: str, after: int) -> AsyncGenerator[Kept, None]:
        """Yield the batches of a job's log after a position, as far as there are any."""
        while page := await self._pages.get(job_id, after):
            for batch in page:
                yield batch
            after = page[-1].position

    async def _read_page(self, job_id: str, after: int) -> list[Kept]:
        found: list[Kept] = []
        events = 0
        async with aclosing(self._batches(pb.WatchEventsRequest(job_id=job_id, after=after))) as batches:
            async for batch in batches:
                found.append(batch)
                events += len(batch.events)
                if events >= PAGE_EVENTS:
                    break
        return found

    async def _read_progress(self, feed: JobFeed, job_id: str) -> AsyncIterator[None]:
        async with aclosing(self._source("WatchJob", pb.WatchJobRequest(job_id=job_id))) as messages:
            async for progress in messages:
                feed.latest = await apart(progress.ByteSize(), encoding.message, progress)
                yield
                await asyncio.sleep(pace_s(feed.followers) - timing.WATCH_EVERY_S)

    async def _read_events(self, feed: JobFeed, job_id: str) -> AsyncIterator[None]:
        feed.position = (await self._standing(job_id)).position
        yield
        request = pb.WatchEventsRequest(job_id=job_id, after=feed.position, follow=True)
        async with aclosing(self._batches(request)) as batches:
            async for batch in batches:
                self._pages.put(job_id, feed.position, [batch])
                feed.position = batch.position
                yield

    async def _batches(self, request: pb.WatchEventsRequest) -> AsyncGenerator[Kept, None]:
        events: list[bytes] = []
        async with aclosing(self._source("WatchEvents", request)) as messages:
            async for message in messages:
                events += await apart(EVENT_BYTES * len(message.events), encoding.events, message)
                if not message.more:
                    yield Kept(message.position, events, sum(map(len, events)))
                    events = []
