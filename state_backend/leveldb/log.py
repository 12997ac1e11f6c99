"""Tells a torn tail from a damaged one in LevelDB's log files.

LevelDB takes a record that runs past the end of its file for the last write of a process that died, and drops it with
all that follows in its block. A flipped bit in a record's length looks the same, and silently loses acknowledged
writes. The checksum tells the two apart: if the record is really there, under a wrong length, its checksum matches that
of some prefix of what follows.

Source: github.com/google/leveldb, doc/log_format.md and db/log_reader.cc (ReadPhysicalRecord); crc32c and its masking
in util/crc32c.h.
"""

import struct
from typing import Final

_BLOCK: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
_MASK_DELTA: Final = 0xA282EAD8


def find_damage(data: bytes) -> str | None:
    """Return the damage at the end of a log file that LevelDB would silently ignore, or `None`."""
    # LevelDB itself checks everything before the last block: there, a wrong length is an error to it.
    offset = max(0, len(data) - 1) // _BLOCK * _BLOCK
    while len(data) - offset >= _HEADER.size:
        checksum, length, kind = _HEADER.unpack_from(data, offset)
        if offset + _HEADER.size + length > len(data):
            if _is_whole(checksum, kind, data[offset + _HEADER.size :]):
                return f"the length of the record at byte {offset:,} is wrong"
            return None
        offset += _HEADER.size + length
    return None


def _is_whole(checksum: int, kind: int, rest: bytes) -> bool:
    """Return whether *checksum* is that of any prefix of *rest*."""
    rotated = (checksum - _MASK_DELTA) & 0xFFFFFFFF
    wanted = (rotated >> 17 | rotated << 15) & 0xFFFFFFFF ^ 0xFFFFFFFF
    crc = _TABLE[(0xFFFFFFFF ^ kind) & 0xFF] ^ 0x00FFFFFF
    for byte in rest:
        if crc == wanted:
            return True
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc == wanted


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE: Final = _crc_table()
