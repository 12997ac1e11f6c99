"""Requests that could block or fill a scheduler, while another client calls it."""

import json

import pytest
from grpc import StatusCode

from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_JOB_SPEC_BYTES, MIB, PROTOCOL_VERSION
from tests.abuse.conftest import Abused

SUBMIT, GATEWAY, SCHEDULER = "OnagerScheduler/SubmitJob", "OnagerExecutorGateway", "OnagerSchedulerGateway"
SECRET = "do-not-show-me"
REFUSED = (StatusCode.INVALID_ARGUMENT, StatusCode.RESOURCE_EXHAUSTED)


def submission(job_id: str = "abuse", **fields: object) -> bytes:
    spec = {"sql": pb.SqlScript(text="SELECT 1"), **fields}
    if "python" in fields:
        del spec["sql"]
    return pb.SubmitJobRequest(job_id=job_id, spec=pb.JobSpec(**spec), client_id="c").SerializeToString()  # type: ignore[arg-type]


def function(arguments: str) -> pb.PythonFunction:
    return pb.PythonFunction(source=b"def f(): pass", function="f", arguments_json=arguments)


def registration(executor_id: str, **fields: object) -> bytes:
    request = {
        "executor_id": executor_id,
        "incarnation": "i1",
        "host": "h",
        "slots": 1,
        "protocol_version": PROTOCOL_VERSION,
        "spark_version": "4.1.0",
        "python_version": "3.11",
        **fields,
    }
    return pb.RegisterExecutorRequest(**request).SerializeToString()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def executor(abused: Abused) -> tuple[str, str]:
    (answer,) = abused.call(f"{GATEWAY}/RegisterExecutor", registration("abuser", slots=1024))
    assert answer.code is StatusCode.OK, answer
    return "abuser", "i1"


NESTED = "[" * 100_000
SUBMISSIONS = {
    "arguments nested deeply": submission(python=function('{"a":' + NESTED)),
    "arguments nested deeply, and closed": submission(python=function('{"a":' + "[" * 5000 + "]" * 5000 + "}")),
    "arguments nested deeply beside many settings": submission(
        python=function('{"a":' + NESTED), conf={f"spark.x.k{n}": SECRET for n in range(3000)}
    ),
    "a number of too many digits among the arguments": submission(python=function('{"a":' + "1" * 200_000 + "}")),
    "large arguments": submission(python=function(json.dumps({"a": [[]] * 5_000_000}))),
    "a setting of 5,000 digits": submission(conf={"onager.session.max-tasks": "9" * 5000}),
    "a setting of 60,000 digits": submission(conf={"onager.speculation.min-task-runtime-ms": "9" * 60_000}),
    "a weight of 60,000 digits": submission(conf={"onager.weight": "9" * 60_000}),
    "300,000 settings": submission(conf={f"spark.x.k{n}": "v" for n in range(300_000)}),
    "a setting's name of 20 MB": submission(conf={"spark." + "x" * 20_000_000: "v"}),
    "a setting's value of 20 MB": submission(conf={"spark.x": "v" * 20_000_000}),
    "a million views": submission(views=[pb.View(name="v", path="p")] * 1_000_000),
    "ten million empty views": submission()[:-1] + b"\x12\x85\xad\xe2\x04" + b"\x22\x00" * 5_000_000,
    "a view with a million options": submission(
        views=[pb.View(name="v", path="p", options={f"k{n}": "" for n in range(1_000_000)})]
    ),
    "a job's name of 20 MB": submission(name="n" * 20_000_000),
    "an output's path of 20 MB": submission(sink=pb.Sink(path="p" * 20_000_000, format="csv")),
    "an output's mode of 20 MB": submission(sink=pb.Sink(path="p", format="csv", mode="m" * 20_000_000)),
    "a client's id of 25 MB": pb.SubmitJobRequest(
        job_id="abuse", spec=pb.JobSpec(sql=pb.SqlScript(text="SELECT 1")), client_id="c" * 25_000_000
    ).SerializeToString(),
    "a job's id of 25 MB": pb.GetJobRequest(job_id="j" * 25_000_000).SerializeToString(),
    "a specification that is too large": submission(sql=pb.SqlScript(text="S" * (MAX_JOB_SPEC_BYTES + MIB))),
}


