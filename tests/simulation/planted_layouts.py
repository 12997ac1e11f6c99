"""Bugs in how stages are laid out by what was measured; see `planted`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from msgspec.structs import replace

from onager.execution_graph import ExecutionGraph, ResolvedStage, lay_out
from onager.execution_graph.events import StageLaidOut
from onager.execution_graph.layout_changes import _fused, _with_reads
from onager.protocol import onager_pb2 as pb
from onager.scheduler.engine import query_coordinator, stage_coordinator

_read = stage_coordinator._read


@contextmanager
def _late_layout_counts() -> Iterator[None]:
    """A layout that was decided for an earlier graph is committed, and no one asks whether its basis has changed."""
    decided: dict[str, tuple[StageLaidOut, ...]] = {}

    def late(graph: ExecutionGraph, slots: int, at_ms: int) -> tuple[StageLaidOut, ...]:
        before = decided.pop(graph.job_id, ())
        if found := lay_out(graph, slots, at_ms):
            decided[graph.job_id] = found
        return before

    def apply(graph: ExecutionGraph, event: StageLaidOut) -> ExecutionGraph:
        if any(graph.stages[i].spec.layout is not None for i in (event.stage_id, *event.fused)):
            return graph
        group = {i: graph.stages[i] for i in (*event.fused, event.stage_id)}
        inputs = sorted({i.stage_id for stage in group.values() for i in stage.spec.inputs} - group.keys())
        return _fused(graph, event, group, inputs) if event.fused else _with_reads(graph, event)

    with (
        mock.patch.object(query_coordinator, "lay_out", late),
        mock.patch("onager.execution_graph.transitions.on_stage_laid_out", apply),
    ):
        yield


def _merge_drops_a_bucket() -> AbstractContextManager[Any]:
    """A task that reads several buckets gets all but the last one."""

    def read(found: Any) -> pb.TaskRead:
        reported = _read(found)
        reported.end_bucket = max(reported.first_bucket + 1, reported.end_bucket - 1)
        return reported

    return mock.patch.object(stage_coordinator, "_read", read)


def _fused_stage_is_launched() -> AbstractContextManager[Any]:
    """What another stage's task computes keeps its own tasks, too."""

    def apply(graph: ExecutionGraph, event: Any, group: Any, inputs: Any) -> ExecutionGraph:
        after = _fused(graph, event, group, inputs)
        stages = list(after.stages)
        for i in event.fused:
            stages[i] = ResolvedStage(spec=replace(graph.stages[i].spec, inputs=()), attempt=graph.stages[i].attempt)
        return replace(after, stages=tuple(stages))

    return mock.patch("onager.execution_graph.layout_changes._fused", apply)


OF_LAYOUTS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "late-layout-counts": _late_layout_counts,
    "merge-drops-a-bucket": _merge_drops_a_bucket,
    "fused-stage-launched": _fused_stage_is_launched,
}
