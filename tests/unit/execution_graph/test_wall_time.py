"""What the time of a job was used for, in cases where everybody would say the same."""

from typing import Any

from msgspec.structs import replace

from onager.execution_graph import Event, EventBatch, FailureKind, RetryLimits, Streaming, TaskMetrics
from onager.execution_graph.events import StageLaidOut
from onager.execution_graph.intervals import IntervalReader
from onager.execution_graph.wall_time import WallTime
from tests.unit.execution_graph.builder import SINK, Job, feed, new_graph, output, stage, with_sink

LIMITS = RetryLimits(retry_pauses_ms=(500,))


class Story:
    """A job whose times are milliseconds since its submission."""

    def __init__(self) -> None:
        self.job = Job(graph=new_graph(LIMITS))
        self.reported = IntervalReader(self.job.graph)

    def read(self, *events: Event) -> None:
        """Read *events*, each a batch of its own; none: a gap."""
        for event in events:
            self.reported.read(self.reported.position + 1, EventBatch(batch_id="b", events=(event,)))
        if not events:
            self.reported.read(self.reported.position + 1, None)

    def at(self, ms: int) -> "Story":
        self.job.now_ms = 1_000 + ms - 2  # two ticks before a launch
        return self

    def feed(self, event: Any, at_ms: int) -> None:
        event = replace(event, at_ms=1_000 + at_ms)
        assert self.job.feed(event)

    def launch(self, at_ms: int, executor: str = "a", limit: int = 100) -> None:
        self.at(at_ms)
        self.job.launch(executor, limit)

    def succeed(self, at_ms: int, partition: int, stage_id: int = 1, **cost: int) -> None:
        self.feed(replace(self.job.success(stage_id, partition), metrics=TaskMetrics(**cost)), at_ms)

    def shares(self, until_ms: int) -> dict[str, int]:
        self.read(*self.job.log)
        return self.shares_of_what_was_read(until_ms)

    def shares_of_what_was_read(self, until_ms: int) -> dict[str, int]:
        shares = WallTime(self.reported).shares(1_000 + until_ms)
        assert sum(share.ms for share in shares) == until_ms
        return {share.use.value: share.ms for share in shares}


def planned(*stages: Any, planning: TaskMetrics, at_ms: int = 200, fused: bool = False) -> Story:
    """A job whose planning was launched after 100 ms, 1 ms after it was begun, and took until *at_ms*."""
    story = Story()
    story.launch(100)
    made = story.job.plan(*stages, fused=output("f") if fused else None)
    story.feed(replace(made, metrics=planning), at_ms)
    return story


def test_a_cut_job() -> None:
    story = planned(stage(1, 2), planning=TaskMetrics(run_ms=80, queued_ms=10))
    story.launch(300)
    story.succeed(1_300, 0, run_ms=900, queued_ms=100, bind_ms=80, codegen_ms=50, fetch_ms=400, commit_ms=100)
    story.succeed(1_300, 1, run_ms=900, queued_ms=100, bind_ms=80, codegen_ms=50, fetch_ms=400, commit_ms=100)
    assert story.shares(1_300) == {
        "waiting": 1 + 1,
        "planning": 80,
        "scheduling": 99 + 99,
        "launching": 20 + 20,
        "binding": 30,
        "code_generation": 50,
        "running": 400,
        "fetching": 400,
        "writing": 100,
    }


def test_time_is_divided_between_tasks_that_do_different_things() -> None:
    story = planned(stage(1, 2), planning=TaskMetrics(run_ms=100))
    story.launch(200)
    story.succeed(1_200, 0, run_ms=1_000, fetch_ms=1_000)
    story.succeed(1_200, 1, run_ms=1_000)
    found = story.shares(1_200)
    assert found["fetching"] == found["running"]
    assert found["fetching"] + found["running"] >= 999


def test_a_slot_that_is_missing_is_waited_for_and_not_while_another_task_runs() -> None:
    story = planned(stage(1, 2), planning=TaskMetrics(run_ms=100))
    story.launch(200, limit=1)
    story.succeed(700, 0, run_ms=500)
    story.launch(1_700)
    story.succeed(2_000, 1, run_ms=300)
    assert story.shares(2_000)["waiting"] == 1 + 1_000


def test_failures_are_wasted_and_pauses_are_reported() -> None:
    story = planned(stage(1, 1), planning=TaskMetrics(run_ms=100))
    story.launch(200)
    failure = story.job.failed(1, 0, FailureKind.IO_ERROR)
    story.feed(replace(failure, metrics=TaskMetrics(run_ms=400)), 600)
    story.launch(1_300)
    story.succeed(1_400, 0, run_ms=100)
    found = story.shares(1_400)
    assert (found["wasted"], found["retry_pause"]) == (400, 500)
    assert found["waiting"] == 1 + 200, "from the end of the pause to the launch"


