"""The scheduler process ends when one of its loops ends."""

import asyncio
import gc

import pytest

from onager.scheduler import main
from onager.scheduler.engine.dispatcher import Dispatcher
from onager.scheduler.settings import SchedulerSettings


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(main, "configure_logging", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    return SchedulerSettings(backend="memory:", exchange_dir=str(tmp_path), listen="127.0.0.1:0", insecure=True)


@pytest.mark.parametrize("how", ["returns", "is cut"])
def test_a_scheduler_of_which_a_loop_ends_exits_as_failed_and_says_which(settings, monkeypatch, capsys, how):
    async def end(_):
        await asyncio.sleep(0)
        if how == "is cut":
            raise asyncio.CancelledError

    monkeypatch.setattr(Dispatcher, "run", end)
    assert main.run(settings) == 1
    assert "dispatcher has ended" in capsys.readouterr().err
