"""How records are stored: JSON with a schema version, readable for an admin, compressed when large.

A plain value starts with ``{``. A compressed one starts with the byte 1, followed by a zstd frame; blobs that are not
worth compressing start with the byte 0.
"""

import threading
from collections.abc import Generator, Mapping, Sequence
from typing import ClassVar, Final, Self

import zstandard
from pydantic import BaseModel, ConfigDict, ValidationError

from onager.errors import SchemaVersionError, StateCorruptError
from onager.state_backend import Keyspace, Op

Expected = Mapping[tuple[Keyspace, str], int]
Extra = tuple[Sequence[Op], Expected]
"""What is written in one transaction with something else, and what that expects."""
NOTHING_MORE: Final[Extra] = ((), {})

COMPRESS_ABOVE_BYTES: Final = 64 * 1024
"""Records up to this size stay as plain JSON."""

_RAW: Final = b"\x00"
_ZSTD: Final = b"\x01"
_LEVEL: Final = 3
_FRAME_HEADER: Final = 32
_PORTION_BYTES: Final = 256 * 1024
"""What is compressed in a few milliseconds."""


class _Zstd(threading.local):
    """The compressor of a thread: making one takes longer than compressing a small record."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd: Final = _Zstd()


def pack(data: bytes, *, above_bytes: int = COMPRESS_ABOVE_BYTES) -> bytes:
    """Return a record's bytes as stored: compressed when there are more than *above_bytes*."""
    if len(data) <= above_bytes:
        return data
    return _ZSTD + _zstd.compressor.compress(data)


def packing(data: bytes) -> Generator[None, None, bytes]:
    """Return what `pack` does; yield between portions to let other tasks run."""
    if len(data) <= COMPRESS_ABOVE_BYTES:
        return data
    compress = zstandard.ZstdCompressor(_LEVEL).compressobj(len(data))
    packed = [_ZSTD]
    for start in range(0, len(data), _PORTION_BYTES):
        packed.append(compress.compress(data[start : start + _PORTION_BYTES]))
        yield
    packed.append(compress.flush())
    return b"".join(packed)


def pack_blob(data: bytes) -> bytes:
    """Return any bytes as stored: compressed if that saves space, always with a first byte that tells."""
    packed = _zstd.compressor.compress(data)
    return _ZSTD + packed if len(packed) < len(data) else _RAW + data


def plain_size(stored: bytes) -> int:
    """Return how many bytes `unpack` would return; of damaged data, any number."""
    if stored[:1] != _ZSTD:
        return len(stored)
    try:
        return max(0, zstandard.frame_content_size(stored[1:_FRAME_HEADER]))
    except zstandard.ZstdError:
        return 0


def beginning(stored: bytes, size_bytes: int, what: str) -> bytes:
    """Return the first *size_bytes* of what `unpack` would return."""
    if stored[:1] != _ZSTD:
        return stored[:size_bytes].removeprefix(_RAW)
    try:
        with zstandard.ZstdDecompressor().stream_reader(stored[1:]) as reader:
            return reader.read(size_bytes)
    except zstandard.ZstdError as error:
        raise StateCorruptError(f"{what} is damaged: {error}") from error


def unpack(stored: bytes, what: str) -> bytes:
    """Return what `pack` or `pack_blob` was given; `StateCorruptError`, naming *what*, when the bytes are damaged."""
    match stored[:1]:
        case b"\x00":
            return stored[1:]
        case b"\x01":
            try:
                return _zstd.decompressor.decompress(stored[1:])
            except zstandard.ZstdError as error:
                raise StateCorruptError(f"{what} is damaged: {error}") from error
        case _:
            return stored


class Record(BaseModel):
    """Base of what the scheduler stores.

    A newer minor version's unknown fields are ignored, a newer major one is refused. An added field has a default
    with which the record means what it meant before, so that either version reads what the other wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    SCHEMA_MAJOR: ClassVar[int] = 1

    schema_version: str = "1.0"

    def encoded(self) -> bytes:
        """Return the record as stored."""
        return pack(self.model_dump_json().encode())

    @classmethod
    def decoded(cls, stored: bytes, what: str) -> Self:
        """Return the record that `encoded` wrote.

        `SchemaVersionError` or `StateCorruptError`, naming *what*, otherwise.
        """
        data = unpack(stored, what)
        try:
            version = _Version.model_validate_json(data).schema_version
            major, _, minor = version.partition(".")
            if int(major) > cls.SCHEMA_MAJOR:
                raise SchemaVersionError(what, version, cls.SCHEMA_MAJOR)
            is_newer = int(minor or 0) > 0
        except ValueError as error:
            raise StateCorruptError(f"{what} cannot be read: {error}") from error
        try:
            found = cls.model_validate_json(data)
            # Fields that this version does not know are dropped, so the record is written again as one of this version.
            return found.model_copy(update={"schema_version": f"{major}.0"}) if is_newer else found
        except ValidationError as error:
            if is_newer:
                raise SchemaVersionError(what, version, cls.SCHEMA_MAJOR) from error
            why = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)[:3]]
            raise StateCorruptError(f"{what} cannot be read: {'; '.join(why)}") from error


class _Version(BaseModel):
    model_config = ConfigDict(extra="ignore")

    schema_version: str
