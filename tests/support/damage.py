"""Bytes as a disk may give them back: a bit flipped, or cut off; and results sealed as an executor's kernel does."""

import io
import random  # noqa: TID251 places that a seed gives
import struct
import zlib
from collections.abc import Iterator

import pyarrow as pa

TIMES = 100


def damaged(content: bytes, seed: int, times: int = TIMES) -> Iterator[tuple[str, bytes]]:
    """Yield *content* with a bit flipped, *times* times, and cut short, as often; each with what was done."""
    rng = random.Random(seed)
    for _ in range(times):
        at = rng.randrange(len(content))
        bit = 1 << rng.randrange(8)
        yield f"bit {bit} of byte {at} flipped", content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
    for _ in range(times):
        at = rng.randrange(len(content))
        yield f"cut after {at} bytes", content[:at]


def sealed(stream: bytes) -> tuple[bytes, str]:
    """Return an Arrow IPC stream with the index that `ResultFile.java` ends it with, and the index' checksum."""
    reader = pa.ipc.MessageReader.open_stream(io.BytesIO(stream))
    pieces = [message.serialize().to_pybytes() for message in reader]
    pieces.append(stream[sum(map(len, pieces)) :])
    index = struct.pack(">i", len(pieces))
    for piece in pieces:
        index += struct.pack(">qI", len(piece), zlib.crc32(piece))
    crc = zlib.crc32(index)
    return stream + index + struct.pack(">iIQ", len(index), crc, 0x4F4E41474F525331), f"crc32:{crc:08x}"
