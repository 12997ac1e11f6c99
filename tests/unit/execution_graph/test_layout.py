"""Stages that start are laid out by what was measured: which rule applies when, and what the event changes."""

import base64
import math

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    ExecutorLost,
    FailureKind,
    FusedStage,
    HeldTask,
    StageInput,
    StageSpec,
    StageWork,
    Streaming,
    TaskRead,
    apply,
    apply_all,
    can_judge,
    decode_graph,
    lay_out,
    sizes_text,
    violations,
)
from onager.execution_graph.bucket_sizes import MAX_SIZES, total_bytes
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.events import StageLaidOut
from onager.protocol import onager_pb2 as pb
from onager.protocol.checking import check
from tests.unit.execution_graph.builder import Job, planned, stage, with_sink

MIB = 1 << 20


def fusible(stage_id: int, partitions: int = 2, *, reads: tuple[int, ...] = (), leaf_bytes: int = 0) -> StageSpec:
    return replace(stage(stage_id, partitions, reads=reads), may_fuse=True, leaf_bytes=leaf_bytes)


def merging(
    stage_id: int, buckets: int, *, reads: tuple[int, ...], split: tuple[int, ...] = (), may_merge: bool = True
) -> StageSpec:
    inputs = tuple(StageInput(i, "bucket", i in split) for i in reads)
    return replace(stage(stage_id, buckets, reads=reads), inputs=inputs, may_merge=may_merge)


def exchange(stage_id: int, partitions: int, buckets: int) -> StageSpec:
    spec = stage(stage_id, partitions)
    return replace(spec, output=replace(spec.output, buckets=buckets))


def adaptive(*stages: StageSpec, fuse_bytes: int = 1000, target_bytes: int = 64 * MIB, **more: object) -> Job:
    policy = AdaptivePolicy(fuse_bytes=fuse_bytes, target_bytes=target_bytes)
    return planned(*stages, adaptive=policy, **more)  # type: ignore[arg-type]


def byte_of(size: int) -> int:
    return 0 if size == 0 else min(255, max(1, math.ceil(math.log(size) / math.log(1.1))))


def measure(job: Job, stage_id: int, sizes: list[list[int]], executor: str = "a") -> None:
    """Run a stage whose tasks give so many bytes to each bucket."""
    job.launch(executor)
    for partition, each in enumerate(sizes):
        made = job.success(stage_id, partition)
        text = sizes_text(bytes(map(byte_of, each)), len(each), len(sizes))
        job.feed(replace(made, output=replace(made.output, bytes=sum(each), bucket_sizes=text)))


def laid(job: Job, slots: int = 2) -> list[StageLaidOut]:
    """Lay out what can start, and start it."""
    events = lay_out(job.graph, slots, job.tick())
    for event in events:
        assert job.feed(event)
        assert not job.feed(event), "the event has its effect once"
    job.start()
    return list(events)


def ranges(event: StageLaidOut) -> list[tuple[int, int]]:
    return [(read.first_bucket, read.end_bucket) for read in event.reads]


# ---------------------------------------------------------------- sizes


def test_a_size_is_about_ten_percent_exact() -> None:
    for size in (0, 1, 2, 1000, 5 * MIB, 3 << 30):
        assert abs(total_bytes(bytes([byte_of(size)])) - size) <= 0.1 * size + 1


def test_sizes_are_kept_only_if_there_is_one_for_each_bucket_and_not_too_many() -> None:
    assert base64.b64decode(sizes_text(b"\1\2", 2, 10)) == b"\1\2"
    assert sizes_text(b"\1\2\3", 2, 10) == ""
    assert sizes_text(b"\1", 1, 10) == ""
    assert sizes_text(bytes(4096), 4096, 1 + MAX_SIZES // 4096) == ""


# ---------------------------------------------------------------- fusing


def test_what_is_left_becomes_one_task_once_all_that_it_reads_is_small() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, 7, reads=(2,)))
    assert laid(job) == []
    job.run(1)
    (event,) = laid(job)
    assert (event.stage_id, event.fused, event.reads, event.basis) == (3, (2,), (), ((1, 0), (2, 0), (3, 0)))
    assert job.states() == ["successful", "fused", "running"]
    spec = job.stage(3).spec
    assert (spec.partitions, spec.inputs) == (1, (StageInput(1, "all"),))
    assert spec.layout is not None
    assert (spec.layout.fused, spec.layout.planned_partitions) == ((2,), 7)
    fused = job.stage(2)
    assert isinstance(fused, FusedStage)
    assert (fused.into, fused.spec.plan_digest) == (3, "digest"), "its plan is still needed"
    job.run(3)
    assert job.graph.state == "successful"


