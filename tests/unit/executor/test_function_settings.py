"""How long a job's function may take, and how much of what it prints is kept."""

import pytest
import structlog

from onager.errors import InvalidSettingError
from onager.executor.attempt_logs import LINE_BYTES, AttemptLogs, working_on
from onager.executor.spark.functions.calls import timeout_of
from onager.executor.spark.functions.printed import KEPT_BYTES, MAX_LINES, Printed
from onager.ids import JobId, Partition, StageId, TaskKey


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1500ms", 1.5), ("15m", 900), ("2 h", 7200), ("1d", 86_400), ("45", 45), ("0", 0), ("3MIN", 180)],
)
def test_durations_are_spark_s(text, seconds):
    assert timeout_of({"onager.planning.timeout": text}, 7.0) == pytest.approx(seconds)


def test_a_job_that_does_not_say_has_the_executor_s():
    assert timeout_of({}, 7.0) == 7.0


@pytest.mark.parametrize("text", ["soon", "-1s", "1.5s", "9" * 5000, "9" * 5000 + "s", "1 fortnight", "٣s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(InvalidSettingError, match=r"onager\.planning\.timeout"):
        timeout_of({"onager.planning.timeout": text}, 7.0)


def logged(chunks: list[bytes]) -> tuple[list[dict], str]:
    with structlog.testing.capture_logs() as events:
        printed = Printed("job-1")
        for chunk in chunks:
            printed.take(chunk)
        printed.close()
    return events, printed.end


def test_lines_are_logged_with_the_job_however_they_come():
    events, end = logged([b"one\ntw", b"o\n\xff\x1b[2J", b"\r\nlast"])
    assert [event["line"] for event in events] == ["one", "two", "\ufffd·[2J", "last"]
    assert {event["job_id"] for event in events} == {"job-1"}
    assert end == "one\ntwo\n\ufffd\x1b[2J\r\nlast"


def test_a_long_line_that_comes_in_pieces_is_whole_in_the_log_of_the_attempt():
    logs, key = AttemptLogs(), TaskKey(JobId("job-1"), StageId(0), 0, Partition(0), 0)
    line = b"".join(b"%05d" % n for n in range(1_000))
    with working_on(logs, key):
        logged([line[:3_000], line[3_000:] + b"\nnext", b"y" * 10_000, b"z\nlast"])
    first, cut, last = logs.tail(key).splitlines()
    assert first == line.decode()
    assert cut == "next" + "y" * (LINE_BYTES - 4) + "…"
    assert last == "last"


def test_however_much_is_printed_little_is_kept():
    events, end = logged([b"x" * 100_000] * 50 + [b"\n" + b"y\n" * 10_000] * 50 + [b"the end"])
    assert len(events) == MAX_LINES + 1
    assert max(len(event.get("line", "")) for event in events) < 600
    assert events[-1]["total_bytes"] == 50 * 100_000 + 50 * 20_001 + 7
    assert end.endswith("the end")
    assert len(end) == KEPT_BYTES
