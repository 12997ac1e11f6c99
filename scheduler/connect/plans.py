"""Plans as clients send them: recognised, unpacked, and refused by name where Onager does not do what they ask."""

import hashlib
from typing import Any, Final

import grpc
import zstandard
from google.protobuf.message import DecodeError

from onager.protocol.limits import MIB
from onager.protocol.spark_connect import ExecutePlanRequest, Relation
from onager.scheduler.connect.failures import ConnectError, failed, too_large, unsupported

MAX_PLAN_BYTES: Final = 16 * MIB
"""A request with a plan, unpacked."""
_CATALOG_BYTES: Final = 64 * 1024
"""Calls of spark.catalog are smaller."""
_ZSTD: Final = 1
_RELATION, _COMMAND = 1, 2
_REFUSED: Final = {
    "write_stream_operation_start": "streaming queries",
    "streaming_query_command": "streaming queries",
    "streaming_query_manager_command": "streaming queries",
    "streaming_query_listener_bus_command": "listeners of streaming queries",
    "create_resource_profile_command": "resource profiles",
    "pipeline_command": "declarative pipelines",
    "execute_external_command": "commands of external data sources (execute_external)",
    "extension": "commands of plugins",
    "ml_command": "machine learning",
    "merge_into_table_command": "MERGE INTO",
}
_HARMLESS_ML: Final = ("delete", "clean_cache")
"""What clients call in passing."""


def unpacked(request: Any) -> None:
    """Replace a compressed plan in *request* by itself; `ConnectError` for one that cannot be read, or is too large."""
    packed = request.plan.compressed_operation
    if packed.compression_codec != _ZSTD or packed.op_type not in (_RELATION, _COMMAND):
        raise _unreadable("it is compressed in a way that this server does not know")
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed.data) as reader:
            content = reader.read(MAX_PLAN_BYTES + 1)
    except zstandard.ZstdError as error:
        raise _unreadable(str(error)) from error
    if len(content) > MAX_PLAN_BYTES:
        raise too_large("the plan", len(content), MAX_PLAN_BYTES)
    if packed.op_type == _RELATION:
        request.plan.root = content
        return
    try:
        request.plan.command.ParseFromString(content)
    except DecodeError as error:
        raise _unreadable("it is no command") from error


def checked(request: ExecutePlanRequest) -> str:
    """Return what is to be done: ``relation``, ``catalog``, or a command's kind; `ConnectError` for what never is."""
    if request.plan.HasField("compressed_operation"):
        unpacked(request)
    match request.plan.WhichOneof("op_type"):
        case "root":
            return "catalog" if _is_of_catalog(request.plan.root) else "relation"
        case "command":
            kind = request.plan.command.WhichOneof("command_type")
            if kind is None:
                raise _unreadable("it is a command that this server does not know")
            is_harmless = kind == "ml_command" and request.plan.command.ml_command.WhichOneof("command") in _HARMLESS_ML
            if kind in _REFUSED and not is_harmless:
                raise unsupported(_REFUSED[kind])
            return str(kind)
        case _:
            raise _unreadable("there is none")


def _is_of_catalog(relation: bytes) -> bool:
    """Return whether a relation is a call of spark.catalog, which may change its session."""
    try:
        return len(relation) < _CATALOG_BYTES and Relation.FromString(relation).WhichOneof("rel_type") == "catalog"
    except DecodeError:
        return False  # Spark will say why


def digest_of_plan(request: ExecutePlanRequest) -> str:
    """Return what tells a plan from another one."""
    return hashlib.sha256(request.plan.SerializeToString(deterministic=True)).hexdigest()


def _unreadable(why: str) -> ConnectError:
    why = f"The plan cannot be read: {why}."
    return failed("CONNECT_INVALID_PLAN.CANNOT_PARSE", "56K00", why, code=grpc.StatusCode.INVALID_ARGUMENT)
