"""Which failure the harness tells where one brings others with it."""

import pytest

from onager.protocol import onager_pb2 as pb
from onager.testing.job import JobRun

KILLED, READER, WRITER = (
    pb.TaskReport(task=pb.TaskId(stage_id=stage, partition=1), failure=pb.Failure(kind=kind))
    for stage, kind in ((1, "task_killed"), (2, "io_error"), (1, "user_error"))
)


@pytest.mark.parametrize(
    ("come", "reported"),
    [
        ([READER, KILLED], READER),
        ([KILLED, READER], READER),
        ([READER, WRITER], WRITER),
        ([KILLED, READER, WRITER], WRITER),
        ([KILLED], KILLED),
    ],
)
def test_a_task_that_was_stopped_is_the_cause_of_nothing(monkeypatch, come, reported):
    job = JobRun.__new__(JobRun)
    job._slots = 4
    job._running = {(1, 0), (1, 1), (2, 1)}
    later = iter(come[1:])
    monkeypatch.setattr(job, "_next", lambda _deadline: next(later, None))
    assert job._cause(come[0]) == reported
