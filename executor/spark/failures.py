"""Errors of the JVM, or of calls into it, as the protocol's `Failure`.

Only an error that is known to be the user's is a user error. Schedulers of the previous version do not know causes, so
each failure also has a kind that they understand.
"""

import errno
import re
import traceback
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from onager.errors import (
    ExchangeFullError,
    ExchangeNotWritableError,
    InvalidRequestError,
    OnagerError,
    PlaceNotSeenError,
    PlanningError,
    SinkError,
    VersionMismatchError,
)
from onager.execution_graph.failures import FailureCause, FailureKind
from onager.executor.spark import plan_codec
from onager.executor.spark.jvm import jvm_error
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.spark.stage_plan import MadeBy
from onager.place_files import EXCHANGE, NO_EXCHANGE, NO_PLACE, is_root
from onager.protocol import onager_pb2 as pb

DETAILS_LIMIT = 16 * 1024
_USERS = (PySparkException, PlanningError, InvalidRequestError, SinkError)
_IO = (OSError, ExchangeNotWritableError)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TEXTS = ("kind", "cause", "message", "error_class", "sql_state", "query_context", "details")
_ANSWERED = re.compile(r"An error occurred while calling \S+\. Trace:\n")
"""How py4j begins to tell what the JVM has answered, such as that there is no such method."""


def from_kernel(described: Mapping[str, Any], made_by: MadeBy | None = None) -> pb.Failure:
    """Return the failure that the kernel's ``Failures.describe`` wrote; *made_by* made the stage's plan."""
    texts = {name: described.get(name, "") for name in _TEXTS}
    texts["cause"], texts["message"] = _checked_version(texts["cause"], texts["message"].strip(), made_by)
    failure = _failure(**texts)
    if "fetch" in described:
        failure.fetch.CopyFrom(pb.FetchFailure(**described["fetch"]))
    return failure


def from_exception(kernel: Kernel, error: BaseException, made_by: MadeBy | None = None) -> pb.Failure:
    """Return *error*, raised while a job was planned or a stage was bound or started, as a failure. Never raises.

    The kernel classifies exceptions of the JVM. A gateway that does not answer is an I/O error, since the JVM is dead
    or dying. Any other error that is not the user's is an internal error, or a version mismatch if *made_by*, the
    versions that made the stage's plan, differs from the versions here.
    """
    try:
        return _classified(kernel, error, made_by)
    except Exception as e:  # noqa: BLE001 - for example, the JVM died during the call
        message = f"{_shown(error)} (and it could not be classified: {_shown(e)})"
        return _failure(kind=FailureKind.IO_ERROR, message=message)


def is_passing(kernel: Kernel, error: BaseException) -> bool:
    """Return whether *error*, of a request of a session, lies with files, this executor or a catalog: it may pass."""
    failure = from_exception(kernel, error)
    return failure.kind != FailureKind.USER_ERROR and failure.cause != FailureCause.INTERNAL_ERROR


def _classified(kernel: Kernel, error: BaseException, made_by: MadeBy | None) -> pb.Failure:
    origin = jvm_error(error)
    if origin is not None:
        return _with_notes(from_kernel(kernel.describe(origin), made_by), error)
    kind, cause = _kind_of(error)
    message = str(error) or type(error).__name__
    if is_unanswered(error):
        message = f"the executor's JVM does not answer: {error}"
    elif cause is FailureCause.INTERNAL_ERROR:
        message = f"{type(error).__name__}: {error}"
    reported_cause, message = _checked_version(cause or "", message, made_by)
    failure = _failure(
        kind=kind,
        cause=reported_cause,
        message=message,
        error_class=_class_of(error),
        details="".join(traceback.format_exception(error))[-DETAILS_LIMIT:],
    )
    return _with_notes(failure, error)


def _kind_of(error: BaseException) -> tuple[FailureKind, FailureCause | None]:
    # A sink error that the file system caused is not the user's error.
    io = error.__cause__ if isinstance(error, SinkError) and isinstance(error.__cause__, OSError) else error
    cause: FailureCause | None = FailureCause.INTERNAL_ERROR
    if isinstance(io, ExchangeFullError) or (isinstance(io, OSError) and io is not error and io.errno in _FULL):
        cause = FailureCause.NO_SPACE
    elif isinstance(io, VersionMismatchError):
        cause = FailureCause.OTHER_VERSION
    elif isinstance(io, PlaceNotSeenError):
        cause = FailureCause.NO_PLACE
    elif isinstance(io, _IO) or is_unanswered(io) or (isinstance(io, OnagerError) and io.retryable):
        cause = None
    elif isinstance(io, _USERS):
        return FailureKind.USER_ERROR, None
    return FailureKind.IO_ERROR, cause


def _class_of(error: BaseException) -> str:
    if isinstance(error, PlaceNotSeenError):
        if is_root(error.place):
            return f"{NO_PLACE}.{error.place}"
        return NO_EXCHANGE if error.place == EXCHANGE else NO_PLACE  # as schedulers of the version before know it
    return getattr(error, "raised", "") or type(error).__name__


def not_seen(error: PlaceNotSeenError) -> pb.Failure:
    """Return the failure of a task whose executor does not see a directory that it needs."""
    return _failure(
        kind=FailureKind.IO_ERROR, cause=FailureCause.NO_PLACE, message=str(error), error_class=_class_of(error)
    )


def is_unanswered(error: BaseException) -> bool:
    """Return whether the JVM did not answer a call.

    An exception is an answer, and so is that there is no such method, which has a trace.
    """
    if isinstance(error, Py4JJavaError):
        return False
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return True
    return isinstance(error, Py4JError) and _ANSWERED.match(str(error)) is None


def _checked_version(cause: str, message: str, made_by: MadeBy | None) -> tuple[str, str]:
    """Return cause and message; an internal error may come from a plan of other versions, *made_by*."""
    if cause != FailureCause.INTERNAL_ERROR:
        return cause, message
    if plan_codec.is_elsewhere(made_by):
        return FailureCause.OTHER_VERSION, plan_codec.version_text(made_by, message)
    return cause, f"an internal error of Onager or Spark, not of the query; the task is retried elsewhere: {message}"


def _with_notes(failure: pb.Failure, error: BaseException) -> pb.Failure:
    """Append the notes of *error*, which name the statement of the script or the lines of the function.

    The last output of the job's function goes into the details.
    """
    notes = getattr(error, "__notes__", ())
    if notes:
        failure.message = clean("\n".join([failure.message, *notes]))
    printed = getattr(error, "printed", "")
    if printed:
        failure.details = clean(f"{failure.details}\n\nThe job's function printed last:\n{printed}")
    failure.connect_details = getattr(error, "connect_details", b"")
    return failure


def _failure(**texts: str) -> pb.Failure:
    cleaned: dict[str, Any] = {name: clean(text) for name, text in texts.items()}
    return pb.Failure(**cleaned)


def clean(text: str) -> str:
    """Return *text* as valid UTF-8: strings of Python and Java may hold lone surrogates, for example in file names."""
    return text.encode("utf-8", "replace").decode()


def _shown(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()  # works even if str(error) raises


def killed(why: str) -> pb.Failure:
    """Return the failure of a task that was asked to stop."""
    return pb.Failure(kind=FailureKind.TASK_KILLED, message=why)
