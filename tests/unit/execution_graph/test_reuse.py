"""Outputs that are taken of other jobs: which, what is then left out, and what follows when they are lost."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    EventBatch,
    FailureKind,
    OutputsTaken,
    RunningStage,
    StageSpec,
    Streaming,
    SuccessfulStage,
    TakenOutput,
    decode_batch,
    decode_graph,
    encode_batch,
    outputs_to_take,
    reusable_stages,
    worth_taking,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.events import StageLaidOut
from onager.execution_graph.reuse import MAX_REUSABLE
from tests.unit.execution_graph.builder import Job, chain, output, planned, stage, with_sink

BRANCHES = (stage(1), stage(2, reads=(1,)), stage(3), stage(4, reads=(2, 3)), stage(5, reads=(4,), kind="result"))
"""Two branches that meet: 1 → 2, and 3."""


def printed(*stages: StageSpec) -> tuple[StageSpec, ...]:
    """Return *stages* with fingerprints, but for what gives a result or publishes."""
    return tuple(replace(s, fingerprint=f"f{s.stage_id}") if s.output.kind == "exchange" else s for s in stages)


def taken(stage_id: int, job_id: str = "other", partitions: int = 2, *, is_shared: bool = True) -> TakenOutput:
    outputs = tuple(
        replace(output(f"{job_id}-{n}", is_shared=is_shared), executor_id="gone", task_attempt=3)
        for n in range(partitions)
    )
    return TakenOutput(
        stage_id=stage_id, job_id=job_id, of_stage_id=stage_id + 10, fingerprint=f"f{stage_id}", outputs=outputs
    )


def take(job: Job, *each: TakenOutput) -> bool:
    return job.feed(OutputsTaken(taken=each, at_ms=job.tick()))


def survives(job: Job) -> bool:
    """Return whether the job's record gives the same graph."""
    return decode_graph(encode_graph(job.graph)) == job.graph


def test_what_comes_before_a_taken_output_is_left_out() -> None:
    job = planned(*printed(*BRANCHES))
    assert take(job, taken(2))
    assert job.states() == ["superseded", "successful", "resolved", "unresolved", "unresolved"]
    assert [job.nonce(2, p) for p in (0, 1)] == ["other-0", "other-1"]
    assert job.stage(2).ledger.metrics.rows_out == 20, "what decides by sizes knows them"
    assert survives(job)
    assert not take(job, taken(2)), "a second time changes nothing"
    assert job.launch().stage_id == 3
    job.finish()
    assert job.states() == ["superseded", *["successful"] * 4]


def test_a_stage_that_another_one_reads_is_computed() -> None:
    job = planned(*printed(stage(1), stage(2, reads=(1,)), stage(3, reads=(1, 2)), stage(4, reads=(3,), kind="result")))
    assert take(job, taken(2))
    assert job.states() == ["resolved", "successful", "unresolved", "unresolved"]


@pytest.mark.parametrize(
    "each",
    [
        taken(5),
        replace(taken(2), fingerprint="f1"),
        replace(taken(5), fingerprint=""),
        taken(2, is_shared=False),
        taken(2, job_id="job-1"),
        taken(9),
        replace(taken(2), outputs=()),
    ],
    ids=["the result", "another plan's", "no fingerprint", "on one executor", "its own", "no stage", "nothing"],
)
def test_what_does_not_fit_is_not_taken(each: TakenOutput) -> None:
    job = planned(*printed(*BRANCHES))
    assert not take(job, taken(3), each)
    assert job.states() == ["resolved", "unresolved", "resolved", "unresolved", "unresolved"]


def test_a_stage_that_has_begun_takes_nothing() -> None:
    job = planned(*printed(*BRANCHES))
    job.launch(limit=1)
    assert not take(job, taken(1))


def test_a_stage_that_may_give_other_rows_takes_nothing() -> None:
    specs = printed(*chain(1), stage(2, reads=(1,), is_deterministic=False), stage(3, reads=(2,), kind="result"))
    assert not take(planned(*specs), taken(2))


def test_a_job_whose_stages_run_together_takes_nothing() -> None:
    assert not take(planned(*printed(*BRANCHES), streaming=Streaming()), taken(3))


# ---------------------------------------------------------------- lost


def test_a_lost_output_is_computed_with_all_that_it_needs() -> None:
    job = planned(*printed(*BRANCHES))
    take(job, taken(2), taken(3, "another"))
    assert job.launch().stage_id == 4
    assert job.feed(job.cannot_fetch(4, 0, 2, 1))
    assert job.states() == ["resolved", "unresolved", "successful", "unresolved", "unresolved"]
    assert [s.attempt for s in job.graph.stages[1:]] == [1, 1, 0, 1, 0]
    assert not job.stage(4).ledger.failed_fetch_attempts, "it is nobody's fault"
    assert survives(job)
    job.finish()
    assert isinstance(job.stage(2), SuccessfulStage)
    assert job.nonce(2, 1) == "2.1/1.0"
    assert job.nonce(3, 1) == "another-1"


def test_all_that_was_taken_of_one_job_is_lost_at_once() -> None:
    job = planned(*printed(*BRANCHES))
    take(job, taken(2), taken(3))
    job.launch()
    job.feed(job.cannot_fetch(4, 0, 2, 1))
    assert job.states() == ["resolved", "unresolved", "resolved", "unresolved", "unresolved"]
    assert survives(job)
    job.finish()


