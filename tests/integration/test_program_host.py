"""The process that runs programs beside an executor is there again after any death."""

from collections.abc import Iterator

import psutil
import pytest

from onager.executor.programs.beside import ProgramHost
from onager.executor.settings import ExecutorSettings
from tests.support.waiting import until

_REAPED_S = 10.0


@pytest.fixture
def settings(tmp_path) -> Iterator[ExecutorSettings]:
    given = ExecutorSettings(exchange_dir=str(tmp_path), executor_id="e-1", scheduler="127.0.0.1:1", log_level="error")
    yield given.identified()
    for each in hosts():
        each.kill()
    until(lambda: not hosts(), "the end of all")


def hosts() -> list[psutil.Process]:
    """Return the living processes that run programs beside this one."""
    found = []
    for each in psutil.Process().children():
        try:
            if "onager.executor.programs" in each.cmdline() and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def next_host(*before: psutil.Process) -> psutil.Process:
    """Return the process that is there now, once it is another one than *before*."""
    (found,) = until(lambda: [each for each in hosts() if each not in before], "the process that runs programs")
    return found


def test_it_is_started_again_when_it_dies(settings):
    host = ProgramHost(settings)
    first = next_host()
    first.kill()
    second = next_host(first)
    second.kill()
    next_host(first, second)
    host._leaves.set()


def test_one_that_dies_while_the_executor_is_about_to_replace_itself_is_started_again(settings):
    """An executor whose JVM dies again and again waits for up to 30 s before it replaces itself."""
    before = ProgramHost(settings)
    first = next_host()
    before.hand_over()
    first.kill()
    before._keeper.join(_REAPED_S)  # it takes the dead process in, and its successor cannot
    assert not hosts(), "the one that leaves starts none"
    after = ProgramHost(settings)
    second = next_host(first)
    second.kill()
    next_host(first, second)
    after._leaves.set()
