"""Stages without partitions have nothing to lose, and outputs that nobody reads are not recomputed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from onager.execution_graph import JobState, RunningStage, StageSpec, SuccessfulStage
from tests.unit.execution_graph.builder import planned, stage


@st.composite
def plans_with_empty_readers(draw: st.DrawFn) -> tuple[StageSpec, ...]:
    """Draw a plan: an output that varies, a chain derived from it, empty stages that read both, and a last one."""
    specs = [stage(1, draw(st.integers(1, 3)), is_deterministic=False)]
    for stage_id in range(2, draw(st.integers(2, 4)) + 1):
        reads = draw(st.sets(st.integers(1, stage_id - 1), min_size=1))
        specs.append(stage(stage_id, draw(st.sampled_from([1, 2, 0])), reads=tuple(sorted(reads))))
    read = {i.stage_id for spec in specs for i in spec.inputs}
    unread = {spec.stage_id for spec in specs} - read
    empty = len(specs) + 1
    specs.append(stage(empty, 0, reads=tuple(sorted(unread))))
    also = draw(st.sets(st.integers(1, empty - 1)))
    specs.append(stage(empty + 1, draw(st.integers(1, 3)), reads=tuple(sorted({1, empty} | also))))
    return tuple(specs)


@settings(max_examples=100, deadline=None)
@given(specs=plans_with_empty_readers(), data=st.data())
def test_what_only_empty_stages_read_is_not_made_again_for_nobody(
    specs: tuple[StageSpec, ...], data: st.DataObject
) -> None:
    job = planned(*specs)
    last = specs[-1].stage_id
    while not isinstance(job.stage(last), RunningStage):
        launched = job.launch()
        if launched.stage_id != last:
            job.succeed(launched.stage_id, *(p for p, _ in launched.tasks))
    if not job.running(last).running:
        job.launch()
    source = data.draw(
        st.sampled_from([i.stage_id for i in specs[last - 1].inputs if specs[i.stage_id - 1].partitions])
    )
    lost = data.draw(st.integers(0, specs[source - 1].partitions - 1))
    assert job.feed(job.cannot_fetch(last, 0, source, lost))  # checks the invariants

    job.finish()

    assert job.graph.state is JobState.SUCCESSFUL
    for found in job.graph.stages:
        assert isinstance(found, SuccessfulStage), "a stage was left in the making"
        assert len(found.ledger.outputs) == found.spec.partitions
