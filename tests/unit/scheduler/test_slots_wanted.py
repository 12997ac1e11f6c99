"""How many slots are wanted, as reported to KEDA."""

from types import SimpleNamespace

import pytest

from onager.clock import SystemClock
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.cluster.job_loads import UNKNOWN_TASKS, JobLoads
from onager.scheduler.jobs.job_heads import JobHeads, JobTerms, head_of
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.slots_wanted import SlotClaim, slots_wanted
from tests.unit.scheduler.small_graphs import graph


@pytest.mark.parametrize(
    ("claims", "wanted"),
    [
        ([], 0),
        ([SlotClaim(5), SlotClaim(3)], 8),
        ([SlotClaim(0)], 1),  # a retry is due soon, or the next stage
        ([SlotClaim(50, "s", 4), SlotClaim(50, "s", 4)], 4),
        ([SlotClaim(50, "s", 4), SlotClaim(50, "t", 4)], 8),
        ([SlotClaim(2, "s", 4), SlotClaim(50, "s", 10)], 10),
        ([SlotClaim(50, "s", 4), SlotClaim(3, "s", 10)], 7),
        ([SlotClaim(6, "s"), SlotClaim(50, "s", 4)], 6),  # the limit is reached without it
        ([SlotClaim(1, "s"), SlotClaim(50, "s", 4)], 4),
    ],
)
def test_what_jobs_could_use_within_the_limits_of_their_sessions(claims, wanted):
    assert slots_wanted(claims) == slots_wanted(reversed(claims)) == wanted


def test_a_number_that_is_only_assumed_does_not_start_executors(backend, clock):
    """A scheduler asks for a job's tasks if it sees the job's head before anybody reports tasks to it."""
    heads = JobHeads(backend, clock, interval_ms=500)
    ownership = SimpleNamespace(follows=lambda _: False, is_mine=lambda _: False)
    queue = FairQueue()
    loads = JobLoads(queue, FairQueue(), heads, ownership, SystemClock())
    head = head_of(graph(), JobTerms()).model_copy(update={"stages": 3})
    heads.seen(head, 5)
    loads.on_head(JobId("job-1"), head)
    assert queue.available == UNKNOWN_TASKS
    assert slots_wanted(loads.claims()) == 1
    assert loads.tasks() == (0, 1)
    loads.take_loads([pb.JobLoad(job_id="job-1", running=1, available=5, log_seq=7, head_revision=5)])
    assert slots_wanted(loads.claims()) == 6
    assert loads.tasks() == (1, 5)
