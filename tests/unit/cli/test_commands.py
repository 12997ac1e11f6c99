"""The output and exit codes of commands."""

import json
import re
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from onager.cli.events import what
from onager.client.events import JobEvent
from onager.clock import SystemClock
from onager.explain_analyze import marked_analyzed
from onager.protocol import onager_pb2 as pb
from onager.version import __version__
from tests.unit.client.plans import EVENTS, STAGES


@pytest.fixture
def job(scheduler):
    stages = [
        pb.StageInfo(stage_id=0, name="plan", work="plan", state="successful", partitions=1, successful=1),
        pb.StageInfo(
            stage_id=1,
            name="scan",
            work="query",
            state="successful",
            partitions=2,
            successful=2,
            tasks=[pb.TaskInfo(partition=0, state="successful", attempts=1, successes=1)],
            metrics=pb.TaskMetrics(run_ms=1500, rows_out=3),
        ),
    ]
    scheduler.progress = [
        pb.JobProgress(job_id="j", name="n", state=pb.RUNNING, submitted_ms=1000, stages=stages[:1]),
        pb.JobProgress(job_id="j", name="n", state=pb.SUCCESSFUL, submitted_ms=1000, ended_ms=3500, stages=stages),
    ]
    batch = pa.record_batch({"id": [1, 2, None], "name": ["a", "b, c", None]})
    scheduler.schema, scheduler.partitions = batch.schema, [[batch]]
    scheduler.jobs["j"] = pb.JobSpec(name="n", conf={"k": "v"})
    return scheduler


def test_a_query_prints_its_result_on_stdout_and_its_progress_on_stderr(onager, job):
    done = onager("submit", "-e", "SELECT 1", "--scheduler", job.address)
    assert done.code == 0
    assert done.out.splitlines() == ["  id  name", "----  ----", "   1  a", "   2  b, c", "NULL  NULL"]
    assert "is running" in done.err
    assert "stage 1 scan: successful, 2 tasks" in done.err
    assert "(3 rows)" in done.err


def test_results_as_json_csv_and_arrow(onager, job, tmp_path):
    common = ("submit", "-e", "SELECT 1", "--scheduler", job.address)
    assert json.loads(onager(*common, "-o", "json").out) == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b, c"},
        {"id": None, "name": None},
    ]
    assert onager(*common, "-o", "csv").out == 'id,name\n1,a\n2,"b, c"\n,\n'
    done = onager(*common, "-o", f"arrow={tmp_path}/r.arrow")
    assert (done.code, done.out) == (0, "")
    assert pa.ipc.open_file(tmp_path / "r.arrow").read_all().column("id").to_pylist() == [1, 2, None]


def test_what_is_submitted_is_what_the_flags_say(onager, job, tmp_path):
    (tmp_path / "t.parquet").touch()
    (tmp_path / "job.py").write_text("def f(session, n, who): ...")
    (tmp_path / "lib.py").touch()
    done = onager(
        *("submit", "--py", f"{tmp_path}/job.py:f", "--arg", "n=3", "--arg", "who=Ada", "--arg", "n=3"),
        *("--py-file", f"{tmp_path}/lib.py", "--view", "v=/data/v.csv", "--views-from", str(tmp_path)),
        *("--conf", "spark.x=0", "--conf", "spark.x=1", "--conf", "onager.y=a=b"),
        *("--output", "/data/out", "--format", "orc"),
        *("--output-option", "compression=zlib", "--view-option", "v.sep=;", "--view-option", "v.header=false"),
        *("--mode", "append", "--detach", "-o", "json", "--scheduler", job.address),
    )
    assert done.code == 0
    spec = job.jobs[json.loads(done.out)["job_id"]]
    assert (spec.python.function, json.loads(spec.python.arguments_json)) == ("f", {"n": 3, "who": "Ada"})
    assert {view.name: view.path for view in spec.views} == {"v": "/data/v.csv", "t": f"{tmp_path}/t.parquet"}
    assert dict(spec.conf) == {"spark.x": "1", "onager.y": "a=b"}
    assert [file.name for file in spec.py_files] == ["lib.py"]
    assert (spec.sink.path, spec.sink.format, spec.sink.mode) == ("/data/out", "orc", "append")
    assert dict(spec.sink.options) == {"compression": "zlib"}
    assert {view.name: dict(view.options) for view in spec.views} == {"v": {"sep": ";", "header": "false"}, "t": {}}


