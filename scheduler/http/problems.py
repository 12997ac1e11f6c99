"""Errors as answers: ``application/problem+json`` (RFC 9457), with the codes of `onager.protocol.status`."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from onager.access_errors import (
    AuthenticationError,
    HostRefusedError,
    LoginsLimitedError,
    OriginRefusedError,
    RoleRefusedError,
)
from onager.errors import BusyError, OnagerError
from onager.protocol.security import Caller
from onager.protocol.security.servers import REFUSALS, OnRefusal
from onager.protocol.serving import known_error
from onager.protocol.status import http_status

MEDIA_TYPE: Final = "application/problem+json"
_SHOWN_CHARS: Final = 200
_MAX_CHARS: Final = 8 * 1024
_MAX_MISTAKES: Final = 20
_AGAIN_S: Final = 1
LOGGED: Final = "onager.logged"
"""Set in the scope of a request whose error has been answered, and logged if it was a defect."""
_KNOWN: Final = (HostRefusedError, LoginsLimitedError, OriginRefusedError, RoleRefusedError)
"""Refusals for which a token would not help."""


def problem(request: Request, error: OnagerError) -> Response:
    """Return the answer that tells *error*."""
    name = type(error).__name__
    headers: dict[str, str] = {}
    if isinstance(error, LoginsLimitedError):
        headers["retry-after"] = str(error.again_s)
    elif isinstance(error, BusyError):
        headers["retry-after"] = str(_AGAIN_S)
    elif isinstance(error, AuthenticationError) and not isinstance(error, _KNOWN):
        headers["www-authenticate"] = 'Bearer realm="onager"'
    return _answer(
        request,
        http_status(error),
        f"urn:onager:error:{name}",
        _title(name),
        str(error),
        headers,
        retryable=error.retryable,
        fields={k: _plain(v) for k, v in vars(error).items() if not k.startswith("_")},
    )


def install(app: FastAPI, refusals: Counter[str], on_refusal: OnRefusal) -> None:
    """Make *app* answer with problems for all that is raised.

    Refused callers are counted in *refusals*, and *on_refusal* is called for each.
    """

    async def of_ours(request: Request, error: Exception) -> Response:
        if (reason := REFUSALS.get(type(error))) is not None:  # type: ignore[arg-type]
            refusals[reason] += 1
        if isinstance(error, AuthenticationError):
            address = request.client.host if request.client is not None else ""
            by = Caller(error.name if isinstance(error, RoleRefusedError) else "", address)
            on_refusal(by, request.url.path, error)
        request.scope[LOGGED] = True
        return problem(request, error if isinstance(error, OnagerError) else known_error(request.url.path, error))

    async def of_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        mistakes = [_mistake(each) for each in error.errors()[:_MAX_MISTAKES]]
        detail = "; ".join(f"{m['where']}: {m['what']}" for m in mistakes)
        return _answer(
            request,
            HTTPStatus.BAD_REQUEST,
            "urn:onager:error:InvalidRequestError",
            "Invalid request",
            detail,
            mistakes=mistakes,
        )

    async def of_routing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        detail = {
            HTTPStatus.NOT_FOUND: f"there is nothing at {request.url.path[:_SHOWN_CHARS]}: /openapi.json has all paths",
            HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method[:_SHOWN_CHARS]} is not a method of "
            f"{request.url.path[:_SHOWN_CHARS]}: use {(error.headers or {}).get('Allow', 'another one')}",
        }.get(status, str(error.detail))
        return _answer(request, status, "about:blank", status.phrase, detail, dict(error.headers or {}))

    app.add_exception_handler(OnagerError, of_ours)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_routing)
    app.add_exception_handler(Exception, of_ours)


def mistaken(where: str, what: str) -> RequestValidationError:
    """Return the error for a part of a request."""
    return RequestValidationError([{"loc": (where,), "msg": what, "type": "value_error", "input": None}])


RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "What went wrong.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
"""What every route may answer besides."""


def _answer(
    request: Request,
    status: HTTPStatus,
    kind: str,
    title: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> Response:
    """Return an answer that is a `models.Problem`; *more*: its fields that are not empty."""
    body = {
        "type": kind,
        "title": title,
        "status": status.value,
        "detail": detail[:_MAX_CHARS],
        "instance": f"{request.method} {request.url.path}"[:_SHOWN_CHARS],
        "retryable": False,
        "mistakes": [],
        "fields": {},
        **more,
    }
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    return Response(content, status, {"cache-control": "no-store", **(headers or {})}, MEDIA_TYPE)


def _title(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Error")).capitalize()


def _mistake(error: Mapping[str, Any]) -> dict[str, str]:
    where = ".".join(str(part) for part in error["loc"])
    what = str(error["msg"])
    if error["type"] == "extra_forbidden":
        what = "there is no such parameter or field"
    return {"where": where.replace(".", " ", 1)[:_SHOWN_CHARS], "what": what[:_SHOWN_CHARS]}


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value[:_MAX_CHARS]
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:_MAX_CHARS]
