"""Lays out the stages of a run otherwise than they were planned, as far as their plans allow it.

A cluster does so where sizes ask for it; here it is done wherever it may be, so that small tests meet it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from onager.protocol import onager_pb2 as pb

if TYPE_CHECKING:
    from onager.testing.stages import Stage

Layout = Literal["planned", "merged", "split", "fused", "fused whole"]


@dataclass(frozen=True, slots=True)
class Laid:
    """A stage as it runs."""

    tasks: int
    inputs: tuple[int, ...]
    """The stages that it reads, by id."""
    fused: tuple[int, ...] = ()
    """Stages that its only task computes, too."""
    reads: tuple[pb.TaskRead, ...] = ()


def lay_out(layout: Layout, stages: "Sequence[Stage]") -> Mapping[int, Laid]:
    """Return the stages that run, producers before consumers, as *stages* are.

    "merged": each task reads two neighbouring buckets; "split": two tasks read each bucket; "fused": what reads other
    stages becomes one task, as far down as it may; "fused whole": the stages that read none are a part of it, too.
    """
    if layout in {"fused", "fused whole"}:
        return _fused(stages, with_leaves=layout == "fused whole")
    laid: dict[int, Laid] = {}
    for stage in stages:
        reads: tuple[pb.TaskRead, ...] = ()
        if layout == "merged" and stage.may_merge:
            reads = _merged(stage.tasks)
        elif layout == "split" and stage.may_merge and stage.may_split:
            reads = _split(stage, laid)
        laid[stage.stage_id] = Laid(len(reads) or stage.tasks, tuple(sorted(stage.reads)), reads=reads)
    return laid


def _merged(buckets: int) -> tuple[pb.TaskRead, ...]:
    bounds = [*range(0, buckets, 2), buckets]
    return tuple(pb.TaskRead(first_bucket=first, end_bucket=end) for first, end in pairwise(bounds))


def _split(stage: "Stage", laid: Mapping[int, Laid]) -> tuple[pb.TaskRead, ...]:
    """Return two reads of each bucket; of several inputs that may be split, each is in turn."""
    sides = sorted(stage.may_split)
    reads = []
    for bucket in range(stage.tasks):
        side = sides[bucket % len(sides)]
        producers = laid[side].tasks
        for first, end in pairwise((0, producers // 2, producers)):
            reads.append(
                pb.TaskRead(
                    first_bucket=bucket,
                    end_bucket=bucket + 1,
                    split_stage_id=side,
                    first_producer=first,
                    end_producer=end,
                )
            )
    return tuple(reads)


def _fused(stages: "Sequence[Stage]", *, with_leaves: bool) -> Mapping[int, Laid]:
    readers = Counter(producer for stage in stages for producer in stage.reads)
    by_id = {stage.stage_id: stage for stage in stages}
    laid: dict[int, Laid] = {}
    gone: set[int] = set()

    def may_be_part(stage: "Stage") -> bool:
        return stage.may_fuse and (with_leaves or bool(stage.reads))

    def parts_below(stage: "Stage") -> list[int]:
        parts = [i for i in sorted(stage.reads) if readers[i] == 1 and may_be_part(by_id[i])]
        return [each for part in parts for each in (*parts_below(by_id[part]), part)]

    for stage in reversed(stages):  # the largest first
        if stage.stage_id in gone:
            continue
        fused = parts_below(stage) if may_be_part(stage) else []
        gone.update(fused)
        group = {stage.stage_id, *fused}
        inputs = sorted({i for each in group for i in by_id[each].reads} - group)
        laid[stage.stage_id] = Laid(1 if fused else stage.tasks, tuple(inputs), fused=tuple(sorted(fused)))
    return {stage.stage_id: laid[stage.stage_id] for stage in stages if stage.stage_id in laid}