def test_what_is_too_large_in_all_is_not_fused_but_a_part_of_it_is() -> None:
    job = adaptive(
        stage(1), stage(2), fusible(3, reads=(1,)), fusible(4, reads=(3,)), fusible(5, reads=(2, 4)), fuse_bytes=399
    )
    job.launch("a")
    job.launch("b")
    job.succeed(1, 0, 1)
    job.succeed(2, 0, 1)  # 200 bytes each
    (event,) = laid(job)
    assert (event.stage_id, event.fused) == (4, (3,))
    assert job.states() == ["successful", "successful", "fused", "running", "unresolved"]


def test_leaves_count_and_are_not_all_there_is() -> None:
    job = adaptive(fusible(1), fusible(2, reads=(1,)))
    assert laid(job) == [], "what reads no other stage starts at once"
    job.run(1)
    left = 1000 - sum(output.bytes for output in job.stage(1).ledger.outputs.values())
    for more in (0, 1):
        job = adaptive(fusible(1), fusible(2, reads=(1,), leaf_bytes=left + more), fusible(3, reads=(2,)))
        assert laid(job) == []
        job.run(1)
        assert [(e.stage_id, e.fused) for e in laid(job)] == ([] if more else [(3, (2,))])
    job.finish()


def test_a_stage_that_two_read_is_not_fused() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)), fusible(4, reads=(2, 3)))
    job.run(1)
    assert laid(job) == []
    job.run(2)
    assert [(e.stage_id, e.fused) for e in laid(job)] == [(4, (3,))], "both read what is done"


def test_a_stage_whose_branch_still_runs_is_not_fused() -> None:
    job = adaptive(stage(1), stage(2), fusible(3, reads=(1,)), fusible(4, reads=(2, 3)))
    job.launch("a", 2)
    job.launch("b", 2)
    job.succeed(1, 0, 1)
    assert laid(job) == []
    assert job.states() == ["successful", "running", "running", "unresolved"]


def test_a_stage_that_ran_before_is_not_fused() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)), is_shared=False, fuse_bytes=0)
    job.run(1, "a")
    job.launch("b")
    job.lose("a")
    policy = AdaptivePolicy(fuse_bytes=1000)
    job.graph = replace(job.graph, adaptive=policy)
    job.run(1, "c")
    assert laid(job) == []


@pytest.mark.parametrize("why", ["off", "streams", "another work"])
def test_nothing_is_laid_out(why: str) -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)))
    if why == "off":
        job = planned(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)))
    if why == "streams":
        job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)), streaming=Streaming(reason="no"))
    if why == "another work":
        job = adaptive(*with_sink(stage(1))[0:1], fusible(2, reads=(1,)))
        job.run(1)
        assert lay_out(job.graph, 2, 9) == (), "a stage alone is nothing to fuse"
        return
    job.run(1)
    assert lay_out(job.graph, 2, 9) == ()


def test_a_fused_task_is_not_deterministic_if_one_of_its_stages_is_not() -> None:
    varying = replace(fusible(2, reads=(1,)), is_deterministic=False)
    job = adaptive(stage(1), varying, fusible(3, reads=(2,)), fusible(4, reads=(3,)))
    job.run(1)
    laid(job)
    assert not job.stage(4).spec.is_deterministic


def test_a_fused_task_that_cannot_fetch_waits_for_its_inputs_and_runs_as_it_was_laid_out() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, 3, reads=(2,)), is_shared=False)
    job.run(1, "a")
    laid(job)
    job.launch("b")
    job.feed(job.cannot_fetch(3, 0, 1, 0))
    assert job.states() == ["running", "fused", "unresolved"]
    job.run(1, "b")
    assert laid(job) == []
    assert job.stage(3).spec.partitions == 1
    job.finish()
    assert job.graph.state == "successful"