def test_what_an_executor_took_with_it_is_wasted() -> None:
    story = planned(stage(1, 1), planning=TaskMetrics(run_ms=100))
    story.launch(200, "b")
    story.at(1_001)
    assert story.job.lose("b")
    story.launch(1_010)
    story.succeed(1_100, 0, run_ms=80)
    found = story.shares(1_100)
    assert found["wasted"] == 800
    assert found["running"] == 80


def test_a_query_that_runs_where_it_is_planned() -> None:
    planning = TaskMetrics(plan_ms=600, function_ms=200, run_ms=300, commit_ms=100, queued_ms=50)
    story = planned(stage(1, 1, plan_digest=None, kind="result"), planning=planning, at_ms=1_100, fused=True)
    found = story.shares(1_100)
    assert (found["planning"], found["function"]) == (400, 200)
    assert (found["running"], found["writing"]) == (200, 100)
    assert found["launching"] == 100


def test_what_is_not_kept_is_unknown() -> None:
    story = planned(stage(1, 1), planning=TaskMetrics(run_ms=100))
    story.launch(200)
    story.succeed(1_200, 0, run_ms=1_000)
    story.read()
    story.read(story.job.log[-1])
    assert story.shares_of_what_was_read(1_200) == {"unknown": 1_200}


def test_what_ran_before_the_unknown_was_running() -> None:
    story = planned(stage(1, 2), planning=TaskMetrics(run_ms=100))
    story.launch(200, limit=1)
    story.launch(1_200, limit=1)
    story.read(*story.job.log)
    story.read()
    found = story.shares_of_what_was_read(2_200)
    assert found["running"] == 1_000
    assert found["unknown"] == 1_000


def test_what_ended_in_the_unknown_is_not_waited_for() -> None:
    story = planned(stage(1, 2), stage(2, 1, reads=(1,)), planning=TaskMetrics(run_ms=100))
    story.launch(200, limit=1)
    seen = len(story.job.log)
    story.launch(300, limit=1)
    story.succeed(400, 0, run_ms=100)
    story.succeed(500, 1, run_ms=100)
    lacking = len(story.job.log)
    story.launch(1_000)
    story.succeed(1_100, 0, stage_id=2, run_ms=100)
    story.read(*story.job.log[:seen])
    story.read()
    story.read(*story.job.log[lacking:])
    found = story.shares_of_what_was_read(2_100)
    assert found["waiting"] < 10
    assert found["scheduling"] >= 1_000


def test_a_job_that_runs_is_running() -> None:
    story = planned(stage(1, 1), planning=TaskMetrics(run_ms=100))
    story.launch(200)
    found = story.shares(5_200)
    assert found["running"] == 5_000


def test_tasks_that_a_layout_took_away_are_not_waited_for() -> None:
    story = planned(stage(1, 1), stage(2, 5, reads=(1,)), stage(3, 7, reads=(2,)), planning=TaskMetrics(run_ms=98))
    story.launch(300)
    story.succeed(400, 0)
    basis = ((1, 0), (2, 0), (3, 0))
    story.feed(StageLaidOut(stage_id=3, basis=basis, fused=(2,), at_ms=0), 400)
    story.launch(500)
    story.at(600)
    story.job.fail(3, 0, FailureKind.TASK_KILLED)
    story.launch(700)
    assert story.job.states() == ["successful", "fused", "running"]
    story.succeed(800, 0, stage_id=3)
    assert story.shares(1_000).get("waiting", 0) < 110, "one task waited once for 100 ms, and none afterwards"


def test_finding_partitions_is_planning_and_what_is_found_is_waited_for() -> None:
    story = planned(feed(1), stage(2, 0, fed_by=1), planning=TaskMetrics(run_ms=98))
    story.launch(100, limit=1)
    story.at(1_100)
    story.feed(replace(story.job.found(1, 1, is_last=True), metrics=TaskMetrics(run_ms=1_000)), 1_100)
    story.launch(3_100, "b")
    story.at(4_100)
    story.succeed(4_100, 0, stage_id=2)
    found = story.shares(4_100)
    assert found["planning"] >= 990
    assert 1_990 <= found["waiting"] <= 2_010


def test_tasks_of_a_streaming_job_that_nobody_reads_any_more_are_over() -> None:
    story = Story()
    story.job = Job(graph=new_graph(LIMITS, streaming=Streaming()))
    story.reported = IntervalReader(story.job.graph)
    story.launch(2)
    specs = with_sink(stage(1, 4), stage(2, 1, reads=(1,), kind="sink"))
    story.feed(replace(story.job.plan(*specs, sink=SINK), metrics=TaskMetrics(run_ms=98)), 100)
    story.launch(102, limit=4)
    story.launch(104, "b", limit=1)
    story.succeed(1_100, 0, 2, run_ms=996)  # a LIMIT: its sources go on
    story.launch(1_102)
    story.succeed(1_200, 0, 3, run_ms=98)
    story.launch(1_202)
    story.succeed(11_200, 0, 4, run_ms=9_998)
    assert not story.job.graph.is_active
    found = story.shares(11_200)
    assert not story.reported.in_hand_count
    assert found["publishing"] >= 9_998, "that was all that went on"
