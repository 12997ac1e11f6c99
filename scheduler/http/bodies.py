"""Reads the bodies of requests: JSON of limited size, in limited time."""

import asyncio
import json
from typing import Any, Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from onager.errors import InvalidRequestError, RequestTooLargeError
from onager.protocol.apart import Room, apart
from onager.protocol.call_limits import HTTP_BODY_BYTES, HTTP_BODY_PARTS, HTTP_BODY_S
from onager.scheduler.http import encoding

_ADVICE = "give large code and files by the client or the command line, and large data by files"


_under_way: Final = Room()
"""Bodies that are being read: a stranger can hold them back for as long as they may take."""


async def read_json(request: Request, most: int = HTTP_BODY_BYTES) -> Any:
    """Return the body of *request*, decoded, of at most so many bytes; an empty one is an empty object.

    `InvalidRequestError` for what is no JSON, or has another type; `RequestTooLargeError`; `BusyError` while there are
    too many large ones.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    length = request.headers.get("content-length", "")
    expected = int(length) if length.isdecimal() else most  # the size of a body in chunks is not known
    if expected > most:
        raise RequestTooLargeError("the request's body", expected, most, _ADVICE)
    with _under_way.taken(expected):
        body = await _read(request, most)
    if not body:
        return {}
    if kind != encoding.JSON:
        raise InvalidRequestError(f"the body has the type {kind[:80]!r}: send JSON, with content-type: {encoding.JSON}")
    return await apart(len(body), _decoded, body)


async def _read(request: Request, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(HTTP_BODY_S):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > most:
                    raise RequestTooLargeError("the request's body", size, most, _ADVICE)
    except TimeoutError:
        raise InvalidRequestError(f"the request's body did not come within {HTTP_BODY_S:g} s") from None
    except ClientDisconnect:
        raise InvalidRequestError("the caller left before the request's body had come") from None
    return b"".join(parts)


def _decoded(body: bytes) -> Any:
    try:
        value = json.loads(body)
    except RecursionError:
        raise InvalidRequestError("the request's body is nested too deeply") from None
    except ValueError as error:
        # Raised also for what is not UTF-8, and for numbers with more digits than Python reads.
        raise InvalidRequestError(f"the request's body is not JSON: {error}") from None
    _check_parts(value)
    return value


def _check_parts(value: Any) -> None:
    count = 0
    rest = [value]
    while rest:
        some = rest.pop()
        inner = some.values() if isinstance(some, dict) else some if isinstance(some, list) else ()
        count += len(inner)
        if count > HTTP_BODY_PARTS:
            raise InvalidRequestError(
                f"the request's body has more than {HTTP_BODY_PARTS:,} values: send less, or make several jobs of it"
            )
        rest.extend(inner)
