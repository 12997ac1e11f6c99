"""A job's plan as it ran: its stages in order, how each was bound, and what the operators measured.

Nobody waits for metrics: partitions whose metrics did not come count as not reported. Each partition counts once, with
its first success, whatever became of that output later; what making it again cost is in the stage's `wasted`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from onager.execution_graph import ExecutionGraph, FusedStage, Stage, SupersededStage
from onager.protocol import onager_pb2 as pb
from onager.scheduler import wire
from onager.scheduler.api.explained import explained
from onager.scheduler.api.operators import operators_of
from onager.scheduler.jobs.blobs import BlobStore

_PAGE_BYTES: Final = 2 * 1024 * 1024
_PAGE_STAGES: Final = 200


async def final_plan(
    graph: ExecutionGraph, infos: Sequence[pb.StageInfo], blobs: BlobStore, first: int = 0
) -> pb.FinalPlan:
    """Return a page of the plan of *graph* from stage *first* on; *infos* has the progress of each stage.

    A plan that is missing in the store, or damaged, is left out. The rest is returned all the same.
    """
    answer = pb.FinalPlan(job_id=graph.job_id, state=wire.STATE[graph.state])
    expected = (await explained(graph, blobs)).expected_rows
    size = 0
    for stage, info in list(zip(graph.stages, infos, strict=True))[first:]:
        if size > _PAGE_BYTES or len(answer.stages) == _PAGE_STAGES:
            answer.next = stage.spec.stage_id
            break
        answered = _stage(stage, info, expected)
        for totals in stage.ledger.operators:
            operators = await blobs.find(totals.bound_plan, partial(operators_of, totals=totals))
            answered.plans.add(bound_plan=totals.bound_plan, tasks=totals.tasks, operators=operators or ())
        answer.stages.append(answered)
        size += answered.ByteSize()
        await asyncio.sleep(0)  # other calls may be waiting
    return answer


def _stage(stage: Stage, info: pb.StageInfo, expected: Mapping[str, int]) -> pb.FinalStage:
    spec = stage.spec
    rows = None if isinstance(stage, FusedStage | SupersededStage) else expected.get(str(spec.stage_id))
    return pb.FinalStage(
        info=info,
        inputs=[pb.StageInput(stage_id=each.stage_id, read=each.read) for each in spec.inputs],
        output=pb.OutputLayout(kind=spec.output.kind, buckets=spec.output.buckets),
        has_estimate=rows is not None,
        estimated_rows=rows or 0,
        reported=sum(totals.tasks for totals in stage.ledger.operators),
    )
