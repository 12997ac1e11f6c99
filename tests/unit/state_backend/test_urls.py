"""What the URL of a store names on this machine, and that no job reaches it."""

import json
from pathlib import Path

import pytest

from onager.cli.standalone import _private_paths, layout
from onager.errors import InvalidSettingError
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.urls import state_directory


@pytest.mark.parametrize(
    ("url", "directory"),
    [("leveldb:a/b", "a/b"), ("leveldb:/a/b", "/a/b"), ("memory:", None), ("etcd://h:1/leveldb:", None), ("", None)],
)
def test_a_store_in_a_directory_is_recognized(url, directory):
    assert state_directory(url) == (None if directory is None else Path(directory))


def test_a_store_that_needs_a_directory_must_name_it():
    with pytest.raises(InvalidSettingError, match="name the state directory"):
        state_directory("leveldb:")


def test_jobs_reach_it_neither_through_schedulers_nor_through_executors(tmp_path):
    state = tmp_path / "state"
    url = f"leveldb:{state}"
    settings = SchedulerSettings(backend=url, exchange_dir=str(tmp_path / "exchange"))
    assert settings.private.meets(str(state / "000001.ldb")) is not None
    assert str(state) in json.loads(_private_paths(layout(url, None, str(tmp_path / "exchange")), None))
