"""What a job did when and where, derived from its log."""

import asyncio
import json
from collections import Counter

import pytest

from onager.execution_graph import (
    EventBatch,
    FailureKind,
    JobCancelled,
    Pipeline,
    SpeculationPolicy,
    TaskMetrics,
    TaskOutput,
    TasksLaunched,
    TaskSucceeded,
)
from onager.execution_graph.intervals import Outcome
from onager.ids import JobId
from onager.scheduler.api.timeline.model import MarkKind
from onager.scheduler.api.timeline.reading import Timelines
from onager.scheduler.api.timeline.story import MAX_BARS, Story
from onager.scheduler.api.timeline.telling import timeline_of
from onager.scheduler.jobs.history import JobHistory
from tests.unit.execution_graph.builder import Job, chain, new_graph, planned, stage
from tests.unit.scheduler.small_graphs import forget, graph, store, succeeded
from tests.unit.scheduler.test_job_store import running, step

JOB = JobId("job-1")


def told(job, after=0, *, story=None, writers=None):
    """The timeline of a job whose log is committed one event a batch."""
    story = story or Story(job.graph)
    for position, event in enumerate(job.log, 1):
        writer = "s1" if writers is None else writers(position)
        story.feed(position, EventBatch(batch_id=str(position), events=(event,), writer=writer))
    return timeline_of(story, job.graph, after)


def marks(timeline, kind):
    return [mark for mark in timeline.marks if mark.kind is kind]


def bars(timeline, stage_id):
    return [bar for bar in timeline.bars if bar.stage == stage_id]


def test_attempts_are_bars_in_the_lanes_of_executors():
    job = planned(stage(1, 3, kind="result"))
    job.launch("a", limit=2)
    job.launch("b")
    job.succeed(1, 0, 2)
    now = told(job)
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
    end = told(job)
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
    assert {bar.row for bar in bars(told(job), 1)} == {0}


def test_another_writer_is_a_take_over():
    job = planned(stage(1, 1, kind="result"))
    job.run(1)
    (mark,) = marks(told(job, writers=lambda position: "s1" if position < 4 else "s2"), MarkKind.TAKE_OVER)
    assert (mark.scheduler_id, mark.text) == ("s2", "s2 goes on after s1")
    assert not marks(told(job, writers=lambda position: "" if position == 3 else "s1"), MarkKind.TAKE_OVER)


def test_a_lost_executor_takes_its_running_tasks_and_rolls_stages_back():
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("a", limit=1)
    job.launch("b")
    assert job.lose("a")
    now = told(job)
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
    end = told(job)
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
    now = told(job)
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
    now = told(job)
    (first, second) = (bar for bar in bars(now, 1) if bar.partition == 3)
    assert (first.outcome, first.speculative) == (Outcome.KILLED, False)
    assert (second.outcome, second.speculative) == (Outcome.SUCCESSFUL, True)
    assert [m.count for m in marks(now, MarkKind.SECOND_ATTEMPTS)] == [1]


def test_streaming_that_is_given_up_is_a_mark_and_stops_what_ran():
    job = planned(*chain(2), pipeline=Pipeline())
    job.launch("a", limit=2)
    job.launch("b")
    assert job.lose("a")
    now = told(job)
    assert [m.text for m in marks(now, MarkKind.STREAMING_GIVEN_UP)] == ["no heartbeat"]
    assert not marks(now, MarkKind.STAGE_ROLLBACK)
    assert Counter(bar.outcome for bar in now.bars if bar.stage) == {Outcome.LOST: 2, Outcome.STOPPED: 2}


def test_who_cancelled_and_what_was_stopped():
    job = planned(stage(1, 2, kind="result"))
    job.launch("a")
    assert job.feed(JobCancelled(reason="token=abc enough", principal="eve", at_ms=job.tick()))
    now = told(job)
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
    now = told(job)
    (bar,) = now.bars
    assert (bar.stage, bar.also_stage, bar.outcome) == (0, 1, Outcome.SUCCESSFUL)
    assert [(s.stage, s.outcome) for s in now.stages] == [(0, Outcome.SUCCESSFUL), (1, Outcome.SUCCESSFUL)]
    assert now.is_over


def test_what_is_asked_for_after_a_position_completes_what_was_told_before():
    job = planned(*chain(2), is_shared=False)
    story = Story(job.graph)
    known, known_marks = {}, {}

    def ask(after):
        answer = told(job, after, story=story)
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
    whole = told(job)
    assert sorted(known.values(), key=repr) == sorted(whole.bars, key=repr)
    assert [known_marks[number] for number in sorted(known_marks)] == list(whole.marks)
    assert last.position == whole.position


