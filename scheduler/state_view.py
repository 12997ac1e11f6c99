"""The raw records of the store, decoded, for an admin."""

import base64
import json
from typing import Final

from onager.errors import InvalidRequestError, NotFoundError, StateCorruptError
from onager.protocol import onager_pb2 as pb
from scheduler.records import unpack
from state_backend import Keyspace, StateBackendClient

_LIST_DEFAULT: Final = 1_000
_LIST_MAX: Final = 10_000
_SHOWN_BYTES: Final = 24 * 1024 * 1024
_HEX_BYTES: Final = 4 * 1024


class StateView:
    """Reads the store; changes nothing."""

    def __init__(self, backend: StateBackendClient) -> None:
        self._backend = backend

    async def list(self, prefix: str, limit: int) -> pb.ListStateResponse:
        """Return up to *limit* keys that begin with *prefix*: nothing, ``Keyspace`` or ``Keyspace/key-prefix``."""
        limit = min(limit or _LIST_DEFAULT, _LIST_MAX)
        name, _, start = prefix.partition("/")
        keyspaces = list(Keyspace) if not name else [_keyspace(name)]
        response = pb.ListStateResponse()
        directory, _, rest = start.rpartition("/")
        below = f"{directory}/" if directory else ""
        for keyspace in keyspaces:
            start_after: str | None = None
            while True:
                page = await self._backend.scan(keyspace, below, limit=min(limit, 500), start_after=start_after)
                for item in page:
                    if not item.key.removeprefix(below).startswith(rest):
                        continue
                    if len(response.entries) == limit:
                        response.more = True
                        return response
                    response.entries.add(
                        key=f"{keyspace}/{item.key}", mod_revision=item.mod_revision, size_bytes=len(item.value)
                    )
                if not page.has_more:
                    break
                start_after = page.items[-1].key
        return response

    async def get(self, path: str) -> pb.GetStateResponse:
        """Return one record as JSON: itself when it is JSON, else its size and first bytes."""
        name, _, key = path.partition("/")
        if not key:
            raise InvalidRequestError(f"{path!r} does not name a record: give Keyspace/key")
        found = await self._backend.get(_keyspace(name), key)
        if found is None:
            raise NotFoundError(f"{path} is not in the store")
        return pb.GetStateResponse(key=path, json=_as_json(found.value, path), mod_revision=found.mod_revision)


def _as_json(value: bytes, path: str) -> str:
    try:
        plain = unpack(value, path)
        json.loads(plain)
        if len(plain) <= _SHOWN_BYTES:
            return plain.decode()
    except StateCorruptError as error:
        return json.dumps({"unreadable": str(error), "size_bytes": len(value)})
    except ValueError:
        pass
    return json.dumps({"size_bytes": len(plain), "base64": base64.b64encode(plain[:_HEX_BYTES]).decode()})


def _keyspace(name: str) -> Keyspace:
    try:
        return Keyspace(name)
    except ValueError as error:
        raise InvalidRequestError(f"{name!r} is not a keyspace; use one of {', '.join(Keyspace)}") from error
