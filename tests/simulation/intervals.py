"""The intervals that are read from a job's log, held against its graph whenever a snapshot of it is stored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onager.execution_graph import ExecutionGraph, RunningStage
from onager.execution_graph.intervals import IntervalReader
from onager.scheduler.jobs.history import Entry

if TYPE_CHECKING:
    from tests.simulation.executions import SeenJob
    from tests.simulation.observer import Observer


def check(observer: "Observer", job: "SeenJob", entries: Sequence[Entry], graph: ExecutionGraph) -> None:
    """Attempts go on in the log, of which *entries* are all, as long as the graph has them in hand."""
    if job.intervals is None:
        assert job.submitted is not None
        job.intervals = IntervalReader(job.submitted)
    for entry in entries[job.intervals.position :]:
        job.intervals.read(entry.position, entry.batch)
    if job.intervals.is_partial:
        return
    running = [stage for stage in graph.stages if isinstance(stage, RunningStage) and graph.is_active]
    in_hand = {(s.spec.stage_id, s.attempt, p, task.attempt) for s in running for p, task in s.in_hand()}
    read = {attempt.key for attempt in job.intervals.in_hand()}
    if read != in_hand:
        observer.fail(f"the log of {job.job_id} tells that {sorted(read)} run, and {sorted(in_hand)} do")
