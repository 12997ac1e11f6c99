"""The routes by which the page logs in and out, and by which a caller learns what it may do."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from onager.protocol.security import Caller as ByWhom
from onager.protocol.security.roles import full_name, may_call
from onager.scheduler.http import encoding, models
from onager.scheduler.http.access import Caller
from onager.scheduler.http.bodies import read_json
from onager.scheduler.http.cookies import LIFE_S
from onager.scheduler.http.problems import RESPONSES
from onager.scheduler.http.routing import By, Here, Server
from onager.scheduler.jobs.audit_notes import LOGIN
from onager.version import __version__

router: Final = APIRouter(tags=["session"], responses=RESPONSES)

_LOGIN_BYTES: Final = 16 * 1024
_ACTS: Final = {
    "look": "GetJob",
    "submit": "SubmitJob",
    "cancel": "CancelJob",
    "retry": "RetryJob",
    "fetch": "FetchResult",
    "drain": "DrainExecutor",
    "audit": "ListAudit",
}


@router.get("/whoami", response_model=models.WhoAmI)
async def who_am_i(here: Here, by: By) -> Response:
    """Who calls, and what it may do."""
    return encoding.answer(_content(here, by))


@router.post("/login", response_model=models.WhoAmI, openapi_extra=models.body(models.Login))
async def log_in(here: Here, request: Request) -> Response:
    """Exchange a token for a cookie, which every scheduler with the same token takes."""
    here.access.check_attempts(request)
    given = models.parsed(models.Login, await read_json(request, _LOGIN_BYTES))
    caller, cookie = here.access.log_in(request, given.token)
    by = ByWhom(caller.principal, caller.address)
    here.scheduler.notes.note(by, LOGIN, caller.role or "")
    response = encoding.answer(_content(here, caller))
    if cookie:
        _set_cookie(here, response, cookie, LIFE_S)
    return response


@router.delete("/login", status_code=204)
async def log_out(here: Here, request: Request) -> Response:
    """Remove the cookie. It needs none that is valid."""
    here.access.check_origin(request)
    response = Response(status_code=204)
    _set_cookie(here, response, "", 0)
    return response


def _set_cookie(here: Server, response: Response, value: str, life_s: int) -> None:
    response.set_cookie(
        here.access.cookie,
        value,
        max_age=life_s,
        path="/",
        secure=here.access.has_tls,
        httponly=True,
        samesite="strict",
    )


def _content(here: Server, caller: Caller) -> bytes:
    return encoding.encoded(
        {
            "principal": caller.principal,
            "role": caller.role,
            "by": caller.by,
            "expires_ms": caller.expires_ms,
            "may": [act for act, method in _ACTS.items() if may_call(caller.role, full_name(method))],
            "scheduler_id": here.scheduler.settings.scheduler_id,
            "version": __version__,
        }
    )
