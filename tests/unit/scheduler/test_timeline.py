"""What a job did when and where, derived from its log."""

import json
from collections import Counter

import pytest

from onager.execution_graph import (
    EventBatch,
    FailureKind,
    JobCancelled,
    SpeculationPolicy,
    Streaming,
    TaskMetrics,
    TaskOutput,
    TasksLaunched,
    TaskSucceeded,
)
from onager.execution_graph.intervals import Outcome
from onager.scheduler.api.timeline.model import MarkKind
from onager.scheduler.api.timeline.story import MAX_BARS, Story
from onager.scheduler.api.timeline.telling import timeline_of
from tests.unit.execution_graph.builder import Job, chain, new_graph, planned, stage
from tests.unit.scheduler.timelines import bars, many, marks, timeline_from_log


def test_attempts_are_bars_in_the_lanes_of_executors():
    job = planned(stage(1, 3, kind="result"))
    job.launch("a", limit=2)
    job.launch("b")
    job.succeed(1, 0, 2)
    now = timeline_from_log(job)
    assert [lane.executor_id for lane in now.lanes] == ["planner", "a", "b"]
    assert [lane.rows for lane in now.lanes] == [1, 2, 1]
    assert [(b.lane, b.row, b.partition, b.outcome) for b in bars(now, 1)] == [
        (1, 0, 0, Outcome.SUCCESSFUL),
        (1, 1, 1, Outcome.RUNNING),
        (2, 0, 2, Outcome.SUCCESSFUL),
    ]
    done, going_on, _ = bars(now, 1)
    assert (done.to_ms > done.from_ms, done.run_ms) == (True, 5)
    assert going_on.to_ms is None
    assert not now.is_over
    job.succeed(1, 1)
    end = timeline_from_log(job)
    assert end.is_over
    assert end.state == "successful"
    assert end.outcomes == {Outcome.SUCCESSFUL: 4}
    assert [m.text for m in marks(end, MarkKind.ENDED)] == ["successful"]
    assert [m.text for m in marks(end, MarkKind.PLANNED)] == ["1 stage, 3 tasks, by planner"]
    assert [(s.stage, s.outcome) for s in end.stages] == [(0, Outcome.SUCCESSFUL), (1, Outcome.SUCCESSFUL)]


def test_a_row_that_is_free_again_is_taken_again():
    job = planned(stage(1, 3, kind="result"))
    for _ in range(3):
        job.launch("a", limit=1)
        job.succeed(1, next(iter(job.running(1).running)))
    assert {bar.row for bar in bars(timeline_from_log(job), 1)} == {0}


def test_another_writer_is_a_take_over():
    job = planned(stage(1, 1, kind="result"))
    job.run(1)
    (mark,) = marks(timeline_from_log(job, writers=lambda position: "s1" if position < 4 else "s2"), MarkKind.TAKE_OVER)
    assert (mark.scheduler_id, mark.text) == ("s2", "s2 goes on after s1")
    assert not marks(timeline_from_log(job, writers=lambda position: "" if position == 3 else "s1"), MarkKind.TAKE_OVER)


def test_a_lost_executor_takes_its_running_tasks_and_rolls_stages_back():
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("a", limit=1)
    job.launch("b")
    assert job.lose("a")
    now = timeline_from_log(job)
    assert Counter(bar.outcome for bar in bars(now, 2)) == {Outcome.LOST: 1, Outcome.STOPPED: 1}
    assert {m.stage for m in marks(now, MarkKind.STAGE_ROLLBACK)} == {1, 2}
    (lost,) = marks(now, MarkKind.EXECUTOR_LOST)
    assert (lost.executor_id, lost.text) == ("a", "a: no heartbeat, with 1 running task")
    assert [(s.stage, s.attempt, s.outcome) for s in now.stages[1:]] == [
        (1, 0, Outcome.SUCCESSFUL),
        (2, 0, Outcome.STOPPED),
        (1, 1, Outcome.RUNNING),
    ]
    job.finish()
    end = timeline_from_log(job)
    assert end.is_over
    assert not [bar for bar in end.bars if bar.outcome is Outcome.RUNNING]
    assert [(s.stage, s.attempt) for s in end.stages if s.outcome is Outcome.SUCCESSFUL] == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 1),
    ]