@pytest.mark.parametrize("what", SUBMISSIONS)
def test_a_submission_that_no_scheduler_takes(unnoticed: Abused, what: str) -> None:
    (answer,) = unnoticed.call(SUBMIT, SUBMISSIONS[what])
    assert answer.code in REFUSED, answer
    log = unnoticed.log.read_text()
    assert SECRET not in log
    assert max(map(len, log.splitlines()), default=0) < 20_000


def test_many_bad_submissions_at_once(unnoticed: Abused) -> None:
    answers = unnoticed.call(SUBMIT, *(SUBMISSIONS["arguments nested deeply beside many settings"],) * 50)
    assert {answer.code for answer in answers} == {StatusCode.INVALID_ARGUMENT}


@pytest.mark.parametrize("size", [1, 100, 200_000, 20_000_000])
@pytest.mark.parametrize(
    "method",
    [SUBMIT, "OnagerScheduler/GetJob", f"{GATEWAY}/ReportTasks", f"{SCHEDULER}/Forward", f"{GATEWAY}/PollWork"],
)
def test_what_cannot_be_decoded_is_the_callers_error(unnoticed: Abused, method: str, size: int) -> None:
    before = unnoticed.log.stat().st_size
    (answer,) = unnoticed.call(method, b"\xff" * size)
    assert answer.code in REFUSED, answer
    assert unnoticed.log.stat().st_size == before


@pytest.mark.parametrize("size", [100, 20_000_000])
@pytest.mark.parametrize("service", ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"])
def test_services_of_others_do_not_fall_over_what_cannot_be_decoded(unnoticed: Abused, service: str, size: int) -> None:
    before = unnoticed.log.stat().st_size
    (answer,) = unnoticed.call(service, b"\xff" * size)
    assert answer.code in REFUSED, answer
    assert unnoticed.log.stat().st_size == before


LOGS = [pb.AttemptLog(text=b"\xff" * (256 * 1024))]


def logs_answer(logs: list[pb.AttemptLog], number: int = 0) -> pb.RequestAnswer:
    return pb.RequestAnswer(number=number, logs=pb.LogsAnswer(logs=logs))


def tasks(count: int, job_id: str = "job") -> list[pb.TaskId]:
    return [pb.TaskId(job_id=f"{job_id}-{n}", stage_id=1, partition=n, task_attempt=1) for n in range(count)]


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("PollWork", {"running": tasks(400_000), "list_number": 1}),
        ("Heartbeat", {"running": tasks(400_000)}),
        ("Heartbeat", {"kept_jobs": ["job"] * 2_000_000}),
        ("Heartbeat", {"cleaned_up": [f"job-{n}" for n in range(1_000_000)]}),
        ("Heartbeat", {"exchange_files": [pb.ExchangeFiles(job_id="j")] * 1_000_000}),
        ("PollWork", {"cleaned_up": ["j" * 20_000_000]}),
        ("DeregisterExecutor", {"reason": "r" * 20_000_000}),
        ("AwaitRequests", {"answers": [logs_answer(LOGS * 8)] * 20, "wait_ms": 10}),
        ("AwaitRequests", {"answers": [logs_answer([pb.AttemptLog()] * 60)] * 2000, "wait_ms": 10}),
        ("AwaitRequests", {"answers": [logs_answer([pb.AttemptLog(text=b"x" * 300_000)])], "wait_ms": 10}),
    ],
)
def test_a_call_of_an_executor_that_is_too_large(
    unnoticed: Abused, executor: tuple[str, str], method: str, fields: dict[str, object]
) -> None:
    request = getattr(pb, f"{method}Request")(executor_id=executor[0], incarnation=executor[1], **fields)
    (answer,) = unnoticed.call(f"{GATEWAY}/{method}", request.SerializeToString())
    assert answer.code in REFUSED, answer


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("PollWork", {"running": tasks(8000), "list_number": 3, "wait_ms": 10}),
        ("Heartbeat", {"running": tasks(8000)}),
        ("Heartbeat", {"kept_jobs": [f"job-{n}" for n in range(20_000)]}),
        ("ReportTasks", {"reports": [pb.TaskReport(task=task) for task in tasks(40_000)]}),
        ("ReportTasks", {"freed_slots": 4_000_000_000}),
        ("PollWork", {"free_slots": 4_000_000_000, "wait_ms": 10}),
        ("AwaitRequests", {"answers": [logs_answer(LOGS * 4, number=n) for n in range(7)], "wait_ms": 10}),
        ("AwaitRequests", {"answers": [logs_answer([], number=2**64 - 1)] * 10_000, "wait_ms": 0}),
    ],
)
def test_a_call_of_an_executor_that_is_as_large_as_it_may_be(
    unnoticed: Abused, executor: tuple[str, str], method: str, fields: dict[str, object]
) -> None:
    request = getattr(pb, f"{method}Request")(executor_id=executor[0], incarnation=executor[1], **fields)
    (answer,) = unnoticed.call(f"{GATEWAY}/{method}", request.SerializeToString())
    assert answer.code is StatusCode.OK, answer


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "h" * 30_000_000},
        {"incarnation": "a/b\n" * 400_000},
        {"incarnation": "a\nb"},
        {"slots": 4_000_000_000},
        {"exchange_dir": "d" * 20_000_000},
        {"running": tasks(400_000)},
        {"spark_version": "4" * 20_000_000},
    ],
)
def test_an_executor_that_nobody_takes_in(unnoticed: Abused, fields: dict[str, object]) -> None:
    (answer,) = unnoticed.call(f"{GATEWAY}/RegisterExecutor", registration("another", **fields))
    assert answer.code in REFUSED, answer


