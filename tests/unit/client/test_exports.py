"""Files about a job, as a client writes them."""

import pytest


def test_a_file_that_breaks_off_is_written_again_from_its_beginning(connect, scheduler, tmp_path):
    scheduler.exports = {"timeline-svg": [b"<svg>", b"...", b"</svg>"]}
    scheduler.break_after_messages = [2]
    path = tmp_path / "job.svg"
    assert connect(scheduler.address).job("j").export("timeline-svg", path) == 14
    assert path.read_bytes() == b"<svg>...</svg>"
    assert [method for method, _ in scheduler.calls] == ["ExportJob", "ExportJob"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_completed_does_not_replace_the_one_that_is_there(connect, scheduler, tmp_path):
    def fail(_):
        raise NotFoundError("it is gone")

    from onager.errors import NotFoundError

    scheduler.on_call = fail
    path = tmp_path / "job.svg"
    path.write_text("before")
    with pytest.raises(NotFoundError):
        connect(scheduler.address).job("j").export("timeline-svg", path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_timeline_as_data(connect, scheduler):
    scheduler.exports = {"timeline": [b'{"posi', b'tion": 7}']}
    assert connect(scheduler.address).job("j").timeline(after=3) == {"position": 7}
    ((_, request),) = scheduler.calls
    assert (request.after, request.format) == (3, "timeline")
