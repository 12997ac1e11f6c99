"""The back edges: executors and outputs lost, fetch failures (2.5, 2.6), and outputs that are not deterministic."""

from msgspec.structs import replace

from onager.execution_graph import Failed, FailureKind, JobState, RunningStage, decode_graph
from onager.execution_graph.codec import encode_graph
from tests.unit.execution_graph.builder import chain, planned, stage, with_sink

# ---------------------------------------------------------------- executors lost


def test_shared_outputs_outlive_their_executor() -> None:
    job = planned(*chain(2, partitions=4))
    job.run(1, "a")
    job.launch("a", 2)
    job.launch("b", 2)
    job.succeed(2, 0)
    job.lose("a")

    assert job.states() == ["successful", "running"]
    assert job.stage(2).attempt == 0
    assert job.launch("b").tasks == ((1, 1),), "only what was running there runs again"
    job.finish()
    assert [job.stage(1).ledger.success_count(p) for p in range(4)] == [1] * 4


def test_reset_completed_stage_executor_lost() -> None:
    job = planned(*chain(2, partitions=4), is_shared=False)
    job.launch("a", 2)
    job.launch("b", 2)
    job.succeed(1, 0, 1, 2, 3)
    job.launch("b", 1)
    job.lose("a")

    assert job.states() == ["running", "unresolved"]
    assert [job.stage(1).attempt, job.stage(2).attempt] == [1, 1]
    assert sorted(job.stage(1).ledger.outputs) == [2, 3], "surviving results are kept"
    assert job.launch("b").tasks == ((0, 1), (1, 1))
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_reset_resolved_stage_executor_lost() -> None:
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    assert job.states() == ["successful", "resolved"]
    job.lose("a")

    assert job.states() == ["running", "unresolved"]
    assert job.stage(2).attempt == 0, "a stage that had not begun keeps its attempt"
    job.run(1, "b")
    assert job.states() == ["successful", "resolved"]


def test_reset_running_stage_executor_lost() -> None:
    job = planned(stage(1, 4), is_shared=False)
    job.launch("a", 2)
    job.launch("b", 1)
    job.succeed(1, 0)
    job.lose("a")

    assert job.stage(1).attempt == 0
    assert not job.running(1).ledger.outputs
    assert job.launch("b").tasks == ((0, 1), (1, 1), (3, 0))


def test_a_loss_reaches_through_all_that_has_to_run_again() -> None:
    """2.6: a re-run may itself need inputs that were lost."""
    job = planned(*chain(4), is_shared=False)
    for stage_id in (1, 2, 3):
        job.run(stage_id, "a")
    job.launch("b")
    job.lose("a")

    assert job.states() == ["running", "unresolved", "unresolved", "unresolved"]
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_outputs_that_nobody_needs_any_more_are_not_made_again() -> None:
    job = planned(*chain(3), is_shared=False)
    job.run(1, "a")
    job.run(2, "b")
    job.launch("c")

    job.lose("a")

    assert job.states() == ["successful", "successful", "running"]
    assert job.graph.lost_lives == (("a", "a1"),)


def test_outputs_on_executors_lost_earlier_are_made_again_before_somebody_misses_them() -> None:
    """Otherwise each missing output that a reader finds would cost one of its four attempts."""
    job = planned(*chain(3, partitions=6), is_shared=False)
    for i in range(6):
        job.launch(f"x{i}", 1)
        job.succeed(1, i)
    job.run(2, "b")
    for i in range(6):
        job.lose(f"x{i}")
    assert job.states() == ["successful", "successful", "resolved"]

    job.lose("b")

    assert job.states() == ["running", "unresolved", "unresolved"]
    assert not job.stage(1).ledger.outputs
    assert job.graph.lost_lives == ()
    job.finish()
    assert [len(s.ledger.failed_fetch_attempts) for s in job.graph.stages] == [0] * 4


def test_a_lost_life_is_forgotten_with_its_last_output() -> None:
    """Kept, it made a repeated report of the loss change the graph."""
    job = planned(*chain(3), is_shared=False)
    job.run(1, "a")
    job.run(2, "b")
    job.lose("a")
    job.launch("c")
    job.feed(job.cannot_fetch(3, 0, 2, 0))

    assert job.states() == ["running", "unresolved", "unresolved"]
    assert job.graph.lost_lives == ()
    assert not job.lose("a")


