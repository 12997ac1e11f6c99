"""What has to end in time: it is stopped, and then it has a grace."""

from math import inf

import pytest

from onager.clock import ManualClock
from onager.executor.spark.cancellation import Cancellation, TaskCancelledError
from onager.executor.spark.deadlines import Deadlines


class Work:
    def __init__(self, deadlines, name, limit_s=inf):
        self.said = []
        deadlines.begin(name, lambda: self.said.append("stop"), lambda: self.said.append("stuck"))
        deadlines.limit(name, limit_s)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def deadlines(clock):
    return Deadlines(clock, 5)


def test_what_takes_too_long_is_stopped_once_and_given_up_after_its_grace(deadlines, clock):
    work = Work(deadlines, "one", 10)
    clock.advance(9_000)
    assert deadlines.enforce() == ""
    assert work.said == []
    clock.advance(1_000)
    assert deadlines.enforce() == ""
    assert work.said == ["stop"]
    clock.advance(4_900)
    assert deadlines.enforce() == ""
    assert work.said == ["stop"]
    clock.advance(100)
    assert deadlines.enforce() == "one did not stop within 5 s of being cancelled"
    assert work.said == ["stop", "stuck"]


def test_what_ends_in_its_grace_costs_nothing(deadlines, clock):
    Work(deadlines, "one", 1)
    clock.advance(1_000)
    deadlines.enforce()
    deadlines.end("one")
    clock.advance(60_000)
    assert deadlines.enforce() == ""


def test_what_was_cancelled_has_one_grace_however_often_it_is_asked(deadlines, clock):
    deadlines.stopped("a")
    deadlines.stopped("b")
    clock.advance(4_000)
    deadlines.stopped("a")
    clock.advance(1_000)
    assert deadlines.enforce() == "a and 1 more did not stop within 5 s of being cancelled"


def test_a_limit_that_was_lifted_is_none(deadlines, clock):
    work = Work(deadlines, "one", 1)
    deadlines.limit("one", inf)
    clock.advance(10_000)
    assert deadlines.enforce() == ""
    assert work.said == []


def test_a_task_whose_time_is_over_fails_of_that_and_a_cancelled_one_of_nothing(deadlines, clock):
    asked = []
    late = Cancellation(lambda: asked.append("late"), lambda s: deadlines.limit("late", s))
    deadlines.begin("late", late.run_out, lambda: None)
    with late.limited(2, ValueError("too long")) as lift:
        clock.advance(2_000)
        deadlines.enforce()
        lift()
        with pytest.raises(TaskCancelledError):
            late.check()
    assert asked == ["late"]
    assert str(late.error) == "too long"
    cancelled = Cancellation()
    with cancelled.limited(0, ValueError("too long")):
        cancelled.cancel()
        cancelled.run_out()
    assert cancelled.error is None
