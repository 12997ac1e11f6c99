"""Reading results from the exchange directory, without Spark. Brings Arrow: a quarter of a second to load."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.ipc

from onager.errors import FetchFailedError
from onager.exchange_layout import has_scheme, local_path


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
