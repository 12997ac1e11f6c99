"""Outcomes by executor: which of them fails nearly everything, and what others can do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onager.ids import JobId

_SUCCESS_WEIGHT: Final = 9
"""Nine failures to a success, so nine tasks in ten, are "hardly a success"."""


class Work(NamedTuple):
    """A task, whichever attempt."""

    job_id: JobId
    stage_id: int
    partition: int


Life = tuple[str, str]
"""Executor id and incarnation."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """An executor that fails nearly everything, though others do not."""

    life: Life
    failures: int
    successes: int


@dataclass(slots=True)
class _Record:
    failures: dict[Work, float] = field(default_factory=dict)
    successes: dict[Work, float] = field(default_factory=dict)


class ExecutorHealth:
    """The outcomes of tasks that were reported to this scheduler within the last *window_s* seconds.

    Source: Spark's `HealthTracker`: different tasks that failed on one executor within a time, counted only where the
    work succeeded elsewhere, so that a job with a broken input quarantines no executor. Spark takes 2 within an hour,
    for an hour (`spark.excludeOnFailure.application.maxFailedTasksPerExecutor`, `.timeout`); it looks at no successes.
    """

    def __init__(self, *, failures: int, window_s: float) -> None:
        """Make it; a suspicion takes this many *failures*, 0 for no suspicion ever."""
        self._needed = failures
        self._window_s = window_s
        self._records: dict[Life, _Record] = {}

    def failed(self, life: Life, work: Work, now_s: float) -> None:
        """Note a counted failure."""
        if self._needed:
            self._records.setdefault(life, _Record()).failures[work] = now_s

    def has_failed(self, life: Life) -> bool:
        """Return whether a failure of the executor is noted."""
        return life in self._records

    def succeeded(self, life: Life, work: Work, now_s: float) -> None:
        """Note a success; an executor that has not failed needs no record."""
        record = self._records.get(life)
        if record is not None:
            record.successes[work] = now_s

    def forget(self, life: Life) -> None:
        """Forget an executor's outcomes."""
        self._records.pop(life, None)

    def suspects(self, now_s: float, succeeds_elsewhere: Callable[[Work, str], bool]) -> Iterator[Suspect]:
        """Yield the executors that fail nearly everything; *succeeds_elsewhere* takes a task and an executor."""
        for life, record in list(self._records.items()):
            self._drop_old(record, now_s)
            if not record.failures:
                del self._records[life]
                continue
            if len(record.failures) < max(self._needed, _SUCCESS_WEIGHT * len(record.successes)):
                continue
            proven = sum(succeeds_elsewhere(work, life[0]) for work in record.failures)
            if proven >= self._needed:
                yield Suspect(life, len(record.failures), len(record.successes))

    def _drop_old(self, record: _Record, now_s: float) -> None:
        for seen in (record.failures, record.successes):
            for work in [w for w, at_s in seen.items() if now_s - at_s > self._window_s]:
                del seen[work]