def test_the_version_is_reported(onager):
    assert onager("--version").out == f"onager {__version__}\n"


def test_a_script_comes_from_a_file(onager, job, tmp_path):
    script = tmp_path / "q.sql"
    script.write_text("SET a = b; SELECT 'ü'", encoding="utf-8")
    done = onager("submit", "-f", str(script), "--detach", "--scheduler", job.address)
    assert job.jobs[done.out.strip()].sql.text == "SET a = b; SELECT 'ü'"


def test_a_failed_job_ends_with_1_and_sparks_message(onager, scheduler):
    failure = pb.Failure(message="[DIVIDE_BY_ZERO] Division by zero.", query_context="SELECT 1/0")
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.FAILED, failure=failure)]
    done = onager("submit", "-e", "SELECT 1/0", "--scheduler", scheduler.address)
    assert (done.code, done.out) == (1, "")
    assert "[DIVIDE_BY_ZERO] Division by zero.\nSELECT 1/0" in done.err


def test_a_sink_says_where_it_wrote(onager, job):
    job.progress[-1].sink_path, job.progress[-1].result_rows = "/data/out", 1234
    common = ("submit", "-e", "SELECT 1", "--output", "/data/out", "--scheduler", job.address)
    assert onager(*common).out == "1,234 rows written to /data/out\n"
    job.progress[-1].result_rows = 1
    assert onager(*common).out == "1 row written to /data/out\n"
    assert json.loads(onager(*common, "-o", "json").out)["sink_path"] == "/data/out"


def test_jobs_and_job(onager, job):
    where = ("--scheduler", job.address)
    listed = onager("jobs", *where)
    assert listed.code == 0
    assert "JOB" in listed.out
    assert "successful" in listed.out
    assert json.loads(onager("jobs", "-o", "json", *where).out)[1]["state"] == "successful"
    shown = onager("job", "j", *where)
    assert "2.5 s" in shown.out
    assert "scan" in shown.out
    whole = json.loads(onager("job", "j", "-o", "json", *where).out)
    assert whole["state"] == "successful"
    assert whole["submitted_ms"] == 1000
    assert whole["stages"][1]["tasks"] == [
        {
            "partition": 0,
            "state": "successful",
            "attempts": 1,
            "successes": 1,
            "executor_id": "",
            "failures": 0,
            "speculated": False,
            "speculative_executor_id": "",
            "speculative_won": False,
        }
    ]
    assert whole["spec"]["conf"] == {"k": "v"}


def test_a_task_that_waits_for_its_next_try_is_reported_once_for_each_try(onager, job):
    def failed(next_try, partition, pause_s):
        retry = pb.TaskRetry(
            stage_id=1,
            partition=partition,
            next_try=next_try,
            max_tries=4,
            message="No space left on device\n\tat java.io",
            not_before_ms=time.time_ns() // 1_000_000 + 1_000 * pause_s,
            tasks=3,
        )
        return pb.JobProgress(job_id="j", name="n", state=pb.RUNNING, submitted_ms=1000, retry=retry)

    ended = job.progress[-1]
    job.progress = [failed(2, 0, 300), failed(2, 1, 200), failed(3, 0, 999), ended]
    done = onager("submit", "-e", "SELECT 1", "--scheduler", job.address)
    lines = [line for line in done.err.splitlines() if "No space left" in line]
    first, second = lines
    assert re.fullmatch(
        r"task 0 of stage 1 failed: No space left on device; try 2 of 4 in \d+\.\d s \(2 more tasks wait for a retry\)",
        first,
    )
    assert "try 3 of 4 in" in second
    job.progress = [failed(2, 0, 300)]
    assert "waits: task 0 of stage 1 failed: No space left on device; try 2 of 4 in" in (
        onager("job", "j", "--scheduler", job.address).out
    )


