"""Strategies: random stage graphs, with diamonds, reuse, no partitions, indeterminate outputs, sinks."""

from hypothesis import strategies as st
from msgspec.structs import replace

from onager.execution_graph import StageInput, StageSpec, StageWork
from tests.unit.execution_graph.builder import feed, stage

PARTITIONS = [1, 2, 2, 3, 4, 0]


def with_feeds(stages: list[StageSpec], grow: set[int]) -> list[StageSpec]:
    """Return *stages* with those in *grow* fed by stages before them, and all ids as they are then."""
    ids: dict[int, int] = {}
    made: list[StageSpec] = []
    for spec in stages:
        fed_by = 0
        if spec.stage_id in grow:
            fed_by = len(made) + 1
            made.append(feed(fed_by))
        ids[spec.stage_id] = len(made) + 1
        inputs = tuple(replace(source, stage_id=ids[source.stage_id]) for source in spec.inputs)
        given = stage(ids[spec.stage_id], spec.partitions, fed_by=fed_by).feed
        made.append(
            replace(spec, stage_id=ids[spec.stage_id], name=f"stage {len(made) + 1}", inputs=inputs, feed=given)
        )
    return made


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
            leaf_bytes=0 if reads[stage_id] else draw(st.sampled_from([100, 100, 500])),
            fingerprint=str(stage_id),
        )
        for stage_id in range(1, count + 1)
    ]
    stages = with_feeds(stages, draw(st.sets(st.integers(1, count), max_size=2)) if draw(st.booleans()) else set())
    count = len(stages)
    if draw(st.sampled_from([False] * 6 + [True])):  # fused: only the planning task can run it
        stages, count = [stage(1, 1, plan_digest=None)], 1
    if draw(st.booleans()):
        stages.append(stage(count + 1, 1, reads=(count,), work=StageWork.PUBLISH_PLAN))
        stages.append(stage(count + 2, 1, reads=(count + 1,), work=StageWork.PUBLISH))
    return tuple(stages)
