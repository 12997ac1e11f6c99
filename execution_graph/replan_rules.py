"""When the rest of a query is planned again: a finished stage has measured something that may change the plan.

The planner marks what becomes a side of a join (`StageInput.side`). A re-plan is due if the reader has not begun, and

- the side has no rows: what the join gives may be known then, and what nobody needs is not computed;
- the side of a shuffled join takes so little memory that it can be broadcast, and another input has not begun, whose
  exchange that would save;
- the side of a broadcast join is too large for it, and has four times as many rows as expected or more.

Meanwhile, what has not begun waits, for `LIMIT_MS` at most. So that there is an exchange to save, the large side of a
shuffled join does not begin before the small one has ended, if both are read from files; for `LIMIT_MS` after the plan
at most. Pure functions of the graph, so that every scheduler decides alike.

Source: Spark's `AdaptiveSparkPlanExec`, which plans again whenever a stage is done.
"""

from collections.abc import Iterator
from typing import Final

from onager.execution_graph.events import ReplanBegun, ReplanGivenUp
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.replan_changes import CHANGED, MAX_REPLANS, has_begun, is_as_it_was, is_open
from onager.execution_graph.stages import Stage, StageInput, SuccessfulStage, reachable

LIMIT_MS: Final = 2_000
"""How long a re-plan may take, with its wait for a slot."""
FORCED_LIMIT_MS: Final = 60_000
"""The same where re-plans are forced, as in tests: there they shall happen."""
_FACTOR_OFF: Final = 4
"""An estimate is wrong if it is off by this factor."""
_FACTOR_LARGER: Final = 4
"""The larger side of a join waits for one that reads this many times less."""


def find_replan(graph: ExecutionGraph, at_ms: int) -> ReplanBegun | ReplanGivenUp | None:
    """Return what begins the re-plan that is due in *graph*, or ends one that has taken too long; None: neither."""
    policy, plan = graph.adaptive, graph.plan
    if policy is None or not policy.replan or plan is None or not graph.is_active or graph.streaming is not None:
        return None
    if (replan := graph.replan) is not None:
        if not is_as_it_was(graph, replan.basis):
            reason = CHANGED
        elif is_in_time(graph, at_ms):
            return None
        else:
            reason = f"it took more than {limit_ms(graph) / 1000:g} s"
        return ReplanGivenUp(replan_id=replan.replan_id, reason=reason, at_ms=at_ms)
    if not plan.frame_digest or len(graph.replans) >= MAX_REPLANS:
        return None
    why = next(_reasons(graph), None)
    if why is None:
        return None
    begun = [s for s in graph.stages if is_open(s) and has_begun(s)]
    return ReplanBegun(
        replan_id=len(graph.stages),
        basis=tuple((s.spec.stage_id, s.attempt) for s in begun),
        finished=tuple(s.spec.stage_id for s in begun if isinstance(s, SuccessfulStage)),
        held=tuple(s.spec.stage_id for s in graph.stages if is_open(s) and not has_begun(s)),
        why=why,
        at_ms=at_ms,
    )


def limit_ms(graph: ExecutionGraph) -> int:
    """Return how long a re-plan of *graph* may take."""
    return FORCED_LIMIT_MS if graph.adaptive is not None and graph.adaptive.replan == "force" else LIMIT_MS


def is_in_time(graph: ExecutionGraph, at_ms: int) -> bool:
    """Return whether a re-plan is under way, and may go on.

    It may not if the clock is behind that of its begin by more than it may take: the job would wait for that clock.
    """
    replan = graph.replan
    return replan is not None and abs(at_ms - replan.begun_ms) < limit_ms(graph)


def held_stages(graph: ExecutionGraph, at_ms: int) -> frozenset[int]:
    """Return the stages that wait for a re-plan, or for what may lead to one.

    This only advises whoever starts stages and launches tasks.
    """
    if (replan := graph.replan) is not None:
        return frozenset(replan.held) if is_in_time(graph, at_ms) else frozenset()
    since_ms = _sides_wait_since_ms(graph)
    is_over = since_ms is None or abs(at_ms - since_ms) >= LIMIT_MS
    return frozenset() if is_over else frozenset(_large_sides(graph))


