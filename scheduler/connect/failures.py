"""Errors as Spark's server tells them: an error condition in the status, and more of it by the error's id."""

import base64
import json
import re
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from onager.errors import OnagerError
from onager.execution_graph import Failure
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import FetchErrorDetailsResponse
from onager.protocol.status import to_status

_STATUS_KEY: Final = "grpc-status-details-bin"
_MESSAGE_CHARS: Final = 2_048
_PARAMETERS_CHARS: Final = 1_024
_CLASSES: Final = 12
_SQL: Final = ("org.apache.spark.SparkException", "java.lang.Exception", "java.lang.Throwable")
_UNSUPPORTED: Final = (
    "org.apache.spark.SparkUnsupportedOperationException",
    "java.lang.UnsupportedOperationException",
    "java.lang.RuntimeException",
)
RUNTIME: Final = ("org.apache.spark.SparkRuntimeException", "java.lang.RuntimeException", "java.lang.Exception")
_ANALYSIS: Final = ("org.apache.spark.sql.AnalysisException", "java.lang.Exception", "java.lang.Throwable")
_NOT_DONE: Final = ("UNSUPPORTED_FEATURE", "0A000", _UNSUPPORTED)
_AS_SPARK: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "TargetExistsError": ("PATH_ALREADY_EXISTS", "42K04", _ANALYSIS),
    "UnsupportedPlanError": _NOT_DONE,
    "SideEffectError": _NOT_DONE,
    "PlanningError": _NOT_DONE,
    "onager.failure.RefusedException": _NOT_DONE,
}
"""Errors of executors that are not Spark's: the condition that Spark has for it, its state, and Spark's classes."""


_JAVA_CLASS: Final = re.compile(r"[a-z]\w*(\.[\w$]+)+")
_BASES: Final = {
    "SparkArithmeticException": "java.lang.ArithmeticException",
    "SparkArrayIndexOutOfBoundsException": "java.lang.ArrayIndexOutOfBoundsException",
    "SparkDateTimeException": "java.time.DateTimeException",
    "SparkIllegalArgumentException": "java.lang.IllegalArgumentException",
    "SparkNoSuchElementException": "java.util.NoSuchElementException",
    "SparkNumberFormatException": "java.lang.NumberFormatException",
    "SparkRuntimeException": "org.apache.spark.SparkRuntimeException",
    "SparkUnsupportedOperationException": "java.lang.UnsupportedOperationException",
    "SparkUpgradeException": "org.apache.spark.SparkUpgradeException",
    "PythonException": "org.apache.spark.api.python.PythonException",
}
"""By the exceptions with which tasks fail, the classes that clients know."""


class ConnectError(Exception):
    """What a client of Spark gets instead of an answer."""

    def __init__(
        self,
        error_class: str,
        message: str,
        sql_state: str = "",
        *,
        classes: tuple[str, ...] = _SQL,
        code: grpc.StatusCode = grpc.StatusCode.INTERNAL,
        details: bytes = b"",
        is_passing: bool = False,
    ) -> None:
        """*details*: all that Spark reported, a `FetchErrorDetailsResponse`. If it *is_passing*, a try later may do."""
        super().__init__(message)
        self.error_class, self.sql_state, self.classes, self.code = error_class, sql_state, classes, code
        self.is_passing = is_passing
        self.is_recorded = False
        """Whether it is the outcome of a program's call, as recorded."""
        self.details = _details(details, self)
        root = self.details.errors[self.details.root_error_idx].spark_throwable
        if root.error_class:  # what Spark's server would tell, also where the job's failure tells another one
            self.error_class, self.sql_state = root.error_class, root.sql_state or sql_state
        self.error_id = ""


def encoded(error: ConnectError) -> bytes:
    """Return *error* as it is stored."""
    return json.dumps(
        {
            "error_class": error.error_class,
            "message": str(error),
            "sql_state": error.sql_state,
            "classes": error.classes,
            "code": error.code.name,
            "details": base64.b64encode(error.details.SerializeToString()).decode(),
            "error_id": error.error_id,
        }
    ).encode()


def decoded(content: bytes) -> ConnectError:
    """Return the error that `encoded` has stored."""
    stored = json.loads(content)
    error = ConnectError(
        stored["error_class"],
        stored["message"],
        stored["sql_state"],
        classes=tuple(stored["classes"]),
        code=grpc.StatusCode[stored["code"]],
        details=base64.b64decode(stored["details"]),
    )
    error.error_id = stored["error_id"]
    return error


def failed(error_class: str, sql_state: str, why: str, **more: Any) -> ConnectError:
    """Return the error for a condition, with a message as Spark's; *more*: as in `ConnectError`."""
    return ConnectError(error_class, f"[{error_class}] {why} SQLSTATE: {sql_state}", sql_state, **more)