def test_what_a_fused_task_made_is_made_again_when_it_is_lost() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, 3, reads=(2,)), stage(4, reads=(3,)), is_shared=False)
    job.run(1, "a")
    laid(job)
    job.run(3, "a")
    job.lose("a")
    assert job.states() == ["running", "fused", "unresolved", "unresolved"]
    job.finish("b")
    assert job.graph.state == "successful"


def test_a_fused_stage_has_nothing_that_could_be_waited_for() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)))
    job.run(1)
    laid(job)
    assert can_judge(job.graph, HeldTask(2, 0, 0, 5)), "no later graph launches its tasks"
    job.launch("a")
    assert not job.feed(replace(job.failed(3, 0, FailureKind.IO_ERROR), stage_id=2))


# ---------------------------------------------------------------- stale events


def test_a_layout_changes_nothing_once_an_input_is_another() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)), is_shared=False)
    job.run(1, "a")
    (late,) = lay_out(job.graph, 2, job.tick())
    job.lose("a")
    assert not job.feed(late), "the input is not there"
    job.run(1, "b")
    assert not job.feed(late), "it is another one"
    assert [e.basis for e in laid(job)] == [((1, 1), (2, 0), (3, 0))]


def test_a_layout_changes_nothing_once_a_task_was_launched() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)))
    job.run(1)
    (late,) = lay_out(job.graph, 2, job.tick())
    job.launch("a")
    assert not job.feed(late)


