"""The store that holds all truth: the port, its terms and limits, and the adapters.

Import from here; `open_backend` turns ``etcd://…``, ``leveldb:DIR`` or ``memory:`` into a client.
"""

from pathlib import Path

from onager.clock import Clock
from onager.errors import InvalidSettingError
from onager.state_backend.kept_lease import KeptLease, keep_lease
from onager.state_backend.limits import (
    MAX_REQUEST_BYTES,
    MAX_TXN_OPS,
    VALUE_CHUNK_BYTES,
    op_bytes,
    request_bytes,
    split_ops,
    split_value,
)
from onager.state_backend.locks import acquire_lock
from onager.state_backend.model import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    EventKind,
    Fenced,
    KeyRange,
    Keyspace,
    KeyValue,
    Lease,
    LeaseId,
    LockToken,
    Move,
    Op,
    OutcomeUnknown,
    Page,
    Put,
    Snapshot,
    TxnResult,
    WatchEvent,
)
from onager.state_backend.paging import each_page
from onager.state_backend.port import StateBackendClient
from onager.state_backend.transactions import Write, commit_settled, revision_found, revision_of, transact

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
    "KeptLease",
    "KeyRange",
    "KeyValue",
    "Keyspace",
    "Lease",
    "LeaseId",
    "LockToken",
    "Move",
    "Op",
    "OutcomeUnknown",
    "Page",
    "Put",
    "Snapshot",
    "StateBackendClient",
    "TxnResult",
    "WatchEvent",
    "Write",
    "acquire_lock",
    "commit_settled",
    "each_page",
    "keep_lease",
    "op_bytes",
    "open_backend",
    "request_bytes",
    "revision_found",
    "revision_of",
    "split_ops",
    "split_value",
    "transact",
]


async def open_backend(url: str, *, clock: Clock | None = None) -> StateBackendClient:
    """Return the client that *url* names: ``etcd://h:p,h:p/namespace``, ``leveldb:DIR`` or ``memory:``.

    `InvalidSettingError` for anything else. Errors of opening are those of the adapter
    (`onager.state_backend.etcd.EtcdBackend.open`, `onager.state_backend.leveldb.LevelDBBackend.open`). The embedded
    stores use *clock*; etcd uses its own.
    """
    scheme, _, rest = url.partition(":")
    match scheme:
        case "memory" if not rest:
            from onager.state_backend.memory import MemoryBackend, MemoryStore

            return MemoryBackend(MemoryStore(clock))
        case "leveldb" if rest:
            from onager.state_backend.leveldb import LevelDBBackend

            return await LevelDBBackend.open(Path(rest), clock=clock)
        case "leveldb":
            raise InvalidSettingError("--backend", url, "name the state directory: leveldb:DIR")
        case "etcd":
            from onager.state_backend.etcd import EtcdBackend

            return await EtcdBackend.open(url)
        case _:
            from onager.state_backend.etcd.url import without_password

            raise InvalidSettingError(
                "--backend",
                without_password(url),
                "use etcd://HOST:PORT[,HOST:PORT…][/NAMESPACE], leveldb:DIR, or memory: to keep nothing",
            )
