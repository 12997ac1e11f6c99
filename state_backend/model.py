"""The types of the state backend.

Keyspaces, keys and revisions, operations, outcomes, leases, lock tokens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, NewType, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Keyspace(StrEnum):
    """The top level of every key; the value is also how the keyspace is spelled in the store."""

    Executors = "Executors"
    Heartbeats = "Heartbeats"
    ExecutorLoads = "ExecutorLoads"
    Schedulers = "Schedulers"
    Sessions = "Sessions"
    JobHeads = "JobHeads"
    ActiveJobs = "ActiveJobs"
    GraphChunks = "GraphChunks"
    JobLog = "JobLog"
    Plans = "Plans"
    Results = "Results"
    CompletedJobs = "CompletedJobs"
    FailedJobs = "FailedJobs"
    History = "History"
    Audit = "Audit"
    Catalog = "Catalog"
    """Databases, tables with their partitions, views and functions (`onager.scheduler.catalog`)."""
    ConnectSessions = "ConnectSessions"
    """Sessions of Spark Connect (`onager.scheduler.connect`)."""
    ConnectEntries = "ConnectEntries"
    """The commands that made their views, functions and data sources."""
    ConnectOperations = "ConnectOperations"
    """What their commands answered."""
    Programs = "Programs"
    """Programs that outlive their processes, and which attempt of each counts (`onager.scheduler.connect.programs`)."""
    ProgramCalls = "ProgramCalls"
    """What came of their calls."""
    Places = "Places"
    """The ids of the directories that executors and schedulers share."""
    Locks = "Locks"
    """The locks that are held and waited for, bound to leases (`onager.state_backend.locks`)."""
    Admin = "Admin"
    """Marks of administrative work in progress, such as a restore; empty in normal operation."""


LeaseId = NewType("LeaseId", int)
"""Names a lease; plain data that may be stored, and that lets any process keep the lease alive."""

ABSENT: Final = 0
"""As an expected `mod_revision`: the key must not exist. Revisions of existing keys start at 1."""


class KeyValue(NamedTuple):
    """A key as it was given (without keyspace), its value, and the revision of the commit that put it."""

    key: str
    value: bytes
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Page(Generic[T_co]):
    """Part of a listing: *items* in the order of their keys' bytes, all as of *revision*.

    Watching from ``revision + 1`` misses nothing that came after. With *has_more*, ask again with
    `start_after` the last key.
    """

    items: tuple[T_co, ...]
    revision: int
    has_more: bool = False

    def __iter__(self) -> Iterator[T_co]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys of *keyspace* below *prefix* that come after *start_after* (exclusive), at most *limit*.

    A *prefix* is empty or ends with ``/``, so that ``job1/`` can never mean ``job10`` too.
    """

    keyspace: Keyspace
    prefix: str = ""
    start_after: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a `read_txn` saw as of *revision*.

    Every requested key (`None` when missing), and the requested ranges in order.
    """

    revision: int
    values: Mapping[tuple[Keyspace, str], KeyValue | None]
    ranges: tuple[Page[KeyValue], ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key.

    Bound to *lease* it is deleted when the lease ends; without one it is unbound from any before.
    """

    keyspace: Keyspace
    key: str
    value: bytes
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a key; a missing one is no error."""

    keyspace: Keyspace
    key: str


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Remove every key of *keyspace* below *prefix* (empty, or ending with ``/``), as one operation."""

    keyspace: Keyspace
    prefix: str


@dataclass(frozen=True, slots=True)
class Move:
    """Set *value* under the same name in *to_keyspace*, and remove the key from *keyspace*; no lease follows.

    The transaction has to expect a revision of the source, and that the target is absent.
    """

    keyspace: Keyspace
    key: str
    to_keyspace: Keyspace
    value: bytes


SingleOp = Put | Delete | DeleteRange
"""What adapters carry out."""
Op = SingleOp | Move


@dataclass(frozen=True, slots=True)
class LockToken:
    """Proof of holding a lock, to be passed as a `fence`; only `StateBackendClient.lock` makes one.

    *revision* is the revision of the lock's record. It grows from holder to holder, so it also serves as an epoch
    outside of the store.
    """

    keyspace: Keyspace
    key: str
    revision: int
    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as granted: it ends *ttl_s* seconds after it was last kept alive, by the store's clock."""

    id: LeaseId
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything was written.

    *revision* is that of the commit, and the new `mod_revision` of each key put. A transaction that changed nothing (it
    deleted only missing keys) leaves the store's revision as it is and reports that. *deleted* counts the keys that
    deletes removed.
    """

    revision: int
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was written, since an expectation did not hold; *found* is the current state of every expected key."""

    found: Mapping[tuple[Keyspace, str], KeyValue | None]
    revision: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """Nothing was written, since *token* no longer holds its lock."""

    token: LockToken


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The transaction was committed once, or not at all, or may still be committed.

    Read what it would have written before deciding again.
    """

    why: str


TxnResult = Committed | Conflict | Fenced | OutcomeUnknown


class EventKind(StrEnum):
    """What happened to a watched key."""

    PUT = "put"
    DELETE = "delete"


class WatchEvent(NamedTuple):
    """One change of one key.

    *value* is empty for a delete; *mod_revision* is the revision of the commit that made the change.
    """

    kind: EventKind
    keyspace: Keyspace
    key: str
    value: bytes
    mod_revision: int