def held_until_ms(graph: ExecutionGraph) -> int:
    """Return until when `held_stages` names some, unless something happens before."""
    if (replan := graph.replan) is not None:
        return replan.begun_ms + limit_ms(graph)
    since_ms = _sides_wait_since_ms(graph)
    return 0 if since_ms is None else since_ms + LIMIT_MS


def _sides_wait_since_ms(graph: ExecutionGraph) -> int | None:
    """Return since when large sides of joins wait for small ones: since *graph* was planned; None where none does."""
    policy, plan, planning = graph.adaptive, graph.plan, graph.stages[0]
    if policy is None or not policy.replan or plan is None or not plan.frame_digest or graph.streaming is not None:
        return None
    return planning.ended_ms if isinstance(planning, SuccessfulStage) else None


def _large_sides(graph: ExecutionGraph) -> Iterator[int]:
    """Yield the leaves that have not begun and are joined with one that has not ended and reads much less."""
    assert graph.adaptive is not None
    for reader in graph.stages:
        if not is_open(reader) or has_begun(reader) or not any(i.side == "shuffled" for i in reader.spec.inputs):
            continue
        leaves = [s for s in (graph.stages[i.stage_id] for i in reader.spec.inputs) if is_open(s) and s.spec.leaf_bytes]
        awaited = [s.spec.leaf_bytes for s in leaves if not isinstance(s, SuccessfulStage)]
        for stage in leaves:
            size = stage.spec.leaf_bytes
            is_large = size > graph.adaptive.fuse_bytes and size >= _FACTOR_LARGER * min(awaited, default=size)
            if is_large and not has_begun(stage):
                yield stage.spec.stage_id


def _reasons(graph: ExecutionGraph) -> Iterator[str]:
    """Yield why the rest shall be planned again, for each stage that is done since the last time."""
    assert graph.adaptive is not None
    known = {i for replan in graph.replans for i in replan.finished}
    waiting = [s for s in graph.stages if is_open(s) and not has_begun(s)]
    for reader in waiting:
        for source in reader.spec.inputs:
            stage = graph.stages[source.stage_id]
            if not isinstance(stage, SuccessfulStage) or source.stage_id in known or not is_open(stage):
                continue
            if graph.adaptive.replan == "force":
                yield f"stage {source.stage_id} is done, and re-plans are forced"
            elif source.side:
                yield from _reasons_of(graph, reader, source, stage)


def _reasons_of(graph: ExecutionGraph, reader: Stage, source: StageInput, stage: SuccessfulStage) -> Iterator[str]:
    assert graph.plan is not None
    rows, size, most = stage.ledger.metrics.rows_out, bytes_in_memory(stage), graph.plan.broadcast_bytes
    if all(output.rows == 0 for output in stage.ledger.outputs.values()):
        if is_repeatable(graph, source.stage_id):
            yield f"stage {source.stage_id} has no rows"
    elif source.side == "shuffled":
        others = (each.stage_id for each in reader.spec.inputs if each.stage_id != source.stage_id)
        if size <= most and any(not has_begun(graph.stages[i]) for i in others):
            yield f"stage {source.stage_id} has {rows:,} rows in {size:,} bytes, few enough to be broadcast"
    elif source.side == "broadcast" and size > most and rows >= _FACTOR_OFF * stage.spec.expected_rows > 0:
        yield (
            f"stage {source.stage_id} has {rows:,} rows in {size:,} bytes, too many to broadcast; "
            f"{stage.spec.expected_rows:,} were expected"
        )


def bytes_in_memory(stage: Stage) -> int:
    """Return about what the rows that *stage* has given take in memory; what they take as written, if that is more.

    Spark's limits of broadcasts are about memory. Outputs of other jobs and of older executors do not tell.
    """
    return max(stage.ledger.metrics.plain_bytes_out, stage.ledger.metrics.bytes_out)


def is_repeatable(graph: ExecutionGraph, stage_id: int) -> bool:
    """Return whether *stage_id* would give the same rows if it, and everything before it, ran again."""
    needed = reachable(stage_id, lambda i: [source.stage_id for source in graph.stages[i].spec.inputs])
    return all(graph.stages[i].spec.is_deterministic for i in needed)
