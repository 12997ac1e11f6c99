"""Plans: unpacked within limits, distinguished, and refused by name."""

import pytest
import zstandard

from onager.protocol.spark_connect import ExecutePlanRequest
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.plans import MAX_PLAN_BYTES, checked, digest_of_plan


def packed(content, op_type=1, codec=1):
    request = ExecutePlanRequest()
    request.plan.compressed_operation.data = content
    request.plan.compressed_operation.op_type = op_type
    request.plan.compressed_operation.compression_codec = codec
    return request


def test_a_compressed_relation_is_the_relation():
    plain = ExecutePlanRequest()
    plain.plan.root = b"relation"
    request = packed(zstandard.compress(b"relation"))
    assert checked(request) == checked(plain) == "relation"
    assert digest_of_plan(request) == digest_of_plan(plain)


def test_a_compressed_command_is_the_command():
    plain = ExecutePlanRequest()
    plain.plan.command.sql_command.sql = "SELECT 1"
    request = packed(zstandard.compress(plain.plan.command.SerializeToString()), op_type=2)
    assert checked(request) == "sql_command"
    assert request.plan == plain.plan


def test_a_plan_that_unpacks_to_too_much_is_refused_before_it_is():
    with pytest.raises(ConnectError, match="CONNECT_LIMIT_EXCEEDED"):
        checked(packed(zstandard.compress(bytes(MAX_PLAN_BYTES + 1))))


@pytest.mark.parametrize(
    "request_",
    [
        packed(b"no frame"),
        packed(b"", codec=7),
        packed(zstandard.compress(b"\xff\xff"), op_type=2),
        ExecutePlanRequest(),
    ],
)
def test_what_is_no_plan_is_reported_as_such(request_):
    with pytest.raises(ConnectError, match=r"CONNECT_INVALID_PLAN\.CANNOT_PARSE"):
        checked(request_)


@pytest.mark.parametrize("kind", ["write_stream_operation_start", "pipeline_command", "merge_into_table_command"])
def test_what_is_not_done_is_refused_by_name(kind):
    request = ExecutePlanRequest()
    getattr(request.plan.command, kind).SetInParent()
    with pytest.raises(ConnectError, match="UNSUPPORTED_FEATURE"):
        checked(request)


def test_what_clients_call_in_passing_is_let_through():
    request = ExecutePlanRequest()
    request.plan.command.ml_command.clean_cache.SetInParent()
    assert checked(request) == "ml_command"
