"""Timelines of jobs, from the store."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from onager.ids import JobId
from onager.protocol.apart import apart
from onager.scheduler.api.timeline.model import Timeline
from onager.scheduler.api.timeline.story import Story
from onager.scheduler.api.timeline.telling import timeline_of
from onager.scheduler.jobs.history import Entry, JobHistory
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import JobStore

_EVENTS_A_PAGE: Final = 2_000
_EVENT_BYTES: Final = 300
_KEPT_ATTEMPTS: Final = 250_000
"""Attempts in the stories that are kept, altogether, some 100 MB: who looks at a job looks again."""
_KEPT_STORIES: Final = 200


class Timelines:
    """The timelines of jobs, whichever scheduler drives them."""

    def __init__(self, jobs: JobStore, history: JobHistory) -> None:
        self._jobs = jobs
        self._history = history
        self._kept: OrderedDict[tuple[JobId, int], tuple[Story, asyncio.Lock]] = OrderedDict()
        """By id and submission: an id is free again when the job's record has gone."""

    async def get(self, job_id: JobId, after: int = 0) -> Timeline:
        """Return a job's timeline; what was told up to the position *after* is left out (see `Timeline`).

        `JobNotFoundError`, `StateCorruptError` or `SchemaVersionError` as for the job's events.
        """
        job = await self._jobs.fresh(job_id)
        key = job_id, job.graph.submitted_ms
        story, lock = self._kept.get(key) or (Story(job.graph), asyncio.Lock())
        self._kept[key] = story, lock
        self._kept.move_to_end(key)
        try:
            async with lock:
                await self._follow(story, job)
                told = await apart(_EVENT_BYTES * len(story.attempts), timeline_of, story, job.graph, after)
        except BaseException:
            # A thread may go on with it, or it may end within a batch: the next caller begins a new one.
            self._kept.pop(key, None)
            raise
        self._forget()
        return told

    async def story(self, job_id: JobId) -> tuple[Story, StoredJob]:
        """Return a job's whole story, which is the caller's own, and the job; errors as in `get`."""
        job = await self._jobs.fresh(job_id)
        story = Story(job.graph)
        await self._follow(story, job)
        return story, job

    async def _follow(self, story: Story, job: StoredJob) -> None:
        """Let *story* go on to the end of the log, or somewhat further than *job*, if it goes on."""
        job_id = JobId(job.header.job_id)
        while story.position < job.seq:
            entries = await self._history.after(job_id, story.position, _EVENTS_A_PAGE)
            if not entries:
                break
            events = sum(len(entry.batch.events) for entry in entries if entry.batch is not None)
            await apart(_EVENT_BYTES * events, _feed, story, entries)
        story.end_as(job.graph)

    def _forget(self) -> None:
        attempts = sum(len(story.attempts) for story, _ in self._kept.values())
        while self._kept and (attempts > _KEPT_ATTEMPTS or len(self._kept) > _KEPT_STORIES):
            _, (story, _) = self._kept.popitem(last=False)
            attempts -= len(story.attempts)


def _feed(story: Story, entries: Sequence[Entry]) -> None:
    for entry in entries:
        story.feed(entry.position, entry.batch)
