"""The bytes of each job in the exchange directory: added up as outputs come, since watchers ask all the time."""

from collections.abc import Sequence
from typing import NamedTuple

from immutables import Map

from onager.execution_graph import Event, ExecutionGraph, JobState, Stage, StageWork, TaskOutput, TaskSucceeded
from onager.ids import JobId


class _Total(NamedTuple):
    outputs: "Map[int, TaskOutput]"
    """The outputs that were added up."""
    bytes: int


class ExchangeSizes:
    """The totals of requested stages of active jobs."""

    def __init__(self) -> None:
        self._totals: dict[str, dict[int, _Total]] = {}

    def learn(
        self, job_id: JobId, before: ExecutionGraph | None, graph: ExecutionGraph, events: Sequence[Event]
    ) -> None:
        """Take in that *events* led from *before* to *graph*; any other change is added up afresh."""
        if not graph.is_active:
            self.forget(job_id)
            return
        if before is None:
            self._totals[job_id] = {}
            return
        totals = self._totals.setdefault(job_id, {})
        added: dict[int, list[int]] = {}
        for event in events:
            if isinstance(event, TaskSucceeded):
                added.setdefault(event.stage_id, []).append(_size(event.output))
        for stage_id, sizes in added.items():
            if stage_id not in totals or stage_id >= min(len(graph.stages), len(before.stages)):
                continue
            known, old = totals[stage_id], before.stages[stage_id].ledger.outputs
            new = graph.stages[stage_id].ledger.outputs
            if known.outputs is old and len(new) == len(old) + len(sizes):  # each is the first of its partition
                totals[stage_id] = _Total(new, known.bytes + sum(sizes))

    def of(self, graph: ExecutionGraph) -> int:
        """Return the reported bytes of a job: of all its outputs, or once it has ended of its result alone."""
        if not graph.is_active:
            is_kept = graph.state is JobState.SUCCESSFUL and graph.result_stage is not None
            return _sum(graph.result_stage) if is_kept and graph.result_stage is not None else 0
        totals = self._totals.get(graph.job_id, {})  # no totals are kept of a job that has ended meanwhile
        found = 0
        for stage in graph.stages:
            if stage.spec.output.kind == "exchange" and graph.is_streaming:
                continue
            known = totals.get(stage.spec.stage_id)
            if known is None or known.outputs is not stage.ledger.outputs:
                known = totals[stage.spec.stage_id] = _Total(stage.ledger.outputs, _sum(stage))
            found += known.bytes
        return found

    def forget(self, job_id: JobId) -> None:
        """Drop a job."""
        self._totals.pop(job_id, None)


def _sum(stage: Stage) -> int:
    is_query = stage.spec.work is StageWork.QUERY
    return sum(map(_size, stage.ledger.outputs.values())) if is_query else 0


def _size(output: TaskOutput) -> int:
    return 0 if output.is_inline or output.files else output.bytes
