"""The content of a backup, in the protocol's messages."""

from collections.abc import AsyncGenerator, Iterator
from typing import Final

from onager.clock import Clock
from onager.errors import InvalidRequestError
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import BACKUP_FORMAT
from onager.state_admin.contents import read_contents
from onager.state_admin.restoring import MARK_KEY
from onager.state_backend import Keyspace, StateBackendClient
from onager.version import __version__

LEASE_BOUND: Final = (Keyspace.Heartbeats, Keyspace.ExecutorLoads, Keyspace.Schedulers, Keyspace.Locks)
"""Keyspaces bound to leases of their store, or to lives that have them: a copy would list the wrong processes as
alive."""
_LEFT_OUT: Final = (*LEASE_BOUND, Keyspace.Admin)
_MESSAGE_BYTES: Final = 1024 * 1024


async def backup_records(
    backend: StateBackendClient, clock: Clock, source: str
) -> AsyncGenerator[pb.StateBackup, None]:
    """Yield the header, then all records at one revision except those that are bound to lives."""
    store = await read_contents(backend)
    if MARK_KEY in store.records[Keyspace.Admin]:
        raise InvalidRequestError("a restore into this store was not finished: run it again before taking a backup")
    counts = store.count()
    kept = {name: count for name, count in counts.items() if name not in _LEFT_OUT}
    header = pb.StateBackupHeader(
        onager_version=__version__,
        taken_ms=clock.now_ms(),
        source=source,
        revision=store.revision,
        records=kept,
        left_out={name: count for name, count in counts.items() if name in LEASE_BOUND},
        format=BACKUP_FORMAT,
    )
    yield pb.StateBackup(header=header)
    records = (
        pb.StateRecord(keyspace=keyspace, key=key, value=item.value)
        for keyspace, found in store.records.items()
        if keyspace not in _LEFT_OUT
        for key, item in found.items()
    )
    for message in _grouped(records):
        yield message


def _grouped(records: Iterator[pb.StateRecord]) -> Iterator[pb.StateBackup]:
    group: list[pb.StateRecord] = []
    size = 0
    for record in records:
        if group and size + len(record.value) > _MESSAGE_BYTES:
            yield pb.StateBackup(records=group)
            group, size = [], 0
        group.append(record)
        size += len(record.value) + 2 * len(record.key) + 32
    if group:
        yield pb.StateBackup(records=group)
