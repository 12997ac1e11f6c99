"""Files of a program that are too large for its job: they are sent to the exchange directory before it."""

import hashlib
import uuid
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from onager.client.connection import STREAM_DEADLINE_S, Connection
from onager.errors import InvalidRequestError
from onager.protocol.limits import MIB
from onager.protocol.spark_connect import request_of

IN_JOB_BYTES: Final = 1 * MIB
"""Up to this size a file travels in the job."""
_PIECE_BYTES: Final = 1 * MIB


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def send(connection: Connection, files: Mapping[str, Path], user: str) -> None:
    """Send *files*, by their digests, to the exchange directory, in a session of Spark Connect that ends with it.

    `InvalidRequestError` for a file that has changed meanwhile, or that a scheduler does not take.
    """
    session = {"session_id": str(uuid.uuid4()), "user_context": {"user_id": user}}
    for digest, path in files.items():
        answer = connection.call_connect(
            "AddArtifacts",
            partial(_pieces, session, digest, path),
            deadline_s=STREAM_DEADLINE_S,
        )
        if not all(each.is_crc_successful for each in answer.artifacts):
            raise InvalidRequestError(f"{path}: a scheduler has got other content: hand the program in again")
    connection.call_connect("ReleaseSession", lambda: request_of("ReleaseSession")(**session))


def _pieces(session: Mapping[str, Any], digest: str, path: Path) -> Iterator[Any]:
    request = request_of("AddArtifacts")
    size = path.stat().st_size
    pieces = -(-size // _PIECE_BYTES)
    with path.open("rb") as file:
        for number in range(pieces):
            content = file.read(_PIECE_BYTES)
            chunk = {"data": content, "crc": zlib.crc32(content)}
            if number:
                yield request(**session, chunk=chunk)
                continue
            begin = {"name": f"cache/{digest}", "total_bytes": size, "num_chunks": pieces, "initial_chunk": chunk}
            yield request(**session, begin_chunk=begin)