def test_cancel_executors_and_state(onager, job):
    where = ("--scheduler", job.address)
    assert onager("cancel", "j", *where).out == "job j is cancelled\n"
    assert json.loads(onager("cancel", "j", "-o", "json", *where).out) == {"job_id": "j", "state": "cancelled"}
    assert "e1" in onager("executors", *where).out
    assert json.loads(onager("executors", "-o", "json", *where).out)[0]["slots"] == 2
    job.load = pb.ExecutorLoad(heap_used_bytes=3 << 20, heap_max_bytes=1 << 30, rss_bytes=5 << 30, cpu_percent=170)
    assert "3.0 MiB of 1.0 GiB  5.0 GiB  170 %" in onager("executors", *where).out
    assert json.loads(onager("executors", "-o", "json", *where).out)[0]["load"]["cpu_percent"] == 170
    shown = onager("schedulers", *where).out.splitlines()
    assert shown[2].split()[:2] == ["s1", job.address]
    assert shown[2].endswith("yes")
    assert json.loads(onager("schedulers", "-o", "json", *where).out)[0]["answering"] is True
    assert "JobHeads/j" in onager("state", "ls", *where).out
    assert json.loads(onager("state", "ls", "JobHeads", "-o", "json", *where).out)[0]["size_bytes"] == 9
    assert json.loads(onager("state", "get", "JobHeads/j", *where).out) == {"a": 1}
    assert json.loads(onager("state", "get", "JobHeads/j", "-o", "json", *where).out)["mod_revision"] == 7


def test_of_many_executors_the_first_are_shown_and_how_many_there_are(onager, scheduler):
    scheduler.executors = {f"e{n:04d}": "alive" if n % 10 else "quarantined" for n in range(1_200)}
    where = ("--scheduler", scheduler.address)

    def shown(*flags):
        done = onager("executors", *flags, *where)
        return [line.split()[0] for line in done.out.splitlines()[2:]], done.err

    ids = [*scheduler.executors]
    counts = "1,080 alive, 120 quarantined: --limit shows more, --state some\n"
    assert shown() == (ids[:100], f"the first 100 of {counts}")
    assert shown("--limit", "3") == (ids[:3], f"the first 3 of {counts}")
    assert shown("--limit", "0") == (ids, "")
    assert shown("--limit", "1200") == (ids, "")
    assert shown("--state", "quarantined", "--limit", "2") == (["e0000", "e0010"], f"the first 2 of {counts}")
    assert shown("--state", "quarantined", "--limit", "200") == (ids[::10], "")
    done = onager("executors", "-o", "json", "--limit", "3", "--state", "alive", *where)
    assert (len(json.loads(done.out)), done.err) == (1_080, "")


def test_an_unknown_job_ends_with_2(onager, scheduler):
    done = onager("job", "nobody", "--scheduler", scheduler.address)
    assert (done.code, done.out) == (2, "")
    assert "job nobody is not known here" in done.err


def test_nobody_there_ends_with_3(onager):
    done = onager("jobs", "--scheduler", "127.0.0.1:1")
    assert (done.code, done.out) == (3, "")
    assert "no scheduler answers at 127.0.0.1:1" in done.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("submit",), "give exactly one of"),
        (("submit", "-e", "x", "-f", "y"), "give exactly one of"),
        (("submit", "-e", "x", "--arg", "a=b"), "--arg needs --py"),
        (("submit", "-e", "x", "--output-option", "k=v"), "--output-option needs --output DIR"),
        (("submit", "-e", "x", "--view-option", "v=1"), "expected NAME.K=V"),
        (("submit", "-e", "x", "--view-option", "v.sep=;"), "there is no view v"),
        (("submit", "-e", "x", "-o", "xml"), "expected one of table, json, csv, arrow=FILE"),
        (("submit", "-e", "x", "--view", "v"), "--view 'v': expected NAME=PATH"),
        (("submit", "-e", "x", "--param", "a=1", "--param", "a=2"), "--param: a is given twice, with different values"),
        (("submit", "-e", "x", "--output", "o", "--format", "avro"), "expected one of parquet"),
        (("submit", "-e", "x", "--views-from", "/nowhere"), "there is no such directory"),
        (("submit", "-f", "/nowhere.sql"), "No such file"),
        (("submit", "--py", "/nowhere.py"), "cannot be read"),
        (("submit", "-e", "x", "-o", "arrow=/nowhere/f"), "there is no directory /nowhere"),
        (("submit", "-e", "x", "--scheduler", "nonsense"), "expected host:port"),
        (("jobs", "-o", "xml"), "expected one of table, json"),
        (("audit", "--since", "yesterday"), "expected a length of time, such as 30m, 1h or 7d"),
        (("nonsense",), "No such command"),
        (("executor", "--scheduler", "h:1", "--slots", "1"), "EXCHANGE_DIR) is not given: give the directory"),
        (("scheduler", "--listen", "nonsense"), "--listen"),
        (("standalone", "--listen", "nonsense"), "expected host:port"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_usage_errors_end_with_2(onager, arguments, text):
    done = onager(*arguments)
    assert done.code == 2
    assert text in done.err


def test_a_misspelt_variable_is_reported(onager, monkeypatch):
    monkeypatch.setenv("ONAGER_SCHEDULER_RESULTS_RETENTION_S", "60")
    monkeypatch.setenv("ONAGER_SCHEDULER_SLOTS_AND_MORE", "1")
    monkeypatch.setenv("ONAGER_SCHEDULER_LOG_LEVEL", "error")
    lines = onager("scheduler", "--listen", "nonsense").err.splitlines()
    no_setting = "is not a setting, and has no effect"
    assert lines[:2] == [
        f"onager: ONAGER_SCHEDULER_RESULTS_RETENTION_S {no_setting}; did you mean ONAGER_SCHEDULER_RESULT_RETENTION_S?",
        f"onager: ONAGER_SCHEDULER_SLOTS_AND_MORE {no_setting}",
    ]
    assert "--listen (ONAGER_SCHEDULER_LISTEN) 'nonsense'" in lines[2]


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ("standalone", ("leveldb: in --state-dir", "127.0.0.1:50050", "one per core", "beside the state")),
        ("scheduler", ("memory:, lost with the process", "--listen", "var/exchange")),
        (
            "executor",
            ("127.0.0.1:50050", "none: required", "host name and a random part", "pull", "a free port of 127.0.0.1"),
        ),
        ("submit", ("the query's first words",)),
    ],
)
def test_help_says_what_is_taken_where_nothing_is_given(onager, command, defaults):
    printed = onager(command, "--help").out
    assert [default for default in defaults if f"[default: ({default})]" not in printed] == []


