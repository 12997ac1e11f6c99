"""The store that holds all truth: the port, its terms and limits, and the adapters.

Import from here; `open_backend` turns ``etcd://…``, ``leveldb:DIR`` or ``memory:`` into a client.
"""

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
    KeyRange,
    Keyspace,
    KeyValue,
    LeaseId,
    LockToken,
    Move,
    Op,
    OutcomeUnknown,
    Put,
    Snapshot,
)
from onager.state_backend.paging import each_page
from onager.state_backend.port import StateBackendClient
from onager.state_backend.transactions import Write, commit_settled, revision_found, revision_of, transact
from onager.state_backend.urls import FORMS, state_directory


async def open_backend(url: str, *, clock: Clock | None = None) -> StateBackendClient:
    """Return the client that *url* names: ``etcd://h:p,h:p/namespace``, ``leveldb:DIR`` or ``memory:``.

    `InvalidSettingError` for anything else. Errors of opening are those of the adapter
    (`onager.state_backend.etcd.EtcdBackend.open`, `onager.state_backend.leveldb.LevelDBBackend.open`). The embedded
    stores use *clock*; etcd uses its own.
    """
    directory = state_directory(url)
    if directory is not None:
        from onager.state_backend.leveldb import LevelDBBackend

        return await LevelDBBackend.open(directory, clock=clock)
    scheme, _, rest = url.partition(":")
    match scheme:
        case "memory" if not rest:
            from onager.state_backend.memory import MemoryBackend, MemoryStore

            return MemoryBackend(MemoryStore(clock))
        case "etcd":
            from onager.state_backend.etcd import EtcdBackend

            return await EtcdBackend.open(url)
        case _:
            from onager.state_backend.etcd.url import without_password

            raise InvalidSettingError("--backend", without_password(url), f"use {FORMS}; memory: keeps nothing")
