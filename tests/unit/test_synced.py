"""What is to survive a loss of power is synced with its directory, on file systems that sync directories."""

import errno
import os
from pathlib import Path

import pytest

from onager import place_files
from onager.executor.exchange.durable import sync_directories, sync_existing
from onager.synced import sync_directory

CALLS = [
    sync_directory,
    lambda path: sync_directories([path]),
    lambda path: sync_existing([path]),
    lambda path: place_files.make_id(str(path), "a" * 16),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("number", "is_reported"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True), (errno.ENOSPC, True)]
)
def test_a_file_system_that_syncs_no_directories_is_no_error_and_a_failing_disk_is_one(
    tmp_path, monkeypatch, call, number, is_reported
):
    def fsync(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if not is_reported:
        call(tmp_path)
        return
    with pytest.raises(OSError, match=os.strerror(number)):
        call(tmp_path)


@pytest.mark.parametrize("call", CALLS)
def test_the_directory_is_synced(tmp_path, monkeypatch, call):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    call(tmp_path)
    assert tmp_path in synced
