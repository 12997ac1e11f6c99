"""What the planner made of a job, as text for people."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from onager.execution_graph import ExecutionGraph
from onager.scheduler.jobs.blobs import BlobStore


class Explained(NamedTuple):
    """What `planning.explanation` wrote; all of it is empty where that is not known."""

    plan: str = ""
    """Spark's physical plan."""
    stages: Mapping[str, str] = {}
    """The plans of stages, by their ids."""
    expected_rows: Mapping[str, int] = {}
    """By stage, where Spark had an idea."""


UNEXPLAINED: Final = Explained()


async def explained(graph: ExecutionGraph, blobs: BlobStore) -> Explained:
    """Return what the planner made of *graph*, as far as it is in the store."""
    if graph.plan is None or not graph.plan.explain_digest:
        return UNEXPLAINED
    first = await blobs.find(graph.plan.explain_digest, _read) or UNEXPLAINED
    for replan in graph.replans:
        if replan.explain_digest and (later := await blobs.find(replan.explain_digest, _read)) is not None:
            stages, rows = {**first.stages, **later.stages}, {**first.expected_rows, **later.expected_rows}
            first = Explained(first.plan, stages, rows)
    return first


def _read(content: bytes) -> Explained:
    written = json.loads(content)
    return Explained(written["plan"], written["stages"], written.get("estimates", {}))
