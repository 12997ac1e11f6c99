"""A job as Spark's event log: order, attempts, and what is complete."""

import json

from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    EventBatch,
    FailureKind,
    JobCancelled,
    OperatorTotals,
    Streaming,
    lay_out,
)
from onager.scheduler.api.operators import operators_of
from onager.scheduler.api.spark_log.log import lines
from onager.scheduler.api.spark_log.plan import Known
from onager.scheduler.api.timeline.story import Story
from tests.unit.execution_graph.builder import chain, planned, stage
from tests.unit.scheduler.test_operator_tree import node, plan


def log_of(job, known=Known()):  # noqa: B008 - a value
    story = Story(job.graph)
    for position, event in enumerate(job.log, 1):
        story.feed(position, EventBatch(batch_id=str(position), events=(event,), writer="s1"))
    found = list(lines(story, job.graph, known))
    assert all(line.startswith(b'{"Event":"') and line.endswith(b"}\n") and line.count(b"\n") == 1 for line in found)
    return [json.loads(line) for line in found]


def of_kind(log, kind):
    return [event for event in log if event["Event"].endswith(kind)]


def troubled():
    """A job that lost an executor with its outputs, failed a task, and got through."""
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("a", limit=1)
    job.launch("b")
    job.lose("a")
    job.launch("c")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.finish()
    return job


def test_a_log_begins_and_ends_as_the_history_server_wants_it():
    job = troubled()
    log = log_of(job, Known(conf={"spark.sql.ansi.enabled": "true"}))
    assert [event["Event"] for event in log[:3]] == [
        "SparkListenerLogStart",
        "SparkListenerEnvironmentUpdate",
        "SparkListenerApplicationStart",
    ]
    assert log[1]["Spark Properties"]["spark.sql.ansi.enabled"] == "true"
    assert log[-1]["Event"] == "SparkListenerApplicationEnd"
    assert [end["Job Result"]["Result"] for end in of_kind(log, "JobEnd")] == ["JobSucceeded", "JobSucceeded"]


def test_what_begins_comes_before_what_ends_and_nothing_before_its_stage():
    log = log_of(troubled())
    going_on, stages, executors = set(), set(), set()
    for event in log:
        match event["Event"]:
            case "SparkListenerExecutorAdded":
                executors.add(event["Executor ID"])
            case "SparkListenerStageSubmitted":
                info = event["Stage Info"]
                stages.add((info["Stage ID"], info["Stage Attempt ID"]))
            case "SparkListenerTaskStart":
                assert (event["Stage ID"], event["Stage Attempt ID"]) in stages
                assert event["Task Info"]["Executor ID"] in executors
                going_on.add(event["Task Info"]["Task ID"])
            case "SparkListenerTaskEnd":
                going_on.remove(event["Task Info"]["Task ID"])
            case "SparkListenerStageCompleted":
                info = event["Stage Info"]
                stages.remove((info["Stage ID"], info["Stage Attempt ID"]))
    assert not going_on
    assert not stages


def test_retries_are_attempts_and_losses_are_reported():
    log = log_of(troubled())
    reasons = [event["Task End Reason"]["Reason"] for event in of_kind(log, "TaskEnd")]
    assert reasons.count("ExecutorLostFailure") == 1
    assert reasons.count("ExceptionFailure") == 1
    assert reasons.count("TaskKilled") == 1
    assert [event["Executor ID"] for event in of_kind(log, "ExecutorRemoved")] == ["a"]
    runs = [event["Stage Info"] for event in of_kind(log, "StageCompleted")]
    assert {(info["Stage ID"], info["Stage Attempt ID"]) for info in runs if "Failure Reason" not in info} == {
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 1),
    }


def test_an_executor_that_comes_back_is_another_one():
    job = planned(stage(1, 2, kind="result"))
    job.launch("a", limit=1)
    job.lose("a")
    job.launch("a", life="2")
    added = of_kind(log_of(job), "ExecutorAdded")
    assert [event["Executor ID"] for event in added] == ["planner", "a", "a (2)"]
    assert added[2]["Executor Info"]["Host"] == "a"


