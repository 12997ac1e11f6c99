"""An attempt of a program, on an executor that lacks what it needs."""

import errno
import tempfile
from types import SimpleNamespace

import pytest

from onager.execution_graph import FailureCause, FailureKind
from onager.executor.programs.attempt import Attempt
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb


class Gateway:
    """Counts the attempts that are begun."""

    def __init__(self):
        self.begun = 0

    async def begin_attempt(self, *_):
        self.begun += 1
        raise AssertionError


@pytest.fixture
def host(tmp_path):
    clock = SimpleNamespace(now_ms=lambda: 1)
    return SimpleNamespace(
        executor_id="e-1",
        incarnation="life",
        exchange_dir=str(tmp_path),
        folder=tmp_path,
        gateway=Gateway(),
        clock=clock,
    )


async def failure_of(host):
    spec = pb.JobSpec(program=pb.ProgramSpec(file_name="app.py", source=b"print()"))
    key = TaskKey(JobId("nightly"), 1, 0, 0, 0)
    return (await Attempt(host, key, spec).run()).failure


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (errno.ENOSPC, FailureCause.NO_SPACE),
        (errno.EROFS, FailureCause.NO_PLACE),
        (errno.EMFILE, FailureCause.NO_PLACE),
    ],
)
async def test_a_program_waits_for_disk_without_beginning_an_attempt(host, monkeypatch, error, cause):
    """Four failures of a task end its job, and four attempts in vain end a program: a full disk shall do neither."""

    def refused(*_, **__):
        raise OSError(error, "what the system says")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    failure = await failure_of(host)
    assert (failure.kind, failure.cause) == (FailureKind.TASK_KILLED, cause)
    assert "what the system says" in failure.message
    assert not host.gateway.begun


async def test_a_program_leaves_an_executor_without_the_exchange_to_others(host, tmp_path):
    host.exchange_dir = str(tmp_path / "not mounted")
    failure = await failure_of(host)
    assert (failure.kind, failure.cause) == (FailureKind.TASK_KILLED, FailureCause.NO_PLACE)
    assert not host.gateway.begun
