"""Where the files of a job lie in the exchange directory, and how a result is read from there without Spark.

- ``{exchange}/{job_id}/{stage_id}/{partition}-{nonce}.rows``: rows for other stages, by bucket
- ``{exchange}/{job_id}/{stage_id}/{partition}-{nonce}.arrow``: a partition of the result, an Arrow IPC stream
- ``{parent of target}/.{name of target}.onager-{job_id}/``: staged files of a sink
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.ipc

from onager.errors import FetchFailedError


def stage_directory(job_id: str, stage_id: int) -> str:
    """Return where a stage's files lie, below the exchange directory."""
    return f"{job_id}/{stage_id}"


def result_file(job_id: str, stage_id: int, partition: int, nonce: str) -> str:
    """Return the name of a result partition's file, below the exchange directory."""
    return f"{stage_directory(job_id, stage_id)}/{partition}-{nonce}.arrow"


def staging_directory(target: str, job_id: str) -> str:
    """Return the directory beside *target* (a path or URI) in which a job's dataset is put together."""
    parent, _, name = target.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.onager-{job_id}"


def has_scheme(path: str) -> bool:
    """Return whether *path* is a URI of something other than the local file system."""
    scheme, separator, _ = path.partition(":/")
    return bool(separator) and "/" not in scheme and scheme != "file"


def local_path(path: str) -> str:
    """Return *path* without the scheme ``file:``."""
    if not path.startswith("file:"):
        return path
    return "/" + path.removeprefix("file:").lstrip("/")


def join(directory: str, name: str) -> str:
    """Return the path of *name* in *directory*, either being a local path or a URI."""
    return f"{directory.rstrip('/')}/{name}"


def read_result(path: str) -> Iterator[bytes]:
    """Yield the encapsulated Arrow IPC messages of the result file at *path*: the schema, then each record batch.

    One batch is held at a time. A missing, cut or damaged file raises `FetchFailedError`.
    """
    try:
        with _open(path) as source:
            yield from split_messages(source)
    except (OSError, pa.ArrowInvalid) as e:
        raise FetchFailedError(f"result file {path} is missing or damaged: {e}") from e


def split_messages(source: Any) -> Iterator[bytes]:
    """Yield the encapsulated messages of an Arrow IPC stream (bytes, or an open file), the schema first."""
    stream = pa.BufferReader(source) if isinstance(source, bytes) else source
    reader = pa.ipc.MessageReader.open_stream(stream)
    ended = False
    while not ended:
        try:
            message = reader.read_next_message()
        except StopIteration:
            ended = True
        else:
            yield message.serialize().to_pybytes()


@contextmanager
def _open(path: str) -> Iterator[Any]:
    if has_scheme(path):
        file_system, inner = pyarrow.fs.FileSystem.from_uri(path)
        with file_system.open_input_stream(inner) as stream:
            yield stream
    else:
        with pa.OSFile(local_path(path), "rb") as stream:
            yield stream
