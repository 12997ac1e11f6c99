"""Streaming jobs: when stages start, what ends streaming, and what happens at most once."""

import pytest
from msgspec.structs import replace

from onager.execution_graph import (
    Event,
    ExecutorLife,
    ExecutorSlot,
    Failed,
    FailureKind,
    FetchFailure,
    HeldTask,
    RunningStage,
    SpeculationPolicy,
    StageSpec,
    StageWork,
    Streaming,
    Succeeded,
    SuccessfulStage,
    apply,
    can_judge,
    find_abandonment,
    find_stragglers,
    has_task_for,
    is_streaming,
    pop_next_tasks,
    streams_of,
)
from onager.execution_graph.events import StragglersFound, StreamingAbandoned
from tests.unit.execution_graph.builder import Job, chain, output, planned, stage, wanted_tasks, with_sink

TROUBLE = [
    FailureKind.IO_ERROR,
    FailureKind.EXECUTOR_LOST,
    FailureKind.TASK_KILLED,
    FailureKind.RESULT_LOST,
    FailureKind.FETCH_FAILED,
]


def streaming(*stages: StageSpec, speculation: SpeculationPolicy | None = None, is_shared: bool = True) -> Job:
    """Return a planned job that streams; its last QUERY stage has the result."""
    last = max(s.stage_id for s in stages if s.work is StageWork.QUERY)
    kind = "sink" if len(stages) > last else "result"
    made = (replace(s, output=replace(s.output, kind=kind)) if s.stage_id == last else s for s in stages)
    return planned(*made, streaming=Streaming(), speculation=speculation, is_shared=is_shared)


def at_work(count: int = 3, partitions: int = 2) -> Job:
    """Return a job with all tasks of a chain of stages in hand: of stage 1 on ``a``, of stage 2 on ``b``, …"""
    job = streaming(*chain(count, partitions))
    for number in range(count):
        assert job.launch("abcdef"[number]).stage_id == number + 1
    return job


def abandoned_once(job: Job) -> str:
    """Return why the job does not stream any more, having looked at what follows from it."""
    assert job.graph.streaming is not None
    assert job.graph.streaming.reason
    assert not job.graph.is_streaming
    for found in job.graph.stages[1:]:
        assert not found.ledger.outputs
        assert not isinstance(found, RunningStage)
        assert not found.ledger.failures
    return job.graph.streaming.reason


# ---------------------------------------------------------------- running together


def test_stages_start_while_those_that_they_read_are_at_work() -> None:
    job = streaming(*chain(3))
    job.start()
    assert job.states() == ["running", "unresolved", "unresolved"]
    job.launch("a", 1)
    assert job.states() == ["running", "unresolved", "unresolved"], "a task of stage 1 is in nobody's hands"
    job.launch("b", 1)
    assert job.states() == ["running", "resolved", "unresolved"]
    assert job.launch("a").stage_id == 2
    assert job.launch("b").stage_id == 3
    assert job.states() == ["running", "running", "running"]
    job.succeed(1, 0, 1)
    job.succeed(2, 0, 1)
    job.succeed(3, 0, 1)
    assert isinstance(job.graph.outcome, Succeeded)
    assert job.graph.streaming == Streaming()
    assert [s.ledger.success_count(0) for s in job.graph.stages[1:]] == [1, 1, 1]


def test_a_job_that_did_not_ask_for_it_waits_for_whole_outputs() -> None:
    job = planned(*chain(2))
    job.launch("a")
    assert job.states() == ["running", "unresolved"]


def test_a_stage_waits_for_all_that_it_reads() -> None:
    job = streaming(stage(1), stage(2), stage(3, reads=(1, 2)))
    job.launch("a")
    assert job.states() == ["running", "running", "unresolved"]
    job.launch("a")
    assert job.states() == ["running", "running", "resolved"]


def test_stages_without_partitions_hold_up_nothing() -> None:
    job = streaming(stage(1, 0), stage(2, 2, reads=(1,)), stage(3, 0, reads=(2,)), stage(4, 1, reads=(2, 3)))
    job.launch("a")
    job.launch("a")
    assert job.states() == ["successful", "running", "successful", "running"]
    job.succeed(4, 0)
    assert isinstance(job.graph.outcome, Succeeded)


