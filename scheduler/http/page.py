"""Serves the page: its files are in the package, and nothing of it comes from elsewhere."""

import hashlib
import mimetypes
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

router: Final = APIRouter(include_in_schema=False)

INDEX: Final = "index.html"
_HASHED: Final = re.compile(r".+[.-][0-9A-Za-z_-]{8,}\.\w+")
"""A file whose name has the hash of its content: it never changes."""
_FOREVER: Final = "public, max-age=31536000, immutable"
_OWN: Final = ("api", "metrics", "readyz", "openapi.json")
"""The first parts of paths that are no pages."""


class File(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str
    cache: str


@router.get("/{path:path}")
@router.head("/{path:path}")
async def get_page(request: Request, path: str) -> Response:
    """Return a file of the page, or the page itself for a place in it, such as ``/jobs/ID``."""
    files = _files()
    found = files.get(path)
    if found is None and path.partition("/")[0] not in _OWN and not PurePosixPath(path).suffix:
        found = files.get(INDEX)
    if found is None:
        raise HTTPException(405 if _has_other_methods(request) else 404)
    headers = {"cache-control": found.cache, "etag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, 200, headers, found.media_type)


def _has_other_methods(request: Request) -> bool:
    """Return whether there is something at the path, for another method than the request's."""
    return any(route.matches(request.scope)[0] is Match.PARTIAL for route in request.app.routes)


@cache
def _files() -> dict[str, File]:
    """Return the files of the page, by path; they are read once."""
    static = Path(__file__).parent / "static"
    paths = [path for path in static.rglob("*") if path.is_file()]
    return {(name := path.relative_to(static).as_posix()): _file(name, path.read_bytes()) for path in paths}


def _file(name: str, content: bytes) -> File:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if kind.startswith("text/") or kind.endswith("javascript"):
        kind += "; charset=utf-8"
    digest = hashlib.sha256(content).hexdigest()[:32]
    return File(content, kind, f'"{digest}"', _FOREVER if _HASHED.fullmatch(name) else "no-cache")
