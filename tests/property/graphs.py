"""Strategies: random stage graphs, with diamonds, reuse, no partitions, indeterminate outputs, sinks."""

from dataclasses import replace

from hypothesis import strategies as st

from onager.execution_graph import StageInput, StageSpec, StageWork
from tests.unit.execution_graph.builder import stage

PARTITIONS = [1, 2, 2, 3, 4, 0]


@st.composite
def plans(draw: st.DrawFn, max_stages: int = 5) -> tuple[StageSpec, ...]:
    """Draw the QUERY stages of a plan, each but the last read by one or more later ones, and perhaps a sink's."""
    count = draw(st.sampled_from(range(max_stages, 0, -1)))
    reads: list[set[int]] = [set() for _ in range(count + 1)]
    for producer in range(1, count):
        readers = draw(st.sets(st.integers(producer + 1, count), min_size=1, max_size=2))
        for reader in readers:
            reads[reader].add(producer)
    stages = [
        replace(
            stage(
                stage_id,
                draw(st.sampled_from(PARTITIONS)),
                reads=tuple(sorted(reads[stage_id])),
                is_deterministic=draw(st.sampled_from([True, False])),
                kind="exchange" if stage_id < count else "result",
            ),
            inputs=tuple(
                StageInput(i, "bucket", side=draw(st.sampled_from(["", "shuffled", "broadcast", "joined"])))
                for i in sorted(reads[stage_id])
            ),
            may_fuse=draw(st.booleans()),
            may_merge=draw(st.booleans()),
            leaf_bytes=0 if reads[stage_id] else 100,
        )
        for stage_id in range(1, count + 1)
    ]
    if draw(st.sampled_from([False] * 6 + [True])):  # fused: only the planning task can run it
        stages, count = [stage(1, 1, plan_digest=None)], 1
    if draw(st.booleans()):
        stages.append(stage(count + 1, 1, reads=(count,), work=StageWork.PUBLISH_PLAN))
        stages.append(stage(count + 2, 1, reads=(count + 1,), work=StageWork.PUBLISH))
    return tuple(stages)
