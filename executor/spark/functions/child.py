"""What the process of one function does: take the request, call the function, answer, and end."""

import faulthandler
import json
import os
import socket
import struct
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onager.errors import OnagerError, SideEffectError, UserCodeError
from onager.executor.spark.functions import job_spark
from onager.executor.spark.functions.user_code import call_function, jvm_error, make_importable
from onager.protocol import onager_pb2 as pb

_LENGTH: Final = struct.Struct("!Q")
_MOST_TEXT: Final = 64 * 1024
"""Of characters, each of which takes six bytes at most: two such texts fit into an answer."""
_MOST_NAME: Final = 1024


def framed(part: bytes) -> bytes:
    """Return *part* as it goes through the channel, with its length before it."""
    return _LENGTH.pack(len(part)) + part


def unframed(received: bytes | bytearray) -> bytes | None:
    """Return the part that *received* holds whole; None when more has to come."""
    end = _LENGTH.size + (_LENGTH.unpack_from(received)[0] if len(received) >= _LENGTH.size else 0)
    return bytes(received[_LENGTH.size : end]) if _LENGTH.size <= end <= len(received) else None


def answer_and_end(channel: socket.socket) -> None:
    """Do what *channel* asks for, and end the process; what the function may have left running ends with it."""
    me = os.getpid()
    faulthandler.enable()
    answer = _answered(json.loads(_read(channel)), pb.JobSpec.FromString(_read(channel)))
    if os.getpid() != me:
        os._exit(0)  # the function forked, and this is its child
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    channel.sendall(framed(json.dumps(answer, ensure_ascii=False).encode(errors="replace")))
    os._exit(0)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        return  # the function closed it, or put something else there


def _read(channel: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    return _exactly(channel, length)


def _exactly(channel: socket.socket, length: int) -> bytes:
    parts = bytearray(length)
    view = memoryview(parts)
    while view:
        count = channel.recv_into(view)
        if not count:
            os._exit(0)  # who asked has gone
        view = view[count:]
    return bytes(parts)


def _answered(request: Mapping[str, Any], spec: pb.JobSpec) -> dict[str, Any]:
    connection: job_spark.Connection | None = None
    try:
        directory = Path(request["directory"])
        connection = job_spark.Connection(request["port"], request["token"], request["ids"])
        context = job_spark.JobContext(connection, request["context"], str(directory))
        session = job_spark.job_session(connection, context)
        modules = directory / "modules"
        modules.mkdir()
        make_importable(spec.py_files, modules)
        frame: Any = call_function(session, spec.python)
        connection.entry_point.give(frame._jdf)  # noqa: SLF001 - PySpark hides it
    except BaseException as e:  # noqa: BLE001 - it is the answer
        return _told(connection, e)
    return {"kind": "returned"}


def _told(connection: job_spark.Connection | None, error: BaseException) -> dict[str, Any]:
    """Return *error* as data; one of the JVM's is handed over there."""
    match error:
        case UserCodeError():
            return {
                "kind": "user",
                "message": _shortened(error.message),
                "traceback": _shortened(error.traceback),
                "raised": error.raised[:_MOST_NAME],
            }
        case SideEffectError():
            return {"kind": "side_effect", "statement": _shortened(error.statement), "advice": error.advice}
        case OnagerError():
            return {"kind": "planning", "message": _shortened(str(error))}
    origin = jvm_error(error)
    if origin is not None and connection is not None:
        connection.entry_point.fail(origin)
        return {"kind": "spark", "note": _shortened("\n".join(getattr(error, "__notes__", ())))}
    return {"kind": "broken", "message": _shortened("".join(traceback.format_exception(error)))}


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT // 2]}\n…\n{text[-_MOST_TEXT // 2 :]}"