def test_a_failure_is_tried_again_and_a_lost_input_rolls_back():
    job = planned(*chain(2))
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.launch("b")
    job.succeed(1, 0, 1)
    job.launch("b")
    assert job.feed(job.cannot_fetch(2, 0, 1, 1))
    now = timeline_from_log(job)
    (retry,) = marks(now, MarkKind.TASK_RETRY)
    assert (retry.stage, retry.partition, retry.executor_id) == (1, 0, "a")
    assert "io_error: it broke" in retry.text
    failed = [bar for bar in now.bars if bar.outcome is Outcome.FAILED]
    assert [(bar.stage, bar.kind) for bar in failed] == [(1, "io_error"), (2, "fetch_failed")]
    assert {mark.text for mark in marks(now, MarkKind.STAGE_ROLLBACK)} == {
        "stage 1 runs again: fetch_failed: it broke",
        "stage 2 runs again: fetch_failed: it broke",
    }
    assert [bar.outcome for bar in bars(now, 2) if bar.partition == 1] == [Outcome.STOPPED]


def test_of_two_attempts_one_wins():
    policy = SpeculationPolicy(quantile=0.5, min_task_runtime_ms=1)
    job = planned(stage(1, 4, kind="result"), speculation=policy)
    job.launch("a")
    job.succeed(1, 0, 1, 2)
    job.speculate("s")
    assert job.feed(job.success(1, 3, job.second(1, 3)))
    now = timeline_from_log(job)
    (first, second) = (bar for bar in bars(now, 1) if bar.partition == 3)
    assert (first.outcome, first.speculative) == (Outcome.KILLED, False)
    assert (second.outcome, second.speculative) == (Outcome.SUCCESSFUL, True)
    assert [m.count for m in marks(now, MarkKind.SECOND_ATTEMPTS)] == [1]


def test_streaming_that_is_given_up_is_a_mark_and_stops_what_ran():
    job = planned(*chain(2), streaming=Streaming())
    job.launch("a", limit=2)
    job.launch("b")
    assert job.lose("a")
    now = timeline_from_log(job)
    assert [m.text for m in marks(now, MarkKind.STREAMING_GIVEN_UP)] == ["no heartbeat"]
    assert not marks(now, MarkKind.STAGE_ROLLBACK)
    assert Counter(bar.outcome for bar in now.bars if bar.stage) == {Outcome.LOST: 2, Outcome.STOPPED: 2}


def test_who_cancelled_and_what_was_stopped():
    job = planned(stage(1, 2, kind="result"))
    job.launch("a")
    assert job.feed(JobCancelled(reason="token=abc enough", principal="eve", at_ms=job.tick()))
    now = timeline_from_log(job)
    (mark,) = marks(now, MarkKind.CANCELLED)
    assert mark.text.endswith("enough, by eve")
    assert "abc" not in mark.text
    assert {bar.outcome for bar in bars(now, 1)} == {Outcome.STOPPED}
    assert now.is_over


def test_what_planning_ran_as_well_is_one_bar():
    job = Job()
    job.launch("planner")
    spec = stage(1, 1, kind="result", plan_digest=None)
    fused = TaskOutput(nonce="f", is_shared=True, rows=1, bytes=1)
    assert job.feed(job.plan(spec, fused=fused))
    now = timeline_from_log(job)
    (bar,) = now.bars
    assert (bar.stage, bar.also_stage, bar.outcome) == (0, 1, Outcome.SUCCESSFUL)
    assert [(s.stage, s.outcome) for s in now.stages] == [(0, Outcome.SUCCESSFUL), (1, Outcome.SUCCESSFUL)]
    assert now.is_over


def test_what_is_asked_for_after_a_position_completes_what_was_reported_before():
    job = planned(*chain(2), is_shared=False)
    story = Story(job.graph)
    known, known_marks = {}, {}

    def ask(after):
        answer = timeline_from_log(job, after, story=story)
        for bar in answer.bars:
            known[bar.stage, bar.stage_attempt, bar.partition, bar.attempt] = bar
        known_marks.update({mark.number: mark for mark in answer.marks})
        return answer

    before = ask(0)
    assert not ask(before.position).bars
    job.launch("a", limit=1)
    second = ask(before.position)
    assert [bar.partition for bar in second.bars] == [0], "only what is new"
    job.launch("b")
    job.succeed(1, 0, 1)
    job.launch("b")
    job.lose("a")
    ask(second.position)
    job.finish()
    last = ask(second.position)
    whole = timeline_from_log(job)
    assert sorted(known.values(), key=repr) == sorted(whole.bars, key=repr)
    assert [known_marks[number] for number in sorted(known_marks)] == list(whole.marks)
    assert last.position == whole.position