def test_help_needs_neither_grpc_nor_spark():
    code = (
        "import sys; sys.argv = ['onager', '--help']\n"
        "from onager.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'grpc', 'pyarrow', 'pyspark', 'pandas'} & set(sys.modules), sys.modules.keys()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "standalone" in ran.stdout


def test_commands_load_arrow_only_for_a_result():
    code = "import sys, onager.cli.admin, onager.cli.submit; assert not {'pyarrow', 'pandas'} & set(sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_reader_that_leaves_early_is_no_error(job):
    batch = pa.record_batch({"id": list(range(200_000))})
    job.schema, job.partitions = batch.schema, [[batch]]
    command = [sys.executable, "-m", "onager", "submit", "-e", "x", "-o", "csv", "--scheduler", job.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "id\n"
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_who_submitted_is_a_column_where_anybody_has_a_name(onager, job):
    where = ("--scheduler", job.address)
    assert "BY" not in onager("jobs", *where).out
    assert "submitted by" not in onager("job", "j", *where).out
    job.progress[1].principal = "ann"
    header, _, nameless, named = onager("jobs", *where).out.splitlines()
    assert header.split() == ["JOB", "STATE", "SUBMITTED", "SECONDS", "BY", "NAME"]
    assert "ann" not in nameless
    assert named.split()[-2:] == ["ann", "n"]
    assert [each["principal"] for each in json.loads(onager("jobs", "-o", "json", *where).out)] == ["", "ann"]
    assert "submitted by: ann" in onager("job", "j", *where).out


def test_the_audit_is_a_table_for_people_and_objects_for_programs(onager, scheduler):
    scheduler.audit = [
        pb.AuditEntry(
            at_ms=1000, principal="ann", address="10.0.0.7", scheduler_id="s1", action="cancel", target=f"j{n}"
        )
        for n in range(3)
    ]
    where = ("--scheduler", scheduler.address)
    done = onager("audit", "--since", "1h", "--action", "cancel", "--by", "ann", *where)
    assert [line.split()[-1] for line in done.out.splitlines()[2:]] == ["j0", "j1", "j2"]
    first, *others = [request for method, request in scheduler.calls if method == "ListAudit"]
    assert (first.action, first.principal, first.target) == ("cancel", "ann", "")
    assert abs(first.since_ms - (SystemClock().now_ms() - 3_600_000)) < 60_000
    assert [request.cursor for request in others] == ["1", "2"]
    assert {request.since_ms for request in others} == {first.since_ms}
    found = json.loads(onager("audit", "-o", "json", *where).out)
    assert [each["target"] for each in found] == ["j0", "j1", "j2"]


def test_events_are_lines_for_people_and_objects_for_programs(onager, scheduler):
    launched = {"stage_id": 1, "stage_attempt": 2, "tasks": [[0, 0], [1, 0], [3, 1]], "executor_id": "e1"}
    failed = {
        "stage_id": 1, "stage_attempt": 2, "partition": 3, "task_attempt": 1, "executor_id": "e1",
        "failure": {"kind": "io_error", "message": "no such file"},
    }  # fmt: skip
    scheduler.batches = [
        pb.EventBatch(position=2, not_kept=True),
        pb.EventBatch(
            position=3,
            scheduler_id="s1",
            events=[
                pb.JobEvent(type="tasks_launched", at_ms=1000, json=json.dumps(launched)),
                pb.JobEvent(type="task_failed", at_ms=1500, json=json.dumps(failed)),
            ],
        ),
    ]
    done = onager("events", "j", "--scheduler", scheduler.address)
    assert done.code == 0
    gone, launch, failure = done.out.splitlines()
    assert gone.endswith("not_kept           what happened up to here is not in the store any more")
    assert launch.endswith("s1                    tasks_launched     stage 1 (attempt 2), tasks 0-1, 3 on e1")
    assert failure.endswith("stage 1 (attempt 2), task 3 (attempt 1) on e1: io_error: no such file")
    done = onager("events", "j", "-o", "json", "--follow", "--scheduler", scheduler.address)
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [line["type"] for line in found] == ["not_kept", "tasks_launched", "task_failed"]
    assert found[2]["failure"] == failed["failure"]
    assert found[2]["scheduler_id"] == "s1"


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"fused": [2, 3, 4, 6]}, "stage 7: its one task computes stage 2-4, 6, too"),
        ({"reads": [{"first_bucket": 0, "end_bucket": 200}]}, "stage 7: reads 200 buckets in 1 task"),
        ({"reads": [{"end_bucket": 90}, {"end_bucket": 100}]}, "stage 7: reads 100 buckets in 2 tasks"),
    ],
)
def test_how_a_stage_was_laid_out_is_shown(fields, reported):
    event = JobEvent(3, 1, "s1", "stage_laid_out", {"stage_id": 7} | fields)
    assert what(event) == reported


