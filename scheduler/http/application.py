"""The FastAPI application: its routes, its document, and what holds for every answer."""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import structlog
from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onager.errors import StateUnavailableError
from onager.protocol.serving import known_error
from onager.scheduler.http import cluster, encoding, jobs, models, page, probes, problems, programs, session
from onager.scheduler.http.routing import Server
from onager.version import __version__

log = structlog.get_logger(__name__)

API: Final = "/api/v1"
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_STRICT_TRANSPORT: Final = "max-age=31536000"
_ABOUT: Final = (
    "Jobs, executors and schedulers of an Onager cluster. Every scheduler serves all of it, and answers alike. Times "
    "are milliseconds since 1970 in UTC, sizes are bytes. Errors are `application/problem+json`."
)


def application(server: Server) -> FastAPI:
    """Return the application that serves *server*."""
    app = FastAPI(
        title="Onager", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.server = server
    api = APIRouter(prefix=API)
    for part in (jobs, programs, cluster, session):
        api.include_router(part.router)
    app.include_router(api)
    app.include_router(probes.router)
    problems.install(app, server.refusals, server.scheduler.notes.refused)
    documented = list(app.routes)

    @cache
    def document() -> bytes:
        return encoding.encoded(_document(app, documented))

    @app.get("/openapi.json", include_in_schema=False)
    async def get_document() -> Response:
        # It is made for the first request: this takes longer than the rest of a scheduler's start.
        return encoding.answer(await asyncio.to_thread(document))

    app.include_router(page.router)
    app.add_middleware(Guard, server=server)
    return app


def _document(app: FastAPI, routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of *routes*, with what they read and write by themselves."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in models.BODIES:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of the schedulers' token file."},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "onager", "description": "Of `POST /api/v1/login`."},
    }
    document["security"] = [{"token": []}, {"cookie": []}, {}]
    return document


class Guard:
    """Counts answers, adds the headers of every one, and turns a defect into one."""

    def __init__(self, app: ASGIApp, *, server: Server) -> None:
        self._app = app
        self._answered = server.scheduler.http_requests
        self._stopping = server.scheduler.stopping
        self._headers = {**_HEADERS, "x-onager-scheduler": server.scheduler.settings.scheduler_id}
        if server.access.has_tls:
            self._headers["strict-transport-security"] = _STRICT_TRANSPORT

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                self._answered[f"{message['status'] // 100}xx"] += 1
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self._app
        if self._stopping.is_set() and str(scope.get("path", "")).startswith(API):
            refusal = StateUnavailableError("this scheduler is stopping: another one takes the call")
            app = problems.problem(Request(scope), refusal)
        try:
            await app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001 - the caller gets every error
            if has_begun:
                if not scope.get(problems.LOGGED):
                    known_error(scope.get("path", ""), error)  # logged; what was begun is cut off
                return
            response = problems.problem(Request(scope), known_error(scope.get("path", ""), error))
            await response(scope, receive, sending)
