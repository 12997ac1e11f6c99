"""A setting that is given by its old name is refused, with the new one."""

import pytest

from onager.renamed_settings import RENAMED, old_names
from onager.scheduler.settings import SchedulerSettings

PREFIX = "ONAGER_SCHEDULER_"


def test_each_new_name_is_a_setting_and_no_old_name_is():
    known = {f"{PREFIX}{field.upper()}" for field in SchedulerSettings.model_fields}
    assert set(RENAMED.values()) <= known
    assert not RENAMED.keys() & known


@pytest.mark.parametrize("process", ["scheduler", "executor"])
@pytest.mark.parametrize("old", ["ONAGER_SCHEDULER_SET_ASIDE_S", "onager_scheduler_peer_tls_ca"])
def test_a_process_does_not_start_with_an_old_name(onager, monkeypatch, process, old):
    monkeypatch.setenv(old, "60")
    done = onager(process, "--listen", "nonsense")
    assert done.code == 2
    assert done.err.strip() == f"onager: {old} is called {RENAMED[old.upper()]} now: rename it"


def test_every_old_name_is_named_in_order():
    assert list(old_names({**dict.fromkeys(reversed(RENAMED), "1"), "ONAGER_SCHEDULER_QUARANTINE_S": "60"})) == [
        f"{old} is called {new} now: rename it" for old, new in sorted(RENAMED.items())
    ]
