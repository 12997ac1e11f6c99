"""A job in every state that a record can have."""

import re

from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    FailureKind,
    JobCancelled,
    LaunchesRepeated,
    OutputsTaken,
    RetryLimits,
    SpeculationPolicy,
    StageInput,
    Streaming,
    TakenOutput,
    TaskRead,
    find_stragglers,
    sizes_text,
)
from onager.execution_graph.events import ReplanBegun, ReplanGivenUp, StageLaidOut, StreamingAbandoned
from tests.unit.execution_graph.builder import (
    SINK,
    Job,
    chain,
    feed,
    output,
    planned,
    stage,
    with_sink,
)
from tests.unit.execution_graph.replanned_jobs import begun, replanned, swapped, with_due_replan


def unresolved_and_resolved() -> Job:
    return planned(*chain(2))


def running_with_everything() -> Job:
    """Outputs, running, returned and fresh partitions; counters of every sort."""
    job = planned(*chain(2, partitions=8), is_shared=False)
    job.launch("a", 4, list_number=3)
    job.launch("b", 2)
    job.succeed(1, 0, 4)
    job.fail(1, 1, FailureKind.IO_ERROR)
    job.feed(
        LaunchesRepeated(stage_id=1, stage_attempt=0, executor_id="b", list_number=9, tasks=((5, 0),), at_ms=job.tick())
    )
    job.lose("a")
    return job


def rolled_back() -> Job:
    job = planned(*chain(3), is_shared=False)
    job.run(1, "a")
    job.run(2, "b")
    job.lose("a")
    job.launch("c")
    job.feed(job.cannot_fetch(3, 0, 2, 0))
    return job


def successful() -> Job:
    job = planned(*with_sink(stage(1, 2)))
    job.finish()
    return job


def failed() -> Job:
    job = planned(stage(1))
    job.launch()
    event = job.failed(1, 0, FailureKind.USER_ERROR)
    failure = replace(
        event.failure, error_class="DIVIDE_BY_ZERO", sql_state="22012", query_context="1/0", details="at …"
    )
    job.feed(replace(event, failure=failure))
    return job


def cancelled() -> Job:
    job = planned(stage(1))
    job.feed(JobCancelled(reason='"enough" ☂', at_ms=5))
    return job


def fused() -> Job:
    job = Job()
    job.launch("planner")
    job.feed(job.plan(stage(1, 1), fused=output("n", is_shared=False)))
    return job


def speculating() -> Job:
    """Second attempts: one that runs, one that waits, one that has won."""
    job = planned(stage(1, 6), speculation=SpeculationPolicy(quantile=0.5, min_task_runtime_ms=1))
    job.launch("a")
    job.succeed(1, 0, 1, 2)
    job.speculate("s")
    job.feed(job.success(1, 3, job.second(1, 3)))
    job.fail(1, 5, FailureKind.TASK_KILLED)
    job.feed(find_stragglers(job.graph, ["b"], job.now_ms + 5_000)[0])
    return job


def pausing() -> Job:
    """A failed task that waits for its next try."""
    job = planned(stage(1, 3), limits=RetryLimits(retry_pauses_ms=(500, 2_000)))
    job.launch("a", 2)
    job.fail(1, 1, FailureKind.IO_ERROR)
    return job


def replanned_twice() -> Job:
    """A new plan, and a re-plan that took too long."""
    job = with_due_replan()
    begun(job)
    job.launch("b", 1)
    job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7))
    job.feed(
        ReplanBegun(replan_id=8, basis=((1, 0),), finished=(1,), held=(6, 7), why="a try", at_ms=job.tick()),
    )
    job.feed(ReplanGivenUp(replan_id=8, reason="it took too long", at_ms=job.tick()))
    return job


def streaming() -> Job:
    """Stages that run together."""
    job = planned(*chain(3), streaming=Streaming())
    for _ in range(3):
        job.launch("a")
    job.succeed(1, 0)
    return job


def abandoned() -> Job:
    job = streaming()
    job.feed(StreamingAbandoned(reason="no executor can", at_ms=job.tick()))
    return job


def laid_out() -> Job:
    """A stage that was fused into another, and one whose tasks read several buckets, or parts of one."""
    split = (StageInput(1, "bucket", may_split=True),)
    last = replace(stage(4, reads=(1, 3)), inputs=(*split, StageInput(3, "all")))
    job = planned(stage(1), *(replace(s, may_fuse=True) for s in (stage(2), stage(3, reads=(2,)))), last,
                  adaptive=AdaptivePolicy())  # fmt: skip
    job.feed(StageLaidOut(stage_id=3, basis=((2, 0), (3, 0)), fused=(2,), at_ms=job.tick()))
    job.launch("a")
    job.launch("b")
    for stage_id, partition in ((1, 0), (1, 1), (3, 0)):
        made = job.success(stage_id, partition)
        job.feed(replace(made, output=replace(made.output, bucket_sizes=sizes_text(bytes(2), 2, 2))))
    reads = (
        TaskRead(first_bucket=0, end_bucket=1),
        TaskRead(first_bucket=1, end_bucket=2, split_stage_id=1, first_producer=0, end_producer=1),
        TaskRead(first_bucket=1, end_bucket=2, split_stage_id=1, first_producer=1, end_producer=2),
    )
    job.feed(StageLaidOut(stage_id=4, basis=((1, 0), (3, 0), (4, 0)), reads=reads, at_ms=job.tick()))
    assert job.states() == ["successful", "fused", "successful", "resolved"]
    return job


def growing() -> Job:
    """A stage that was given a portion, and whose feed goes on; another one whose feed has ended."""
    job = planned(feed(1), stage(2, fed_by=1), feed(3), stage(4, fed_by=3), stage(5, reads=(2, 4)))
    job.launch("a", 1)
    job.launch("a", 2)
    job.launch("a", 1)
    job.feed(job.found(1, 3))
    job.feed(job.found(3, 1, is_last=True))
    return job


def reusing() -> Job:
    first, second = chain(2)
    job = planned(first, replace(second, fingerprint="f"), stage(3, reads=(2,), kind="result"))
    taken = TakenOutput(stage_id=2, job_id="other", of_stage_id=7, fingerprint="f", outputs=(output("x"), output("y")))
    assert job.feed(OutputsTaken(taken=(taken,), at_ms=job.tick()))
    return job


def partitioned() -> Job:
    """Its output has directories by columns."""
    job = Job()
    job.launch("a")
    job.feed(job.plan(*with_sink(stage(1, 2)), sink=replace(SINK, partition_by=("d", "k"))))
    job.finish()
    return job


def foreign() -> Job:
    """It writes a table of another catalog."""
    job = Job()
    job.launch("a")
    job.feed(job.plan(*with_sink(stage(1, 2)), sink=replace(SINK, foreign='{"catalog": "ice"}')))
    job.finish()
    return job


JOBS = [
    Job,
    foreign,
    partitioned,
    growing,
    reusing,
    unresolved_and_resolved,
    running_with_everything,
    rolled_back,
    successful,
    failed,
    cancelled,
    fused,
    speculating,
    pausing,
    streaming,
    abandoned,
    laid_out,
    replanned_twice,
]


def with_version(data: bytes, version: str) -> bytes:
    return re.sub(rb'"schema_version":"[0-9.]+"', f'"schema_version":"{version}"'.encode(), data, count=1)
