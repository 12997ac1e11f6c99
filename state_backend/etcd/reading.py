"""Reads of any size at one revision, in answers of bounded size."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aetcd import rpc

from onager.errors import StateUnavailableError
from onager.state_backend.etcd.calls import Calls, Metadata, unary
from onager.state_backend.etcd.endpoints import Endpoint
from onager.state_backend.etcd.failures import is_compacted
from onager.state_backend.etcd.keys import KeyLayout
from onager.state_backend.etcd.messages import get_op, key_value, key_values
from onager.state_backend.model import KeyRange, Keyspace, KeyValue, Page, Snapshot

_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""The intended size of an answer: etcd holds it in memory as a whole, and so does this process."""
_FIRST_KEYS: Final = 1_024
"""Most keys of the first answer: their values may be larger than those read lately from the keyspace."""
_MAX_KEYS: Final = 16_384
_UNKNOWN_BYTES: Final = 16 * 1024
"""The assumed size of a key and its value before any of the keyspace were read."""
_TRIES: Final = 3


@dataclass(slots=True)
class _Range:
    """A range that is being read: what was read so far, and how to go on."""

    wanted: KeyRange
    first: bytes
    end: bytes
    step: int
    """How many keys to ask for at once."""
    found: list[Any] = field(default_factory=list)
    """`KeyValue`s, or keys if only those are read."""
    has_more: bool = True

    @property
    def is_done(self) -> bool:
        """Whether everything wanted was read."""
        return not self.has_more or self._left() == 0

    def _left(self) -> int | None:
        return None if self.wanted.limit is None else self.wanted.limit - len(self.found)

    def request(self, revision: int = 0, *, keys_only: bool = False) -> Any:
        """Return the request for the next part as of *revision* (0: now)."""
        left = self._left()
        limit = self.step if left is None else min(self.step, left)
        return rpc.RangeRequest(key=self.first, range_end=self.end, limit=limit, revision=revision, keys_only=keys_only)

    def take(self, answer: Any, items: Collection[Any]) -> None:
        """Add the *items* that are in *answer*."""
        self.found.extend(items)
        self.has_more = answer.more
        if items:
            self.first = answer.kvs[-1].key + b"\x00"


class _CompactedError(Exception):
    """The revision of the first part was compacted away before the last part was read."""


class Reader:
    """Reads keys and ranges, linearizable."""

    def __init__(self, calls: Calls, layout: KeyLayout) -> None:
        self._calls = calls
        self._layout = layout
        self._item_bytes: dict[tuple[Keyspace, bool], int] = {}
        """The recent sizes of keys with values (or without: `True`)."""

    async def read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        """Return *keys* and *ranges* at one revision."""
        if len(keys) == 1 and not ranges:
            [(keyspace, key)] = keys
            answer = await self.range(rpc.RangeRequest(key=self._layout.key(keyspace, key)))
            found = key_value(self._layout, keyspace, answer.kvs[0]) if answer.kvs else None
            return Snapshot(answer.header.revision, {(keyspace, key): found}, ())
        for _ in range(_TRIES):
            try:
                return await self._read(keys, ranges)
            except _CompactedError:
                continue
        raise StateUnavailableError(
            f"etcd compacted its history {_TRIES} times while one read went on: let it keep more (compact_history)"
        )

    async def read_keys(self, key_range: KeyRange) -> Page[str]:
        """Return the keys of *key_range* without their values."""
        for _ in range(_TRIES):
            reading = self._start(key_range, keys_only=True)
            try:
                revision = await self._finish([reading], 0, keys_only=True)
            except _CompactedError:
                continue
            return Page(tuple(reading.found), revision, reading.has_more)
        raise StateUnavailableError(f"etcd compacted its history {_TRIES} times while one read went on")

    async def range(self, request: Any) -> Any:
        """Send one range request."""

        async def send(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> Any:
            try:
                return await endpoint.kv.Range(request, timeout=timeout_s, metadata=metadata)
            except rpc.AioRpcError as error:
                if is_compacted(error):
                    raise _CompactedError from error
                raise

        return await self._calls.read(send)

    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        readings = [self._start(key_range) for key_range in ranges]
        values: dict[tuple[Keyspace, str], KeyValue | None] = {}
        revision = 0
        if keys or len(ranges) > 1:
            request = rpc.TxnRequest(
                success=[
                    *(get_op(self._layout.key(keyspace, key)) for keyspace, key in keys),
                    *(rpc.RequestOp(request_range=reading.request()) for reading in readings),
                ]
            )
            answer: Any = await self._calls.read(unary(lambda member: member.kv.Txn, request))
            revision = answer.header.revision
            parts = [part.response_range for part in answer.responses]
            for (keyspace, key), part in zip(keys, parts, strict=False):
                values[keyspace, key] = key_value(self._layout, keyspace, part.kvs[0]) if part.kvs else None
            for reading, part in zip(readings, parts[len(keys) :], strict=True):
                self._take(reading, part)
        revision = await self._finish(readings, revision)
        pages = tuple(Page(tuple(reading.found), revision, reading.has_more) for reading in readings)
        return Snapshot(revision, values, pages)

    def _start(self, key_range: KeyRange, *, keys_only: bool = False) -> _Range:
        item_bytes = self._item_bytes.get((key_range.keyspace, keys_only), _UNKNOWN_BYTES)
        return _Range(key_range, *self._layout.range(key_range), max(1, min(_FIRST_KEYS, _ANSWER_BYTES // item_bytes)))

    async def _finish(self, readings: list[_Range], revision: int, *, keys_only: bool = False) -> int:
        """Read what is left of *readings* as of *revision* (0: now); return the revision that was read."""
        for reading in readings:
            while not reading.is_done:
                answer = await self.range(reading.request(revision, keys_only=keys_only))
                # The answer to a read of a past revision carries the current revision.
                revision = revision or answer.header.revision
                self._take(reading, answer, keys_only=keys_only)
        return revision

    def _take(self, reading: _Range, answer: Any, *, keys_only: bool = False) -> None:
        keyspace = reading.wanted.keyspace
        if keys_only:
            reading.take(answer, [self._layout.name(keyspace, found.key) for found in answer.kvs])
        else:
            reading.take(answer, key_values(self._layout, keyspace, answer.kvs))
        if reading.has_more:
            seen = max(1, answer.ByteSize() // max(1, len(answer.kvs)))
            reading.step = max(1, min(_MAX_KEYS, _ANSWER_BYTES // seen))
            # A few small ones must not make us forget the large ones at once.
            before = self._item_bytes.get((keyspace, keys_only), 0)
            self._item_bytes[keyspace, keys_only] = max(seen, before - before // 16)