def test_outputs_on_executors_lost_earlier_are_remembered_in_the_store() -> None:
    """7.2 (X13): what followed from a lost executor was never persisted."""
    job = planned(*chain(3), is_shared=False)
    job.run(1, "a")
    job.run(2, "b")
    job.lose("a")

    job.graph = decode_graph(encode_graph(job.graph))
    job.lose("b")
    assert job.states() == ["running", "unresolved", "unresolved"]


def test_results_are_made_again_until_the_job_has_ended() -> None:
    """2.6, the gap: outputs of the final stage on a lost executor were forgotten."""
    job = planned(stage(1, 2), is_shared=False)
    job.launch("a", 1)
    job.launch("b", 1)
    job.succeed(1, 0)
    job.lose("a")
    job.succeed(1, 1)

    assert job.graph.is_active
    assert job.launch("b").tasks == ((0, 1),)


def test_a_diamond_loses_only_the_side_that_is_lost() -> None:
    job = planned(stage(1), stage(2, reads=(1,)), stage(3, reads=(1,)), stage(4, reads=(2, 3)), is_shared=False)
    job.run(1, "a")
    job.run(2, "b")
    job.run(3, "c")
    job.launch("d")
    job.lose("b")

    assert job.states() == ["successful", "running", "successful", "unresolved"]
    job.finish()
    assert [job.stage(3).ledger.success_count(p) for p in (0, 1)] == [1, 1]


def test_inline_outputs_lie_in_the_store() -> None:
    job = planned(stage(1, 2), is_shared=False)
    job.launch("a")
    event = job.success(1, 0)
    job.feed(replace(event, output=replace(event.output, is_inline=True)))
    job.lose("a")

    assert sorted(job.stage(1).ledger.outputs) == [0]


# ---------------------------------------------------------------- lives of an executor


def test_a_repeated_loss_changes_nothing() -> None:
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    assert job.lose("a")
    assert not job.lose("a")


def test_the_loss_of_an_earlier_life_leaves_the_next_one_alone() -> None:
    """The outputs and tasks of the new process were taken for those of the old one."""
    job = planned(*chain(2, partitions=4), is_shared=False)
    job.run(1, "a", life="2")
    job.launch("a", 2, life="2")

    assert not job.lose("a", life="1")
    assert job.states() == ["successful", "running"]


def test_an_executor_that_comes_back_begins_empty() -> None:
    job = planned(stage(1, 2), is_shared=False)
    job.launch("a", 1)
    job.succeed(1, 0)
    job.launch("a", 1, life="2")
    job.lose("a", life="1")

    assert job.held(1, 1).incarnation == "a2"
    assert not job.stage(1).ledger.outputs
    assert job.launch("a", life="2").tasks == ((0, 1),)


# ---------------------------------------------------------------- fetch failures


def test_normal_fetch_failure() -> None:
    job = planned(*chain(2), is_shared=False)
    job.launch("a", 1)
    job.launch("b", 1)
    job.succeed(1, 0, 1)
    job.launch("c")
    job.feed(job.cannot_fetch(2, 0, 1, 0))

    assert job.states() == ["running", "unresolved"]
    assert sorted(job.stage(1).ledger.outputs) == [1]
    assert job.launch("b").tasks == ((0, 1),)
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL
    assert job.stage(2).attempt == 1


def test_a_fetch_failure_strips_all_that_the_producer_had_on_that_executor() -> None:
    job = planned(stage(1, 4), stage(2, 4), stage(3, reads=(1, 2)), is_shared=False)
    job.launch("a", 3)
    job.launch("b", 1)
    job.succeed(1, 0, 1, 2, 3)
    job.run(2, "a")
    job.launch("c")
    job.feed(job.cannot_fetch(3, 0, 1, 1))

    assert sorted(job.stage(1).ledger.outputs) == [3]
    assert len(job.stage(2).ledger.outputs) == 4, "another producer's outputs there are not what was found missing"


def test_a_fetch_failure_on_shared_storage_loses_what_it_names() -> None:
    job = planned(*chain(2, partitions=4))
    job.run(1, "a")
    job.launch("c")
    job.feed(job.cannot_fetch(2, 0, 1, 1))

    assert sorted(job.stage(1).ledger.outputs) == [0, 2, 3]


