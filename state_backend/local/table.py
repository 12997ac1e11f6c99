"""An ordered table of raw bytes, all that the engine needs of a store, and the layout of its keys.

| raw key | record |
|---|---|
| ``d`` keyspace ``/`` key | revision, lease (8 bytes each, big-endian; 0 = none), value |
| ``b`` lease, raw key | empty: the raw key is bound to the lease |
| ``e`` lease | time to live in ms |
| ``m`` name | numbers in text: ``schema_version``, ``revision``, ``lease`` (the last granted), ``group`` |
"""

import bisect
import struct
from collections.abc import Iterator, Mapping
from typing import Protocol

from onager.state_backend.model import Keyspace

_HEADER = struct.Struct(">QQ")
_LEASE = struct.Struct(">Q")


class Table(Protocol):
    """Ordered bytes; reads see what was applied."""

    def get(self, raw: bytes) -> bytes | None:
        """Return the record of *raw*, or `None`."""
        ...

    def rows(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and records of ``start <= key < stop``, in order."""
        ...

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """Yield keys of ``start <= key < stop``, in order."""
        ...


class DictTable:
    """A table in memory: a dictionary, and its keys in a sorted list."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self._sorted: list[bytes] = []

    def get(self, raw: bytes) -> bytes | None:
        """Return the record of *raw*, or `None`."""
        return self._records.get(raw)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """Yield keys of ``start <= key < stop``, in order, as of now."""
        lower = bisect.bisect_left(self._sorted, start)
        yield from self._sorted[lower : bisect.bisect_left(self._sorted, stop, lower)]

    def rows(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and records of ``start <= key < stop``, in order, as of now."""
        for raw in self.keys(start, stop):
            yield raw, self._records[raw]

    def apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        """Set the given records; `None` removes one."""
        for raw, record in writes.items():
            if record is not None:
                if raw not in self._records:
                    bisect.insort(self._sorted, raw)
                self._records[raw] = record
            elif self._records.pop(raw, None) is not None:
                del self._sorted[bisect.bisect_left(self._sorted, raw)]


def data_key(keyspace: Keyspace, key: str) -> bytes:
    """Return the raw key of a key."""
    return b"d" + keyspace.encode() + b"/" + key.encode()


def data_range(keyspace: Keyspace, prefix: str, start_after: str | None = None) -> tuple[bytes, bytes]:
    """Return the first raw key, and the one behind the last, of keys below *prefix* after *start_after*."""
    start = data_key(keyspace, prefix)
    # It ends with a slash, and "0" is the next byte.
    stop = start[:-1] + b"0"
    if start_after is not None:
        start = max(start, data_key(keyspace, start_after) + b"\0")
    return start, stop


def parse_data_key(raw: bytes) -> tuple[Keyspace, str]:
    """Return what `data_key` was given."""
    keyspace, _, key = raw[1:].partition(b"/")
    return Keyspace(keyspace.decode()), key.decode()


def lease_key(lease: int) -> bytes:
    """Return the raw key of a lease."""
    return b"e" + _LEASE.pack(lease)


def binding_key(lease: int, raw: bytes) -> bytes:
    """Return the raw key that binds *raw* to *lease*."""
    return b"b" + _LEASE.pack(lease) + raw


def bindings_range(lease: int) -> tuple[bytes, bytes]:
    """Return the first raw key, and the one behind the last, of the bindings of *lease*."""
    return b"b" + _LEASE.pack(lease), b"b" + _LEASE.pack(lease + 1)


BINDING_HEAD = 1 + _LEASE.size
"""Bytes of a binding's key before the bound raw key."""
LEASES = (b"e", b"f")


def pack(revision: int, lease: int, value: bytes = b"") -> bytes:
    """Return a record."""
    return _HEADER.pack(revision, lease) + value


def unpack(record: bytes) -> tuple[int, int]:
    """Return revision and lease of a record."""
    return _HEADER.unpack_from(record)


def value_of(record: bytes) -> bytes:
    """Return the value of a record."""
    return record[_HEADER.size :]


def unpack_lease_id(raw: bytes) -> int:
    """Return the lease that a lease's or binding's raw key names."""
    lease: int = _LEASE.unpack_from(raw, 1)[0]
    return lease
