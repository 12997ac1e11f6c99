"""Errors keep their class, text and fields across a connection."""

import grpc
import pytest

from onager import access_errors, errors
from onager.errors import OnagerError
from onager.protocol import limits
from onager.protocol.status import CODES, ERROR_KEY, from_rpc_error, to_status


def _tree(cls: type[OnagerError]) -> list[type[OnagerError]]:
    ours = (errors.__name__, access_errors.__name__)
    return [cls, *(leaf for sub in cls.__subclasses__() for leaf in _tree(sub) if leaf.__module__ in ours)]


class FailedCall(grpc.RpcError):
    def __init__(
        self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, bytes], ...] | None = None
    ) -> None:
        super().__init__(details)
        self._parts = code, details, metadata

    def code(self) -> grpc.StatusCode:
        return self._parts[0]

    def details(self) -> str:
        return self._parts[1]

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...] | None:
        return self._parts[2]


@pytest.mark.parametrize("cls", _tree(OnagerError), ids=lambda cls: cls.__name__)
def test_every_error_class_is_in_the_table(cls):
    assert cls in CODES


def test_the_drawn_tree_names_every_class():
    for cls in _tree(OnagerError):
        assert cls.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    "error",
    [
        errors.JobFailedError("j1", "[DIVIDE_BY_ZERO] Division by zero", "DIVIDE_BY_ZERO"),
        errors.JobNotFoundError("j2"),
        errors.RequestTooLargeError("the SQL text", 5, 4, "cut it"),
        errors.SchemaVersionError("record", 9, 1),
        errors.FeatureMissingError("record", ["later"]),
        errors.InvalidSettingError("spark.x", 3, "no such key — ü"),
        errors.OnagerError("bare"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_an_error_comes_back_as_the_same_class_text_and_fields(error):
    status = to_status(error)
    back = from_rpc_error(FailedCall(status.code, status.message, status.metadata), "h:1")
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_a_class_of_a_newer_service_is_reported_as_its_base():
    class NewerError(errors.JobConflictError):
        pass

    back = from_rpc_error(FailedCall(*to_status(NewerError("j"))), "h:1")
    assert type(back) is errors.JobConflictError


def test_long_texts_are_cut_to_fit_metadata():
    status = to_status(errors.JobFailedError("j", "ü" * 100_000, "x" * 100_000))
    assert status.metadata[0][0] == ERROR_KEY
    assert len(status.metadata[0][1]) < limits.MAX_METADATA_BYTES
    assert len(status.message) <= 1024


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.SchedulerUnreachableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.SchedulerUnreachableError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.VersionMismatchError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.InvalidRequestError),
        (grpc.StatusCode.INTERNAL, errors.OnagerError),
    ],
)
def test_a_failed_call_without_a_typed_error_stands_for_itself(code, expected):
    error = from_rpc_error(FailedCall(code, "why"), "h:1")
    assert type(error) is expected
    assert "h:1" in str(error)


def test_pings_that_clients_send_are_allowed_by_servers():
    channel, server = dict(limits.CHANNEL_OPTIONS), dict(limits.SERVER_OPTIONS)
    assert channel["grpc.keepalive_time_ms"] >= server["grpc.http2.min_recv_ping_interval_without_data_ms"]
    # A request that meets with a hung scheduler loses 16 s at most, turning to another one included.
    assert channel["grpc.keepalive_time_ms"] + channel["grpc.keepalive_timeout_ms"] <= 14_000
    assert channel["grpc.max_receive_message_length"] == server["grpc.max_send_message_length"]
