"""Transactions and leases over an ordered table.

Synchronous, for one thread, without I/O except the table's.

Commands stage their writes. Those of a group accumulate until the adapter takes them, writes them as one batch and
publishes what happened. A command that raises leaves nothing behind. Reads run between groups, when nothing is staged.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

from onager.clock import Clock
from onager.errors import LeaseExpiredError
from onager.state_backend.local import table as layout
from onager.state_backend.local.table import Table
from onager.state_backend.model import (
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    EventKind,
    KeyRange,
    Keyspace,
    KeyValue,
    Lease,
    LeaseId,
    Page,
    Put,
    SingleOp,
    Snapshot,
    TxnResult,
    WatchEvent,
)

T = TypeVar("T")
_Expect = Mapping[tuple[Keyspace, str], int]
_REVISION, _LAST_LEASE = b"mrevision", b"mlease"


@dataclass(frozen=True, slots=True)
class Group:
    """The changes that a group of commands is about to make."""

    writes: Mapping[bytes, bytes | None]
    events: Sequence[WatchEvent]
    lost_revision: int | None = None
    """Set when events up to this revision could not be published: the outcome of a write was unknown."""


class Engine:
    """The state machine of a store that belongs to one process."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self.reload()

    def reload(self) -> None:
        """Drop what is staged and read the table again; every lease gets its whole time again."""
        self._staged: dict[bytes, bytes | None] = {}
        self._group: dict[bytes, bytes | None] = {}
        self._events: list[WatchEvent] = []
        self.revision = int(self._table.get(_REVISION) or 0)
        self._last_lease = int(self._table.get(_LAST_LEASE) or 0)
        self._leases: dict[int, tuple[float, float]] = {}
        for raw, ttl_ms in self._table.rows(*layout.LEASES):
            self._renew(layout.unpack_lease_id(raw), int(ttl_ms) / 1000)

    # -- groups

    def run(self, command: "Callable[[Engine], T]") -> T:
        """Run *command* and keep its staged writes for the group; when it raises, drop them."""
        before = self.revision, len(self._events)
        try:
            result = command(self)
        except BaseException:
            self._staged = {}
            self.revision, kept = before
            del self._events[kept:]
            raise
        self._group.update(self._staged)
        self._staged = {}
        return result

    def take(self) -> Group:
        """Return the group's changes; from now on the table has to hold them."""
        if self._events or self._group:
            self._group[_REVISION] = b"%d" % self.revision
        group = Group(self._group, self._events)
        self._group, self._events = {}, []
        return group

    # -- reading

    def read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        """Return the current keys and ranges."""
        return Snapshot(
            self.revision,
            {(keyspace, key): self._key_value(keyspace, key) for keyspace, key in keys},
            tuple(self._page(key_range) for key_range in ranges),
        )

    def read_keys(self, key_range: KeyRange) -> Page[str]:
        """Return the current keys of a range."""
        rows = self._table.keys(*_bounds(key_range))
        keys, has_more = _take(rows, key_range.limit)
        head = len(layout.data_key(key_range.keyspace, ""))
        return Page(tuple(raw[head:].decode() for raw in keys), self.revision, has_more)

    def _page(self, key_range: KeyRange) -> Page[KeyValue]:
        rows, has_more = _take(self._table.rows(*_bounds(key_range)), key_range.limit)
        head = len(layout.data_key(key_range.keyspace, ""))
        items = tuple(
            KeyValue(raw[head:].decode(), layout.value_of(record), layout.unpack(record)[0]) for raw, record in rows
        )
        return Page(items, self.revision, has_more)

    def _key_value(self, keyspace: Keyspace, key: str) -> KeyValue | None:
        record = self._get(layout.data_key(keyspace, key))
        return None if record is None else KeyValue(key, layout.value_of(record), layout.unpack(record)[0])

    # -- transactions

    def commit(self, ops: Collection[SingleOp], expect: _Expect) -> TxnResult:
        """Stage *ops* if the expectations hold."""
        for (keyspace, key), revision in expect.items():
            if self._mod_revision(layout.data_key(keyspace, key)) != revision:
                return Conflict({ref: self._key_value(*ref) for ref in expect}, self.revision)
        revision = self.revision + 1
        deleted = sum(self._apply(op, revision) for op in ops)
        if self._staged:
            self.revision = revision
        return Committed(self.revision, deleted)

    def _apply(self, op: SingleOp, revision: int) -> int:
        match op:
            case Put():
                self._put(op, revision)
                return 0
            case Delete(keyspace, key):
                return self._delete(layout.data_key(keyspace, key), revision)
            case DeleteRange(keyspace, prefix):
                return sum(self._delete(raw, revision) for raw in self._keys(*layout.data_range(keyspace, prefix)))
            case _:
                assert_never(op)

    def _put(self, op: Put, revision: int) -> None:
        lease = 0 if op.lease is None else self._alive(op.lease)
        raw = layout.data_key(op.keyspace, op.key)
        self._unbind(raw, self._get(raw))
        self._staged[raw] = layout.pack(revision, lease, op.value)
        if lease:
            self._staged[layout.binding_key(lease, raw)] = b""
        self._events.append(WatchEvent(EventKind.PUT, op.keyspace, op.key, op.value, revision))

    def _delete(self, raw: bytes, revision: int) -> bool:
        if (record := self._get(raw)) is None:
            return False
        self._unbind(raw, record)
        self._staged[raw] = None
        self._events.append(WatchEvent(EventKind.DELETE, *layout.parse_data_key(raw), b"", revision))
        return True

    def _unbind(self, raw: bytes, record: bytes | None) -> None:
        if record is not None and (lease := layout.unpack(record)[1]):
            self._staged[layout.binding_key(lease, raw)] = None

    # -- leases

    def grant(self, ttl_s: float) -> Lease:
        """Stage a new lease; its time is kept in whole milliseconds, rounded up."""
        ttl_ms = -int(-ttl_s * 1000 // 1)
        self._last_lease = lease = self._last_lease + 1
        self._staged[_LAST_LEASE] = b"%d" % lease
        self._staged[layout.lease_key(lease)] = b"%d" % ttl_ms
        self._renew(lease, ttl_ms / 1000)
        return Lease(LeaseId(lease), ttl_ms / 1000)

    def keep_alive(self, lease: LeaseId) -> None:
        """Renew *lease* for its whole time; nothing is written for it."""
        self._renew(lease, self._leases[self._alive(lease)][0])

    def revoke(self, lease: LeaseId) -> None:
        """Stage the end of *lease* and of what is bound to it."""
        if self._leases.pop(lease, None) is None:
            return
        revision = self.revision + 1
        has_changes = False
        for binding in self._keys(*layout.bindings_range(lease)):
            has_changes = True
            self._delete(binding[layout.BINDING_HEAD :], revision)
        self._staged[layout.lease_key(lease)] = None
        if has_changes:
            self.revision = revision

    def expire(self) -> None:
        """Stage the end of every expired lease."""
        now_s = self._clock.monotonic_s()
        for lease in [lease for lease, (_, deadline_s) in self._leases.items() if deadline_s <= now_s]:
            self.revoke(LeaseId(lease))

    def next_deadline_s(self) -> float | None:
        """Return when the next lease ends, by the monotonic clock; `None` when there is no lease."""
        return min((deadline_s for _, deadline_s in self._leases.values()), default=None)

    def _alive(self, lease: LeaseId) -> int:
        if lease not in self._leases:
            raise LeaseExpiredError(f"lease {lease} is gone: it was not kept alive in time, or revoked; take a new one")
        return lease

    def _renew(self, lease: int, ttl_s: float) -> None:
        self._leases[lease] = ttl_s, self._clock.monotonic_s() + ttl_s

    # -- the table, seen through what is staged

    def _get(self, raw: bytes) -> bytes | None:
        for staged in (self._staged, self._group):
            if raw in staged:
                return staged[raw]
        return self._table.get(raw)

    def _mod_revision(self, raw: bytes) -> int:
        record = self._get(raw)
        return 0 if record is None else layout.unpack(record)[0]

    def _keys(self, start: bytes, stop: bytes) -> list[bytes]:
        keys = set(self._table.keys(start, stop))
        for staged in (self._group, self._staged):
            for raw, record in staged.items():
                if start <= raw < stop:
                    (keys.discard if record is None else keys.add)(raw)
        return sorted(keys)


def _bounds(key_range: KeyRange) -> tuple[bytes, bytes]:
    return layout.data_range(key_range.keyspace, key_range.prefix, key_range.start_after)


def _take(rows: Iterator[T], limit: int | None) -> tuple[list[T], bool]:
    taken = list(itertools.islice(rows, limit))
    return taken, limit is not None and len(taken) == limit and next(rows, None) is not None
