"""What clients see of a job: its details, its progress as it changes, its events."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from onager.clock import Clock
from onager.errors import JobNotFoundError, StateCorruptError
from onager.ids import JobId, is_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.serving import SharedMessage
from onager.scheduler import timing
from onager.scheduler.api.events import batches_of
from onager.scheduler.api.explained import UNEXPLAINED, explained
from onager.scheduler.api.feeds import Feed, Feeds, pace_s
from onager.scheduler.api.final_plan import final_plan
from onager.scheduler.api.progress import ProgressView, broken_failure, is_later_page, progress_of_head
from onager.scheduler.api.timeline.wall_times import WallTimes
from onager.scheduler.cluster.forwarding import Forwarding
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.history import Entry, JobHistory, size_of
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_specs import decode_spec_shown
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.watchers import JobWatchers

_EVENTS_A_PAGE: Final = 1_000
_SPECS_AT_ONCE: Final = 2
"""Jobs whose specification and plan are read at the same time: each may be as large as a message."""


class Standing(NamedTuple):
    """How far a job is."""

    position: int
    """The end of its log."""
    is_over: bool
    """Whether the log will not go on."""


class _ProgressFeed(Feed):
    """The latest progress of a job, and how many came to follow it before it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.latest = SharedMessage(pb.JobProgress())
        self.changed = asyncio.Event()
        self.came = self.served = 0

    def join(self) -> int:
        """Return the number of a follower: it is served once something has been read that is fresh for it."""
        self.came += 1
        self.changed.set()
        return self.came

    def tell(self, progress: pb.JobProgress, served: int) -> None:
        """Take what was read for the first *served* followers; an equal message is not sent again."""
        self.served = served
        if progress != self.latest.message:
            self.latest = SharedMessage(progress)


