"""Limits of requests: every text, list and map has one, and requests beyond them are refused."""

import pytest
from google.protobuf.descriptor import Descriptor

from onager.errors import InvalidRequestError
from onager.protocol import onager_pb2 as pb
from onager.protocol.call_limits import MESSAGE_LIMITS
from onager.protocol.checking import check, check_parts, limit_of
from onager.protocol.field_limits import FIELD_LIMITS, MAX_LISTED_TASKS, Bytes, Many, Number, Pairs, Part, Text, Unused
from onager.protocol.limits_page import PAGE, page
from onager.protocol.serving import _method

METHODS = [m for service in pb.DESCRIPTOR.services_by_name.values() for m in service.methods]


def reachable() -> dict[str, Descriptor]:
    """Return the messages that are part of a request, by name."""
    found: dict[str, Descriptor] = {}
    waiting = [method.input_type for method in METHODS]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.name in found or descriptor.GetOptions().map_entry:
            continue
        found[descriptor.name] = descriptor
        waiting += [
            field.message_type
            for field in descriptor.fields
            if field.message_type is not None and not isinstance(limit_of(descriptor, field), Unused)
        ]
    return found


def test_the_table_names_only_fields_of_requests() -> None:
    known = {(name, field.name) for name, descriptor in reachable().items() for field in descriptor.fields}
    assert {(name, field) for name, limits in FIELD_LIMITS.items() for field in limits} <= known


def test_a_text_without_an_entry_in_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onager.protocol.checking.FIELD_LIMITS", {})
    with pytest.raises(KeyError):
        limit_of(pb.WatchJobRequest.DESCRIPTOR, pb.WatchJobRequest.DESCRIPTOR.fields_by_name["job_id"])


def test_every_limit_is_of_a_method() -> None:
    assert set(MESSAGE_LIMITS) <= {method.name for method in METHODS}


def test_limits_are_of_the_kind_that_their_fields_are() -> None:
    for name, descriptor in reachable().items():
        for field in descriptor.fields:
            limit = limit_of(descriptor, field)
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            kinds = {
                field.TYPE_STRING: Text,
                field.TYPE_BYTES: Bytes,
                field.TYPE_MESSAGE: Part | Unused,
            }
            if is_map:
                assert isinstance(limit, Pairs), (name, field.name)
            elif field.is_repeated:
                assert isinstance(limit, Many), (name, field.name)
                assert isinstance(limit.each, kinds.get(field.type, Number)), (name, field.name)
            elif field.type in kinds:
                assert isinstance(limit, kinds[field.type]), (name, field.name)
            else:
                assert not isinstance(limit, Text | Bytes | Many | Pairs | Part), (name, field.name)


def at_the_limit(limit: object) -> object:
    match limit:
        case Text(most=most):
            return "x" * most
        case Bytes(most=most):
            return b"x" * most
        case Number(most=most):
            return most
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("name", sorted(reachable()))
def test_a_field_may_be_as_large_as_its_limit_and_no_larger(name: str) -> None:
    message_class = getattr(pb, name)
    for field_name, limit in FIELD_LIMITS.get(name, {}).items():
        if not isinstance(limit, Text | Bytes | Number):
            continue
        most = at_the_limit(limit)
        check(message_class(**{field_name: most}), name)
        above = message_class(**{field_name: most + 1 if isinstance(most, int) else most + most[:1]})  # type: ignore[operator,index]
        if isinstance(limit, Text | Number) and limit.is_cut:
            check(above, name)
            assert getattr(above, field_name) == most
        elif name == "TaskReport":
            check(above, name)
            assert above.failure.message.startswith("what the task reported is refused: ")
        else:
            with pytest.raises(InvalidRequestError, match=f"{name}.{field_name}"):
                check(above, name)


def test_a_list_that_is_too_long_is_refused_by_its_name_size_and_limit() -> None:
    request = pb.PollWorkRequest(running=[pb.TaskId(job_id="j")] * (MAX_LISTED_TASKS + 1))
    with pytest.raises(InvalidRequestError, match=r"PollWorkRequest.running has 8,193 entries, more than .* 8,192"):
        check(request, "PollWorkRequest")


def test_of_reports_only_as_many_are_looked_at_as_fit() -> None:
    request = pb.ReportTasksRequest(reports=[pb.TaskReport(task=pb.TaskId(partition=n)) for n in range(2000)])
    check(request, "ReportTasksRequest")
    assert [report.task.partition for report in request.reports] == list(range(1024))


