"""Errors that come again however often work on a job is repeated: after some tries the job ends with them."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from onager.clock import Clock
from onager.errors import LimitExceededError, OnagerError, StateBackendError
from onager.execution_graph import Failure, FailureKind
from onager.ids import JobId
from onager.scheduler import timing

TRIES: Final = 5
_MESSAGE_CHARS: Final = 2_000


@dataclass(slots=True)
class _Tries:
    since_s: float
    count: int = 0


class LastingErrors:
    """Counts tries of work on jobs that failed, until one succeeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: dict[JobId, dict[Hashable, _Tries]] = {}

    def note_error(self, job_id: JobId, work: Hashable, error: Exception) -> Failure | None:
        """Count a failed try of *work*; return the failure with which the job has to end, None to try again."""
        if not is_lasting(error):
            return None
        tries = self._tries.setdefault(job_id, {}).setdefault(work, _Tries(self._clock.monotonic_s()))
        tries.count += 1
        for_s = self._clock.monotonic_s() - tries.since_s
        if tries.count < TRIES or for_s < timing.GIVE_UP_S:
            return None
        why = str(error)[:_MESSAGE_CHARS]
        message = (
            f"schedulers failed {tries.count} times within {for_s:.0f} s at {work} with {type(error).__name__}: {why}; "
            "their logs have more. If it is a limit, ask for less at a time"
        )
        return Failure(kind=FailureKind.USER_ERROR, error_class="ONAGER_SCHEDULER_FAILED", message=message)

    def forget_errors(self, job_id: JobId, works: Iterable[Hashable]) -> None:
        """Forget the tries of work that has succeeded."""
        if (tries := self._tries.get(job_id)) is not None:
            for work in works:
                tries.pop(work, None)

    def forget(self, job_id: JobId) -> None:
        """Forget a job that has ended."""
        self._tries.pop(job_id, None)


def is_lasting(error: Exception) -> bool:
    """Return whether *error* has to do with the work, and not with the store, a disk or the moment."""
    if isinstance(error, LimitExceededError):
        return True
    return not (isinstance(error, StateBackendError) or (isinstance(error, OnagerError) and error.retryable))
