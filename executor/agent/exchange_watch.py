"""Scans the exchange directory now and then, for people and for schedulers, which know what should go."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from onager.clock import Clock
from onager.executor.exchange.look import Contents, JobFiles
from onager.ids import Incarnation
from onager.protocol import onager_pb2 as pb

_SHARE_OF_TIME = 0.02
"""The part of its time that an executor scans: a directory of very many files is scanned less often."""
_FILES_REPORTED = 16
"""Jobs that one heartbeat reports, at most."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Trace:
    """What shows that a job's files have changed."""

    files: int
    bytes: int
    latest_ns: int


class ExchangeWatch:
    """What this executor last saw in the exchange directory, and has not reported yet."""

    def __init__(
        self, look: Callable[[], Awaitable[Contents | None]], incarnation: Incarnation, clock: Clock, *, every_s: float
    ) -> None:
        self._look = look
        self._incarnation = incarnation
        self._clock = clock
        self._every_s = every_s
        self._use = pb.ExchangeUse()
        self._jobs: dict[str, JobFiles] = {}
        self._telling: dict[str, _Trace] = {}
        """What the unanswered request reports."""
        self._reported: dict[str, _Trace] = {}
        self._strangers: dict[str, set[str]] = {}
        """By job: other executors that were writing files in the last two scans."""

    async def run(self) -> None:
        """Scan for ever, unless there is nothing to scan."""
        while True:
            began_s = self._clock.monotonic_s()
            try:
                contents = await self._look()
            except OSError as e:
                log.warning("exchange_not_looked_through", error=str(e))
            else:
                if contents is None:
                    return
                self.take(contents)
            took_s = self._clock.monotonic_s() - began_s
            await asyncio.sleep(max(self._every_s, took_s / _SHARE_OF_TIME))

    def take(self, contents: Contents) -> None:
        """Note what a scan has found."""
        self._use = pb.ExchangeUse(
            bytes=contents.bytes,
            files=contents.files,
            free_bytes=contents.free_bytes,
            total_bytes=contents.total_bytes,
            looked_ms=self._clock.now_ms(),
        )
        before, self._jobs = self._jobs, contents.jobs
        self._strangers = {
            job_id: found
            for job_id, job in contents.jobs.items()
            if job_id in before and (found := (job.writers & before[job_id].writers) - {self._incarnation})
        }
        self._reported = {job_id: trace for job_id, trace in self._reported.items() if job_id in contents.jobs}

    def add_to(self, request: pb.HeartbeatRequest) -> None:
        """Add the directory's use, and jobs whose files have changed since their last report, or may be left over."""
        request.exchange.CopyFrom(self._use)
        self._telling = {}
        for job_id, job in self._jobs.items():
            strangers = self._strangers.get(job_id, ())
            if strangers or self._reported.get(job_id) != _trace(job):
                request.exchange_files.add(job_id=job_id, writers=sorted(strangers))
                self._telling[job_id] = _trace(job)
                if len(self._telling) == _FILES_REPORTED:
                    return

    def note_answered(self, answer: pb.HeartbeatResponse) -> None:
        """Note that a scheduler got the last request; it may ask for reports of some jobs again."""
        for job_id in self._telling.keys() - set(answer.tell_again):
            # What the request said, not what has been seen since.
            self._reported[job_id] = self._telling[job_id]
            self._strangers.pop(job_id, None)
        self._telling = {}


def _trace(job: JobFiles) -> _Trace:
    return _Trace(job.files, job.bytes, job.latest_ns)
