"""The output of `logs`, `retry`, `top`, `executors drain` and the filters of `jobs`."""

import json

import pytest

from onager.protocol import onager_pb2 as pb


def log(partition, text, *, end=0, **more):
    task = pb.TaskId(job_id="j", stage_id=1, partition=partition)
    return pb.AttemptLog(task=task, executor_id="e1", text=text.encode(), end=end or len(text), **more)


def a_job(scheduler):
    scheduler.jobs["j"] = pb.JobSpec()
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.SUCCESSFUL)]


def asked(scheduler, method):
    return [request for name, request in scheduler.calls if name == method]


def test_each_attempt_has_a_heading_and_what_is_missing_is_distinguished(onager, scheduler):
    scheduler.logs = [
        log(0, "one\n", end=4),
        log(0, "two\n", end=8, begin=4),
        log(1, "kept\n", kept=True),
        pb.AttemptLog(note="executor e2 is gone"),
    ]
    done = onager("logs", "j", "--stage", "1", "--scheduler", scheduler.address)
    assert done.out.splitlines() == [
        "==> stage 1, task 0, attempt 0 on e1 <==",
        "one",
        "two",
        "",
        "==> stage 1, task 1, attempt 0 on e1, as kept with its failure <==",
        "kept",
    ]
    assert (done.code, done.err) == (0, "onager: executor e2 is gone\n")
    (request,) = asked(scheduler, "FetchLogs")
    assert (request.stage_id, request.HasField("partition"), request.follow, request.tail_bytes) == (
        1,
        False,
        False,
        65536,
    )


@pytest.mark.parametrize(
    ("tail", "fetched", "shown"), [("2", 262144, "b\nc\n"), ("1k", 1024, "a\nb\nc\n"), ("9B", 9, "a\nb\nc\n")]
)
def test_the_end_is_given_in_lines_or_bytes(onager, scheduler, tail, fetched, shown):
    a_job(scheduler)
    scheduler.logs = [log(0, "a\nb\nc\n")]
    done = onager("logs", "j", "--tail", tail, "--scheduler", scheduler.address)
    assert done.out.partition("\n")[2] == shown
    assert asked(scheduler, "FetchLogs")[0].tail_bytes == fetched


def test_logs_for_programs_are_an_object_a_line(onager, scheduler):
    scheduler.logs = [log(3, "Grüße\n")]
    done = onager("logs", "j", "-o", "json", "--scheduler", scheduler.address)
    (line,) = map(json.loads, done.out.splitlines())
    assert (line["partition"], line["text"], line["executor_id"], line["is_kept"]) == (
        3,
        "Grüße\n",
        "e1",
        False,
    )


def test_logs_whose_stream_breaks_are_taken_up_with_nothing_twice(onager, scheduler):
    scheduler.logs = [log(0, "one\n", end=4), log(0, "two\n", end=8, begin=4)]
    scheduler.break_after_messages = [1]
    a_job(scheduler)
    done = onager("logs", "j", "--follow", "--scheduler", scheduler.address)
    assert done.out.splitlines()[1:] == ["one", "two"]
    assert [[p.position for p in request.after] for request in asked(scheduler, "FetchLogs")] == [[], [4]]


@pytest.mark.parametrize("tail", ["0", "-1", "many", "1.5k", ""])
def test_an_end_that_is_none_is_refused(onager, scheduler, tail):
    done = onager("logs", "j", f"--tail={tail}", "--scheduler", scheduler.address)
    assert done.code == 2
    assert f"--tail {tail!r}: expected a number of lines, such as 100, or of bytes" in done.err


def test_a_retry_prints_the_new_id(onager, scheduler):
    scheduler.jobs["j"] = pb.JobSpec()
    done = onager("retry", "j", "--scheduler", scheduler.address)
    (request,) = asked(scheduler, "RetryJob")
    assert (done.code, done.out) == (0, f"{request.new_job_id}\n")
    assert request.job_id == "j"
    content = json.loads(onager("retry", "j", "-o", "json", "--scheduler", scheduler.address).out)
    assert content["retry_of"] == "j"


def test_the_help_of_drain_says_for_whom_it_is_and_that_it_cannot_be_taken_back(onager):
    printed = " ".join(onager("executors", "drain", "--help").out.split())
    assert "for operators" in printed
    assert "cannot be taken back" in printed


def test_a_drain_says_what_it_means(onager, scheduler):
    done = onager("executors", "drain", "e1", "--reason", "disk", "--scheduler", scheduler.address)
    (request,) = asked(scheduler, "DrainExecutor")
    assert (request.executor_id, request.reason) == ("e1", "disk")
    assert done.out == "executor e1 takes no more work; it leaves when the 1 task that it runs have ended\n"
    assert done.err == "no other executor takes work: jobs wait until one does\n"
    listed = onager("executors", "--scheduler", scheduler.address)
    assert (listed.code, listed.out.split()[0]) == (0, "EXECUTOR")
    assert len(asked(scheduler, "ListExecutors")) == 1


