"""The process of one function: reads the request, calls the function, answers, and ends."""

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
from onager.executor.spark.functions.user_code import call_function, make_importable
from onager.executor.spark.jvm import jvm_error
from onager.protocol import onager_pb2 as pb

_LENGTH: Final = struct.Struct("!Q")
_MAX_TEXT: Final = 64 * 1024
"""The limit of a text in characters, of at most six bytes each: two such texts fit an answer."""
_MAX_NAME: Final = 1024


def framed(part: bytes) -> bytes:
    """Return *part* with its length before it, as the channel carries it."""
    return _LENGTH.pack(len(part)) + part


def unframed(received: bytes | bytearray) -> bytes | None:
    """Return the first part of *received*; None until it is complete."""
    end = _LENGTH.size + (_LENGTH.unpack_from(received)[0] if len(received) >= _LENGTH.size else 0)
    return bytes(received[_LENGTH.size : end]) if _LENGTH.size <= end <= len(received) else None


def answer_and_end(channel: socket.socket) -> None:
    """Serve the request on *channel*, and end the process with any threads that the function left running."""
    me = os.getpid()
    faulthandler.enable()
    answer = _answered(json.loads(_read(channel)), pb.JobSpec.FromString(_read(channel)))
    if os.getpid() != me:
        os._exit(0)  # the function forked, and this is the child
    for stream in (sys.stdout, sys.stderr):
        _flush(stream)
    channel.sendall(framed(json.dumps(answer, ensure_ascii=False).encode(errors="replace")))
    os._exit(0)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        return  # the function closed or replaced it


def _read(channel: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    return _exactly(channel, length)


def _exactly(channel: socket.socket, length: int) -> bytes:
    parts = bytearray(length)
    view = memoryview(parts)
    while view:
        count = channel.recv_into(view)
        if not count:
            os._exit(0)  # the agent closed its end
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
        return _error_data(connection, e)
    return {"kind": "returned"}


def _error_data(connection: job_spark.Connection | None, error: BaseException) -> dict[str, Any]:
    """Return *error* as data; an exception of the JVM is passed within the JVM."""
    match error:
        case UserCodeError():
            return {
                "kind": "user",
                "message": _shortened(error.message),
                "traceback": _shortened(error.traceback),
                "raised": error.raised[:_MAX_NAME],
            }
        case SideEffectError():
            return {
                "kind": "side_effect",
                "statement": _shortened(error.statement),
                "advice": error.advice,
                "why": error.why,
            }
        case OnagerError():
            return {"kind": "planning", "message": _shortened(str(error))}
    origin = jvm_error(error)
    if origin is not None and connection is not None:
        connection.entry_point.fail(origin)
        return {"kind": "spark", "note": _shortened("\n".join(getattr(error, "__notes__", ())))}
    return {"kind": "broken", "message": _shortened("".join(traceback.format_exception(error)))}


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT // 2]}\n…\n{text[-_MAX_TEXT // 2 :]}"
