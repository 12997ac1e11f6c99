"""The stages of a plan as a planning task reports them, with their encoded plans."""

from collections.abc import Sequence

from onager.executor.spark import plan_codec
from onager.executor.spark.planning.cut_stages import CutStage
from onager.executor.spark.stage_plan import ExchangeInput, ResultOutput, buckets_of
from onager.protocol import onager_pb2 as pb

MAX_TEXT = 64 * 1024
"""How many characters of a plan's text are kept for people."""


def add_stages(outcome: pb.PlanOutcome, stages: Sequence[CutStage], result: pb.OutputLayout) -> None:
    """Add *stages* to *outcome*, with their plans as blobs; *result*: how the last one gives the job's result."""
    blobs: dict[str, bytes] = {}
    for stage in stages:
        encoded = plan_codec.encode(stage.plan)
        digest = plan_codec.digest(encoded)
        blobs[digest] = encoded
        if stage.feed is not None:
            blobs[plan_codec.digest(stage.feed.portion)] = stage.feed.portion
        outcome.stages.append(_planned(stage, digest, result))
        if stage.expected_rows >= 0:
            outcome.estimates.add(stage_id=stage.stage_id, rows=stage.expected_rows)
    outcome.blobs.extend(pb.Blob(digest=digest, content=content) for digest, content in blobs.items())


def _planned(stage: CutStage, digest: str, result: pb.OutputLayout) -> pb.PlannedStage:
    reads: dict[int, str] = {}
    for source in stage.plan.inputs:
        if isinstance(source, ExchangeInput):
            read = "all" if source.reads_all or source.ordering or source.by_producer else "bucket"
            reads[source.stage_id] = "all" if reads.get(source.stage_id, read) == "all" else read
    match stage.plan.output:
        case ResultOutput():
            layout = result
        case output:
            layout = pb.OutputLayout(kind="exchange", buckets=buckets_of(output))
    planned = pb.PlannedStage(
        stage_id=stage.stage_id,
        name=stage.name,
        work=pb.Work.FEED if stage.is_feed else pb.Work.QUERY,
        plan_digest=digest,
        partitions=stage.plan.partitions if stage.feed is None else stage.feed.partitions,
        inputs=[
            pb.StageInput(
                stage_id=stage_id,
                read=read,
                may_split=stage_id in stage.may_split,
                side=stage.sides.get(stage_id, ""),
            )
            for stage_id, read in sorted(reads.items())
        ],
        output=pb.OutputLayout(kind="control") if stage.is_feed else layout,
        deterministic=stage.is_deterministic,
        plan=shortened(stage.text),
        leaf_bytes=stage.input_bytes,
        may_fuse=stage.may_fuse,
        may_merge=stage.may_merge,
        fingerprint=stage.fingerprint,
    )
    if stage.feed is not None:
        planned.feed_stage_id = stage.feed.stage_id
        planned.portions.add(digest=plan_codec.digest(stage.feed.portion), partitions=stage.feed.partitions)
    return planned


def shortened(text: str) -> str:
    """Return *text*, without what is too much for people."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n… ({len(text) - MAX_TEXT:,} characters more)"