def test_filters_of_jobs_reach_the_scheduler(onager, scheduler):
    flags = ["--state", "failed", "--name", "etl", "--session", "s", "--principal", "ann", "--limit", "5"]
    dates = ["--since", "2026-03-01T12:00+00:00", "--until", "2026-03-02T00:00+00:00"]
    assert onager("jobs", *flags, *dates, "--scheduler", scheduler.address).code == 0
    assert asked(scheduler, "ListJobs") == [
        pb.ListJobsRequest(
            limit=5,
            state="failed",
            name="etl",
            session="s",
            principal="ann",
            since_ms=1_772_366_400_000,
            until_ms=1_772_409_600_000,
        )
    ]
    done = onager("jobs", "--since", "yesterday", "--scheduler", scheduler.address)
    assert done.code == 2
    assert "--since 'yesterday': expected a length of time, such as 30m, 1h or 7d, or a date" in done.err


def test_top_once_for_people_and_for_programs(onager, scheduler):
    stage = pb.StageInfo(
        stage_id=1, name="scan", partitions=8, successful=2, running=4, state="running", tasks_failed=1
    )
    scheduler.progress = [
        pb.JobProgress(job_id="j", name="n", state=pb.RUNNING, submitted_ms=1000, started_ms=1000, stages=[stage])
    ]
    scheduler.jobs["j"] = pb.JobSpec()
    scheduler.load = pb.ExecutorLoad(heap_used_bytes=1 << 30, heap_max_bytes=1 << 31, cpu_percent=150)
    content = json.loads(onager("top", "-o", "json", "--scheduler", scheduler.address).out)
    assert (content["slots"], content["slots_taken"]) == (2, 0)
    assert content["jobs"][0]["tasks"] == 8
    assert content["jobs"][0]["tasks_running"] == 4
    assert content["executors"][0]["load"]["cpu_percent"] == 150
    shown = onager("top", "--once", "--scheduler", scheduler.address).out
    assert shown.startswith("1 scheduler, 0 of 2 slots taken, ")
    assert "2/8" in shown
    assert "1.0 GiB of 2.0 GiB" in shown


# ---------------------------------------------------------------- programs


def a_program(scheduler, **info):
    stage = pb.StageInfo(stage_id=1, work="program", partitions=1)
    scheduler.progress = [pb.JobProgress(job_id="p", state=pb.RUNNING, stages=[stage], name="app.py")]
    scheduler.jobs["p"] = pb.JobSpec()
    scheduler.program = pb.ProgramInfo(program_id="p", **info)
    scheduler.program_calls = [
        pb.ProgramCall(task="0", number=1, kind="Config", line="app.py:3", at_ms=1_000, attempt=1, done=True),
        pb.ProgramCall(task="0", number=2, kind="ExecutePlan", line="app.py:9", at_ms=5_000, attempt=2, target="t"),
        pb.ProgramCall(
            task="0.1", number=1, kind="X", line="own.py:7", at_ms=2_000, attempt=1, error="E: no", job_id="j"
        ),
    ]


def test_a_program_shows_its_attempts_and_where_it_is(onager, scheduler):
    a_program(scheduler, attempt=2)
    done = onager("job", "p", "--scheduler", scheduler.address)
    assert done.out.splitlines()[1:] == [
        "attempts: 2",
        "calls: 3 (onager calls p)",
        "last call: app.py:9, ExecutePlan to t",
    ]
    a_program(scheduler, attempt=2, ended=True, exit_code=1, why_ended="its job has ended")
    assert onager("job", "p", "--scheduler", scheduler.address).out.splitlines()[-1] == (
        "exit code: 1 (its job has ended)"
    )
    a_program(scheduler)
    assert onager("job", "p", "--scheduler", scheduler.address).out.splitlines()[-1] == "attempts: none yet"


def test_calls_of_a_program_come_in_the_order_of_their_beginnings(onager, scheduler):
    a_program(scheduler, attempt=2)
    table = onager("calls", "p", "--scheduler", scheduler.address).out.splitlines()
    assert table[0].split() == ["TIME", "TASK", "LINE", "CALL", "TARGET", "ATTEMPT", "STATE", "JOB"]
    assert [line.split()[3] for line in table[2:]] == ["app.py:3", "own.py:7", "app.py:9"]
    assert [line.split()[5:] for line in table[2:]] == [["1", "done"], ["1", "E:", "no", "j"], ["t", "2", "begun"]]
    listed = json.loads(onager("calls", "p", "-o", "json", "--scheduler", scheduler.address).out)
    assert [(call["line"], call["error"]) for call in listed] == [
        ("app.py:3", ""),
        ("own.py:7", "E: no"),
        ("app.py:9", ""),
    ]


def test_executors_show_programs_and_a_drain_tells_of_those_that_go_on(onager, scheduler):
    scheduler.programs = 2
    table = onager("executors", "--scheduler", scheduler.address).out.splitlines()
    assert table[2][table[0].index("PROGRAMS") :].split()[0] == "2/8"
    done = onager("executors", "drain", "e1", "--scheduler", scheduler.address)
    assert done.out.splitlines()[1] == "2 programs beside its tasks go on elsewhere"