def test_many_fetch_failures_in_one_stage() -> None:
    """Several in one attempt of a stage count once."""
    job = planned(*chain(2, partitions=8), is_shared=False)
    job.run(1, "a")
    job.launch("c")
    failures = [job.cannot_fetch(2, p, 1, p) for p in range(8)]

    assert [job.feed(event) for event in failures] == [True] + [False] * 7
    assert job.stage(2).ledger.failed_fetch_attempts == {0}
    assert job.graph.is_active


def test_many_consecutive_stage_fetch_failures() -> None:
    job = planned(*chain(2), is_shared=False)
    for attempt in range(4):
        assert job.graph.is_active
        job.run(1, "a")
        job.launch("c")
        assert job.stage(2).attempt == attempt
        job.feed(job.cannot_fetch(2, 0, 1, 0))

    outcome = job.graph.outcome
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureKind.FETCH_FAILED
    assert (
        outcome.failure.message == "Stage 2 could not fetch its input in 4 attempts; the most recent failure: it broke"
    )


def test_long_delayed_fetch_failures() -> None:
    """A report of an earlier attempt counts no more, but what it found missing need not be found again."""
    job = planned(*chain(2, partitions=4))
    job.run(1, "a")
    job.launch("c")
    failures = [job.cannot_fetch(2, p, 1, p) for p in range(3)]
    assert [job.feed(event) for event in failures] == [True, True, True]

    assert sorted(job.stage(1).ledger.outputs) == [3]
    assert job.stage(2).ledger.failed_fetch_attempts == {0}
    assert [job.feed(event) for event in failures] == [False, False, False]
    job.finish()
    assert job.stage(2).attempt == 1


def test_long_delayed_fetch_failures_race_condition() -> None:
    """The report arrives when its stage already runs in the next attempt."""
    job = planned(*chain(2, partitions=2))
    job.run(1, "a")
    job.launch("c")
    first, late = job.cannot_fetch(2, 0, 1, 0), job.cannot_fetch(2, 1, 1, 1)
    job.feed(first)
    job.run(1, "b")
    job.launch("c")

    assert not job.feed(first), "that output was made again"
    assert job.feed(late)
    assert job.states() == ["running", "unresolved"]
    assert job.stage(2).attempt == 2
    assert job.stage(2).ledger.failed_fetch_attempts == {0}
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_a_late_fetch_failure_of_a_stage_that_succeeded_changes_nothing() -> None:
    job = planned(*chain(3), is_shared=True)
    job.run(1, "a")
    job.launch("c")
    late = job.cannot_fetch(2, 1, 1, 1)
    job.feed(job.cannot_fetch(2, 0, 1, 0))
    job.run(1, "a")
    job.run(2, "c")
    assert not job.feed(late)


def test_fetch_failures_in_different_stages() -> None:
    job = planned(*chain(3), is_shared=False)
    job.run(1, "a")
    job.launch("c")
    job.feed(job.cannot_fetch(2, 0, 1, 0))
    job.run(1, "b")
    job.run(2, "c")
    job.launch("d")
    job.feed(job.cannot_fetch(3, 1, 2, 1))

    assert job.states() == ["successful", "running", "unresolved"]
    assert job.stage(3).ledger.failed_fetch_attempts == {0}
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_fetch_failure_with_normal_task_failure() -> None:
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("c")
    user_error = job.failed(2, 1, FailureKind.USER_ERROR)
    io_error = job.failed(2, 1, FailureKind.IO_ERROR)
    job.feed(job.cannot_fetch(2, 0, 1, 0))

    assert not job.feed(io_error)
    assert not job.feed(user_error), "it may come of the rows that were missing"
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_long_delayed_failed_task_after_executor_lost() -> None:
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("a")
    late = job.cannot_fetch(2, 0, 1, 0)
    job.lose("a")

    assert not job.feed(late)
    job.finish()
    assert job.stage(2).ledger.failed_fetch_attempts == frozenset()


def test_a_stage_that_succeeds_starts_counting_anew() -> None:
    """2.2: Running to Successful clears the failed attempts."""
    job = planned(*chain(3), is_shared=False)
    for _ in range(3):
        job.run(1, "a")
        job.launch("c")
        job.feed(job.cannot_fetch(2, 0, 1, 0))
    job.run(1, "a")
    job.run(2, "c")
    assert job.stage(2).ledger.failed_fetch_attempts == frozenset()