def invalid(condition: str, handle: str, why: str) -> ConnectError:
    """Return the error for a session or an operation that cannot be used: ``INVALID_HANDLE``."""
    code = grpc.StatusCode.INVALID_ARGUMENT if condition == "FORMAT" else grpc.StatusCode.INTERNAL
    return failed(f"INVALID_HANDLE.{condition}", "HY000", f"The handle {handle} is invalid. {why}", code=code)


def given_up(error: OnagerError) -> ConnectError:
    """Return the error of a program's call that was given up: asked again, it would end executors again."""
    return failed("CONNECT_REQUEST_GIVEN_UP", "57014", str(error), code=grpc.StatusCode.RESOURCE_EXHAUSTED)


def unsupported(feature: str) -> ConnectError:
    """Return the error for what Onager does not do over Spark Connect."""
    why = f"Onager does not do this over Spark Connect: {feature}."
    return failed("UNSUPPORTED_FEATURE", "0A000", why, classes=_UNSUPPORTED)


def too_large(what: str, size: int, most: int, unit: str = "bytes", *, is_passing: bool = False) -> ConnectError:
    """Return the error for something over a limit; *is_passing*: for now."""
    why = f"{what} has {size:,} {unit}, more than the limit of {most:,}."
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    return failed("CONNECT_LIMIT_EXCEEDED", "54000", why, code=code, is_passing=is_passing)


def from_reply(failure: pb.ConnectFailure) -> ConnectError:
    """Return the error that an executor's reply tells."""
    message = failure.message or "Spark failed"
    error = _error_of_spark(failure.error_class, message, failure.sql_state, failure.details)
    error.is_passing = failure.is_passing
    return error


def _error_of_spark(
    error_class: str, message: str, sql_state: str, details: bytes, classes: tuple[str, ...] = _SQL
) -> ConnectError:
    if error_class not in _AS_SPARK:
        error_class = "" if _JAVA_CLASS.fullmatch(error_class) else error_class  # it has no condition
        return ConnectError(error_class, message, sql_state, classes=classes, details=details)
    condition, state, classes = _AS_SPARK[error_class]
    return failed(condition, state, message, classes=classes)


OF_CALL: Final = "call/"
"""The id of an error that is the outcome of a program's call: this, the task and the number."""
RECORDED_KEY: Final = "onager-recorded"
"""Trailing metadata of an error that is the outcome of a program's call: a program tries again after any other."""
OF_OPERATION: Final = "operation/"
"""The id of an error with which a job failed: this, and the operation's id. So any scheduler finds it."""


def from_job(failure: Failure, operation_id: str) -> ConnectError:
    """Return the error with which the job of an operation failed."""
    details = base64.b64decode(failure.connect_details or "")
    classes = _classes(failure.details or "")
    error = _error_of_spark(failure.error_class or "", failure.message, failure.sql_state or "", details, classes)
    error.error_id = f"{OF_OPERATION}{operation_id}"
    return error


def _classes(stack_trace: str) -> tuple[str, ...]:
    """Return the classes of the exception that a task's stack trace begins with: by these clients choose theirs."""
    name = stack_trace.lstrip().partition(":")[0].strip()
    base = _BASES.get(name.rpartition(".")[2])
    return _SQL if base is None else (name, base, *_SQL)


def _details(details: bytes, error: ConnectError) -> Any:
    answer = FetchErrorDetailsResponse()
    if details:
        answer.ParseFromString(details)
    if not answer.errors:
        only = answer.errors.add(message=str(error), error_type_hierarchy=error.classes)
        if error.error_class:
            only.spark_throwable.error_class = error.error_class
            only.spark_throwable.sql_state = error.sql_state
    if not answer.HasField("root_error_idx"):
        answer.root_error_idx = 0
    return answer


def status_of(error: ConnectError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Return code, message and trailing metadata of *error*."""
    root = error.details.errors[error.details.root_error_idx]
    classes = list(root.error_type_hierarchy)[:_CLASSES] or list(error.classes)
    metadata = {"classes": json.dumps(classes), "errorId": error.error_id}
    if error.error_class:
        metadata["errorClass"] = error.error_class
        metadata["sqlState"] = error.sql_state
    parameters = json.dumps(dict(root.spark_throwable.message_parameters))
    if len(parameters) <= _PARAMETERS_CHARS:
        metadata["messageParameters"] = parameters
    message = str(error)[:_MESSAGE_CHARS]
    status = status_pb2.Status(code=error.code.value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=classes[0], domain="org.apache.spark", metadata=metadata)
    status.details.add().Pack(info)
    recorded = ((RECORDED_KEY, "yes"),) if error.is_recorded else ()
    return error.code, message, ((_STATUS_KEY, status.SerializeToString()), *recorded)


def status_of_ours(error: OnagerError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Return code, message and trailing metadata of an error that Spark does not know; clients retry UNAVAILABLE."""
    answer = to_status(error)
    status = status_pb2.Status(code=answer.code.value[0], message=answer.message)
    return answer.code, answer.message, (*answer.metadata, (_STATUS_KEY, status.SerializeToString()))
