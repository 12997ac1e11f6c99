"""Listing keys and reading single records."""

from typing import Final

from onager.errors import NotFoundError
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.scheduler.records import plain_size
from onager.state_admin.decoding import joined, shown
from onager.state_admin.paths import pages, record_path, selection
from onager.state_backend import KeyRange, Keyspace, StateBackendClient

LIST_DEFAULT: Final = 1_000
LIST_MAX: Final = 10_000
_PAGE: Final = 64


async def list_keys(backend: StateBackendClient, prefix: str, limit: int) -> pb.ListStateResponse:
    """Return up to *limit* keys that begin with *prefix*: nothing, ``Keyspace`` or ``Keyspace/key-prefix``."""
    limit = min(limit or LIST_DEFAULT, LIST_MAX)
    wanted = selection(prefix)
    response = pb.ListStateResponse()
    for keyspace in wanted.keyspaces:
        async for page in pages(backend.scan, keyspace, wanted.below, min(limit + 1, _PAGE)):
            for item in page:
                if not wanted.matches(item.key):
                    continue
                if len(response.entries) == limit:
                    response.more = True
                    return response
                response.entries.add(
                    key=f"{keyspace}/{item.key}", mod_revision=item.mod_revision, size_bytes=len(item.value)
                )
    return response


async def read_record(backend: StateBackendClient, path: str) -> pb.GetStateResponse:
    """Return one record as JSON.

    A chunk of a snapshot is shown as its whole snapshot, and the name of a snapshot (``GraphChunks/job/snapshot``) or
    of a blob (``Plans/digest``) stands for all of its chunks.
    """
    keyspace, key = record_path(path)
    seen = await backend.read_txn([(keyspace, key)], _pieces_of(keyspace, key))
    found = seen.values[keyspace, key]
    pieces = [item for items in seen.ranges for item in items if item.key.rpartition("/")[2].isdecimal()]
    if found is None and not pieces:
        raise NotFoundError(f"{path} is not in the store; onager state ls {keyspace} lists what is")
    if pieces and (found is None or (keyspace is Keyspace.GraphChunks and len(pieces) > 1)):
        pieces.sort(key=lambda item: int(item.key.rpartition("/")[2]))
        values = [item.value for item in pieces]
        text = await apart(sum(map(plain_size, values)), joined, keyspace, path, values)
        return pb.GetStateResponse(key=path, json=text, mod_revision=max(item.mod_revision for item in pieces))
    assert found is not None
    text = await apart(plain_size(found.value), shown, keyspace, key, found.value)
    return pb.GetStateResponse(key=path, json=text, mod_revision=found.mod_revision)


def _pieces_of(keyspace: Keyspace, key: str) -> list[KeyRange]:
    parts = key.split("/")
    match keyspace:
        case Keyspace.GraphChunks if len(parts) in (2, 3):
            return [KeyRange(keyspace, f"{parts[0]}/{parts[1]}/")]
        case Keyspace.Plans if len(parts) == 1:
            return [KeyRange(keyspace, f"{key}/")]
        case _:
            return []
