"""Plans the rest of a run again whenever a stage is done, by sizes that are a thousand times off: any plan must do.

A cluster plans again where what it has measured may make a better plan. What is small in a test makes none, so here it
is done wherever it may be, and by other sizes than were measured, so that small tests meet other plans.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from onager.execution_graph.replan_changes import MAX_REPLANS
from onager.executor.spark import plan_codec
from onager.executor.spark.planning import replan
from onager.executor.spark.stage_plan import buckets_of
from onager.ids import BlobDigest
from onager.protocol import onager_pb2 as pb
from onager.testing.config import Replanning
from onager.testing.stages import Stage, StageGraph, stage_of


class Measured(NamedTuple):
    """What a stage has given."""

    rows: int
    size: int
    """In bytes of memory."""


class Replans:
    """The re-plans of one run of a query."""

    def __init__(self, session: SparkSession, graph: StageGraph, how: Replanning) -> None:
        """Plan *graph*, which has a frame, again in *session*."""
        self._session = session
        self._how = how
        self._frame = graph.frame
        self._schema = graph.schema
        self._stages = {stage.stage_id: stage for stage in graph.stages}
        self._known: frozenset[int] = frozenset()
        self.descriptions: list[str] = []
        """What came of each re-plan."""

    @property
    def graph(self) -> StageGraph:
        """Return all stages, also those that never ran; the last one gives the result."""
        return StageGraph(tuple(self._stages.values()), self._schema)

    def next_stages(self, done: Mapping[int, Measured]) -> Mapping[int, bytes] | None:
        """Return the encoded stages that take the place of all but those that are *done*; None: the plan is kept.

        No other stage has begun.
        """
        if not self._frame or done.keys() <= self._known or len(self.descriptions) == MAX_REPLANS:
            return None
        new = ", ".join(map(str, sorted(done.keys() - self._known)))
        self._known |= done.keys()
        digest = plan_codec.digest(self._frame)
        first = max(self._stages) + 1
        task = pb.ReplanTask(
            frame_digest=digest,
            begun=[self._begun(stage_id, measured) for stage_id, measured in done.items()],
            first_stage_id=first,
            falsify=self._how if self._how != "mixed" else f"re-plan {len(self.descriptions)}",
        )
        outcome = replan(task, self._session, {BlobDigest(digest): self._frame})
        what = "a new plan" if outcome.stages else "the plan is kept"
        self.descriptions.append(f"stage {new} is done; {what}: {'; '.join(outcome.decisions)}")
        if not outcome.stages:
            return None
        blobs = {blob.digest: blob.content for blob in outcome.blobs}
        self._frame = blobs.get(outcome.frame_digest, b"")
        self._stages |= {each.stage_id: stage_of(each, blobs[each.plan_digest]) for each in outcome.stages}
        return {each.stage_id: blobs[each.plan_digest] for each in outcome.stages}

    def _begun(self, stage_id: int, measured: Measured) -> pb.BegunStage:
        stage = self._stages[stage_id]
        return pb.BegunStage(
            stage_id=stage_id,
            finished=True,
            repeatable=self._is_repeatable(stage),
            rows=measured.rows,
            bytes=measured.size,
            tasks=stage.tasks,
            buckets=buckets_of(plan_codec.decode(stage.encoded).output),
        )

    def _is_repeatable(self, stage: Stage) -> bool:
        """Return whether *stage* would give the same rows if it, and everything before it, ran again."""
        return stage.is_deterministic and all(self._is_repeatable(self._stages[read.stage_id]) for read in stage.inputs)
