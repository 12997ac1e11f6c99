"""Lines of the JVM and its Python workers: whose they are, and what standard error shows."""

import io
import json

import pytest
from pyspark.taskcontext import TaskContext

from onager.executor.attempt_logs import AttemptLogs
from onager.executor.spark.jvm_output import JvmOutput, attempt_of
from onager.executor.spark.worker_daemon import MarkedText, attempt_here
from onager.ids import JobId, Partition, StageId, TaskKey

KEY = TaskKey(JobId("job-1"), StageId(2), 1, Partition(3), 4)
NAMED = "  job_id=job-1 stage_id=2 partition=3 attempt=4"


def event(text, level="ERROR", attempt=str(KEY)):
    return f"\x1e{attempt}\x1f{level}\x1f{json.dumps(text)[1:-1]}\n"


def test_an_event_of_an_attempt_is_kept_whole_and_shown_with_its_name():
    logs = AttemptLogs()
    output = JvmOutput(logs)
    assert output.take(event('broken "so"\n\tat here\n')) == f'broken "so"{NAMED}\n\tat here\n'
    assert logs.tail(KEY) == 'broken "so"\n\tat here\n'


def test_only_what_is_severe_is_shown_and_all_is_kept():
    logs = AttemptLogs()
    output = JvmOutput(logs)
    assert output.take(event("spilled", "WARN")) == ""
    assert JvmOutput(logs, "info").take(event("begun", "INFO")) == f"begun{NAMED}\n"
    assert output.take(event("of the driver", "WARN", "")) == ""
    assert output.take(event("of the driver", attempt="")) == "of the driver\n"
    assert logs.tail(KEY) == "spilled\nbegun\n"


@pytest.mark.parametrize("line", ["plain\n", "\x1eno separators\n", "\x1ea\x1fNO LEVEL\x1fx\n", "\n", "\x1e\n"])
def test_other_lines_are_shown_as_they_are(line):
    assert JvmOutput(AttemptLogs()).take(line) == line


def test_what_java_says_at_every_start_is_not_shown():
    assert JvmOutput(AttemptLogs()).take("WARNING: Using incubator modules: jdk.incubator.vector\n") == ""


def test_two_that_write_at_once_do_not_take_each_others_lines():
    logs = AttemptLogs()
    other = KEY._replace(task_attempt=5)
    line = event("one that is cut")[:-5] + event("two", attempt=str(other))
    assert JvmOutput(logs).take(f"raw {line}").startswith("raw one that is")
    assert logs.tail(other) == "two\n"
    assert "two" not in logs.tail(KEY)


@pytest.mark.parametrize("text", ["", "job-1", "../2.1/3.4", "job-1/2.1/3.-4", "job-1/2/3", f"{KEY}/", "J/1.1/1.1"])
def test_what_names_no_attempt(text):
    assert attempt_of(text) is None


def test_a_key_as_text_names_its_attempt():
    assert attempt_of(str(KEY)) == KEY


# ---------------------------------------------------------------- Python workers


@pytest.fixture
def context():
    made = TaskContext._getOrCreate()
    made._localProperties = {}
    made._partitionId = 3
    yield made
    TaskContext._setTaskContext(None)


def test_a_worker_finds_its_attempt_among_those_of_the_run(context):
    assert attempt_here() == ""
    context._localProperties = {"onager.attempts": "job-1/2.1|13:0,3:4,30:9"}
    assert attempt_here() == str(KEY)
    context._partitionId = 4
    assert attempt_here() == ""
    context._localProperties = {"mdc.onager.attempt": str(KEY)}
    assert attempt_here() == str(KEY)


def test_without_a_task_there_is_none():
    assert attempt_here() == ""


def test_what_a_worker_prints_arrives_line_by_line(context):
    context._localProperties = {"onager.attempts": "job-1/2.1|3:4"}
    raw = io.StringIO()
    marked = MarkedText(raw)
    print("hello", file=marked)
    print("no end", end="", file=marked)
    marked.writelines([" yet\n", "tab\there \x1e\x1f\n"])
    marked.write("last")
    marked.flush()
    logs = AttemptLogs()
    output = JvmOutput(logs)
    shown = [output.take(f"{line}\n") for line in raw.getvalue().split("\n") if line]
    assert shown[0] == f"hello{NAMED}\n"
    assert logs.tail(KEY) == "hello\nno end yet\ntab\there ··\nlast\n"


def test_what_a_worker_prints_besides_its_task_is_left_as_it_is():
    raw = io.StringIO()
    print("Grüße", file=MarkedText(raw))
    assert raw.getvalue() == "Grüße\n"