def test_publishing_waits_for_the_whole_result() -> None:
    job = streaming(*with_sink(*chain(2)))
    job.launch("a")
    job.launch("b")
    assert job.states()[2:] == ["unresolved", "unresolved"]
    job.succeed(2, 0, 1)
    assert job.states() == ["successful", "successful", "resolved", "unresolved"]
    job.finish()
    assert isinstance(job.graph.outcome, Succeeded)
    assert job.graph.streaming == Streaming()


def test_only_executors_that_can_stream_are_given_its_tasks() -> None:
    job = streaming(*chain(2))
    job.start()
    assert pop_next_tasks(job.graph, ExecutorSlot("a", "a1", 0), 1, 9) is None
    assert not has_task_for(job.graph, ExecutorSlot("a", "a1", 0), 9)
    assert has_task_for(job.graph, ExecutorSlot("a", "a1", 0, can_stream=True), 9)
    whole = streaming(stage(1))
    whole.start()
    assert pop_next_tasks(whole.graph, ExecutorSlot("a", "a1", 0), 1, 9) is not None, "nobody reads it"


def test_planning_and_publishing_are_for_any_executor() -> None:
    job = streaming(*with_sink(stage(1), stage(2, reads=(1,))))
    job.launch("a")
    job.launch("a")
    job.succeed(2, 0, 1)
    job.start()
    assert pop_next_tasks(job.graph, ExecutorSlot("old", "o1", 0), 1, 9) is not None


def test_what_a_streaming_task_leaves_dies_with_its_executor() -> None:
    job = at_work(2)
    job.succeed(1, 0)
    assert job.feed(replace(job.success(1, 1), output=replace(output("x"), is_inline=True)))
    assert [o.is_durable for o in job.stage(1).ledger.outputs.values()] == [False, False]
    assert {o.life for o in job.stage(1).ledger.outputs.values()} == {ExecutorLife("a", "a1")}
    job.succeed(2, 0)
    assert job.stage(2).ledger.outputs[0].is_durable, "it is the result"


def test_a_task_learns_whose_rows_to_read() -> None:
    job = streaming(stage(1), stage(2, 1), stage(3, 1, reads=(1, 2)))
    job.launch("a", 1)
    job.take_back(1, 0, FailureKind.LAUNCH_LOST)
    job.launch("b", 1)
    job.launch("c", 1, life="7")
    job.launch("d")
    job.succeed(1, 1)
    first, second = streams_of(job.graph, 3)
    assert (first.stage_id, first.stage_attempt) == (1, 0)
    assert first.tasks == ((1, ExecutorLife("b", "b1")), (0, ExecutorLife("c", "c7")))
    assert (second.stage_id, second.tasks) == (2, ((0, ExecutorLife("d", "d1")),))


# ---------------------------------------------------------------- done before its inputs are


def test_what_nobody_reads_any_more_is_over() -> None:
    job = at_work(3)
    job.succeed(1, 0)
    job.succeed(2, 0)
    held = HeldTask(1, 0, 1, 0)
    assert held in wanted_tasks(job.graph, "a", "a1")
    job.succeed(2, 1)
    assert job.states() == ["successful", "successful", "running"]
    assert wanted_tasks(job.graph, "a", "a1") == frozenset()
    assert can_judge(job.graph, held)
    assert job.lose("a"), "remembered, should the outputs be needed again"
    assert job.graph.is_streaming
    job.succeed(3, 0, 1)
    assert isinstance(job.graph.outcome, Succeeded)


def test_a_job_is_over_when_its_result_is_there() -> None:
    job = at_work(3)
    late = job.success(1, 1)
    job.succeed(3, 0, 1)
    assert isinstance(job.graph.outcome, Succeeded)
    assert job.states() == ["successful"] * 3
    assert not job.feed(late)


def test_nothing_is_made_again_for_a_result_that_is_there() -> None:
    job = streaming(*with_sink(*chain(2)))
    job.launch("a")
    job.launch("b")
    failing = job.failed(1, 1, FailureKind.IO_ERROR)
    job.succeed(2, 0, 1)
    job.launch("c")
    assert not job.feed(failing)
    assert not job.lose("a")
    assert not job.feed(StreamingAbandoned(reason="too late", at_ms=9))
    job.finish()
    assert isinstance(job.graph.outcome, Succeeded)


