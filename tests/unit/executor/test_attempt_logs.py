"""What is kept of attempts' logs, how much, and how it is reported."""

import structlog

from onager.executor.attempt_logs import AttemptLogs, current_attempt, keep_line, working_on
from onager.ids import JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_LOG_BYTES, MAX_LOGS, MAX_LOGS_BYTES
from onager.protocol.task_keys import task_id


def key(partition=0, job="job-1", stage=1, attempt=0):
    return TaskKey(JobId(job), StageId(stage), 0, Partition(partition), attempt)


def ask(**wanted):
    return pb.LogsAsk(**{"job_id": "job-1", "tail_bytes": 1 << 16, **wanted})


def texts(answer):
    return {(log.task.partition, log.task.task_attempt): log.text.decode() for log in answer.logs}


def test_what_was_asked_for_is_reported():
    logs = AttemptLogs()
    for k in (key(0), key(0, attempt=1), key(1), key(1, stage=2), key(0, job="job-2")):
        logs.add(k, f"of {k}")
    assert len(logs.answer(ask()).logs) == 4
    assert texts(logs.answer(ask(stage_id=1))) == {
        (0, 0): "of job-1/1.0/0.0\n",
        (0, 1): "of job-1/1.0/0.1\n",
        (1, 0): "of job-1/1.0/1.0\n",
    }
    assert texts(logs.answer(ask(stage_id=1, partition=0, attempt=1))) == {(0, 1): "of job-1/1.0/0.1\n"}
    assert not logs.answer(ask(stage_id=0)).logs
    assert not logs.answer(ask(job_id="job-3")).logs


def test_a_reader_goes_on_where_it_was():
    logs = AttemptLogs()
    logs.add(key(), "one")
    (first,) = logs.answer(ask()).logs
    assert (first.text, first.begin, first.end) == (b"one\n", 0, 4)
    after = [pb.LogPosition(task=task_id(key()), position=first.end)]
    assert not logs.answer(ask(after=after)).logs
    logs.add(key(), "two")
    logs.end(key())
    logs.add(key(), "late")
    (more,) = logs.answer(ask(after=after)).logs
    assert (more.text, more.begin, more.end) == (b"two\nlate\n", 4, 13)


def test_a_log_keeps_its_last_lines():
    logs = AttemptLogs()
    for number in range(40_000):
        logs.add(key(), f"line {number:08d}")
    (log,) = logs.answer(ask(tail_bytes=MAX_LOG_BYTES)).logs
    lines = log.text.decode().splitlines()
    assert lines[-1] == "line 00039999"
    assert len(log.text) <= MAX_LOG_BYTES < len(log.text) + 14
    assert log.end == 40_000 * 14
    assert log.begin == log.end - len(log.text)
    tail = logs.tail(key(), 100)
    assert tail == "".join(f"line {number:08d}\n" for number in range(39_993, 40_000))


def test_empty_lines_take_memory_too():
    logs = AttemptLogs()
    for _ in range(100_000):
        logs.add(key(), "")
    (log,) = logs.answer(ask(tail_bytes=MAX_LOG_BYTES)).logs
    assert len(log.text) < 40_000


def test_a_line_without_end_is_cut():
    logs = AttemptLogs()
    logs.add(key(), "x" * 1_000_000)
    assert 8_000 < len(logs.tail(key()).encode()) < 9_000
    assert logs.tail(key(), 100) == ""


def test_ended_attempts_go_first_and_the_oldest_of_them():
    logs = AttemptLogs(attempts=3)
    for partition in range(3):
        logs.add(key(partition), "x")
    logs.end(key(2))
    logs.end(key(1))
    logs.add(key(3), "x")
    assert set(texts(logs.answer(ask()))) == {(0, 0), (1, 0), (3, 0)}
    logs.add(key(4), "x")
    assert set(texts(logs.answer(ask()))) == {(0, 0), (3, 0), (4, 0)}
    logs.add(key(5), "x")
    assert set(texts(logs.answer(ask()))) == {(3, 0), (4, 0), (5, 0)}


