"""Errors: what PySpark's client reads of a status."""

import json

from google.rpc import error_details_pb2, status_pb2

from onager.errors import BusyError
from onager.execution_graph import Failure, FailureKind
from onager.protocol.spark_connect import FetchErrorDetailsResponse
from onager.scheduler.connect.failures import ConnectError, from_job, invalid, status_of, status_of_ours


def info_of(metadata):
    status = status_pb2.Status.FromString(dict(metadata)["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return status, info


def test_an_error_of_spark_has_its_classes_its_condition_and_its_parameters():
    details = FetchErrorDetailsResponse(root_error_idx=0)
    error = details.errors.add(error_type_hierarchy=["org.apache.spark.sql.AnalysisException"], message="m")
    error.spark_throwable.error_class = "UNRESOLVED_COLUMN"
    error.spark_throwable.message_parameters["name"] = "`x`"
    made = ConnectError("UNRESOLVED_COLUMN", "m", "42703", details=details.SerializeToString())
    made.error_id = "e1"
    _, message, metadata = status_of(made)
    status, info = info_of(metadata)
    assert (message, status.message, info.reason) == ("m", "m", "org.apache.spark.sql.AnalysisException")
    assert dict(info.metadata) == {
        "classes": json.dumps(["org.apache.spark.sql.AnalysisException"]),
        "errorClass": "UNRESOLVED_COLUMN",
        "sqlState": "42703",
        "errorId": "e1",
        "messageParameters": json.dumps({"name": "`x`"}),
    }


def test_a_status_stays_small_whatever_the_error_is():
    details = FetchErrorDetailsResponse(root_error_idx=0)
    error = details.errors.add(error_type_hierarchy=["x" * 100] * 100, message="m" * 100_000)
    error.spark_throwable.message_parameters["name"] = "p" * 100_000
    made = ConnectError("C", "m" * 100_000, "42703", details=details.SerializeToString())
    _, message, metadata = status_of(made)
    assert len(message) + len(dict(metadata)["grpc-status-details-bin"]) < 10_000
    assert made.details.errors[0].message == "m" * 100_000, "all of it is sent to who asks"


def test_clients_find_the_condition_of_a_handle_in_the_message():
    _, message, _ = status_of(invalid("OPERATION_NOT_FOUND", "op", "Operation not found."))
    assert "INVALID_HANDLE.OPERATION_NOT_FOUND" in message


def test_what_may_be_tried_again_is_unavailable():
    code, _, _ = status_of_ours(BusyError("later"))
    assert code.name == "UNAVAILABLE"


def test_a_failed_task_is_reported_with_the_classes_of_its_exception():
    trace = "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero\n\tat x.Y.z(Y.java:1)"
    failure = Failure(kind=FailureKind.USER_ERROR, message="m", error_class="DIVIDE_BY_ZERO", details=trace)
    _, _, metadata = status_of(from_job(failure, "op"))
    _, info = info_of(metadata)
    assert json.loads(info.metadata["classes"])[:2] == [
        "org.apache.spark.SparkArithmeticException",
        "java.lang.ArithmeticException",
    ]
    assert info.metadata["errorId"] == "operation/op"


def test_an_exception_of_java_without_a_condition_has_none():
    for error_class, condition in (
        ("java.lang.IllegalArgumentException", ""),
        ("A.B", "A.B"),
        ("SinkError", "SinkError"),
    ):
        error = from_job(Failure(kind=FailureKind.USER_ERROR, message="m", error_class=error_class), "op")
        assert error.error_class == condition
