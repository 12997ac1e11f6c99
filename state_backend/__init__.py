"""The store that holds all truth: the port, its words and limits, and the adapters.

Import from here; `open_backend` turns ``leveldb:DIR`` or ``memory:`` into a client.
"""

from state_backend.limits import (
    MAX_REQUEST_BYTES,
    MAX_TXN_OPS,
    VALUE_CHUNK_BYTES,
    op_bytes,
    split_ops,
    split_value,
)
from state_backend.model import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    EventKind,
    Fenced,
    KeyRange,
    KeyRef,
    Keyspace,
    KeyValue,
    Lease,
    LeaseId,
    LockToken,
    Op,
    OutcomeUnknown,
    Page,
    Put,
    Snapshot,
    TxnResult,
    WatchEvent,
)
from state_backend.port import StateBackendClient

__all__ = [
    "ABSENT",
    "MAX_REQUEST_BYTES",
    "MAX_TXN_OPS",
    "VALUE_CHUNK_BYTES",
    "Committed",
    "Conflict",
    "Delete",
    "DeleteRange",
    "EventKind",
    "Fenced",
    "KeyRange",
    "KeyRef",
    "KeyValue",
    "Keyspace",
    "Lease",
    "LeaseId",
    "LockToken",
    "Op",
    "OutcomeUnknown",
    "Page",
    "Put",
    "Snapshot",
    "StateBackendClient",
    "TxnResult",
    "WatchEvent",
    "op_bytes",
    "split_ops",
    "split_value",
]
