"""An executor that starts while its exchange directory is full."""

import errno
from pathlib import Path

import pytest
from structlog.testing import CapturingLogger

from onager.errors import ExchangeNotWritableError
from onager.executor.main import await_exchange_dir


def test_it_waits_for_space_longer_and_longer_and_says_so(tmp_path, monkeypatch):
    slept, log = [], CapturingLogger()
    write = Path.write_bytes

    def full_three_times(path, content):
        if len(slept) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full_three_times)
    await_exchange_dir(str(tmp_path), log, slept.append)
    assert slept == [0.5, 1.0, 2.0]
    assert [(call.args, call.kwargs["next_try_s"]) for call in log.calls] == [
        (("exchange_full",), seconds) for seconds in slept
    ]
    assert f"{tmp_path} is full: free space there" in log.calls[0].kwargs["error"]


def test_it_does_not_wait_for_problems_that_an_operator_must_solve(tmp_path):
    with pytest.raises(ExchangeNotWritableError, match="is not there: mount the volume there"):
        await_exchange_dir(str(tmp_path / "no"), CapturingLogger(), lambda _: pytest.fail("it waited"))
