"""Runs planned queries with growing stages: their feeds first, and then each stage, portion by portion."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from onager.executor.spark import plan_codec
from onager.executor.spark.running.binder import FoundPortion
from onager.protocol import onager_pb2 as pb
from onager.testing.job import JobRun
from onager.testing.layout import Laid
from onager.testing.run import rows_of
from tests.support.spark.one_executor import TIMEOUT_S, OneExecutor


class Portion(NamedTuple):
    """What some of a stage's tasks read."""

    first: int
    partitions: int
    content: bytes


def found_by(one: OneExecutor, outcome: pb.PlanOutcome, stage: pb.PlannedStage) -> list[FoundPortion]:
    """Return all that the feed of a growing *stage* finds, portion after portion."""
    blobs = {blob.digest: blob.content for blob in outcome.blobs}
    source = plan_codec.decode(blobs[outcome.stages[stage.feed_stage_id - 1].plan_digest])
    found: list[FoundPortion] = []
    before = blobs[stage.portions[-1].digest]
    while not found or not found[-1].ended:
        found.append(one.runner.next_portion(source, before))
        before = found[-1].content
    return found


class GrownRun(JobRun):
    """A job whose feeds have ended."""

    def __init__(self, one: OneExecutor, job_id: str, outcome: pb.PlanOutcome) -> None:
        blobs = {blob.digest: blob.content for blob in outcome.blobs}
        query = [stage for stage in outcome.stages if stage.work == pb.QUERY]
        self.portions = {stage.stage_id: _portions(one, outcome, stage) for stage in query if stage.feed_stage_id}
        laid: dict[int, Laid] = {}
        for stage in query:
            given = self.portions.get(stage.stage_id)
            tasks = stage.partitions if given is None else sum(each.partitions for each in given)
            laid[stage.stage_id] = Laid(tasks, tuple(sorted(source.stage_id for source in stage.inputs)))
        super().__init__([one.runner], job_id, {stage.stage_id: blobs[stage.plan_digest] for stage in query}, laid)

    def _start(self, at: int, stage: Any, partitions: Sequence[int]) -> None:
        if stage.stage_id not in self.portions:
            super()._start(at, stage, partitions)
            return
        for portion in self.portions[stage.stage_id]:
            end = portion.first + portion.partitions
            mine = [p for p in partitions if portion.first <= p < end]
            if mine:
                made = self._task_set(stage, mine)
                made.partitions, made.portion.first_partition = end, portion.first
                made.portion.digest = plan_codec.digest(portion.content)
                self._runners[at].run(made, stage.plans[at], self._came.put, {}, portion.content)


def _portions(one: OneExecutor, outcome: pb.PlanOutcome, stage: pb.PlannedStage) -> list[Portion]:
    (planned,) = stage.portions
    content = next(blob.content for blob in outcome.blobs if blob.digest == planned.digest)
    given = [FoundPortion(content, planned.partitions, 0, ended=False), *found_by(one, outcome, stage)]
    portions, first = [], 0
    for each in given:
        portions.append(Portion(first, each.partitions, each.content))
        first += each.partitions
    return portions


def rows_grown(one: OneExecutor, outcome: pb.PlanOutcome) -> list[tuple[Any, ...]]:
    """Return the rows of a query with growing stages."""
    one.jobs += 1
    job = GrownRun(one, one.job_id, outcome)
    try:
        job.run(TIMEOUT_S)
        return [row for table in job.partitions(str(one.directory)) for row in rows_of(table)]
    finally:
        one.runner.close_job(one.job_id)


__all__ = ["FoundPortion", "GrownRun", "found_by", "rows_grown"]
