"""What is derived from a job's history, as files."""

import json
import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from onager.client.connection import Connection
from onager.protocol import onager_pb2 as pb


def write_export(connection: Connection, job_id: str, kind: str, file: BinaryIO, after: int = 0) -> None:
    """Write an export of a job to an empty *file*; one that breaks off is written again from its beginning."""

    def open_stream(stub: Any, deadline_s: float) -> Iterator[pb.ExportChunk]:
        file.seek(0)
        file.truncate()
        request = pb.ExportJobRequest(job_id=job_id, format=kind, after=after)
        messages: Iterator[pb.ExportChunk] = stub.ExportJob(request, timeout=deadline_s)
        return messages

    file.writelines(chunk.content for chunk in connection.stream(open_stream))


def save_export(connection: Connection, job_id: str, kind: str, path: Path) -> int:
    """Write an export of a job to *path*, which appears when it is complete; return how many bytes it has."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            write_export(connection, job_id, kind, file)
            size = file.tell()
        os.replace(part, path)  # noqa: PTH105 - the path may be a directory, and then this says so
    finally:
        part.unlink(missing_ok=True)
    return size


def read_timeline(connection: Connection, job_id: str, after: int) -> dict[str, Any]:
    """Return a job's timeline."""
    file = BytesIO()
    write_export(connection, job_id, "timeline", file, after)
    timeline: dict[str, Any] = json.loads(file.getvalue())
    return timeline
