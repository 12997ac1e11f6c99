"""Processes that are given a bucket or HDFS where only a directory works refuse to start, and say so."""

import gc
import signal

import pytest

from onager.cli.standalone import layout
from onager.errors import InvalidSettingError
from onager.executor import main as executor
from onager.executor.settings import ExecutorSettings
from onager.scheduler import main as scheduler
from onager.scheduler.settings import SchedulerSettings

ELSEWHERE = [
    "s3a://bucket/exchange",
    "hdfs://namenode:8020/exchange",
    "hdfs:/exchange",
    "abfs://c@a.example/e",
    "gs://b/e",
]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    for process in (executor, scheduler):
        monkeypatch.setattr(process, "configure_logging", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def start_nothing(*_):
    pytest.fail("Spark was to be started")


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_no_exchange_directory(uri, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert scheduler.run(SchedulerSettings(exchange_dir=uri, listen="127.0.0.1:0")) == 2
    assert executor.run(ExecutorSettings(exchange_dir=uri), start_nothing) == executor.EXIT_REFUSED
    printed = capsys.readouterr().err
    assert printed.count(f"--exchange-dir={uri!r}: this is not a path of this machine") == 2
    with pytest.raises(InvalidSettingError, match="--exchange-dir"):
        layout(None, None, uri)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_no_warehouse(uri, tmp_path, capsys):
    settings = ExecutorSettings(exchange_dir=str(tmp_path), warehouse=uri)
    assert executor.run(settings, start_nothing) == executor.EXIT_REFUSED
    assert f"--warehouse={uri!r}: this is not a path of this machine" in capsys.readouterr().err
