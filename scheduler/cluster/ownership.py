"""Which scheduler drives a job: the first of the live ones for it; the others forward to it what concerns the job.

The driver does not own the job. A scheduler that gets no answer from the driver changes the job itself, and the log
lets one of them win.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from onager.errors import SchemaVersionError, StateUnavailableError
from onager.ids import JobId, SchedulerId
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.policy import rendezvous

_REMEMBERED: Final = 100_000
"""The number of jobs whose driver is cached."""


class Ownership:
    """Says which scheduler drives a job, and which jobs this one follows: those that it drives, and knows as stored."""

    def __init__(self, schedulers: LiveSchedulers) -> None:
        self._schedulers = schedulers
        self._live = schedulers.live
        self._before: frozenset[SchedulerId] = frozenset()
        """The schedulers that were live before the last change."""
        self._first: dict[JobId, SchedulerId] = {}
        self._followed: dict[JobId, None] = {}

    def scheduler_of(self, job_id: JobId) -> SchedulerId:
        """Return the scheduler that drives the job."""
        found = self._first.get(job_id)
        if found is None:
            if len(self._first) >= _REMEMBERED:
                self._first.clear()
            found = SchedulerId(rendezvous.first(job_id, self._live)) if self._live else self._schedulers.id
            self._first[job_id] = found
        return found

    def is_mine(self, job_id: JobId) -> bool:
        """Return whether this scheduler drives the job."""
        return self.scheduler_of(job_id) == self._schedulers.id

    def driver_before(self, job_id: JobId) -> SchedulerId | None:
        """Return the scheduler that drove the job before schedulers last came or went; None if this one knew none."""
        others = self._before - {self._schedulers.id}
        return SchedulerId(rendezvous.first(job_id, self._before)) if others else None

    @property
    def others(self) -> list[SchedulerId]:
        """Return the other live schedulers, in order."""
        return sorted(self._live - {self._schedulers.id})

    @contextmanager
    def left_to_others(self) -> Iterator[None]:
        """Send callers to other schedulers, by a `StateUnavailableError`, for what only a newer version can read.

        Such a job is not damaged. Without other schedulers the `SchemaVersionError` stays.
        """
        try:
            yield
        except SchemaVersionError as error:
            if self.others:
                raise StateUnavailableError(f"{error}; another scheduler may read it") from error
            raise

    # ---------------------------------------------------------------- following

    def follows(self, job_id: JobId) -> bool:
        """Return whether this scheduler knows the job as it is stored, as far as it can tell."""
        return job_id in self._followed

    def read(self, job_id: JobId) -> None:
        """Note that the job was read or written just now: from now on it is followed, if this scheduler drives it."""
        if self.is_mine(job_id):
            self._followed[job_id] = None

    def ended(self, job_id: JobId) -> None:
        """Forget a job that has ended."""
        self._followed.pop(job_id, None)
        self._first.pop(job_id, None)

    @property
    def followed(self) -> list[JobId]:
        """Return the jobs that this scheduler follows."""
        return list(self._followed)

    def on_schedulers(self) -> bool:
        """Take in which schedulers are live; return whether this one may have begun to drive other jobs."""
        live = self._schedulers.live
        if live == self._live:
            return False
        self._before, self._live = self._live, live
        self._first.clear()
        self._followed = {job_id: None for job_id in self._followed if self.is_mine(job_id)}
        return True
