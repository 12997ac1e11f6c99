"""Which executors' free slots a replica reserves for which jobs: pure policies over what is free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from onager.ids import ExecutorId, JobId


class TaskDistribution(StrEnum):
    """How tasks are spread over executors."""

    BIAS = "bias"
    """One executor is filled before the next: the others stay free, and may be taken away."""
    ROUND_ROBIN = "round-robin"
    """The emptiest executor is next, so that all share the work."""
    LOCALITY = "locality"
    """Where the stage's plan and its input are, else round robin."""


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """What is free of one executor."""

    executor_id: ExecutorId
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Place:
    """A slot to reserve, and the job that it is for."""

    executor_id: ExecutorId
    job_id: JobId


Affinity = Callable[[JobId, ExecutorId], float]
"""How much of what a job's next tasks need an executor has; 0 for nothing."""


def distribute(
    policy: TaskDistribution,
    slots: Sequence[FreeSlots],
    claims: Sequence[JobId],
    affinity: Affinity,
    fits: Callable[[JobId, ExecutorId], bool] = lambda *_: True,
) -> list[Place]:
    """Return a slot for each of *claims*, jobs in the order of their right to one, where one is left that fits."""
    left = {s.executor_id: s.free for s in slots if s.free > 0}
    total = {s.executor_id: max(1, s.total) for s in slots}
    places: list[Place] = []

    def emptiest(executor_id: ExecutorId) -> tuple[float, int, ExecutorId]:
        return -left[executor_id] / total[executor_id], -left[executor_id], executor_id

    for job_id in claims:
        if not left:
            break
        fit = [executor_id for executor_id in left if fits(job_id, executor_id)]
        if not fit:
            continue
        match policy:
            case TaskDistribution.BIAS:
                chosen = min(fit, key=lambda e: (left[e] / total[e], e))
            case TaskDistribution.ROUND_ROBIN:
                chosen = min(fit, key=emptiest)
            case TaskDistribution.LOCALITY:
                chosen = min(fit, key=lambda e: (-affinity(job_id, e), *emptiest(e)))
            case _:
                assert_never(policy)
        places.append(Place(chosen, job_id))
        left[chosen] -= 1
        if not left[chosen]:
            del left[chosen]
    return places