# ---------------------------------------------------------------- trouble


@pytest.mark.parametrize("kind", TROUBLE)
def test_any_trouble_of_a_task_ends_streaming_and_counts_against_nobody(kind: FailureKind) -> None:
    job = at_work()
    job.succeed(1, 0)
    job.fail(2, 1, kind)
    assert abandoned_once(job) == f"task 1 of stage 2 on b: it broke ({kind.value})"
    assert job.states() == ["resolved", "unresolved", "unresolved"]
    assert [s.attempt for s in job.graph.stages] == [0, 1, 1, 1]
    assert wanted_tasks(job.graph, "a", "a1") == wanted_tasks(job.graph, "b", "b1") == frozenset()
    launched = job.launch("a")
    assert (launched.stage_id, launched.stage_attempt) == (1, 1)
    assert launched.tasks == ((0, 1), (1, 1))
    assert job.states() == ["running", "unresolved", "unresolved"], "from now on outputs are read when they are whole"
    job.finish()
    assert isinstance(job.graph.outcome, Succeeded)


def test_a_job_that_gave_up_streaming_is_a_durable_job() -> None:
    job = at_work(2)
    job.lose("b")
    abandoned_once(job)
    job.launch("c")
    job.fail(1, 0, FailureKind.IO_ERROR)
    assert dict(job.running(1).ledger.failures) == {0: 1}
    job.launch("d")
    job.succeed(1, 0, 1)
    assert all(o.is_durable for o in job.stage(1).ledger.outputs.values())
    job.launch("a")
    reason = job.graph.streaming
    job.lose("d")
    assert job.states() == ["successful", "running"]
    assert job.graph.streaming == reason


def test_reports_of_the_abandoned_attempt_are_stale() -> None:
    job = at_work()
    late: list[Event] = [job.success(s, p) for s in (1, 2, 3) for p in (0, 1)]
    late += [job.failed(s, p, kind) for s in (1, 2, 3) for p in (0, 1) for kind in (*TROUBLE, FailureKind.USER_ERROR)]
    job.fail(3, 0, FailureKind.IO_ERROR)
    for event in late:
        assert not job.feed(event)
    job.launch("z")
    for event in late:
        assert not job.feed(event)


def test_a_users_error_fails_the_job_at_once() -> None:
    job = at_work()
    job.fail(2, 0, FailureKind.USER_ERROR)
    assert isinstance(job.graph.outcome, Failed)
    assert job.graph.outcome.stage_id == 2
    assert job.graph.streaming == Streaming()


def test_an_executor_with_a_running_task_ends_streaming() -> None:
    job = at_work()
    job.lose("b")
    assert abandoned_once(job) == "no heartbeat"


def test_an_executor_with_an_output_that_is_read_ends_streaming() -> None:
    job = at_work()
    job.succeed(1, 0, 1)
    job.lose("a")
    assert abandoned_once(job) == "no heartbeat"


def test_an_executor_without_anything_takes_nothing_along() -> None:
    job = at_work()
    assert not job.lose("x")
    assert not job.lose("a", life="0")
    assert job.graph.is_streaming


def test_a_result_that_dies_with_its_executor_ends_streaming() -> None:
    job = streaming(*chain(2), is_shared=False)
    job.launch("a")
    job.launch("b", 1)
    job.launch("c")
    job.succeed(2, 0)
    job.lose("b")
    abandoned_once(job)


def test_staged_files_that_are_gone_end_streaming() -> None:
    job = streaming(*with_sink(*chain(2)))
    job.launch("a")
    job.launch("b")
    job.succeed(2, 0, 1)
    job.launch("c")
    assert job.feed(job.cannot_fetch(3, 0, 2, 1))
    assert job.graph.streaming is not None
    assert job.graph.streaming.reason == "it broke"
    assert job.states() == ["resolved", "unresolved", "unresolved", "unresolved"]
    job.finish()
    assert isinstance(job.graph.outcome, Succeeded)


