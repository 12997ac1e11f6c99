"""Timelines of jobs, from the store."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from onager.clock import Clock
from onager.errors import OnagerError
from onager.execution_graph import JobState
from onager.ids import JobId
from onager.protocol.apart import apart
from onager.scheduler import timing
from onager.scheduler.api.timeline.model import Timeline
from onager.scheduler.api.timeline.story import Story
from onager.scheduler.api.timeline.telling import timeline_of
from onager.scheduler.jobs.history import Entry, JobHistory, size_of
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import JobStore

_ATTEMPT_BYTES: Final = 300
_KEPT_ATTEMPTS: Final = 250_000
"""Attempts in all stories that are kept, some 100 MB: clients look at a job again and again."""
_KEPT_STORIES: Final = 200
_BAR_BYTES: Final = 200
_RESTS_TIMES: Final = 5
"""A timeline in buckets stays unchanged so many times longer than it took to make it."""


@dataclass(slots=True)
class _Kept:
    """The story of a job that somebody has looked at."""

    story: Story
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    json: bytes = b""
    """Its timeline, if it is in buckets."""
    json_of: tuple[int, JobState] | None = None
    """The position to which that goes, and the state of the job in it."""
    rests_until_s: float = 0.0
    """Until then a timeline in buckets stays as it was."""

    def rests(self, job: StoredJob, now_s: float) -> bool:
        """Return whether the timeline of *job*, in buckets, stays as it was."""
        return bool(self.json) and job.graph.is_active and now_s < self.rests_until_s


class Timelines:
    """The timelines of jobs, whichever scheduler drives them."""

    def __init__(self, jobs: JobStore, history: JobHistory, clock: Clock) -> None:
        self._jobs = jobs
        self._history = history
        self._clock = clock
        self._kept: OrderedDict[tuple[JobId, int], _Kept] = OrderedDict()
        """By id and submission: an id is free again when the job's record has gone."""

    async def get(self, job_id: JobId) -> Timeline:
        """Return a job's timeline; `JobNotFoundError`, `StateCorruptError`, `SchemaVersionError` as for its events."""
        async with self._following(job_id) as (job, kept):
            return await _timeline(kept.story, job, 0)

    async def as_json(self, job_id: JobId, after: int = 0, *, soon: bool = False) -> bytes:
        """Return a job's timeline as JSON; what was sent up to the position *after* is left out (see `Timeline`).

        If it is wanted *soon*, a long log may be read only in part, and later calls go on with it. All who ask for a
        job in buckets at about the same time get the same, whatever they know already.
        """
        until_s = self._clock.monotonic_s() + timing.TIMELINE_SOON_S if soon else None
        async with self._following(job_id, may_rest=True, until_s=until_s) as (job, kept):
            story = kept.story
            if story.is_long:
                json_of = story.log.position, job.graph.state
                if kept.json_of != json_of and not kept.rests(job, self._clock.monotonic_s()):
                    timeline = await _timeline(story, job, 0)
                    kept.json, kept.json_of = await apart(_size(timeline), timeline.as_json), json_of
                return kept.json
            timeline = await _timeline(story, job, after)
            return await apart(_size(timeline), timeline.as_json)

    @asynccontextmanager
    async def _following(
        self, job_id: JobId, *, may_rest: bool = False, until_s: float | None = None
    ) -> AsyncGenerator[tuple[StoredJob, "_Kept"]]:
        """Hold a job's story, at the end of its log.

        Or somewhat before it, if that of a long one *may_rest*, or as far as it can be read *until_s*.
        """
        job = await self._jobs.fresh(job_id)
        key = job_id, job.graph.submitted_ms
        async with self._held(key, job) as kept:
            begun_s = self._clock.monotonic_s()
            rests = may_rest and kept.rests(job, begun_s)
            if not rests:
                await self._follow(kept.story, job, until_s)
                job = self._jobs.cached(job_id) or job  # the story may go on to an end that has come meanwhile
            yield job, kept
            if not rests:
                now_s = self._clock.monotonic_s()
                rests_s = max(timing.TIMELINE_KEPT_S, _RESTS_TIMES * (now_s - begun_s))
                kept.rests_until_s = now_s + min(rests_s, timing.TIMELINE_LONGEST_S)
        self._forget()

    @asynccontextmanager
    async def _held(self, key: tuple[JobId, int], job: StoredJob) -> AsyncGenerator["_Kept"]:
        """Hold the story that is kept of *job*, or a new one."""
        while True:
            kept = self._kept.setdefault(key, _Kept(Story(job.graph)))
            self._kept.move_to_end(key)
            async with kept.lock:
                if self._kept.get(key) is not kept:
                    continue  # the last holder left it unfinished
                try:
                    yield kept
                except OnagerError:
                    raise  # of the store, between pages: the next caller goes on
                except BaseException:
                    # A thread may go on with it, or it may end within a batch: the next caller begins a new one.
                    if self._kept.get(key) is kept:
                        del self._kept[key]
                    raise
                return

    @asynccontextmanager
    async def held(self, job: StoredJob) -> AsyncGenerator[tuple[Story, bool]]:
        """Hold a job's story after reading on for a moment; also whether all of the log up to *job* is in it.

        If it is not, hold it again: callers take turns.
        """
        until_s = self._clock.monotonic_s() + timing.TIMELINE_SOON_S
        async with self._held((JobId(job.graph.job_id), job.graph.submitted_ms), job) as kept:
            yield kept.story, await self._follow(kept.story, job, until_s)
        self._forget()

    async def story(self, job_id: JobId) -> tuple[Story, StoredJob]:
        """Return a job's whole story, which is the caller's own, and the job; errors as in `get`."""
        job = await self._jobs.fresh(job_id)
        story = Story(job.graph)
        await self._follow(story, job)
        return story, job

    async def _follow(self, story: Story, job: StoredJob, until_s: float | None = None) -> bool:
        """Let *story* go on to the end of the log, or somewhat further than *job*, if it goes on; or *until_s*.

        Return whether it is there.
        """
        job_id = JobId(job.header.job_id)
        async with aclosing(self._history.pages(job_id, story.log.position, to=job.seq)) as pages:
            async for entries in pages:
                await apart(size_of(entries), _feed, story, entries)
                if until_s is not None and self._clock.monotonic_s() >= until_s and story.log.position < job.seq:
                    return False
        story.end_as(job.graph)
        return True

    def _forget(self) -> None:
        """Forget the stories that were not looked at for longest, but not the last one: its reader goes on."""
        attempts = sum(len(kept.story.log.attempts) for kept in self._kept.values())
        while len(self._kept) > 1 and (attempts > _KEPT_ATTEMPTS or len(self._kept) > _KEPT_STORIES):
            _, kept = self._kept.popitem(last=False)
            attempts -= len(kept.story.log.attempts)


async def _timeline(story: Story, job: StoredJob, after: int) -> Timeline:
    is_early = story.log.position < job.seq and not story.log.is_over
    size = _ATTEMPT_BYTES * len(story.log.attempts)
    return await apart(size, timeline_of, story, job.graph, after, is_early=is_early)


def _size(timeline: Timeline) -> int:
    return _BAR_BYTES * (len(timeline.bars) + len(timeline.buckets))


def _feed(story: Story, entries: Sequence[Entry]) -> None:
    for entry in entries:
        story.feed(entry.position, entry.batch)