def test_a_gap_is_told_and_what_comes_after_it_too():
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
    found = json.loads(told(job).as_json())
    assert found["bars"][1] == {
        "lane": 1,
        "stage": 1,
        "from_ms": found["bars"][1]["from_ms"],
        "outcome": "running",
    }
    assert "buckets" not in found


def many(tasks, executors, *, run_ms=1_000, slots=10, more=0):
    """A story of a job with many attempts, all of which run for *run_ms*; *more* tasks have not begun."""
    job = planned(stage(1, tasks + more, kind="result"))
    assert job.start()
    story = Story(job.graph)
    position = 0

    def feed(*events):
        nonlocal position
        position += 1
        story.feed(position, EventBatch(batch_id=str(position), events=events, writer="s1"))

    for event in job.log:
        feed(event)
    at_ms, partition = job.now_ms, 0
    while partition < tasks:
        for number in range(executors):
            some = range(partition, min(partition + slots, tasks))
            if not some:
                break
            feed(
                TasksLaunched(
                    stage_id=1,
                    stage_attempt=0,
                    executor_id=f"e{number}",
                    incarnation="x",
                    list_number=0,
                    tasks=tuple((p, 0) for p in some),
                    at_ms=at_ms,
                )
            )
            feed(
                *(
                    TaskSucceeded(
                        stage_id=1,
                        stage_attempt=0,
                        partition=p,
                        task_attempt=0,
                        executor_id=f"e{number}",
                        output=TaskOutput(nonce=f"n{p}", is_shared=True, rows=1, bytes=1),
                        metrics=TaskMetrics(run_ms=900),
                        at_ms=at_ms + run_ms,
                    )
                    for p in some
                )
            )
            partition = some.stop
        at_ms += run_ms
    return story


@pytest.mark.parametrize(("tasks", "executors"), [(MAX_BARS + 1, 3), (8_000, 400)])
def test_a_job_of_many_attempts_is_told_in_buckets_that_add_up(tasks, executors):
    story = many(tasks, executors)
    now = timeline_of(story, new_graph())
    assert not now.bars
    assert now.attempts == tasks + 1
    assert sum(bucket.successful for bucket in now.buckets) == tasks + 1
    busy_ms = sum(bucket.running for bucket in now.buckets) * now.bucket_ms
    assert busy_ms == pytest.approx(tasks * 1_000, rel=0.02)
    assert len(now.as_json()) < 500_000


def test_buckets_told_as_a_job_goes_on_are_those_of_who_looks_at_its_end():
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


def test_as_many_bars_as_are_told_fit_into_half_a_megabyte():
    now = timeline_of(many(MAX_BARS - 1, 20), new_graph())
    assert len(now.bars) == MAX_BARS
    assert len(now.as_json()) < 500_000


async def test_it_is_read_from_the_store_before_and_after_the_end(backend, clock):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job = await running(jobs, 3)
    job = await step(jobs, job, [succeeded(1, 0, at_ms=20)])
    first = await timelines.get(JOB)
    assert first.outcomes == {Outcome.RUNNING: 2, Outcome.SUCCESSFUL: 2}
    job = await step(jobs, job, [succeeded(1, 1, at_ms=30)])
    then = json.loads(await timelines.as_json(JOB, first.position))
    assert [bar["partition"] for bar in then["bars"]] == [1]
    await step(jobs, job, [succeeded(1, 2, at_ms=40)])
    elsewhere = Timelines(other := store(backend, clock, "s2"), JobHistory(backend, other.recent), clock)
    assert (await elsewhere.get(JOB)).as_json() == (await timelines.get(JOB)).as_json()
    assert (await elsewhere.get(JOB)).is_over