def test_a_gap_is_reported_and_what_comes_after_it_too():
    job = planned(stage(1, 2, kind="result"))
    job.launch("a")
    job.succeed(1, 0)
    story = Story(job.graph)
    story.feed(2, None)
    for position, event in enumerate(job.log[2:], 3):
        story.feed(position, EventBatch(batch_id="b", events=(event,), writer="s1"))
    assert job.feed(JobCancelled(reason="enough", at_ms=job.tick()))
    story.end_as(job.graph)
    now = timeline_of(story, job.graph)
    assert now.is_partial
    assert now.is_over
    assert [m.kind for m in now.marks] == [MarkKind.SUBMITTED, MarkKind.NOT_KEPT, MarkKind.PLANNED, MarkKind.ENDED]
    assert [bar.outcome for bar in bars(now, 1)] == [Outcome.SUCCESSFUL, Outcome.STOPPED]


def test_json_leaves_out_what_is_empty():
    job = planned(stage(1, 1, kind="result"))
    job.launch("a")
    found = json.loads(timeline_from_log(job).as_json())
    assert found["bars"][1] == {
        "lane": 1,
        "stage": 1,
        "from_ms": found["bars"][1]["from_ms"],
        "outcome": "running",
    }
    assert "buckets" not in found


@pytest.mark.parametrize(("tasks", "executors"), [(MAX_BARS + 1, 3), (8_000, 400)])
def test_a_job_of_many_attempts_is_reported_in_buckets_that_add_up(tasks, executors):
    story = many(tasks, executors)
    now = timeline_of(story, new_graph())
    assert not now.bars
    assert now.attempts == tasks + 1
    assert sum(bucket.successful for bucket in now.buckets) == tasks + 1
    busy_ms = sum(bucket.running for bucket in now.buckets) * now.bucket_ms
    assert busy_ms == pytest.approx(tasks * 1_000, rel=0.02)
    assert len(now.as_json()) < 500_000


def test_buckets_reported_as_a_job_goes_on_are_those_of_who_looks_at_its_end():
    story = many(MAX_BARS + 1, 3, more=4)
    followed = many(MAX_BARS + 1, 3, more=4)
    position = story.log.position
    for number, (at_ms, runs_ms) in enumerate([(0, 700), (900, 40_000), (41_000, 3)], MAX_BARS + 1):
        for found in (story, followed):
            begins_ms = found.log.now_ms + at_ms
            launched = TasksLaunched(
                stage_id=1,
                stage_attempt=0,
                executor_id=f"e{number % 4}",
                incarnation="x",
                list_number=0,
                tasks=((number, 0),),
                at_ms=begins_ms,
            )
            done = TaskSucceeded(
                stage_id=1,
                stage_attempt=0,
                partition=number,
                task_attempt=0,
                executor_id=f"e{number % 4}",
                output=TaskOutput(nonce="n", is_shared=True, rows=1, bytes=1),
                metrics=TaskMetrics(run_ms=1),
                at_ms=begins_ms + runs_ms,
            )
            for step_ahead, event in enumerate((launched, done), 1):
                found.feed(position + step_ahead, EventBatch(batch_id="b", events=(event,), writer="s1"))
                if found is followed:
                    timeline_of(followed, new_graph())
        position += 2
    whole = timeline_of(story, new_graph())
    assert timeline_of(followed, new_graph()) == whole
    assert sum(bucket.successful for bucket in whole.buckets) == MAX_BARS + 5


def test_as_many_bars_as_are_reported_fit_into_half_a_megabyte():
    now = timeline_of(many(MAX_BARS - 1, 20), new_graph())
    assert len(now.bars) == MAX_BARS
    assert len(now.as_json()) < 500_000
