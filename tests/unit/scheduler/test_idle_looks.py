"""What is looked for several times a second costs nothing where there is nothing to be found."""

from types import SimpleNamespace

import pytest

from onager.clock import ManualClock
from onager.ids import JobId
from onager.scheduler.engine.overdue_work import OverdueWork
from onager.scheduler.engine.pipelines import Pipelines
from tests.unit.scheduler.small_graphs import graph


def unasked():
    raise AssertionError("all executors were gone through")


@pytest.fixture
def plain():
    """Return a job that wants no second attempts and does not stream, and who drives it."""
    job = SimpleNamespace(graph=graph())
    return SimpleNamespace(cached=lambda _: job), SimpleNamespace(followed=[JobId("j")])


async def test_executors_are_gone_through_only_for_jobs_that_want_second_attempts(plain):
    jobs, ownership = plain
    await OverdueWork(jobs, None, ownership, ManualClock(), interval_s=1, executors=unasked).look()


async def test_executors_are_gone_through_only_for_jobs_that_stream(plain):
    jobs, ownership = plain
    looks = {"executors": unasked, "streaming": unasked, "on_abandoned": lambda _: None}
    await Pipelines(jobs, None, ownership, ManualClock(), interval_s=1, **looks).look()
