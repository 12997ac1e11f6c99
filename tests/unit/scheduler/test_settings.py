"""The scheduler's setting for pauses before retries."""

import pytest
from pydantic import ValidationError

from onager.scheduler.settings import SchedulerSettings


@pytest.mark.parametrize(
    ("text", "pauses_ms"), [("0.5,2,6", (500, 2_000, 6_000)), (" 1 , 0 ", (1_000, 0)), ("", ()), ("3", (3_000,))]
)
def test_pauses_are_seconds_separated_by_commas(monkeypatch, text, pauses_ms):
    monkeypatch.setenv("ONAGER_SCHEDULER_RETRY_PAUSES_S", text)
    assert SchedulerSettings().retry_pauses_ms == pauses_ms


def test_by_default_trouble_of_eight_seconds_is_survived(monkeypatch):
    monkeypatch.delenv("ONAGER_SCHEDULER_RETRY_PAUSES_S", raising=False)
    assert sum(SchedulerSettings().retry_pauses_ms) == 8_500


@pytest.mark.parametrize(
    ("text", "words"), [("soon", "such as 0.5,2,6"), ("-1", "greater than"), ("99999", "less than")]
)
def test_what_is_no_pause_is_refused(monkeypatch, text, words):
    monkeypatch.setenv("ONAGER_SCHEDULER_RETRY_PAUSES_S", text)
    with pytest.raises(ValidationError, match=words):
        SchedulerSettings()
