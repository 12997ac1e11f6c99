"""Whatever was measured: tasks read every bucket once, in order, and what is fused was never launched."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onager.execution_graph import AdaptivePolicy, StageInput, lay_out, sizes_text
from onager.execution_graph.bucket_sizes import total_bytes
from tests.unit.execution_graph.builder import Job, planned, stage

SIZE = st.sampled_from([0, 1, 100, 150, 180, 190, 200, 215, 230])
MIB = 1 << 20


@st.composite
def measured(draw: st.DrawFn) -> Job:
    """Draw a job with a stage that is about to read one or two others, of which all is known."""
    buckets, slots = draw(st.integers(2, 12)), draw(st.integers(1, 2))
    producers = [draw(st.integers(1, 6)) for _ in range(slots)]
    specs = [replace(stage(i, n), output=replace(stage(i).output, buckets=buckets)) for i, n in enumerate(producers, 1)]
    inputs = tuple(StageInput(spec.stage_id, "bucket", draw(st.booleans())) for spec in specs)
    reader = replace(stage(len(specs) + 1, buckets), inputs=inputs, may_merge=draw(st.booleans()))
    target = draw(st.sampled_from([1, MIB, 64 * MIB]))
    job = planned(*specs, reader, adaptive=AdaptivePolicy(target_bytes=target))
    for _ in specs:
        job.launch()
    for spec in specs:
        for partition in range(spec.partitions):
            made = job.success(spec.stage_id, partition)
            sizes = bytes(draw(st.lists(SIZE, min_size=buckets, max_size=buckets)))
            text = sizes_text(sizes, buckets, spec.partitions)
            job.feed(replace(made, output=replace(made.output, bytes=total_bytes(sizes), bucket_sizes=text)))
    return job


@settings(max_examples=300, deadline=None)
@given(job=measured(), slots=st.integers(0, 16))
def test_every_bucket_is_read_once_and_in_order(job: Job, slots: int) -> None:
    events = lay_out(job.graph, slots, job.tick())
    assert lay_out(job.graph, slots, job.now_ms) == events, "every scheduler decides alike"
    for event in events:
        reader = job.stage(event.stage_id)
        buckets = reader.spec.partitions
        assert [r.first_bucket for r in event.reads] == sorted(r.first_bucket for r in event.reads)
        split = {r.first_bucket: r.split_stage_id for r in event.reads if r.split_stage_id}
        for source in reader.spec.inputs:
            count = job.stage(source.stage_id).spec.partitions
            read = Counter[tuple[int, int]]()
            for each in event.reads:
                is_part = each.split_stage_id == source.stage_id
                some = range(each.first_producer, each.end_producer) if is_part else range(count)
                read.update((b, p) for b in range(each.first_bucket, each.end_bucket) for p in some)
            assert set(read) == {(b, p) for b in range(buckets) for p in range(count)}
            others = {b for b, stage_id in split.items() if stage_id != source.stage_id}
            assert all(n == 1 for (b, _), n in read.items() if b not in others)
            assert source.may_split or source.stage_id not in split.values()
        assert reader.spec.may_merge or all(r.end_bucket == r.first_bucket + 1 for r in event.reads)
        assert job.feed(event)
    job.finish()
    assert job.graph.state == "successful"