def test_the_plan_as_it_ran(onager, job):
    job.final_stages, job.batches = STAGES, EVENTS
    shown = onager("job", "j", "--analyze", "--scheduler", job.address)
    assert shown.code == 0
    assert shown.out.startswith("j  successful  2.5 s  n\n\nstage 0  plan")
    assert "60,175" in shown.out
    assert "! spill" in shown.out
    assert "TRY" not in shown.out
    assert "TRY" in onager("job", "j", "--analyze", "--per-task", "--scheduler", job.address).out

    whole = json.loads(onager("job", "j", "--analyze", "--per-task", "-o", "json", "--scheduler", job.address).out)
    stage = whole["stages"][1]
    assert (stage["progress"]["name"], stage["estimated_rows"]) == ("scan lineitem → partial aggregate", 1_000_000)
    assert stage["plans"][0]["operators"][1]["metrics"][0] == {"name": "numOutputRows", "type": "sum", "value": 20}
    assert [task["run_ms"] for task in stage["tasks"]] == [500, 500, 3000]
    assert "skew" in {hint["kind"] for hint in stage["hints"]}


@pytest.mark.parametrize("flags", [["--per-task"], ["--analyze", "--plan"]])
def test_flags_that_do_not_go_together(onager, job, flags):
    refused = onager("job", "j", *flags, "--scheduler", job.address)
    assert refused.code == 2
    assert "--analyze" in refused.err


def test_explain_analyze_prints_the_plan(onager, job):
    job.final_stages, job.batches = STAGES, EVENTS
    marked = marked_analyzed(job.schema.serialize().to_pybytes())
    job.schema = pa.ipc.read_schema(pa.py_buffer(marked))
    common = ("submit", "-e", "EXPLAIN ANALYZE SELECT 1", "--scheduler", job.address)
    done = onager(*common)
    assert (done.code, done.out.splitlines()[0].startswith("stage 0  plan")) == (0, True)
    assert "60,175" in done.out
    (row,) = json.loads(onager(*common, "-o", "json").out)
    assert f"{row['plan']}\n" == done.out