def test_a_launch_that_got_lost_is_made_again_while_no_reader_depends_on_it() -> None:
    job = streaming(stage(1), stage(2), stage(3, reads=(1, 2)))
    job.launch("a")
    job.take_back(1, 1, FailureKind.LAUNCH_LOST)
    assert job.graph.is_streaming
    assert job.launch("b").tasks == ((1, 1),)
    job.launch("b")
    assert job.states() == ["running", "running", "resolved"]
    job.take_back(1, 0, FailureKind.LAUNCH_LOST)
    assert abandoned_once(job) == "task 0 of stage 1 and executor a did not come together (launch_lost)"


def test_a_lost_launch_of_the_last_stage_is_made_again() -> None:
    job = at_work(2)
    job.take_back(2, 1, FailureKind.LAUNCH_LOST)
    assert job.graph.is_streaming
    assert job.launch("c").tasks == ((1, 1),)


def test_nobody_who_can_stream_is_a_reason() -> None:
    job = streaming(*chain(2))
    job.start()
    assert find_abandonment(job.graph, [], [], 5) is None, "nobody takes work at all"
    assert find_abandonment(job.graph, ["a", "b"], ["b", "c"], 5) is None
    event = find_abandonment(job.graph, ["a"], ["c"], 5)
    assert event is not None
    assert job.feed(event)
    assert abandoned_once(job) == "no executor that takes work has an address for streams"
    assert find_abandonment(job.graph, ["a"], [], 5) is None
    assert not job.feed(event)
    assert pop_next_tasks(job.graph, ExecutorSlot("a", "a1", 0), 1, 9) is None, "it waits to be started"
    job.start()
    assert pop_next_tasks(job.graph, ExecutorSlot("a", "a1", 0), 1, 9) is not None


def test_tasks_that_all_run_need_nobody_else() -> None:
    job = at_work()
    assert find_abandonment(job.graph, ["x"], [], 5) is None


def test_a_job_that_does_not_stream_has_nothing_to_give_up() -> None:
    for job in (planned(*chain(2)), streaming(stage(1))):
        job.start()
        assert find_abandonment(job.graph, ["a"], [], 5) is None
        assert not job.feed(StreamingAbandoned(reason="why not", at_ms=9))


def test_a_query_of_one_stage_is_tried_again_as_ever() -> None:
    job = streaming(*with_sink(stage(1)))
    job.launch("a")
    assert not is_streaming(job.graph, job.stage(1))
    job.succeed(1, 0)
    job.fail(1, 1, FailureKind.IO_ERROR)
    assert job.graph.streaming == Streaming()
    assert list(job.running(1).ledger.outputs) == [0]


def test_trouble_with_planning_and_publishing_is_no_reason() -> None:
    job = streaming(*with_sink(*chain(2)))
    job.launch("a")
    job.launch("b")
    job.succeed(2, 0, 1)
    job.launch("c")
    job.fail(3, 0, FailureKind.IO_ERROR)
    job.launch("c")
    job.lose("c")
    assert job.graph.is_streaming
    assert isinstance(job.stage(2), SuccessfulStage)


def test_there_are_no_second_attempts_before_it_is_given_up() -> None:
    policy = SpeculationPolicy(quantile=0.5, min_task_runtime_ms=0)
    job = streaming(*chain(2), speculation=policy)
    job.launch("a")
    job.launch("b")
    job.succeed(1, 0)
    assert find_stragglers(job.graph, ["c"], job.now_ms + 9_999) == ()
    found = StragglersFound(stage_id=1, stage_attempt=0, tasks=((1, 0),), at_ms=9)
    assert apply(job.graph, found) is job.graph
    job.fail(2, 0, FailureKind.IO_ERROR)
    job.launch("a")
    job.succeed(1, 0)
    assert job.speculate("s").stage_id == 1


def test_a_fetch_failure_is_no_better_than_any_other() -> None:
    job = at_work()
    job.succeed(1, 0, 1)
    fetch = FetchFailure(1, 0, job.nonce(1, 0))
    assert job.feed(job.failed(2, 0, FailureKind.FETCH_FAILED, fetch=fetch))
    abandoned_once(job)
    assert not job.stage(2).ledger.failed_fetch_attempts