def test_many_lost_outputs_fail_no_job() -> None:
    sides = [stage(n) for n in range(1, 8)]
    job = planned(*printed(*sides, stage(8, reads=tuple(range(1, 8))), stage(9, reads=(8,), kind="result")))
    take(job, *(taken(n, f"other-{n}") for n in range(1, 8)))
    for n in range(1, 8):
        job.launch()
        assert job.feed(job.cannot_fetch(8, 0, n, 0))
        job.run(n)
    job.finish()


def test_what_was_made_of_a_lost_output_is_made_again() -> None:
    readers = (stage(4, reads=(2,)), stage(5, reads=(2, 3)), stage(6, reads=(4, 5), kind="result"))
    job = planned(*printed(*BRANCHES[:3], *readers))
    take(job, taken(2, partitions=5), taken(3, "another"))
    assert job.stage(2).spec.partitions == 5, "the other job had other tasks"
    job.run(4)
    job.launch()
    job.succeed(5, 0)
    job.feed(job.cannot_fetch(5, 1, 2, 1))
    assert [len(s.ledger.outputs) for s in job.graph.stages[1:]] == [0, 0, 2, 0, 0, 0]
    assert job.stage(2).spec.partitions == 2, "its own may put other rows together"
    job.finish()


def test_an_output_that_needs_what_was_lost_since_has_that_made_first() -> None:
    specs = (stage(1), stage(2, reads=(1,)), stage(3, reads=(2,)), stage(4, reads=(1, 3)))
    job = planned(*printed(*specs, stage(5, reads=(4,), kind="result")), is_shared=False)
    take(job, taken(3))
    job.run(1)
    job.launch("b")
    job.feed(job.cannot_fetch(4, 0, 3, 0))
    assert job.states() == ["successful", "resolved", "unresolved", "unresolved", "unresolved"]
    job.lose("a")
    assert job.states() == ["running", "unresolved", "unresolved", "unresolved", "unresolved"]
    job.finish()


def test_a_report_that_comes_late_loses_nothing_again() -> None:
    job = planned(*printed(*BRANCHES))
    take(job, taken(2))
    job.run(3)
    job.launch()
    first, second = job.cannot_fetch(4, 0, 2, 1), job.cannot_fetch(4, 1, 2, 0)
    assert job.feed(first)
    assert not job.feed(second)
    job.run(1)
    job.run(2)
    assert not job.feed(second)
    job.finish()


def test_without_what_it_read_the_job_is_planned_again() -> None:
    specs = (stage(1), stage(2, reads=(1,)), stage(3, reads=(1,)), stage(4, reads=(2, 3)))
    specs = printed(*specs, stage(5, reads=(4,), kind="result"))
    job = planned(*(replace(spec, may_fuse=True) for spec in specs))
    take(job, taken(2))
    assert job.feed(StageLaidOut(stage_id=3, basis=((1, 0), (3, 0)), fused=(1,), at_ms=job.tick()))
    job.run(3)
    job.launch()
    event = job.cannot_fetch(4, 0, 2, 1)
    assert job.feed(event)
    assert [s.spec.work for s in job.graph.stages] == ["plan"]
    job.launch("planner")
    job.feed(job.plan(*specs))
    job.finish()


# ---------------------------------------------------------------- offered


def test_stages_that_are_done_are_offered_by_their_fingerprints() -> None:
    job = planned(*with_sink(*printed(*BRANCHES)))
    job.run(1)
    job.launch(limit=1)
    assert reusable_stages(job.graph) == {"f1": 1}
    job.finish()
    assert reusable_stages(job.graph) == {"f1": 1, "f2": 2, "f3": 3, "f4": 4}
    assert [each.nonce for each in outputs_to_take(job.stage(4))] == ["4.0/0.0", "4.0/1.0"]


def test_what_is_not_the_jobs_own_or_lies_on_an_executor_is_not_offered() -> None:
    job = planned(*printed(*BRANCHES))
    take(job, taken(2))
    job.finish()
    assert reusable_stages(job.graph) == {"f3": 3, "f4": 4}
    lone = planned(*printed(*BRANCHES), is_shared=False)
    lone.finish()
    assert reusable_stages(lone.graph) == {}


def test_heads_stay_small() -> None:
    many = printed(*chain(MAX_REUSABLE + 5), stage(MAX_REUSABLE + 6, reads=(MAX_REUSABLE + 5,), kind="result"))
    job = planned(*many)
    job.finish()
    assert list(reusable_stages(job.graph).values()) == list(range(6, MAX_REUSABLE + 6))


def test_the_last_outputs_are_worth_most() -> None:
    specs = printed(*BRANCHES)
    assert worth_taking(specs, 5, lambda spec: spec.stage_id in (1, 2, 3)) == [2, 3]
    assert worth_taking(specs, 5, lambda spec: spec.stage_id in (1, 4)) == [4]
    assert worth_taking(BRANCHES, 5, lambda _: True) == [], "without fingerprints"
    assert worth_taking(specs, 5, lambda _: False) == []


def test_the_event_survives_the_round_trip() -> None:
    batch = EventBatch(batch_id="b", events=(OutputsTaken(taken=(taken(2),), at_ms=1),))
    assert decode_batch(encode_batch(batch)) == batch


def test_a_running_stage_that_fails_otherwise_counts_as_ever() -> None:
    job = planned(*printed(*BRANCHES))
    take(job, taken(2), taken(3))
    job.launch()
    job.fail(4, 0, FailureKind.IO_ERROR)
    assert isinstance(job.stage(4), RunningStage)
    assert job.stage(4).ledger.failures[0] == 1
