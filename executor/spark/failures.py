"""What went wrong in the JVM or on the way there, as the protocol's `Failure`."""

import json
import traceback
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from execution_graph.failures import FailureKind
from onager.errors import OnagerError
from onager.protocol import onager_pb2 as pb

DETAILS_LIMIT = 16 * 1024


def from_kernel(described: Mapping[str, Any]) -> pb.Failure:
    """Return the failure that the kernel's ``Failures.describe`` wrote."""
    failure = pb.Failure(
        kind=described["kind"],
        message=described["message"].strip(),
        error_class=described.get("error_class", ""),
        sql_state=described.get("sql_state", ""),
        query_context=described.get("query_context", ""),
        details=described.get("details", ""),
    )
    if "fetch_stage" in described:
        failure.fetch.input_stage_id = described["fetch_stage"]
        failure.fetch.input_partition = described["fetch_partition"]
        failure.fetch.nonce = described["fetch_nonce"]
    return failure


def from_exception(kernel: Any, error: BaseException) -> pb.Failure:
    """Return *error*, raised while a stage was bound or started, as a failure.

    Exceptions of the JVM are classified there. One of ours follows its `retryable`; a gateway that does not answer is
    an I/O error, since the JVM is gone or going; anything else is told as it is.
    """
    origin = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if isinstance(error, Py4JJavaError | CapturedException) and origin is not None:
        return _with_notes(from_kernel(json.loads(kernel.describe(origin))), error)
    lost_jvm = isinstance(error, (Py4JError, ConnectionError))
    retryable = lost_jvm or (isinstance(error, OnagerError) and error.retryable) or isinstance(error, OSError)
    failure = pb.Failure(
        kind=FailureKind.IO_ERROR if retryable else FailureKind.USER_ERROR,
        message=f"the executor's JVM does not answer: {error}" if lost_jvm else str(error) or type(error).__name__,
        error_class=type(error).__name__,
        details="".join(traceback.format_exception(error))[-DETAILS_LIMIT:],
    )
    return _with_notes(failure, error)


def _with_notes(failure: pb.Failure, error: BaseException) -> pb.Failure:
    """Append what was noted on the way up, such as the statement of a script that an error belongs to."""
    notes = getattr(error, "__notes__", ())
    if notes:
        failure.message = "\n".join([failure.message, *notes])
    return failure


def killed(why: str) -> pb.Failure:
    """Return the failure of a task that was asked to stop."""
    return pb.Failure(kind=FailureKind.TASK_KILLED, message=why)
