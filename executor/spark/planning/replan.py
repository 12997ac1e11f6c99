"""Plans what is left of a query again, by what the stages that have begun measured: a task of its own.

It gives the stages of a new plan, which read what earlier ones have given or still give, or says why the plan is kept.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zlib import crc32

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from onager.errors import UnsupportedPlanError
from onager.executor.spark import plan_codec
from onager.executor.spark.jvm import Jvm, jvm_error, jvm_session
from onager.executor.spark.kernel.classes import REFUSED
from onager.executor.spark.kernel.queries import FrameTools, NewPlan
from onager.executor.spark.planning.boundaries import BegunStages
from onager.executor.spark.planning.cutter import Cutter
from onager.executor.spark.planning.encoded import add_stages
from onager.executor.spark.planning.frames import MAX_FRAME_BYTES, Frame
from onager.executor.spark.planning.job_session import session_with
from onager.ids import BlobDigest
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_PLAN_BYTES

log = structlog.get_logger()

LARGER: Final = "larger"
SMALLER: Final = "smaller"
_FALSE_BY: Final = 1_000
_OPERATORS: Final = {
    "SortMergeJoinExec": "sort-merge joins",
    "ShuffledHashJoinExec": "hash joins",
    "BroadcastHashJoinExec": "broadcast joins",
    "ShuffleExchangeExec": "exchanges",
    "LocalTableScanExec": "local relations",
    "EmptyRelationExec": "empty relations",
}
"""What is counted for people."""


def replan(task: pb.ReplanTask, spark: SparkSession, blobs: Mapping[BlobDigest, bytes]) -> pb.PlanOutcome:
    """Return the new plan of what is left, or, without stages, why the plan is kept."""
    frame = Frame.decoded(blobs[BlobDigest(task.frame_digest)])
    if frame.made_by != str(plan_codec.here()):
        return _kept(f"the query was planned by {frame.made_by}, and this executor is {plan_codec.here()}")
    with session_with(spark, frame.conf) as session, tempfile.TemporaryDirectory(prefix="onager-replan-") as scratch:
        try:
            new = FrameTools(Jvm.of(session)).replan(
                jvm_session(session), frame.kernel, [_for_kernel(each, frame, task.falsify) for each in task.begun]
            )
            why = _why_kept(new, frame, task)
            return _kept(why) if why else _taken(new, frame, task, session, Path(scratch))
        except UnsupportedPlanError as e:
            return _kept(f"the new plan cannot be distributed: {e}")
        except (Py4JJavaError, CapturedException) as e:
            origin = jvm_error(e)
            if origin is None or origin.getClass().getName() != REFUSED:
                raise
            return _kept(str(origin.getMessage()))


def _kept(why: str) -> pb.PlanOutcome:
    return pb.PlanOutcome(decisions=[why])


def _for_kernel(begun: pb.BegunStage, frame: Frame, falsify: str) -> dict[str, object]:
    """Return a stage as the kernel gets it; without the number of rows if another run may give other rows."""
    rows, size = begun.rows if begun.repeatable else -1, begun.bytes
    if falsify:
        rows, size = _false(rows, size, is_larger=_is_larger(falsify, begun.stage_id))
    return {
        "stage": begun.stage_id,
        "done": begun.finished,
        "sorted": begun.stage_id in frame.sorted_stages,
        "buckets": begun.buckets,
        "bytes": size,
        "rows": rows,
    }


def _is_larger(falsify: str, stage_id: int) -> bool:
    """Return whether sizes are made larger, and not smaller; *falsify* says so, or is a seed to draw it with."""
    return falsify == LARGER or (falsify != SMALLER and crc32(f"{falsify} {stage_id}".encode()) % 2 == 1)


def _false(rows: int, size: int, *, is_larger: bool) -> tuple[int, int]:
    """Return other numbers of rows and bytes than were measured.

    That there are none stays true, and a number of rows is an upper limit: Spark's rules conclude from both.
    """
    if is_larger:
        return (rows * _FALSE_BY if rows > 0 else rows), max(size, 1) * _FALSE_BY
    return (-1 if rows else rows), size // _FALSE_BY


def _why_kept(new: NewPlan, frame: Frame, task: pb.ReplanTask) -> str:
    facts = new.facts()
    begun = {each.stage_id for each in task.begun}
    covered = {*facts["put_in"], *(i for i in frame.subqueries.values() if i in begun)}
    below = list(covered)
    while below:
        found = set(frame.reads.get(below.pop(), ())) - covered
        covered |= found
        below += found
    if astray := begun - covered:
        return f"stage {min(astray)} has begun, and a new plan could not read it"
    if task.falsify:
        return ""
    if facts["dearer"]:
        return f"the new plan is dearer by Spark's measure: {_changes(facts['before'], facts['after'])}"
    return "" if facts["changed"] else "what was measured makes no other plan"


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return how many operators of some kinds there were, and are."""
    kinds = [kind for kind in _OPERATORS if before.get(kind, 0) != after.get(kind, 0)]
    return (
        ", ".join(f"{_OPERATORS[kind]} {before.get(kind, 0)} → {after.get(kind, 0)}" for kind in kinds)
        or "the same kinds"
    )


def _taken(new: NewPlan, frame: Frame, task: pb.ReplanTask, session: SparkSession, scratch: Path) -> pb.PlanOutcome:
    terms = frame.terms
    begun = {each.stage_id for each in task.begun}
    subqueries = {name: stage_id for name, stage_id in frame.subqueries.items() if stage_id in begun}
    cut = Cutter(
        session,
        new.plan,
        terms,
        dict(frame.conf),
        scratch,
        first_stage_id=task.first_stage_id,
        begun=BegunStages(frame.sorted_stages, subqueries),
    ).cut()
    facts = new.facts()
    outcome = pb.PlanOutcome(decisions=[_changes(facts["before"], facts["after"])])
    add_stages(outcome, cut.stages, pb.OutputLayout(kind="sink" if terms.is_sink else "result"))
    target = scratch / "frame"
    why_not = new.write(cut.exchanges, target)
    content = b"" if why_not else frame.with_stages(cut, target.read_bytes()).encoded()
    if why_not or len(content) > MAX_FRAME_BYTES:  # the rest is not planned again after this
        log.info("frame_not_kept", why=why_not or f"it has {len(content):,} bytes")
    else:
        outcome.frame_digest = plan_codec.digest(content)
        outcome.blobs.add(digest=outcome.frame_digest, content=content)
    if (size := outcome.ByteSize()) > MAX_PLAN_BYTES:
        return _kept(f"the new plan has {size:,} bytes, more than the {MAX_PLAN_BYTES:,} that fit a message")
    return outcome
