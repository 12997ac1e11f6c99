"""Answers as JSON."""

import json
from collections.abc import Iterable
from typing import Final

from google.protobuf.message import Message
from starlette.responses import Response

from onager.protocol import onager_pb2 as pb
from onager.protocol.plain import plain, plain_job

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
SSE: Final = "text/event-stream"
TEXT: Final = "text/plain"


def encoded(value: object) -> bytes:
    """Return plain values as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def answer(content: bytes, media_type: str = JSON, status: int = 200) -> Response:
    """Return the answer with that *content*; what it tells changes at any time."""
    return Response(content, status, {"cache-control": "no-store"}, media_type)


def page(items: Iterable[Message], after: object = None) -> bytes:
    """Return a page: *items*, and the cursor of the next page."""
    return encoded({"items": [plain(item) for item in items], "next": after})


def message(of: Message) -> bytes:
    """Return a message."""
    return encoded(plain(of))


def job(detail: pb.JobDetail) -> bytes:
    """Return a job without its tasks, which have pages of their own."""
    for stage in detail.progress.stages:
        del stage.tasks[:]
    detail.ClearField("next")
    return encoded(plain_job(detail))


def events(batch: pb.EventBatch) -> list[bytes]:
    """Return the events of a batch as JSON objects, as ``onager events -o json`` prints them."""
    begin = encoded({"position": batch.position, "scheduler_id": batch.scheduler_id})[:-1]
    if batch.not_kept:
        return [begin + b',"at_ms":0,"type":"not_kept"}']
    return [begin + b"," + event.json.encode(errors="replace")[1:] for event in batch.events]


def sse(data: bytes, *, kind: str, position: int | str | None = None) -> bytes:
    """Return a message of a stream of events; JSON has no line ends."""
    at = b"" if position is None else f"id: {position}\n".encode()
    return b"event: %b\n%bdata: %b\n\n" % (kind.encode(), at, data)
