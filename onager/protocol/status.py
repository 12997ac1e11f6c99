"""How the errors of `onager.errors` cross a connection: one table of codes, and the typed error beside them.

The code tells a stranger (a load balancer, a generic client) what kind of error it is. Our own client reads
the trailing metadata instead, and raises the same class with the same text and fields as the service did.
"""

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Never

import grpc
from grpc import StatusCode

from onager import access_errors, errors, program_errors
from onager.errors import OnagerError, SchedulerUnreachableError

ERROR_KEY: Final = "onager-error-bin"
"""The trailing metadata entry with the typed error: JSON with ``class``, ``message``, ``fields``."""

_MESSAGE_BYTES: Final = 8 * 1024
_FIELD_BYTES: Final = 4 * 1024
_STATUS_BYTES: Final = 1024


class Codes(NamedTuple):
    """The codes of one class of errors, for foreign clients."""

    grpc: StatusCode
    http: HTTPStatus


CODES: Final[dict[type[OnagerError], Codes]] = {
    errors.OnagerError: Codes(StatusCode.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.InvalidRequestError: Codes(StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST),
    errors.InvalidSettingError: Codes(StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST),
    errors.RequestTooLargeError: Codes(StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    errors.NotFoundError: Codes(StatusCode.NOT_FOUND, HTTPStatus.NOT_FOUND),
    errors.JobNotFoundError: Codes(StatusCode.NOT_FOUND, HTTPStatus.NOT_FOUND),
    errors.ResultExpiredError: Codes(StatusCode.NOT_FOUND, HTTPStatus.GONE),
    errors.JobConflictError: Codes(StatusCode.ALREADY_EXISTS, HTTPStatus.CONFLICT),
    errors.JobNotEndedError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    errors.ResultNotReadyError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    # Not CANCELLED: in gRPC that means that the caller gave the call up.
    errors.JobEndedError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    errors.JobFailedError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    errors.JobCancelledError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    # This code makes clients of any version try another scheduler, and come back later.
    errors.BusyError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.OneAtATimeError: Codes(StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.TOO_MANY_REQUESTS),
    errors.SchedulerUnreachableError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    # Never sent: it stands for a connection that was not made.
    errors.TlsError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.BAD_GATEWAY),
    errors.ExecutorUnreachableError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.ConnectUnservedError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.ConnectGivenUpError: Codes(StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.UNPROCESSABLE_ENTITY),
    access_errors.AuthenticationError: Codes(StatusCode.UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED),
    access_errors.HostRefusedError: Codes(StatusCode.PERMISSION_DENIED, HTTPStatus.MISDIRECTED_REQUEST),
    access_errors.LoginsLimitedError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS),
    access_errors.OriginRefusedError: Codes(StatusCode.PERMISSION_DENIED, HTTPStatus.FORBIDDEN),
    access_errors.SessionEndedError: Codes(StatusCode.UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED),
    access_errors.RoleRefusedError: Codes(StatusCode.PERMISSION_DENIED, HTTPStatus.FORBIDDEN),
    access_errors.TokenMissingError: Codes(StatusCode.UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED),
    access_errors.TokenRefusedError: Codes(StatusCode.UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED),
    errors.VersionMismatchError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    errors.UnknownExecutorError: Codes(StatusCode.NOT_FOUND, HTTPStatus.NOT_FOUND),
    errors.ExecutorReplacedError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    errors.StateBackendError: Codes(StatusCode.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.StateUnavailableError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.StateFullError: Codes(StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.INSUFFICIENT_STORAGE),
    errors.StateAccessError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.StateLockedError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    errors.StateNotWritableError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.StateCorruptError: Codes(StatusCode.DATA_LOSS, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.SchemaVersionError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.FeatureMissingError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.LimitExceededError: Codes(StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    errors.OutcomeUnknownError: Codes(StatusCode.ABORTED, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.WatchCompactedError: Codes(StatusCode.OUT_OF_RANGE, HTTPStatus.GONE),
    errors.LockTimeoutError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.LeaseExpiredError: Codes(StatusCode.ABORTED, HTTPStatus.CONFLICT),
    errors.PlanningError: Codes(StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST),
    errors.UnsupportedPlanError: Codes(StatusCode.UNIMPLEMENTED, HTTPStatus.NOT_IMPLEMENTED),
    errors.SideEffectError: Codes(StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST),
    errors.UserCodeError: Codes(StatusCode.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST),
    errors.PlanningTimeoutError: Codes(StatusCode.DEADLINE_EXCEEDED, HTTPStatus.UNPROCESSABLE_ENTITY),
    errors.CatalogConflictError: Codes(StatusCode.ABORTED, HTTPStatus.CONFLICT),
    errors.CatalogUnavailableError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.FunctionLostError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.DiskError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.ExchangeError: Codes(StatusCode.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.ExchangeNotWritableError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.ExchangeFullError: Codes(StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.INSUFFICIENT_STORAGE),
    errors.PlaceNotSeenError: Codes(StatusCode.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    errors.FetchFailedError: Codes(StatusCode.DATA_LOSS, HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.SinkError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    errors.TargetExistsError: Codes(StatusCode.ALREADY_EXISTS, HTTPStatus.CONFLICT),
    program_errors.AttemptSupersededError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    program_errors.NotDeterministicError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    program_errors.ProgramDiffersError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    program_errors.ProgramGoesOnError: Codes(StatusCode.FAILED_PRECONDITION, HTTPStatus.CONFLICT),
    program_errors.ProgramLimitError: Codes(StatusCode.RESOURCE_EXHAUSTED, HTTPStatus.INSUFFICIENT_STORAGE),
}
"""Every class of the tree; a test fails on a missing one."""

_BY_NAME: Final = {cls.__name__: cls for cls in CODES}


def http_status(error: OnagerError) -> HTTPStatus:
    """Return the code of *error* over HTTP; a class that is not in the table has that of its nearest base."""
    return CODES[next(cls for cls in type(error).__mro__ if cls in CODES)].http


class Status(NamedTuple):
    """What a service gives gRPC when a call fails."""

    code: StatusCode
    message: str
    metadata: tuple[tuple[str, bytes], ...]


def to_status(error: OnagerError) -> Status:
    """Return *error* as a gRPC status whose trailing metadata holds the typed error.

    A class that is not in the table is sent as its nearest base. A text above 8 KiB and fields above 4 KiB are cut, so
    that everything fits into metadata.
    """
    known = next(cls for cls in type(error).__mro__ if cls in CODES)
    payload = {
        "class": known.__name__,
        "message": _cut(str(error), _MESSAGE_BYTES),
        "fields": {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")},
    }
    metadata = ((ERROR_KEY, json.dumps(payload, ensure_ascii=False).encode()),)
    return Status(CODES[known].grpc, _cut(str(error), _STATUS_BYTES), metadata)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: OnagerError) -> Never:
    """End the call that *context* serves with *error*; never returns."""
    status = to_status(error)
    await context.abort(status.code, status.message, status.metadata)
    raise AssertionError("abort returned")  # pragma: no cover - gRPC's abort always raises


def from_rpc_error(error: grpc.RpcError, address: str) -> OnagerError:
    """Return the error that the service at *address* raised, or one for the failed call itself.

    It works for calls of ``grpc`` and of ``grpc.aio``. Chain it: ``raise from_rpc_error(e, a) from e``.
    """
    metadata: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    typed = _typed_error(metadata or ())
    if typed is not None:
        return typed
    code = error.code() if hasattr(error, "code") else StatusCode.UNKNOWN
    details = str(error.details() if hasattr(error, "details") else error) or code.name
    match code:
        case StatusCode.UNAVAILABLE:
            return SchedulerUnreachableError(address, _cause_of(details))
        case StatusCode.DEADLINE_EXCEEDED:
            return SchedulerUnreachableError(address, "it did not answer in time")
        case StatusCode.UNIMPLEMENTED:
            return errors.VersionMismatchError(
                f"the service at {address} does not know this call ({details}); "
                "it is not an Onager scheduler, or one of another version"
            )
        case StatusCode.RESOURCE_EXHAUSTED | StatusCode.INVALID_ARGUMENT | StatusCode.OUT_OF_RANGE:
            return errors.InvalidRequestError(f"the service at {address} refused the call: {details}")
        case _:
            return OnagerError(f"the call to the service at {address} failed with {code.name}: {details}")


def _cause_of(details: str) -> str:
    """Return the operating system's words (``Connection refused``) out of gRPC's chain of causes."""
    return details.rpartition(": ")[2] if details.startswith("failed to connect") else details


def _typed_error(metadata: Iterable[tuple[str, str | bytes]]) -> OnagerError | None:
    raw = next((value for key, value in metadata if key == ERROR_KEY), None)
    if raw is None:
        return None
    payload = json.loads(raw)
    cls = _BY_NAME.get(payload["class"], OnagerError)
    # The text is already final: bypass the class's own __init__, which would compose it again.
    error = cls.__new__(cls)
    Exception.__init__(error, payload["message"])
    error.__dict__.update(payload["fields"])
    return error


def _plain(value: object) -> object:
    if isinstance(value, str):
        return _cut(value, _FIELD_BYTES)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _cut(text: str, limit_bytes: int) -> str:
    raw = text.encode(errors="replace")
    return text if len(raw) <= limit_bytes else raw[: limit_bytes - 3].decode(errors="ignore") + "…"
