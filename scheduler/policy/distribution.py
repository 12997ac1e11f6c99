"""The order in which executors' free slots are filled: pure policies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from onager.ids import ExecutorId, JobId


class TaskDistribution(StrEnum):
    """How tasks are spread over executors."""

    BIAS = "bias"
    """Fill one executor before the next: the others stay free, and may be removed."""
    ROUND_ROBIN = "round-robin"
    """Fill the emptiest executor next, so that all share the work."""
    LOCALITY = "locality"
    """Prefer executors that wrote most of the stage's input, else round robin."""


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """The free slots of one executor."""

    executor_id: ExecutorId
    free: int
    total: int


Place = tuple[ExecutorId, JobId | None]
"""A free slot, and the job that it is for, if any."""
Affinity = Callable[[JobId, ExecutorId], float]
"""The share of a job's next input that an executor has; 0 for none."""


def spread(policy: TaskDistribution, slots: Sequence[FreeSlots], wanted: int) -> list[Place]:
    """Return up to *wanted* free slots, in the order in which to fill them with tasks of any job."""
    if policy is TaskDistribution.BIAS:
        fullest = sorted(slots, key=lambda s: (s.free / max(1, s.total), s.executor_id))
        places: list[Place] = [(s.executor_id, None) for s in fullest for _ in range(s.free)]
        return places[:wanted]
    found: list[Place] = []
    left = sorted(slots, key=lambda s: (-s.free / max(1, s.total), -s.free, s.executor_id))
    taken = 0
    while len(found) < wanted and (left := [s for s in left if s.free > taken]):
        found += [(s.executor_id, None) for s in left]
        taken += 1
    return found[:wanted]


def near_their_input(slots: Sequence[FreeSlots], claims: Sequence[JobId], affinity: Affinity) -> list[Place]:
    """Return a slot for each of *claims*, jobs in the order of their claims, as long as slots are left."""
    left = {s.executor_id: s.free for s in slots if s.free > 0}
    total: Mapping[ExecutorId, int] = {s.executor_id: max(1, s.total) for s in slots}
    places: list[Place] = []
    for job_id in claims:
        if not left:
            break
        chosen = min(left, key=lambda e: (-affinity(job_id, e), -left[e] / total[e], -left[e], e))
        places.append((chosen, job_id))
        left[chosen] -= 1
        if not left[chosen]:
            del left[chosen]
    return places