def test_consumers_read_the_winning_outputs_only() -> None:
    """7.2 (X12, X14): locations copied into consumers outlived what they pointed at."""
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    before = job.nonce(1, 0)
    job.lose("a")
    job.run(1, "b")

    assert job.nonce(1, 0) != before
    assert len(job.stage(1).ledger.outputs) == 2
    assert job.stage(1).ledger.success_count(0) == 2


def test_a_running_stage_is_stored_as_running() -> None:
    """7.2 (X12): it was stored as resolved with the next attempt, so every task ran again after a fail-over."""
    job = planned(*chain(2, partitions=4))
    job.launch("a", 3)
    job.succeed(1, 1)
    reports = [job.success(1, 0), job.success(1, 2)]

    job.graph = decode_graph(encode_graph(job.graph))

    assert isinstance(job.stage(1), RunningStage)
    assert [job.feed(event) for event in reports] == [True, True]
    assert job.launch("b").tasks == ((3, 0),)


# ---------------------------------------------------------------- outputs that are not deterministic


def test_a_stage_that_is_not_deterministic_is_made_again_whole() -> None:
    job = planned(stage(1, 4, is_deterministic=False), stage(2, 4, reads=(1,)), is_shared=False)
    job.launch("a", 1)
    job.launch("b", 3)
    job.succeed(1, 0, 1, 2, 3)
    job.launch("c", 2)
    job.succeed(2, 0)
    job.lose("a")

    assert job.states() == ["running", "unresolved"]
    assert not job.stage(1).ledger.outputs
    assert not job.stage(2).ledger.outputs, "its reader had taken rows from the first run"
    job.finish()


def test_all_that_is_derived_from_a_stage_that_is_made_again_whole_goes_with_it() -> None:
    job = planned(
        stage(1, 2, is_deterministic=False),
        stage(2, 2, reads=(1,)),
        stage(3, 2, reads=(2,)),
        stage(4, 2, reads=(1, 3)),
    )
    job.run(1)
    job.run(2)
    job.run(3)
    job.launch("c")
    job.feed(job.cannot_fetch(4, 0, 1, 0))

    assert job.states() == ["running", "unresolved", "unresolved", "unresolved"]
    assert not any(s.ledger.outputs for s in job.graph.stages[1:])
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_a_stage_that_is_made_again_whole_needs_its_other_inputs_once_more() -> None:
    """Stage 3 is redone only because stage 1 was lost whole; stage 2 died with its executor when nobody needed it."""
    job = planned(
        stage(1, 2, is_deterministic=False),
        stage(2, 2),
        stage(3, 2, reads=(1, 2)),
        stage(4, 2, reads=(1, 3)),
        is_shared=False,
    )
    job.run(1, "a")
    job.run(2, "b")
    job.run(3, "c")
    job.lose("b")
    assert job.states() == ["successful", "successful", "successful", "resolved"]
    job.launch("d")
    job.feed(job.cannot_fetch(4, 0, 1, 0))

    assert job.states() == ["running", "running", "unresolved", "unresolved"]
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_before_anybody_read_it_a_stage_in_the_making_repeats_only_what_was_lost() -> None:
    job = planned(stage(1, 4, is_deterministic=False), stage(2, reads=(1,)), is_shared=False)
    job.launch("a", 1)
    job.launch("b", 2)
    job.succeed(1, 0, 1)
    job.lose("a")
    assert sorted(job.stage(1).ledger.outputs) == [1]


# ---------------------------------------------------------------- publishing


def test_staged_files_that_are_missing_are_written_again_before_publishing_begins() -> None:
    job = planned(*with_sink(stage(1, 2)))
    job.run(1)
    job.launch("a")
    job.feed(job.cannot_fetch(2, 0, 1, 1))

    assert job.states() == ["running", "unresolved", "unresolved"]
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_the_manifest_is_made_once() -> None:
    """A second one, made when files were moved already, would list them among those to be replaced."""
    job = planned(*with_sink(stage(1, 2)), is_shared=False)
    job.run(1, "a")
    job.run(2, "b")
    job.launch("c")
    for executor in ("a", "b"):
        job.lose(executor)

    assert job.states() == ["successful", "successful", "running"]
    job.lose("c")
    assert job.states() == ["successful", "successful", "running"]
    job.run(3, "d")
    assert job.graph.state is JobState.SUCCESSFUL
