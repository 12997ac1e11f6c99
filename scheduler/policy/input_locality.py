"""Which executors wrote the input of a stage."""

from collections import Counter, OrderedDict
from typing import Final

from onager.execution_graph import ExecutionGraph, RunningStage, SuccessfulStage

_REMEMBERED: Final = 1_024


class InputLocality:
    """The bytes of stages' inputs by executor: added up once for each attempt, when all of its input is there."""

    def __init__(self) -> None:
        self._bytes: OrderedDict[tuple[str, int, int], Counter[str]] = OrderedDict()

    def affinity(self, graph: ExecutionGraph, executor_id: str) -> float:
        """Return the share of the input of the job's next tasks that the executor has written."""
        stages = (s for s in graph.stages if isinstance(s, RunningStage) and s.pending_count)
        stage = next(stages, None)
        return 0.0 if stage is None else self.part(graph, stage, executor_id)

    def part(self, graph: ExecutionGraph, stage: RunningStage, executor_id: str) -> float:
        """Return the share of the input of *stage* that the executor has written; 0 if there is no input."""
        key = (graph.job_id, stage.spec.stage_id, stage.attempt)
        found = self._bytes.get(key)
        if found is None:
            if not all(isinstance(graph.stages[source.stage_id], SuccessfulStage) for source in stage.spec.inputs):
                return 0.0  # its input is streamed
            found = self._bytes[key] = Counter()
            for source in stage.spec.inputs:
                for output in graph.stages[source.stage_id].ledger.outputs.values():
                    found[output.executor_id] += output.bytes
                    found[""] += output.bytes
            if len(self._bytes) > _REMEMBERED:
                self._bytes.popitem(last=False)
        return found[executor_id] / (found[""] or 1)
