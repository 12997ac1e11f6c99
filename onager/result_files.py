"""Reads results from the exchange directory, without Spark. Imports Arrow: a quarter of a second to load."""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from onager.errors import FetchFailedError
from onager.exchange_layout import join, local_path
from onager.sealed_results import DamagedResultError, sealed_batches


def read_result(exchange_dir: str, name: str, checksum: str, first: int = 0) -> Generator[bytes, None, None]:
    """Yield the encapsulated Arrow IPC messages of a result file below *exchange_dir*: its batches, from *first* on.

    One batch is held at a time. `FetchFailedError` for a file that is missing, lies outside of the directory, or does
    not match *checksum*. With an empty checksum, from an older executor, also for a file that Arrow finds invalid.
    """
    try:
        with _open(exchange_dir, name) as source:
            yield from _batches(source, checksum, first)
    except (OSError, pa.ArrowException, DamagedResultError) as e:
        raise FetchFailedError(f"result file {join(exchange_dir, name)} is missing or damaged: {e}") from e


def read_inline(content: bytes, what: str, checksum: str, first: int = 0) -> Generator[bytes, None, None]:
    """Yield what `read_result` would for a file with *content*, which errors call *what*."""
    try:
        yield from _batches(BytesIO(content) if checksum else pa.BufferReader(content), checksum, first)
    except (OSError, pa.ArrowException, DamagedResultError) as e:
        raise FetchFailedError(f"{what} is damaged: {e}") from e


def _batches(source: Any, checksum: str, first: int) -> Iterator[bytes]:
    return sealed_batches(source, checksum, first) if checksum else islice(split_messages(source), 1 + first, None)


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
def _open(exchange_dir: str, name: str) -> Iterator[Any]:
    root = Path(local_path(exchange_dir)).resolve()
    path = root / name
    if path.resolve() != path:
        raise OSError("it leads out of the exchange directory")
    # Anything but a plain file could make a thread wait for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 a descriptor
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is no plain file")
        yield file
