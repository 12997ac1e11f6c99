"""Where in a job's log a process is killed, and which logs are wrong."""

import pytest

from onager.client.events import JobEvent
from onager.protocol import onager_pb2 as pb
from tests.chaos.kill_points import LAID_OUT, REPLANNED, Point, executor_at, outcomes, ran_again


def event(kind, **fields):
    return JobEvent(1, 1, "scheduler-1", kind, fields)


def launched(stage_id, executor="executor-1", partition=0):
    return event("tasks_launched", stage_id=stage_id, executor_id=executor, tasks=[[partition, 0]])


def done(stage_id, executor="executor-1", partition=0):
    return event("task_succeeded", stage_id=stage_id, partition=partition, executor_id=executor)


LOG = [
    launched(0),
    launched(1),
    done(1),
    event("replan_begun", replan_id=4),
    launched(4, "executor-2"),
    event(REPLANNED, replan_id=4, executor_id="executor-2", stages=[{}]),
    event(LAID_OUT, stage_id=5),
    launched(5),
    done(5),
]


@pytest.mark.parametrize(
    ("point", "place", "executor"),
    [
        (Point(REPLANNED, "before"), 4, "executor-2"),
        (Point(REPLANNED, "at"), 5, "executor-2"),
        (Point(REPLANNED, "after"), 7, "executor-1"),
        (Point(LAID_OUT, "before"), 2, "executor-1"),
        (Point(LAID_OUT, "before", 1), 8, "executor-1"),
        (Point(LAID_OUT, "at"), 6, "executor-2"),
        (Point(LAID_OUT, "after"), 7, "executor-1"),
    ],
)
def test_a_point_is_reached_once(point, place, executor):
    reached = [i for i in range(len(LOG)) if point.is_reached(LOG[: i + 1])]
    assert reached[0] == place
    assert executor_at(LOG[: place + 1]) == executor
    assert not Point(point.type, point.when, 9).is_reached(LOG)


def stage(successes, state="successful"):
    return pb.StageInfo(stage_id=1, state=state, tasks=[pb.TaskInfo(partition=0, successes=successes)])


def test_a_task_that_ran_again_is_found():
    assert ran_again(LOG, [stage(1)]) == []
    assert ran_again([*LOG, launched(1, partition=1)], [stage(1)]) == []
    assert ran_again([*LOG, launched(1)], [stage(1)]) == ["task 0 of stage 1 was launched again"]
    assert ran_again(LOG, [stage(2)]) == ["task 0 of stage 1 succeeded 2 times"]
    assert ran_again(LOG, [stage(0)]) == ["task 0 of stage 1 succeeded 0 times"]
    assert ran_again(LOG, [stage(0, "superseded")]) == []


def test_what_became_of_re_plans():
    again = [event("replan_begun", replan_id=6), event("replan_given_up", replan_id=6)]
    kept = [event("replan_begun", replan_id=7), event(REPLANNED, replan_id=7)]
    lost = [event("replan_begun", replan_id=8)]
    assert outcomes([*LOG, *again, *kept, *lost]) == {4: ["taken"], 6: ["given up"], 7: ["kept"], 8: []}