async def test_a_story_that_broke_off_is_begun_anew(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job = await running(jobs, 3)
    await timelines.get(JOB)
    await step(jobs, job, [succeeded(1, 0, at_ms=20), succeeded(1, 1, at_ms=20)])

    def break_off(*_):
        raise RuntimeError("in the middle of a batch")

    with monkeypatch.context() as broken:
        broken.setattr(Story, "_note_writer", break_off)
        with pytest.raises(RuntimeError):
            await timelines.get(JOB)
    assert (await timelines.get(JOB)).outcomes == {Outcome.RUNNING: 1, Outcome.SUCCESSFUL: 3}


async def test_a_job_with_an_id_that_was_used_before_has_its_own_timeline(backend, clock):
    jobs = store(backend, clock)
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job, _ = await jobs.submit(graph(at_ms=1))
    await step(jobs, job, [JobCancelled(reason="enough", at_ms=4)])
    assert (await timelines.get(JOB)).is_over
    await forget(backend)
    timelines._jobs = store(backend, clock)
    await timelines._jobs.submit(graph(at_ms=70))
    second = await timelines.get(JOB)
    assert (second.submitted_ms, second.state, second.is_over) == (70, "queued", False)
    assert not marks(second, MarkKind.ENDED)


async def test_who_looks_at_a_long_job_at_about_the_same_time_is_told_the_same(backend, clock, monkeypatch):
    monkeypatch.setattr("onager.scheduler.api.timeline.story.MAX_BARS", 2)
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    job = await running(jobs, 3)
    first = await timelines.as_json(JOB)
    assert json.loads(first)["bucket_ms"]
    job = await step(jobs, job, [succeeded(1, 0, at_ms=20)])
    assert await timelines.as_json(JOB, json.loads(first)["position"]) is first
    clock.advance(1_000)
    second = json.loads(await timelines.as_json(JOB))
    assert second["outcomes"] == {"running": 2, "successful": 2}
    assert second["marks"], "all is told again, whatever was known before"
    await step(jobs, job, [succeeded(1, 1, at_ms=30), succeeded(1, 2, at_ms=40)])
    last = json.loads(await timelines.as_json(JOB, second["position"]))
    assert (last["is_over"], last["state"]) == (True, "successful")


async def test_who_wants_a_long_log_soon_gets_its_beginning_and_then_the_rest(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    history = JobHistory(backend, jobs.recent)
    timelines = Timelines(jobs, history, clock)
    job = await running(jobs, 4)
    for partition in range(4):
        job = await step(jobs, job, [succeeded(1, partition, at_ms=20 + partition)])
    assert not job.graph.is_active
    pages = history.pages

    async def slowly(*args, **kwargs):
        async for page in pages(*args, **kwargs):
            for entry in page:
                clock.advance(400)
                yield [entry]

    monkeypatch.setattr(history, "pages", slowly)
    first = json.loads(await timelines.as_json(JOB, soon=True))
    assert (first["position"], first["is_early"], first.get("is_over", False)) == (2, True, False)
    found, position = {}, 0
    while True:
        more = json.loads(await timelines.as_json(JOB, position, soon=True))
        found |= {(bar["stage"], bar.get("partition", 0)): bar["outcome"] for bar in more["bars"]}
        assert more["position"] > position
        position = more["position"]
        if not more.get("is_early"):
            break
    assert more["is_over"]
    assert [outcome for (stage_id, _), outcome in sorted(found.items()) if stage_id == 1] == ["successful"] * 4
    elsewhere = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    assert json.loads(await elsewhere.as_json(JOB))["outcomes"] == more["outcomes"]


async def test_a_long_job_that_ends_while_its_timeline_is_read_is_told_as_ended(backend, clock, monkeypatch):
    monkeypatch.setattr("onager.scheduler.api.timeline.story.MAX_BARS", 1)
    jobs = store(backend, clock, "s1")
    history = JobHistory(backend, jobs.recent)
    timelines = Timelines(jobs, history, clock)
    job = await running(jobs, 2)
    after = history.after

    async def and_it_ends(*args):
        history.after = after
        await step(jobs, job, [succeeded(1, 0, at_ms=30), succeeded(1, 1, at_ms=40)])
        return await after(*args)

    monkeypatch.setattr(history, "after", and_it_ends)
    told = json.loads(await timelines.as_json(JOB))
    assert (told["is_over"], told["state"]) == (True, "successful")
    assert json.loads(await timelines.as_json(JOB))["state"] == "successful"


async def test_who_waits_for_a_story_that_broke_off_gets_a_new_one(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    await running(jobs, 3)
    stories, broken = [], asyncio.Event()
    follow = Timelines._follow

    async def break_off_once(self, story, job, until_s):
        stories.append(story)
        if len(stories) == 1:
            await broken.wait()
            raise RuntimeError("in the middle of a batch")
        await follow(self, story, job, until_s)

    monkeypatch.setattr(Timelines, "_follow", break_off_once)
    first, second = (asyncio.create_task(timelines.get(JOB)) for _ in range(2))
    for _ in range(50):  # until the second one waits for the first
        await asyncio.sleep(0)
    broken.set()
    with pytest.raises(RuntimeError):
        await first
    assert (await second).attempts == 4
    assert stories[1] is not stories[0]


async def test_a_story_that_broke_off_after_it_made_room_for_others_says_why(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    timelines = Timelines(jobs, JobHistory(backend, jobs.recent), clock)
    await running(jobs, 3)

    async def break_off(self, *_):
        self._kept.clear()
        raise RuntimeError("in the middle of a batch")

    monkeypatch.setattr(Timelines, "_follow", break_off)
    with pytest.raises(RuntimeError, match="in the middle"):
        await timelines.get(JOB)
