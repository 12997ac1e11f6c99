"""Growing stages: their partitions are found while they run, and they are not done before the end was reported."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    EventBatch,
    FailureKind,
    Feed,
    Portion,
    RunningStage,
    SpeculationPolicy,
    StageInput,
    StageSpec,
    StageWork,
    Streaming,
    SuccessfulStage,
    available_tasks,
    check_stages,
    decode_batch,
    decode_graph,
    encode_batch,
    find_replan,
    lay_out,
    stage_fed_by,
    violations,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.graph import AdaptivePolicy
from tests.unit.execution_graph.builder import Job, feed, planned, stage
from tests.unit.execution_graph.replanned_jobs import adaptive, begun, done, joining, replanned

POLICY = AdaptivePolicy(fuse_bytes=10_000)


def scan(partitions: int = 2, **options: object) -> Job:
    """Return a job whose stage 1 feeds stage 2, which stage 3 reads."""
    return planned(feed(1), stage(2, partitions, fed_by=1), stage(3, 2, reads=(2,)), **options)  # type: ignore[arg-type]


def portions(job: Job) -> list[int]:
    found = job.stage(2).spec.feed
    assert found is not None
    return [portion.partitions for portion in found.portions]


def test_a_stage_grows_with_each_portion_and_its_tasks_run_meanwhile() -> None:
    job = scan()
    assert job.launch(limit=1).stage_id == 1, "the feed comes first"
    assert job.launch("b").tasks == ((0, 0), (1, 0)), "what planning had found does not wait for it"
    job.succeed(2, 0, 1)
    assert isinstance(job.stage(2), RunningStage), "more may come"
    assert job.feed(job.found(1, 3))
    assert (job.stage(1).spec.partitions, job.stage(2).spec.partitions) == (2, 5)
    assert available_tasks(job.graph) == 4
    assert job.launch("a", 1).stage_id == 1
    assert job.launch("b").tasks == ((2, 0), (3, 0), (4, 0))


def test_it_is_successful_once_the_feed_has_ended_and_all_of_its_tasks_are_done() -> None:
    job = scan()
    job.launch(limit=1)
    job.run(2, "b")
    assert job.states() == ["running", "running", "unresolved"]
    assert job.feed(job.found(1, 1, is_last=True))
    assert job.states() == ["successful", "running", "unresolved"]
    job.run(2, "b")
    assert job.states() == ["successful", "successful", "resolved"]
    assert portions(job) == [2, 1]
    job.finish()
    assert not job.graph.is_active


def test_the_end_may_come_when_everything_is_done() -> None:
    job = scan()
    job.launch(limit=1)
    job.run(2, "b")
    assert job.feed(job.found(1, 0, is_last=True))
    assert job.states() == ["successful", "successful", "resolved"]


def test_a_stage_without_partitions_waits_for_its_feed() -> None:
    job = scan(0)
    job.launch(limit=1)
    assert job.states() == ["running", "running", "unresolved"]
    assert job.feed(job.found(1, 0))
    assert job.states() == ["running", "running", "unresolved"]
    job.launch(limit=1)
    assert job.feed(job.found(1, 0, is_last=True))
    assert job.states() == ["successful", "successful", "resolved"]


def test_a_portion_counts_once_whoever_reports_it() -> None:
    job = scan()
    job.launch("a", 1)
    first = job.found(1, 3)
    job.lose("a")
    job.launch("b", 1)
    again = job.found(1, 3)
    assert not job.feed(first), "the attempt was given up"
    assert job.feed(again)
    assert not job.feed(again)
    assert not job.feed(replace(again, partition=1))
    assert portions(job) == [2, 3]


def test_the_next_attempt_of_a_failed_task_finds_the_portion() -> None:
    job = scan()
    job.launch("a", 1)
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert portions(job) == [2]
    job.launch("b", 1)
    assert job.feed(job.found(1, 4))
    assert portions(job) == [2, 4]


def test_a_task_of_a_feed_does_not_succeed_as_others_do() -> None:
    job = scan()
    job.launch(limit=1)
    assert not job.feed(job.success(1, 0))


@pytest.mark.parametrize("change", [{"added": -1}, {"stage_id": 2}, {"stage_id": 9}, {"stage_attempt": 4}])
def test_an_event_that_does_not_fit_changes_nothing(change: dict[str, int]) -> None:
    job = scan()
    job.launch(limit=1)
    assert not job.feed(replace(job.found(1, 2), **change))


def test_a_portion_without_content_changes_nothing() -> None:
    job = scan()
    job.launch(limit=1)
    event = job.found(1, 2)
    assert not job.feed(replace(event, output=replace(event.output, payload_digest=None)))


def test_a_stage_grows_while_it_waits_for_another_input() -> None:
    job = planned(stage(1), feed(2), replace(stage(3, 1, fed_by=2), inputs=stage(3, reads=(1,)).inputs))
    job.launch("a")
    job.launch("b", 1)
    assert job.stage(3).state == "unresolved"
    assert job.feed(job.found(2, 2))
    assert (job.stage(3).state, job.stage(3).spec.partitions) == ("unresolved", 3)
    job.succeed(1, 0, 1)
    job.finish()
    assert not job.graph.is_active


def test_lost_outputs_are_made_again_and_the_feed_stays_as_it_is() -> None:
    job = scan(is_shared=False)
    job.launch("x", 1)
    job.run(2, "a")
    assert job.feed(job.found(1, 1, is_last=True))
    job.run(2, "b")
    job.launch("c")
    job.lose("a")
    job.lose("x")
    assert job.states() == ["successful", "running", "unresolved"]
    assert isinstance(job.stage(1), SuccessfulStage)
    assert portions(job) == [2, 1]
    job.finish()
    assert not job.graph.is_active


def test_it_is_never_laid_out_and_its_readers_are_once_they_start() -> None:
    reader = replace(stage(3, 2, reads=(2,)), may_fuse=True, may_merge=True)
    job = planned(feed(1), replace(stage(2, 2, fed_by=1), may_fuse=True), reader, adaptive=POLICY)
    assert lay_out(job.graph, 2, 0) == ()
    job.launch(limit=1)
    job.run(2, "b")
    job.feed(job.found(1, 0, is_last=True))
    assert all(event.stage_id == 3 for event in lay_out(job.graph, 2, 0))


def test_only_tasks_that_read_get_second_attempts() -> None:
    job = scan(speculation=SpeculationPolicy(multiplier=1.0, quantile=0.3, min_task_runtime_ms=0))
    job.launch("a", 1)
    job.launch("b")
    job.succeed(2, 0)
    assert job.speculate("s").stage_id == 2
    assert job.running(1).speculatable == ()


def test_a_job_whose_stages_run_together_cannot_have_growing_ones() -> None:
    job = planned(feed(1), stage(2, fed_by=1), stage(3, reads=(2,)), streaming=Streaming())
    assert job.graph.outcome.type == "failed"


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ((feed(1), stage(2)), "the feeds are stages [1]"),
        ((stage(1), stage(2, reads=(1,), fed_by=1)), "growing stages get partitions from stages [1]"),
        ((feed(1), stage(2, fed_by=1), stage(3, fed_by=1)), "growing stages get partitions from stages [1, 1]"),
        ((feed(1), replace(stage(2, fed_by=1), partitions=9)), "has 9 partitions, and was given 2"),
        ((stage(1, fed_by=2), feed(2)), "stage 1 cannot get partitions from stage 2"),
        ((feed(1), replace(stage(2, reads=(1,)), feed=stage(2, fed_by=1).feed)), "stage 2 reads the output of a feed"),
        (
            (stage(1), stage(2, 1, reads=(1,), work=StageWork.FEED), stage(3, fed_by=2)),
            "stage 2 is a feed, and reads other stages",
        ),
    ],
)
def test_a_plan_is_refused_whose_feeds_do_not_fit(stages: tuple, why: str) -> None:
    assert why in (check_stages(stages) or "")


@pytest.mark.parametrize(
    "stages",
    [
        (replace(feed(1), partitions=2), stage(2, fed_by=1)),
        (
            feed(1),
            replace(stage(2, fed_by=1), feed=Feed(stage_id=1, portions=(), planned=0, has_ended=True), partitions=0),
        ),
    ],
)
def test_a_feed_has_not_begun_when_it_is_planned(stages: tuple) -> None:
    assert planned(*stages).graph.outcome.type == "failed"


def test_its_records_are_of_a_version_of_their_own() -> None:
    job = scan()
    job.launch(limit=1)
    events = (job.found(1, 3), job.found(1, 0, is_last=True), *job.log)
    assert decode_batch(encode_batch(EventBatch(batch_id="b", events=events))).events == events
    job.feed(events[0])
    assert decode_graph(encode_graph(job.graph)) == job.graph


def test_partitions_belong_to_portions_in_order() -> None:
    found = Feed(stage_id=1, portions=tuple(Portion(digest=str(n), partitions=n) for n in (2, 0, 3)), planned=1)
    assert [found.portion_of(p)[0] for p in range(5)] == [0, 0, 2, 2, 2]
    assert [found.portion_of(p)[1].digest for p in range(5)] == ["2", "2", "3", "3", "3"]
    with pytest.raises(IndexError):
        found.portion_of(5)


def test_graphs_that_count_a_portion_twice_or_end_early_are_reported() -> None:
    job = scan()
    job.launch(limit=1)
    job.feed(job.found(1, 1))
    fed = stage_fed_by(job.graph, 1)
    assert fed is not None
    assert fed.spec.feed is not None
    twice = fed.spec.feed.grown(fed.spec.feed.portions[-1], has_ended=False)
    broken = replace(fed, spec=replace(fed.spec, partitions=4, feed=twice))
    graph = replace(job.graph, stages=(*job.graph.stages[:2], broken, *job.graph.stages[3:]))
    assert any("each once" in why for why in violations(graph))
    early = SuccessfulStage(
        spec=replace(fed.spec, partitions=0), attempt=0, ledger=fed.ledger, started_ms=0, ended_ms=0
    )
    graph = replace(job.graph, stages=(*job.graph.stages[:2], early, *job.graph.stages[3:]))
    assert any("before its feed has ended" in why for why in violations(graph))


# ---------------------------------------------------------------- and a plan that is made again


def joined() -> Job:
    """Return a job that waits for a re-plan: stage 1, a side, is done, the other has not begun, and reads stage 3."""
    job = adaptive(
        stage(1), feed(2), stage(3, 4, fed_by=2), stage(4, reads=(3,)), joining(5, 1, 4, kind="result"), most=1_000
    )
    done(job, 1)
    return job


def over_what_grows(first: int = 7) -> StageSpec:
    """Return a plan of one stage: a broadcast join that reads the growing stage."""
    inputs = (StageInput(1, "all"), StageInput(3, "bucket"))
    return replace(stage(first, 2, kind="result"), inputs=inputs)


def test_a_growing_stage_goes_on_during_a_re_plan_and_the_new_plan_reads_it_once_its_feed_has_ended() -> None:
    job = joined()
    event = begun(job)
    assert (event.basis, event.finished, event.held) == (((1, 0), (3, 0)), (1,), (4, 5)), "no task of it has begun"
    assert job.launch("a", 1).stage_id == 6
    assert job.launch("a", 1).stage_id == 2
    assert job.launch("b").stage_id == 3
    assert job.feed(job.found(2, 2))
    assert job.feed(replanned(job, over_what_grows(), dropped=(4, 5), result=7))
    assert job.graph.replans[0].is_taken
    job.succeed(3, 0, 1, 2, 3)
    assert job.states()[2:] == ["running", "superseded", "superseded", "successful", "unresolved"]
    job.launch("a", 1)
    job.feed(job.found(2, 0, is_last=True))
    job.run(3, "b")
    assert job.stage(7).state == "resolved"
    job.finish()
    assert job.graph.state == "successful"


def test_what_a_growing_stage_is_a_side_of_is_not_planned_again_for_its_sake() -> None:
    job = adaptive(stage(1), feed(2), stage(3, 4, fed_by=2), joining(4, 1, 3, kind="result"))
    done(job, 1)
    assert find_replan(job.graph, job.tick()) is None, "nothing would be saved: it counts as begun"


def test_a_plan_that_does_without_a_growing_stage_does_without_its_feed() -> None:
    job = joined()
    begun(job)
    for executor in ("a", "b", "c"):
        job.launch(executor, 1)
    found, late = job.found(2, 3), job.success(3, 0)
    empty = stage(7, 1, kind="result")
    assert job.feed(replanned(job, empty, dropped=(2, 3, 4, 5), result=7))
    assert job.graph.replans[0].is_taken
    assert [s.spec.feed for s in job.graph.stages] == [None] * 8
    assert not job.feed(found)
    assert not job.feed(late)
    assert decode_graph(encode_graph(job.graph)) == job.graph
    job.finish()
    assert job.graph.state == "successful"


def test_a_feed_that_has_ended_stays_though_nobody_wants_what_it_found() -> None:
    job = joined()
    begun(job)
    job.launch("a", 1)
    job.launch("b", 1)
    job.feed(job.found(2, 3, is_last=True))
    assert job.feed(replanned(job, stage(7, 1, kind="result"), dropped=(3, 4, 5), result=7))
    assert job.graph.replans[0].is_taken
    assert [job.stage(i).state for i in (2, 3)] == ["successful", "superseded"]
    job.finish()
    assert job.graph.state == "successful"


@pytest.mark.parametrize(
    ("reported", "stages", "dropped"),
    [
        ("nothing reads [2]", (stage(7, 1, kind="result"),), (3, 4, 5)),
        ("something reads [2]", (over_what_grows(),), (2, 4, 5)),
        ("stage 7 grows, or is a feed", (feed(7), stage(8, fed_by=7, kind="result")), (2, 3, 4, 5)),
    ],
)
def test_a_plan_is_not_taken_that_parts_a_stage_from_its_feed_or_has_new_ones(
    reported: str, stages: tuple[StageSpec, ...], dropped: tuple[int, ...]
) -> None:
    job = joined()
    begun(job)
    job.launch("a", 1)
    job.feed(replanned(job, *stages, dropped=dropped, result=stages[-1].stage_id))
    assert reported in job.graph.replans[0].decisions[0]
    job.finish()
    assert job.graph.state == "successful"
