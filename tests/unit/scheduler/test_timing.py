"""Inequalities between timing constants."""

import pytest

from onager.errors import InvalidSettingError
from onager.executor.agent import reporting
from onager.scheduler import timing
from onager.scheduler.settings import SchedulerSettings


@pytest.mark.parametrize("what", timing.HOLDS)
def test_what_must_hold_between_constants_holds(what):
    assert timing.HOLDS[what]


def test_executors_wait_as_long_as_is_said_here():
    assert reporting._TIMEOUT_S == timing.EXECUTOR_CALL_S


def test_a_setting_that_breaks_it_is_refused_with_the_reason():
    timing.check(SchedulerSettings().forward_timeout_ms)
    with pytest.raises(InvalidSettingError, match=r"forward-timeout-ms.*less than 2000.*passed over"):
        timing.check(2_000)
    with pytest.raises(InvalidSettingError, match=r"less than 7500.*give its call up"):
        timing.check(60_000)