@pytest.mark.parametrize("wrong", ["a/b", "a\nb", "a\x00b", "\x1b[2J"])
def test_what_names_something_is_one_line_without_slashes(wrong: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"RegisterExecutorRequest\.incarnation"):
        check(pb.RegisterExecutorRequest(incarnation=wrong), "RegisterExecutorRequest")


def test_a_report_that_cannot_be_taken_is_one_that_the_task_failed() -> None:
    task = pb.TaskId(job_id="j", stage_id=1)
    sound = pb.TaskReport(task=task, success=pb.TaskSuccess(output=pb.TaskOutput(nonce="n")))
    broken = pb.TaskReport(task=task, success=pb.TaskSuccess(output=pb.TaskOutput(nonce="x/../../secret")))
    request = pb.ReportTasksRequest(reports=[broken, sound])
    check(request, "ReportTasksRequest")
    failure = request.reports[0].failure
    assert (failure.kind, failure.cause) == ("io_error", "internal_error")
    assert "output.nonce" in request.reports[0].failure.message
    assert not request.reports[0].HasField("success")
    assert request.reports[1] == sound


def test_an_answer_has_no_place_in_a_request() -> None:
    request = pb.ForwardRequest(watched=[pb.WatchedJob(progress=pb.JobProgress())])
    with pytest.raises(InvalidRequestError, match="belongs to answers"):
        check(request, "ForwardRequest")


@pytest.mark.parametrize(
    ("request_", "parts", "last"),
    [
        (pb.SubmitJobRequest(spec=pb.JobSpec(views=[pb.View()] * 5)), 6, "JobSpec.views"),
        (pb.SubmitJobRequest(spec=pb.JobSpec(conf={"a": "b", "c": "d"})), 3, "JobSpec.conf"),
        (pb.HeartbeatRequest(kept_jobs=["a", "", "c"]), 3, "HeartbeatRequest.kept_jobs"),
        (
            pb.PollWorkRequest(executor_id="e", running=[pb.TaskId(job_id="j", partition=3)] * 4),
            4,
            "PollWorkRequest.running",
        ),
        (pb.SubmitJobRequest(job_id="j" * 1000), 0, ""),
    ],
)
def test_parts_are_counted_before_anything_is_decoded(request_: pb.SubmitJobRequest, parts: int, last: str) -> None:
    data = request_.SerializeToString()
    check_parts(data, request_.DESCRIPTOR, max(parts, 1), "it")
    if parts:
        with pytest.raises(InvalidRequestError, match=rf"more than .* counted in {last}: it$"):
            check_parts(data, request_.DESCRIPTOR, parts - 1, "it")


def test_a_client_that_submits_too_many_parts_learns_what_to_do() -> None:
    request = pb.SubmitJobRequest(spec=pb.JobSpec(views=[pb.View(options={"a" * 9: "b"}) for _ in range(10_001)]))
    with pytest.raises(InvalidRequestError, match=r"counted in View\.options: give fewer views, options, settings"):
        _method("SubmitJob").read(request.SerializeToString())


def test_parts_after_unknown_fields_are_counted() -> None:
    views = pb.SubmitJobRequest(spec=pb.JobSpec(views=[pb.View()] * 100)).SerializeToString()
    group = b"\xfb\x07" + b"\x12\x03\xff\xff\xff" + b"\xfc\x07"  # an unknown group with a text in it
    cut_off = b"\x12\xff\xff\x7f"
    for data in (group + views, views + cut_off, b"\x12\x02\x12\x7f" + views):
        with pytest.raises(InvalidRequestError, match="more than"):
            check_parts(data, pb.SubmitJobRequest.DESCRIPTOR, 50, "it")


def test_repeating_a_plain_field_counts_too() -> None:
    with pytest.raises(InvalidRequestError, match="more than"):
        check_parts(b"\x20\x01" * 100_000, pb.SubmitJobRequest.DESCRIPTOR, 1000, "it")


def test_the_page_about_limits_is_current() -> None:
    text = PAGE.read_text()
    assert all(f"<!-- limits: {name} -->" in text for name in ("jobs", "calls", "stalled", "streams", "http", "fields"))
    assert text == page(text), "run python -m onager.protocol.limits_page"