@dataclass(eq=False, repr=False)
class JobQueries:
    """Shows jobs, whichever scheduler drives them."""

    jobs: JobStore
    ownership: Ownership
    forwarding: Forwarding
    view: ProgressView
    watchers: JobWatchers
    history: JobHistory
    wall_times: WallTimes
    blobs: BlobStore
    clock: Clock

    def __post_init__(self) -> None:
        self._reading_blobs = asyncio.Semaphore(_SPECS_AT_ONCE)
        self._feeds: Feeds[_ProgressFeed] = Feeds(_ProgressFeed, self._read_progress)
        self._followers = 0

    async def fresh(self, job_id: JobId) -> StoredJob:
        """Return a job as it is stored; `StateUnavailableError` when another scheduler may be able to read it."""
        with self.ownership.left_to_others():
            return await self.jobs.fresh(job_id)

    async def standing(self, job_id: JobId) -> Standing:
        """Return how far a job is, as its record says."""
        try:
            job = await self.fresh(job_id)
        except StateCorruptError:
            return Standing(0, is_over=True)
        return Standing(job.seq, is_over=not job.graph.is_active)

    async def detail(self, job_id: JobId, page: pb.GetJobRequest) -> pb.JobDetail:
        """Return a job's details."""
        try:
            job = await self.fresh(job_id)
        except StateCorruptError as error:
            return pb.JobDetail(progress=self._broken(job_id, str(error)))
        if is_later_page(page):
            answer = self.view.detail(job, pb.JobSpec(), UNEXPLAINED, page)
            if page.stage_id >= len(job.graph.stages):  # no page of tasks: somebody asks for the progress alone
                await self._add_times(job, answer.progress)
            return answer
        async with self._reading_blobs:
            spec = await self.blobs.find(job.graph.spec_digest, decode_spec_shown) or pb.JobSpec()
            answer = self.view.detail(job, spec, await explained(job.graph, self.blobs), page)
        await self._add_times(job, answer.progress)
        return answer

    async def final_plan(self, job_id: JobId, first_stage_id: int) -> pb.FinalPlan:
        """Return a page of a job's plan as it ran, or as it runs."""
        job = await self.fresh(job_id)
        async with self._reading_blobs:
            stages = self.view.progress(job.graph, job.header).stages
            return await final_plan(job.graph, stages, self.blobs, first_stage_id)

    async def progress(self, job_id: JobId) -> AsyncGenerator[pb.JobProgress, None]:
        """Yield a job's progress, now and at every change, until the job has ended."""
        async with contextlib.aclosing(self.shared_progress(job_id)) as messages:
            async for message in messages:
                yield message.message

    async def shared_progress(self, job_id: JobId) -> AsyncGenerator[SharedMessage, None]:
        """Yield a job's progress as messages that all followers share; the more followers, the less often."""
        shown: SharedMessage | None = None
        self._followers += 1
        try:
            async with self._feeds.following(job_id) as feed:
                number, seen = feed.join(), feed.version
                while True:
                    seen = await feed.next(seen)
                    if feed.served >= number and feed.latest is not shown:
                        shown = feed.latest
                        yield shown  # while it is sent, the last one may come
                    elif feed.is_over and feed.error is None:
                        return
        finally:
            self._followers -= 1

    async def _read_progress(self, feed: _ProgressFeed, job_id: str) -> AsyncGenerator[None, None]:
        seq, is_fresh = 0, False
        with self.watchers.following(JobId(job_id), feed.changed) as changed:
            while True:
                changed.clear()
                came = feed.came
                # A client that switches from another scheduler must not see an older state.
                is_fresh = is_fresh or came > feed.served
                seq, progress = await self._progress(JobId(job_id), seq, is_fresh=is_fresh)
                feed.tell(progress, came)
                yield
                if progress.state in (pb.SUCCESSFUL, pb.FAILED, pb.CANCELLED) and feed.came == came:
                    return
                is_fresh = not await self._next_look(JobId(job_id), changed, lambda: feed.came > feed.served)

    async def events(self, job_id: JobId, after: int, *, follow: bool) -> AsyncGenerator[pb.EventBatch, None]:
        """Yield what happened to a job after a position of its log, batch by batch: all, or up to now."""
        position = after
        with self.watchers.following(job_id) as changed:
            while True:
                changed.clear()
                job = await self.fresh(job_id)
                is_over = not job.graph.is_active
                entries: list[Entry] = []
                if job.seq > position:
                    with self.ownership.left_to_others():
                        entries = await self.history.after(job_id, position, _EVENTS_A_PAGE)
                for message in await apart(size_of(entries), lambda page: list(batches_of(page)), entries):
                    yield message
                if entries:
                    position = entries[-1].position
                elif is_over or not follow:
                    return
                else:
                    await self._next_look(job_id, changed)

    async def _add_times(self, job: StoredJob, progress: pb.JobProgress) -> None:
        """Add what only a job's details show: how far it is by its driver, and where its time went."""
        by_driver = await self._from_driver(JobId(job.graph.job_id), job.seq) if job.graph.is_active else None
        if by_driver is not None:
            for name in ("fraction", "fraction_fell", "eta_low_ms", "eta_high_ms"):
                setattr(progress, name, getattr(by_driver.progress, name))
            for mine, its in zip(progress.stages, by_driver.progress.stages, strict=False):
                mine.fraction, mine.rows_read, mine.bytes_read = its.fraction, its.rows_read, its.bytes_read
        shares = await self.wall_times.shares(job)
        progress.time_shares.extend([pb.TimeShare(use=use.value, ms=ms) for use, ms in shares])

    async def _next_look(
        self, job_id: JobId, changed: asyncio.Event, is_awaited: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait for a change, and for `WATCH_EVERY_S` at least: only the job's end is reported at once.

        The wait is longer the more followers of jobs there are here, unless one of them waits (*is_awaited*). Return
        false when there was no change for a while: another scheduler may have changed the job.
        """
        every_s = pace_s(self._followers)
        earliest_s = self.clock.monotonic_s() + every_s
        try:
            async with asyncio.timeout(max(timing.WATCH_LOOK_S, every_s)):
                while True:
                    await changed.wait()
                    changed.clear()
                    job = self.jobs.cached(job_id)
                    left_s = earliest_s - self.clock.monotonic_s()
                    if left_s <= 0 or job is None or not job.graph.is_active or is_awaited():
                        return True
                    try:
                        async with asyncio.timeout(left_s):
                            await changed.wait()
                    except TimeoutError:
                        return True
        except TimeoutError:
            return False  # the reason why the job waits may have changed without an event

    async def _progress(self, job_id: JobId, seq: int, *, is_fresh: bool) -> tuple[int, pb.JobProgress]:
        """Return the log position of the job's progress, at least *seq*, and the progress.

        It is asked of the job's driver, or else read from the store; with *is_fresh* always from the store.
        """
        by_driver = None if is_fresh else await self._from_driver(job_id, seq)
        if by_driver is None:
            try:
                is_current = self.ownership.follows(job_id) and not is_fresh
                with self.ownership.left_to_others():
                    job = await (self.jobs.get(job_id) if is_current else self.jobs.fresh(job_id))
                if is_fresh and job.graph.is_active:
                    by_driver = await self._from_driver(job_id, job.seq)
                if by_driver is None:
                    return job.seq, self.view.progress(job.graph, job.header)
            except StateCorruptError as error:
                return seq, self._broken(job_id, str(error))
        return by_driver.log_seq, by_driver.progress

    async def _from_driver(self, job_id: JobId, seq: int) -> pb.WatchedJob | None:
        """Return the progress from the job's driver, if it is another scheduler: it alone knows how far tasks are.

        None if no other scheduler drives it, or if the progress is from before *seq*.
        """
        driver = None if self.ownership.follows(job_id) else self.forwarding.driver_of(job_id)
        with contextlib.suppress(NotDrivingError):
            if driver is not None and (watched := await driver.progress(job_id)).log_seq >= seq:
                return watched
        return None

    def _broken(self, job_id: JobId, why: str) -> pb.JobProgress:
        head = self.jobs.heads.get(job_id)
        if head is None:
            return pb.JobProgress(job_id=job_id, state=pb.FAILED, failure=broken_failure(why))
        return progress_of_head(head.model_copy(update={"broken": why}))


def asked_job_id(text: str) -> JobId:
    """Return the id of a job that a client asks about; `JobNotFoundError` when no job can have it."""
    if not is_job_id(text):
        raise JobNotFoundError(text[:80])
    return JobId(text)