@pytest.mark.parametrize(
    "request_",
    [
        pb.ForwardRequest(slots=[pb.ForwardedSlots(job_id="j", executor_id="e", slots=50_000_000)]),
        pb.ForwardRequest(slots=[pb.ForwardedSlots(job_id="j", executor_id="e", slots=2**32 - 1)] * 1000),
        pb.ForwardRequest(slots=[pb.ForwardedSlots(job_id=f"j{n}", slots=1000) for n in range(50_000)]),
        pb.ForwardRequest(reports=[pb.ForwardedReports(executor_id="e", freed_slots=2**32 - 1)] * 1000),
        pb.ForwardRequest(
            reports=[pb.ForwardedReports(reports=[pb.TaskReport(task=task) for task in tasks(1000)])] * 20
        ),
        pb.ForwardRequest(loads=[pb.JobLoad(job_id=f"j{n}", running=2**32 - 1) for n in range(90_000)]),
        pb.ForwardRequest(watched=[pb.WatchedJob(job_id=f"j{n}") for n in range(90_000)]),
        pb.ForwardRequest(lists=[pb.ForwardedList(held=tasks(1000), disproves=True)] * 50),
        pb.ForwardRequest(scheduler_id="s", known_change=2**64 - 1),
    ],
    ids=lambda request: f"{request.ByteSize()} bytes of {[field.name for field, _ in request.ListFields()]}",
)
def test_what_another_scheduler_may_hand_over(unnoticed: Abused, request_: pb.ForwardRequest) -> None:
    (answer,) = unnoticed.call(f"{SCHEDULER}/Forward", request_.SerializeToString())
    assert answer.code is StatusCode.OK, answer


def test_too_much_from_another_scheduler(unnoticed: Abused) -> None:
    held = [pb.ForwardedList(held=tasks(8000)) for _ in range(80)]
    (answer,) = unnoticed.call(f"{SCHEDULER}/Forward", pb.ForwardRequest(lists=held).SerializeToString())
    assert answer.code in REFUSED, answer


def test_large_jobs_that_are_in_order_are_taken(unnoticed: Abused) -> None:
    spec = pb.JobSpec(python=pb.PythonFunction(pickled=bytes(range(256)) * (80 * 1024), function="f"))
    request = pb.SubmitJobRequest(job_id="large", spec=spec, client_id="c")
    (answer,) = unnoticed.call(SUBMIT, request.SerializeToString())
    assert answer.code is StatusCode.OK, answer
    ask = pb.GetJobRequest(job_id="large").SerializeToString()
    answers = unnoticed.call("OnagerScheduler/GetJob", *[ask] * 12)
    assert {answer.code for answer in answers} == {StatusCode.OK}, answers
    assert unnoticed.ask_probe("end")["peak"] <= 256 * MIB, "few specifications are read at once"


def test_what_is_refused_is_not_kept(unnoticed: Abused) -> None:
    large = b"\xff" * 20_000_000
    methods = [SUBMIT, "OnagerScheduler/WatchJob", f"{GATEWAY}/DeregisterExecutor", "/grpc.health.v1.Health/Check"]
    for _ in range(4):
        for method in [*methods, "/grpc.health.v1.Health/Watch"]:
            (answer,) = unnoticed.call(method, large)
            assert answer.code in REFUSED, answer
