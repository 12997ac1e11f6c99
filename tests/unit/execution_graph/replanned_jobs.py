"""Jobs of which the rest is planned again."""

from typing import Literal

from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    StageInput,
    StageReplanned,
    StageSpec,
    find_replan,
)
from onager.execution_graph.events import ReplanBegun
from tests.unit.execution_graph.builder import METRICS, Job, new_graph, stage

Side = Literal["", "shuffled", "broadcast"]


def joining(stage_id: int, *reads: int, side: Side = "shuffled", kind: Literal["exchange", "result"] = "exchange"):
    """Return a stage that joins what it reads."""
    return replace(
        stage(stage_id, reads=reads, kind=kind), inputs=tuple(StageInput(i, "bucket", side=side) for i in reads)
    )


def adaptive(
    *stages: StageSpec, mode: Literal["", "on", "force"] = "on", frame: str = "frame", most: int = 1_000
) -> Job:
    """Return a job that may be planned again; up to *most* bytes are broadcast."""
    job = Job(graph=new_graph(adaptive=AdaptivePolicy(fuse_bytes=0, replan=mode)))
    job.launch("planner")
    planned = job.plan(*stages)
    assert job.feed(replace(planned, summary=replace(planned.summary, frame_digest=frame, broadcast_bytes=most)))
    return job


TWO_SIDES = (stage(1), stage(2, 4), joining(3, 1, 2), stage(4, reads=(3,), kind="result"))


def done(job: Job, stage_id: int, *, rows: int = 10, size: int = 100, in_memory: int = 0, executor: str = "a") -> None:
    """Run all tasks of a stage, each of which gives so many rows and bytes; these may take more in memory."""
    count = job.stage(stage_id).spec.partitions
    launched = job.launch(executor, count)
    assert launched.stage_id == stage_id
    for partition in range(count):
        success = job.success(stage_id, partition)
        cost = replace(success.metrics, rows_out=rows, bytes_out=size, plain_bytes_out=in_memory)
        job.feed(replace(success, output=replace(success.output, rows=rows, bytes=size), metrics=cost))


def begun(job: Job) -> ReplanBegun:
    """Begin the re-plan that is due in the job."""
    event = find_replan(job.graph, job.tick())
    assert isinstance(event, ReplanBegun)
    assert job.feed(event)
    assert not job.feed(event), "it begins once"
    return event


def replanned(
    job: Job, *stages: StageSpec, dropped: tuple[int, ...] = (), result: int = 0, **more: object
) -> StageReplanned:
    """Return the report of the running re-plan."""
    replan = job.graph.replan
    assert replan is not None
    task = job.held(replan.replan_id, 0)
    return StageReplanned(
        replan_id=replan.replan_id,
        task_attempt=task.attempt,
        executor_id=task.executor_id,
        basis=replan.basis,
        dropped=dropped,
        stages=stages,
        result_stage_id=result,
        frame_digest="frame 2" if stages else "",
        decisions=("stage 1 is broadcast",),
        metrics=METRICS,
        at_ms=job.tick(),
        **more,  # type: ignore[arg-type]
    )


def swapped(first: int) -> tuple[StageSpec, ...]:
    """Return the stages of a plan that broadcasts stage 1: a broadcast join over the other side, and the rest."""
    join = replace(stage(first, 4), inputs=(StageInput(1, "all"),))
    return join, replace(stage(first + 1, reads=(first,)), output=stage(4, kind="result").output)


def with_due_replan() -> Job:
    """Return a job of which one side is done and small, and the other has not begun."""
    job = adaptive(*TWO_SIDES)
    done(job, 1)
    return job