def test_what_goes_on_has_no_end():
    job = planned(stage(1, 2, kind="result"))
    job.launch("a")
    log = log_of(job)
    assert not of_kind(log, "ApplicationEnd")
    assert len(of_kind(log, "JobEnd")) == 1, "only planning is over"
    assert not of_kind(log, "SQLExecutionEnd")
    assert len(of_kind(log, "TaskStart")) == 1 + len(of_kind(log, "TaskEnd")) + 1


def test_why_it_was_cancelled():
    job = planned(*chain(2), streaming=Streaming())
    job.launch("a")
    assert job.feed(JobCancelled(reason="enough", principal="eve", at_ms=job.tick()))
    log = log_of(job)
    assert of_kind(log, "JobEnd")[-1]["Job Result"]["Exception"]["Message"] == "cancelled: enough, by eve"
    assert of_kind(log, "SQLExecutionEnd")[0]["errorMessage"] == "cancelled: enough, by eve"


def test_a_fused_stage_has_no_tasks_and_never_starts():
    stages = (stage(1), *(replace(s, may_fuse=True) for s in (stage(2, reads=(1,)), stage(3, reads=(2,)))))
    job = planned(*stages, adaptive=AdaptivePolicy())
    job.run(1)
    for event in lay_out(job.graph, 2, job.tick()):
        assert job.feed(event)
    job.finish()
    log = log_of(job)
    assert [event["Stage Info"]["Stage ID"] for event in of_kind(log, "StageSubmitted")] == [0, 1, 3]
    tasks = {info["Stage ID"]: info["Number of Tasks"] for info in of_kind(log, "JobStart")[1]["Stage Infos"]}
    assert tasks == {1: 2, 2: 0, 3: 1}
    assert len(of_kind(log, "TaskEnd")) == 1 + 2 + 1


def test_the_plans_of_stages_are_joined_and_have_their_metrics():
    job = planned(*chain(2))
    job.finish()
    reader = plan(node(0, "Sort", [1]), node(1, "Scan stage 1", numOutputRows={"index": 0}))
    scan = plan(node(0, "Scan parquet", numOutputRows={"index": 3}))
    known = Known(
        stage_plans={
            1: operators_of(scan, OperatorTotals(bound_plan="x", tasks=2, values=((6, 20),))),
            2: operators_of(reader, OperatorTotals(bound_plan="y", tasks=2, values=((0, 7),))),
        }
    )
    log = log_of(job, known)
    (start,) = of_kind(log, "SQLExecutionStart")
    (values,) = of_kind(log, "DriverAccumUpdates")
    values = dict(values["accumUpdates"])

    def shown(info):
        metrics = {metric["name"]: values[metric["accumulatorId"]] for metric in info["metrics"]}
        return info["nodeName"], metrics, [shown(child) for child in info["children"]]

    exchange = {"shuffle records written": 20, "shuffle bytes written": 200}
    scanned = ("Scan parquet", {"numOutputRows": 20}, [])
    assert shown(start["sparkPlanInfo"]) == (
        "Sort",
        {},
        [("Scan stage 1", {"numOutputRows": 7}, [("Exchange", exchange, [scanned])])],
    )


def test_without_measurements_the_planners_text_is_shown():
    job = planned(*chain(2))
    job.launch("a")
    text = "*(2) HashAggregate(keys=[k#1])\n+- Union\n   :- Project [a]\n   :  +- Scan one\n   +- Range (0, 9)\n"
    log = log_of(job, Known(stage_texts={"2": text}))
    (start,) = of_kind(log, "SQLExecutionStart")
    root = start["sparkPlanInfo"]
    assert root["nodeName"] == "HashAggregate"
    (union,) = root["children"]
    assert [child["nodeName"] for child in union["children"]] == ["Project", "Range"]
    (ranged,) = union["children"][1]["children"]
    assert ranged["nodeName"] == "Exchange", "an input whose place is unknown hangs below the last leaf"


def test_secrets_and_strange_text_do_no_harm():
    job = planned(stage(1, 1, kind="result"))
    job.graph = replace(job.graph, name='a\n"b"\ud800')
    assert job.feed(JobCancelled(reason="token=abc", at_ms=job.tick()))
    log = log_of(job)
    assert "abc" not in json.dumps(log)
