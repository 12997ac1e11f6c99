"""Where the wall time of jobs went: kept for ended jobs, read again for running ones."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from onager.clock import Clock
from onager.errors import OnagerError
from onager.execution_graph.wall_time import TimeShare, WallTime
from onager.protocol.apart import apart
from onager.scheduler import timing
from onager.scheduler.api.timeline.reading import Timelines
from onager.scheduler.jobs.job_log import StoredJob
from onager.supervision import Background

_STEP_BYTES: Final = 300
_ENDED_JOBS: Final = 1_000
_RUNNING_JOBS: Final = 8
"""Jobs whose time is divided again and again."""
_READ_AT_ONCE: Final = 2
_RESTS_TIMES: Final = 20
"""How many times longer than it took to divide a running job's time the result is kept."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Followed:
    is_final: bool = False
    """Whether the job has ended, and the shares say so."""
    time: WallTime | None = None
    kept_until_s: float = -1e9
    shares: tuple[TimeShare, ...] = ()
    """As they were last read; while the job runs, they are read again after `kept_until_s`."""
    reading: "asyncio.Task[None] | None" = None


_Key = tuple[str, int]
"""A job by its id and submission: an id is free again when the job's record has gone."""


class WallTimes:
    """Divides the wall times of jobs that clients look at."""

    def __init__(self, timelines: Timelines, clock: Clock) -> None:
        self._timelines = timelines
        self._clock = clock
        self._followed: OrderedDict[_Key, _Followed] = OrderedDict()
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)
        self._background = Background()

    async def shares(self, job: StoredJob) -> Sequence[TimeShare]:
        """Return the shares of a job's wall time, up to now if it runs.

        They may be a second old, of a job of many tasks more. There are none when the history cannot be read in time:
        the next call finds more.
        """
        graph, key = job.graph, _key(job)
        found = self._followed.get(key)
        if found is None:
            if not self._has_room():
                return ()
            found = self._followed[key] = _Followed()
        self._followed.move_to_end(key)
        is_fresh = self._clock.monotonic_s() < found.kept_until_s
        if found.is_final or (graph.is_active and is_fresh and found.reading is None):
            return found.shares
        wait_s = timing.SHARES_WAIT_RUNNING_S if graph.is_active else timing.SHARES_WAIT_S
        for _ in range(2):  # what is being read may be of before the job's end
            if found.reading is None:
                found.reading = self._background.start(f"wall time of {graph.job_id}", self._read(job, found))
            in_time, _ = await asyncio.wait([found.reading], timeout=wait_s)
            if graph.is_active or found.is_final or not in_time:
                break
        return found.shares

    def _has_room(self) -> bool:
        """Return whether one more job can be followed, maybe in place of one that was not looked at for a while."""
        going_on = {key: each for key, each in self._followed.items() if not each.is_final}
        if len(going_on) < _RUNNING_JOBS:
            return True
        now_s = self._clock.monotonic_s()
        old = next((key for key, each in going_on.items() if not each.reading and now_s > each.kept_until_s), None)
        if old is not None:
            del self._followed[old]
        return old is not None

    async def close(self) -> None:
        """Stop reading."""
        await self._background.close()

    async def _read(self, job: StoredJob, found: _Followed) -> None:
        ended_ms = job.graph.ended_ms
        try:
            async with self._reading:
                took_s, is_read = 0.0, False
                while not is_read:
                    begun_s = self._clock.monotonic_s()
                    async with self._timelines.held(job) as (story, is_read):
                        if is_read:
                            time = found.time
                            if time is None or time.log is not story.log:
                                time = found.time = WallTime(story.log)
                            until_ms = self._clock.now_ms() if ended_ms is None else ended_ms
                            found.shares = await apart(_STEP_BYTES * time.size, time.shares, until_ms)
                    now_s = self._clock.monotonic_s()
                    took_s += min(now_s - begun_s, timing.TIMELINE_SOON_S)  # more was to wait for others
                found.kept_until_s = now_s + max(timing.SHARES_KEPT_S, _RESTS_TIMES * took_s)
            if ended_ms is not None:
                found.is_final, found.time = True, None
                ended = [key for key, each in self._followed.items() if each.is_final]
                for key in ended[:-_ENDED_JOBS]:
                    del self._followed[key]
        except OnagerError as error:
            log.warning("wall_time_not_read", job_id=job.graph.job_id, error=str(error))
        finally:
            found.reading = None


def _key(job: StoredJob) -> _Key:
    return job.graph.job_id, job.graph.submitted_ms
