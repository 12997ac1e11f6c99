"""What is looked for several times a second costs nothing where there is nothing to be found."""

from types import SimpleNamespace

import pytest

from onager.clock import ManualClock
from onager.ids import JobId
from onager.scheduler.engine.job_checks import JobChecks
from tests.unit.scheduler.parts import env, stored, view
from tests.unit.scheduler.small_graphs import graph


def unasked():
    raise AssertionError("all executors were gone through")


@pytest.fixture
def plain():
    """Return a job that wants no second attempts and does not stream, and who drives it."""
    job = SimpleNamespace(graph=graph())
    return SimpleNamespace(cached=lambda _: job), SimpleNamespace(followed=[JobId("j")])


async def test_executors_are_gone_through_only_for_jobs_that_need_checks(plain):
    jobs, ownership = plain
    found = SimpleNamespace(taking_work=unasked, streaming=unasked)
    clock = ManualClock()
    store, cluster = stored(None, jobs, clock), view(ownership=ownership, found=found)
    await JobChecks(env(clock), store, cluster, None, lambda _: None).check_all()
