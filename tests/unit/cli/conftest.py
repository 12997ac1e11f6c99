"""The command line run in this process, against a scheduler in this process."""

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from onager.cli import main
from tests.support.fakes.scheduler import FakeScheduler


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    fake = FakeScheduler()
    fake.address = fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def onager(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("ONAGER_SCHEDULER", raising=False)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["onager", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run
