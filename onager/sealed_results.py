"""Results with checksums, as the kernel's ResultFile writes them, in the store and in the exchange; read without Arrow.

A result ends with an index of its parts (the schema, each batch, the stream's end mark) and a trailer. The executor's
report carries the checksum of the index, and the index those of the parts. So a batch is accepted only if it matches
the report byte for byte, and reading can begin at any batch.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

_TRAILER: Final = struct.Struct(">iIQ")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qI")
_MAGIC: Final = 0x4F4E41474F525331
_CHECKSUM: Final = re.compile(r"crc32:[0-9a-f]{8}")
_MAX_INDEX_BYTES: Final = 16 * 1024 * 1024


class DamagedResultError(Exception):
    """The bytes are not those that were reported; the text says where, and readers add of what."""


class Source(Protocol):
    """An open file, or bytes as one."""

    def read(self, nbytes: int, /) -> bytes:
        """Return up to *nbytes* bytes."""

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go to a position, from the start (0) or the end (2), and return it."""


class _Piece(NamedTuple):
    offset: int
    length: int
    crc: int


def is_checksum(text: str) -> bool:
    """Return whether *text* can be the checksum of a result."""
    return _CHECKSUM.fullmatch(text) is not None


def sealed_batches(source: Source, checksum: str, first: int = 0) -> Iterator[bytes]:
    """Yield the encapsulated Arrow messages of the batches from number *first* on; one is held at a time.

    Raises `DamagedResultError` for whatever does not match *checksum*, the schema and the end included.
    """
    schema, *batches, end = _index(source, checksum)
    _read(source, schema, "its schema")
    for number in range(first, len(batches)):
        yield _read(source, batches[number], f"batch {number}")
    _read(source, end, "its end")


def check_sealed(source: Source, checksum: str) -> None:
    """Raise `DamagedResultError` if anything in *source* is not what was reported under *checksum*."""
    for _ in sealed_batches(source, checksum):
        pass


def _read(source: Source, piece: _Piece, what: str) -> bytes:
    source.seek(piece.offset)
    content = source.read(piece.length)
    if len(content) != piece.length or zlib.crc32(content) != piece.crc:
        raise DamagedResultError(f"{what} does not match its checksum")
    return content


def _index(source: Source, checksum: str) -> list[_Piece]:
    if not is_checksum(checksum):
        raise DamagedResultError(f"its checksum {checksum!r} is of a kind that this version does not know")
    size = source.seek(0, 2) - _TRAILER.size
    if size < 0:
        raise DamagedResultError("it is too short")
    source.seek(size)
    length, crc, magic = _TRAILER.unpack(source.read(_TRAILER.size))
    if magic != _MAGIC or not _COUNT.size < length <= min(size, _MAX_INDEX_BYTES):
        raise DamagedResultError("its end is not that of a result")
    source.seek(size - length)
    data = source.read(length)
    if len(data) != length or zlib.crc32(data) != crc or f"crc32:{crc:08x}" != checksum:
        raise DamagedResultError("its index is not the one that was reported")
    (count,) = _COUNT.unpack_from(data)
    pieces, offset = [], 0
    if count < 2 or length != _COUNT.size + count * _ENTRY.size:  # noqa: PLR2004 a schema and an end
        raise DamagedResultError("its index is none")
    for piece_length, piece_crc in _ENTRY.iter_unpack(data[_COUNT.size :]):
        if piece_length < 0:
            raise DamagedResultError("its index is none")
        pieces.append(_Piece(offset, piece_length, piece_crc))
        offset += piece_length
    if offset != size - length:
        raise DamagedResultError("it is not as long as its index says")
    return pieces