@pytest.mark.parametrize(
    "change",
    [
        {"stage_id": 99},
        {"stage_id": -1},
        {"stage_id": 0},
        {"fused": (3,)},
        {"fused": (1,)},
        {"fused": (2, 2)},
        {"fused": ()},
        {"basis": ()},
        {"basis": ((1, 0), (3, 0))},
        {"reads": (TaskRead(first_bucket=0, end_bucket=2),)},
        {"stage_id": 4, "basis": ((3, 0), (4, 0))},
    ],
)
def test_a_layout_that_makes_no_sense_changes_nothing(change: dict[str, object]) -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)), stage(4, reads=(3,)))
    job.run(1)
    (event,) = lay_out(job.graph, 2, job.tick())
    assert not job.feed(replace(event, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "reads",
    [
        [(0, 2), (3, 4)],
        [(0, 2), (1, 4)],
        [(0, 2)],
        [(0, 2), (2, 5)],
        [(2, 4), (0, 2)],
        [(0, 4), (4, 4)],
        [(0, 1, 1, 0, 1), (1, 4)],
        [(0, 1, 1, 0, 2), (0, 1, 1, 2, 3), (1, 4)],
        [(0, 1, 1, 1, 2), (0, 1, 1, 0, 1), (1, 4)],
        [(0, 1, 2, 0, 1), (0, 1, 1, 1, 2), (1, 4)],
        [(0, 2, 1, 0, 1), (0, 2, 1, 1, 2), (2, 4)],
        [(0, 3), (3, 4, 1, 0, 1)],
    ],
)
def test_reads_that_do_not_cover_every_bucket_once_change_nothing(reads: list[tuple[int, ...]]) -> None:
    job = adaptive(exchange(1, 2, 4), merging(2, 4, reads=(1,)))
    job.run(1)
    names = ("first_bucket", "end_bucket", "split_stage_id", "first_producer", "end_producer")
    reported = tuple(TaskRead(**dict(zip(names, each, strict=False))) for each in reads)
    event = StageLaidOut(stage_id=2, basis=((1, 0), (2, 0)), reads=reported, at_ms=9)
    assert not job.feed(event)
    good = (TaskRead(first_bucket=0, end_bucket=3), TaskRead(first_bucket=3, end_bucket=4))
    assert job.feed(replace(event, reads=good))


# ---------------------------------------------------------------- merging and splitting


def test_small_neighbours_are_read_by_one_task_up_to_the_target() -> None:
    job = adaptive(exchange(1, 2, 6), merging(2, 6, reads=(1,)), target_bytes=50 * MIB)
    measure(job, 1, [[MIB, 20 * MIB, 10 * MIB, 1, 0, 40 * MIB]] * 2)
    (event,) = laid(job)
    assert ranges(event) == [(0, 2), (2, 5), (5, 6)]
    assert (job.stage(2).spec.partitions, job.stage(2).spec.inputs) == (3, (StageInput(1, "bucket"),))
    job.run(2)
    assert job.graph.state == "successful"


def test_every_slot_gets_something_unless_it_is_too_little() -> None:
    def reads(size: int, slots: int) -> int:
        job = adaptive(exchange(1, 1, 32), merging(2, 32, reads=(1,)))
        measure(job, 1, [[size] * 32])
        return len(laid(job, slots)[0].reads)

    assert reads(MIB, 8) >= 8
    assert reads(MIB, 1) == 1
    assert reads(MIB // 16, 8) in (2, 3), "a megabyte each"
    assert reads(0, 8) == 1


def test_nothing_is_merged_of_which_sizes_are_not_known_or_that_may_not_be() -> None:
    job = adaptive(exchange(1, 2, 6), merging(2, 6, reads=(1,)))
    job.run(1)
    assert laid(job) == []
    job = adaptive(exchange(1, 2, 6), merging(2, 6, reads=(1,), may_merge=False))
    measure(job, 1, [[1] * 6] * 2)
    assert laid(job) == []
    job = adaptive(exchange(1, 1, 3), exchange(2, 1, 3), merging(3, 6, reads=(1, 2)))
    measure(job, 1, [[1] * 3])
    measure(job, 2, [[1] * 3])
    assert laid(job) == [], "a union reads its inputs' buckets one after the other"


def test_a_task_that_gave_nothing_need_not_tell_sizes() -> None:
    job = adaptive(exchange(1, 2, 4), merging(2, 4, reads=(1,)))
    job.launch("a")
    for partition, text in enumerate(("", sizes_text(b"\1\1\1\1", 4, 2))):
        made = job.success(1, partition)
        size = 4 if text else 0
        job.feed(replace(made, output=replace(made.output, bytes=size, bucket_sizes=text)))
    assert ranges(laid(job)[0]) == [(0, 4)]


def test_sizes_of_all_inputs_count_together() -> None:
    job = adaptive(exchange(1, 1, 4), exchange(2, 1, 4), merging(3, 4, reads=(1, 2)), target_bytes=100 * MIB)
    measure(job, 1, [[40 * MIB] * 4])
    measure(job, 2, [[40 * MIB] * 4])
    assert laid(job, 1) == []
    job = adaptive(exchange(1, 1, 4), exchange(2, 1, 4), merging(3, 4, reads=(1, 2)), target_bytes=200 * MIB)
    measure(job, 1, [[40 * MIB] * 4])
    measure(job, 2, [[40 * MIB] * 4])
    assert ranges(laid(job, 1)[0]) == [(0, 2), (2, 4)]


def test_a_skewed_bucket_is_read_by_several_tasks_each_what_some_producers_gave() -> None:
    job = adaptive(exchange(1, 4, 3), exchange(2, 1, 3), merging(3, 3, reads=(1, 2), split=(1,), may_merge=False))
    measure(job, 1, [[MIB, 200 * MIB, MIB]] * 4)
    measure(job, 2, [[MIB] * 3])
    (event,) = laid(job)
    assert [
        (r.first_bucket, r.end_bucket, r.split_stage_id, r.first_producer, r.end_producer) for r in event.reads
    ] == [
        (0, 1, 0, 0, 0),
        *((1, 2, 1, n, n + 1) for n in range(4)),
        (2, 3, 0, 0, 0),
    ]
    job.finish()


def test_the_parts_of_a_bucket_are_no_smaller_than_what_each_of_them_reads_besides() -> None:
    job = adaptive(exchange(1, 4, 3), exchange(2, 1, 3), merging(3, 3, reads=(1, 2), split=(1,), may_merge=False))
    measure(job, 1, [[MIB, 100 * MIB, MIB]] * 4)
    measure(job, 2, [[MIB, 230 * MIB, MIB]])
    (event,) = laid(job)
    assert [(r.first_producer, r.end_producer) for r in event.reads if r.split_stage_id] == [(0, 2), (2, 4)]


def test_the_parts_of_a_bucket_are_about_alike() -> None:
    job = adaptive(exchange(1, 10, 3), merging(2, 3, reads=(1,), split=(1,), may_merge=False))
    measure(job, 1, [[MIB, 7 * MIB, MIB]] * 10)
    (event,) = laid(job)
    assert [(r.first_producer, r.end_producer) for r in event.reads if r.split_stage_id] == [(0, 5), (5, 10)]


@pytest.mark.parametrize(
    ("sizes", "split"),
    [
        ([[MIB, 25 * MIB, MIB]] * 2, (1,)),
        ([[100 * MIB] * 3] * 4, (1,)),
        ([[MIB, 800 * MIB, MIB]], (1,)),
        ([[MIB, 200 * MIB, MIB]] * 4, ()),
    ],
    ids=["not large enough", "no larger than others", "one producer", "may not be split"],
)
def test_no_bucket_is_split(sizes: list[list[int]], split: tuple[int, ...]) -> None:
    job = adaptive(exchange(1, len(sizes), 3), merging(2, 3, reads=(1,), split=split, may_merge=False))
    measure(job, 1, sizes)
    assert laid(job) == []


def test_a_layout_has_no_more_tasks_than_an_executor_accepts() -> None:
    buckets, producers, skewed = 131, 1_999, 65
    job = adaptive(exchange(1, producers, buckets), merging(2, buckets, reads=(1,), split=(1,)), target_bytes=1)
    job.launch("a", producers)
    text = sizes_text(bytes([byte_of(MIB)] * skewed + [0] * (buckets - skewed)), buckets, producers)
    made = [job.success(1, partition) for partition in range(producers)]
    measured = [replace(each, output=replace(each.output, bytes=1, bucket_sizes=text)) for each in made]
    (event,) = lay_out(apply_all(job.graph, measured), 2, job.tick())
    assert len(event.reads) > skewed * producers
    check(pb.TaskSet(reads=[pb.TaskRead()] * len(event.reads)), "TaskSet")


def test_a_layout_survives_losses_and_the_record() -> None:
    job = adaptive(exchange(1, 2, 4), merging(2, 4, reads=(1,)), stage(3, reads=(2,)), is_shared=False)
    measure(job, 1, [[1] * 4] * 2)
    laid(job)
    job.run(2, "b")
    job.lose("b")
    job.feed(ExecutorLost(executor_id="a", incarnation="a1", reason="gone", at_ms=job.tick()))
    assert job.stage(2).spec.partitions == 1
    assert decode_graph(encode_graph(job.graph)) == job.graph
    job.finish("c")
    assert job.graph.state == "successful"


def test_the_effect_does_not_depend_on_what_an_earlier_version_leaves_out() -> None:
    job = adaptive(stage(1), fusible(2, reads=(1,)), fusible(3, reads=(2,)))
    job.run(1)
    (event,) = lay_out(job.graph, 2, job.tick())
    plain = [
        replace(s, spec=replace(s.spec, may_fuse=False, leaf_bytes=0)) if s.spec.work is StageWork.QUERY else s
        for s in job.graph.stages
    ]
    before = replace(job.graph, adaptive=None, stages=tuple(plain))
    after = apply(before, event)
    assert [s.state for s in after.stages] == [s.state for s in apply(job.graph, event).stages]
    assert violations(after) == ()


def test_a_part_of_a_bucket_that_cannot_be_read_is_made_again() -> None:
    job = adaptive(exchange(1, 4, 3), merging(2, 3, reads=(1,), split=(1,), may_merge=False), is_shared=False)
    measure(job, 1, [[MIB, 200 * MIB, MIB]] * 4)
    laid(job)
    job.launch("b")
    job.feed(job.cannot_fetch(2, 1, 1, 3))
    assert job.states() == ["running", "unresolved"]
    job.finish("c")