def test_all_logs_together_have_a_limit():
    logs = AttemptLogs(total_bytes=100_000)
    for partition in range(30):
        for _ in range(10):
            logs.add(key(partition), "x" * 1_000)
    found = texts(logs.answer(ask()))
    assert (29, 0) in found
    assert sum(map(len, found.values())) <= 100_000


def test_an_answer_has_a_limit_and_tells_what_it_left_out():
    logs = AttemptLogs()
    for partition in range(MAX_LOGS + 6):
        logs.add(key(partition), "x")
    answer = logs.answer(ask())
    assert (len(answer.logs), answer.left_out) == (MAX_LOGS, 6)
    assert answer.logs[0].task.partition == MAX_LOGS + 5, "the latest come first"
    for partition in range(10):
        for _ in range(30):
            logs.add(key(partition, job="job-2"), "x" * 10_000)
    answer = logs.answer(ask(job_id="job-2", tail_bytes=MAX_LOG_BYTES))
    assert sum(len(log.text) for log in answer.logs) <= MAX_LOGS_BYTES
    assert answer.left_out


def test_secrets_and_what_terminals_act_on_do_not_leave():
    logs = AttemptLogs()
    logs.add(key(), "password=hunter2 \x1b[31mred\x1b[0m Grüße")
    assert logs.tail(key()) == "password=*********(redacted) ·[31mred·[0m Grüße\n"


def test_a_secret_in_the_line_above_does_not_shift_what_is_shown():
    logs = AttemptLogs()
    logs.add(key(), "token: abcdef")
    logs.add(key(), "two")
    logs.add(key(), "three")
    assert logs.tail(key(), 10) == "two\nthree\n"


def test_a_secret_of_several_lines_does_not_show_lines_again():
    logs = AttemptLogs()
    logs.add(key(), "one")
    logs.add(key(), "two")
    (before,) = logs.answer(ask()).logs
    for line in ('token="abc', "def", 'ghi"', "three"):
        logs.add(key(), line)
    after = [pb.LogPosition(task=task_id(key()), position=before.end)]
    (more,) = logs.answer(ask(after=after)).logs
    assert more.text == b"token=*********(redacted)\nthree\n"
    assert logs.tail(key(), 12) == "\nthree\n", "it began above what is shown"


def test_a_reader_goes_on_within_a_secret():
    logs = AttemptLogs()
    logs.add(key(), 'token="abc')
    (before,) = logs.answer(ask()).logs
    logs.add(key(), "def")
    answer = logs.answer(ask(after=[pb.LogPosition(task=task_id(key()), position=before.end)]))
    assert [log.text for log in answer.logs] == [b"*********(redacted)\n"]
    assert (answer.logs[0].end, answer.left_out) == (before.end + 4, 0)


def test_an_attempt_that_logged_nothing_has_no_log():
    logs = AttemptLogs()
    logs.end(key())
    assert logs.tail(key()) == ""
    assert not logs.answer(ask()).logs


def test_what_is_logged_while_an_attempt_is_worked_on_names_it():
    logs = AttemptLogs()
    with working_on(logs, key(3, attempt=2)):
        assert current_attempt() == (logs, key(3, attempt=2))
        named = structlog.contextvars.get_contextvars()
        keep_line({"event": "planned", "level": "info", "timestamp": "now", "rows": 5, **named})
        keep_line({"event": "function_printed", "line": "comes by itself"})
    keep_line({"event": "of_nothing", "level": "info"})
    assert current_attempt() is None
    assert named == {"job_id": "job-1", "stage_id": 1, "partition": 3, "attempt": 2}
    assert logs.tail(key(3, attempt=2)) == "now info planned rows=5\n"
    assert not structlog.contextvars.get_contextvars()


def test_a_line_that_comes_after_the_end_of_its_attempt_takes_no_place_from_those_that_run():
    logs = AttemptLogs(attempts=2)
    logs.add(key(0), "x")
    logs.end(key(1))
    logs.add(key(1), "late")
    assert logs.tail(key(1)) == "late\n"
    logs.add(key(2), "x")
    assert set(texts(logs.answer(ask()))) == {(0, 0), (2, 0)}
