"""Watches all keyspaces at once, also over losses: missed changes are listed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping

from onager.errors import StateUnavailableError, WatchCompactedError
from onager.protocol import onager_pb2 as pb
from onager.state_admin.decoding import shown
from onager.state_admin.paths import Selection, pages, selection
from onager.state_backend import KeyRange, Keyspace, KeyValue, StateBackendClient
from onager.supervision import is_cancelled

_WAITING_CHANGES = 16
_SHOWN_BYTES = 256 * 1024
"""Larger values are shown by their size and beginning: many may wait for a slow client."""
_PAGE = 64

_Changes = asyncio.Queue[pb.StateChange | Exception]


async def watch_records(
    backend: StateBackendClient, prefix: str, from_revisions: Mapping[str, int]
) -> AsyncGenerator[pb.StateChange, None]:
    """Yield ``watching`` with the first revision, then every change below *prefix*, until closed.

    Changes are in order within a keyspace. *from_revisions* sets the start in single keyspaces; others start now. Where
    events were lost, one ``lost`` is followed by a ``listed`` for each record that is there now.
    """
    wanted = selection(prefix)
    now = await backend.read_txn(ranges=[KeyRange(wanted.keyspaces[0], limit=1)])
    changes: _Changes = asyncio.Queue(_WAITING_CHANGES)
    watches = [
        asyncio.create_task(_follow(backend, keyspace, wanted, from_revisions.get(keyspace, now.revision + 1), changes))
        for keyspace in wanted.keyspaces
    ]
    try:
        yield pb.StateChange(kind="watching", mod_revision=now.revision, keyspaces=wanted.keyspaces)
        while True:
            change = await changes.get()
            if isinstance(change, Exception):
                raise change
            yield change
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def _follow(
    backend: StateBackendClient,
    keyspace: Keyspace,
    wanted: Selection,
    revision: int,
    changes: _Changes,
) -> None:
    """Put changes of one keyspace, and at last the error that ended it, so that the reader knows why no more come."""
    try:
        while True:
            try:
                async with backend.watch(keyspace, wanted.below, from_revision=revision) as events:
                    async for kind, _, key, value, mod_revision in events:
                        if wanted.matches(key):
                            await changes.put(_change(kind, keyspace, KeyValue(key, value, mod_revision)))
            except WatchCompactedError:
                revision = await _list_again(backend, keyspace, wanted, changes) + 1
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        await changes.put(StateUnavailableError(f"the watch of {keyspace} was broken off"))
    except Exception as error:  # noqa: BLE001 - raised where it is read
        await changes.put(error)


async def _list_again(
    backend: StateBackendClient,
    keyspace: Keyspace,
    wanted: Selection,
    changes: _Changes,
) -> int:
    """Put all current records; return a revision that none of them is older than."""
    first_revision: int | None = None
    async for page in pages(backend.scan, keyspace, wanted.below, _PAGE):
        if first_revision is None:
            first_revision = page.revision
            await changes.put(pb.StateChange(kind="lost", key=f"{keyspace}/", mod_revision=first_revision))
        for item in page:
            if wanted.matches(item.key):
                await changes.put(_change("listed", keyspace, item))
    assert first_revision is not None
    return first_revision


def _change(kind: str, keyspace: Keyspace, item: KeyValue) -> pb.StateChange:
    return pb.StateChange(
        kind=kind,
        key=f"{keyspace}/{item.key}",
        mod_revision=item.mod_revision,
        size_bytes=len(item.value),
        json="" if kind == "delete" else shown(keyspace, item.key, item.value, _SHOWN_BYTES),
    )
