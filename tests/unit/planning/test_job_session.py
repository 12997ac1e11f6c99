"""The settings of a job during planning."""

import pytest

from onager.errors import InvalidSettingError
from onager.executor.spark.planning.job_session import apply_settings
from onager.job_settings import PLANNERS, SCHEDULERS

NO_SESSION = None
"""Settings of Onager's own never get to Spark."""


@pytest.mark.parametrize("key", [*PLANNERS, *SCHEDULERS])
def test_planning_ignores_settings_of_onager(key):
    apply_settings(NO_SESSION, {key: "1"})


def test_an_unknown_setting_is_refused():
    with pytest.raises(InvalidSettingError, match=r"is onager\.weight meant\?"):
        apply_settings(NO_SESSION, {"onager.weigth": "1"})
