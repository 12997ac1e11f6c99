"""How many slots the active jobs could use, for whoever decides how many executors there are."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """What one active job could use."""

    tasks: int
    """Its tasks that run, or wait for a slot."""
    session: str = ""
    session_max_tasks: int = 0
    """How many tasks its session may have running for it to get another one; 0 for any number."""

    @property
    def slots(self) -> int:
        """Return at least 1: a job with nothing to run now has a retry due soon, or its next stage."""
        return max(1, self.tasks)


def slots_wanted(claims: Iterable[SlotClaim]) -> int:
    """Return the slots that all jobs together could use; more would stay free.

    Within a session, a job with a limit gets what the jobs without one, and those with lower limits, leave of it.
    """
    sessions: dict[str, list[SlotClaim]] = defaultdict(list)
    for claim in claims:
        sessions[claim.session].append(claim)
    total = 0
    for jobs in sessions.values():
        wanted = sum(job.slots for job in jobs if not job.session_max_tasks)
        for job in sorted((job for job in jobs if job.session_max_tasks), key=lambda job: job.session_max_tasks):
            wanted += min(job.slots, max(0, job.session_max_tasks - wanted))
        total += wanted
    return total
