from types import SimpleNamespace

from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from scheduler.jobs.job_heads import JobTerms, head_of
from scheduler.tasks.fair_queue import FairQueue
from scheduler.tasks.job_loads import JobLoads
from tests.unit.scheduler.world import graph

JOB = JobId("job-1")


def test_what_another_replica_tells_again_is_no_news():
    """Else a task that no slot here is fit for would be asked for without end: each answer tells the load."""
    head = head_of(graph(), JobTerms())
    heads = SimpleNamespace(get=lambda _: head, revision=lambda _: 5)
    loads = JobLoads(FairQueue(), heads, SimpleNamespace(follows=lambda _: False, is_mine=lambda _: False))
    told = []
    loads.listen(told.append)
    load = pb.JobLoad(job_id=JOB, running=1, available=1, log_seq=7, head_revision=5)
    loads.take([load])
    loads.take([load])
    assert told == [JOB]
    loads.take([pb.JobLoad(job_id=JOB, running=1, available=2, log_seq=8, head_revision=5)])
    assert told == [JOB, JOB]


def test_nothing_is_told_of_a_job_of_which_only_the_head_was_seen():
    """What is not known is no number that a message could hold."""
    head = head_of(graph(), JobTerms())
    heads = SimpleNamespace(get=lambda _: head, revision=lambda _: 5)
    loads = JobLoads(FairQueue(), heads, SimpleNamespace(follows=lambda _: False, is_mine=lambda _: True))
    loads.on_head(JOB, head)
    assert loads.of([JOB]) == []
