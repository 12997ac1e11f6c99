"""Reads of the catalog: for planners, as it is stored, and for people."""

import json
from typing import Any, Final

from onager.catalog_records import (
    DEFAULT_DATABASE,
    CatalogKey,
    Partition,
    folded,
    page_key,
    read_page,
    read_record,
)
from onager.errors import InvalidRequestError, NotFoundError, RequestTooLargeError, StateCorruptError
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.protocol.field_limits import MAX_CATALOG_A_PAGE, MAX_CATALOG_KEYS
from onager.protocol.limits import MAX_MESSAGE_BYTES, MIB
from onager.redaction import shown_json
from onager.scheduler.catalog.stored import stored
from onager.state_backend import KeyRange, Keyspace, KeyValue, StateBackendClient

_MAX_BYTES: Final = MAX_MESSAGE_BYTES - MIB
_TRIES: Final = 5
_CATALOG: Final = Keyspace.Catalog


async def read_catalog(backend: StateBackendClient, request: pb.ReadCatalogRequest) -> pb.ReadCatalogResponse:
    """Return the records that *request* names, all at one revision.

    `InvalidRequestError` for a request that cannot be answered; `RequestTooLargeError` when the records of its keys do
    not fit one answer. What of its prefixes does not fit is left out, and the answer says so.
    """
    keys = list(dict.fromkeys(request.keys))
    if len(keys) + len(request.prefixes) > MAX_CATALOG_KEYS:
        count = len(keys) + len(request.prefixes)
        raise InvalidRequestError(f"a read of {count} keys and prefixes of the catalog, more than {MAX_CATALOG_KEYS}")
    if request.start_after and len(request.prefixes) != 1:
        raise InvalidRequestError("start_after goes with exactly one prefix")
    after = request.start_after or None
    seen = await backend.read_txn(
        [(_CATALOG, key) for key in keys],
        [KeyRange(_CATALOG, prefix, start_after=after, limit=MAX_CATALOG_A_PAGE) for prefix in request.prefixes],
    )
    answer = pb.ReadCatalogResponse(revision=seen.revision)
    for key in keys:
        _add(answer, key, seen.values[_CATALOG, key], is_key_only=request.keys_only)
    size = sum(len(record.key) + len(record.value) + 32 for record in answer.records)
    if size > _MAX_BYTES:
        raise RequestTooLargeError("the answer to a read of the catalog", size, _MAX_BYTES, "ask for fewer keys")
    for page in seen.ranges:
        answer.truncated = answer.truncated or page.has_more
        for item in page:
            size += len(item.key) + 32 + (0 if request.keys_only else len(item.value))
            if size > _MAX_BYTES:
                answer.truncated = True
                break
            _add(answer, item.key, item, is_key_only=request.keys_only)
    return answer


def _add(answer: pb.ReadCatalogResponse, key: str, item: KeyValue | None, *, is_key_only: bool) -> None:
    record = answer.records.add(key=key)
    if item is not None:
        record.revision = item.mod_revision
        record.value = b"" if is_key_only else item.value


# ---------------------------------------------------------------- for people


class CatalogQueries:
    """The catalog as people see it, secrets redacted."""

    def __init__(self, backend: StateBackendClient) -> None:
        self._backend = backend

    async def get(self, request: pb.GetCatalogRequest) -> pb.GetCatalogResponse:
        """Return databases, what is in one, or one object; `NotFoundError` where it does not exist."""
        limit = min(request.limit or MAX_CATALOG_A_PAGE, MAX_CATALOG_A_PAGE)
        if not request.database:
            return await self._databases(limit, request.cursor)
        if not request.name:
            return await self._objects(request.database, limit, request.cursor)
        return await self._object(request, limit)

    async def _databases(self, limit: int, cursor: str) -> pb.GetCatalogResponse:
        page = await self._backend.scan(_CATALOG, "databases/", limit=limit, start_after=cursor or None)
        answer = pb.GetCatalogResponse(revision=page.revision)
        default = str(CatalogKey("databases", DEFAULT_DATABASE))
        keys = [item.key for item in page]
        if default not in keys and not cursor and await self._backend.get(_CATALOG, default) is None:
            answer.entries.add(kind="database", database=DEFAULT_DATABASE)
        for item in page:
            if (key := CatalogKey.parsed(item.key)) is not None:
                answer.entries.add(kind="database", database=key.database, revision=item.mod_revision)
        answer.next = keys[-1] if page.has_more else ""
        return answer

    async def _objects(self, database: str, limit: int, cursor: str) -> pb.GetCatalogResponse:
        of_database = CatalogKey("databases", database)
        if database != DEFAULT_DATABASE and await self._backend.get(_CATALOG, str(of_database)) is None:
            if (lowered := database.lower()) != database:
                return await self._objects(lowered, limit, cursor)
            raise NotFoundError(f"there is no database {database} in the catalog")
        answer = pb.GetCatalogResponse()
        below = str(of_database).partition("/")[2]
        last = ""
        for root in ("tables", "functions"):
            if cursor.startswith("functions/") and root == "tables":
                continue
            left = limit - len(answer.entries)
            if not left:
                answer.next = last
                break
            after = cursor if cursor.startswith(f"{root}/") else None
            page = await self._backend.scan(_CATALOG, f"{root}/{below}/", limit=left, start_after=after)
            answer.revision = page.revision
            for item in page:
                last = item.key
                key = CatalogKey.parsed(item.key)
                if key is not None:
                    answer.entries.add(
                        kind=_kind(key, item), database=database, name=key.name, revision=item.mod_revision
                    )
            if page.has_more:
                answer.next = last
                break
        return answer

    async def _object(self, request: pb.GetCatalogRequest, limit: int) -> pb.GetCatalogResponse:
        names = dict.fromkeys([(request.database, request.name), (request.database.lower(), request.name.lower())])
        keys = [CatalogKey(root, *name) for name in names for root in ("tables", "functions")]
        for _ in range(_TRIES):
            seen = await self._backend.read_txn([(_CATALOG, str(key)) for key in keys])
            for key in keys:
                if (item := seen.values[_CATALOG, str(key)]) is None:
                    continue
                record = read_record(key, item.value, f"Catalog/{key}")
                answer = pb.GetCatalogResponse(revision=seen.revision)
                answer.entries.add(
                    kind=record["kind"],
                    database=key.database,
                    name=key.name,
                    json=_shown(record),
                    revision=item.mod_revision,
                )
                if not request.partitions or key.root != "tables":
                    return answer
                if (partitions := await self._partitions(record)) is not None:
                    _add_partitions(answer, partitions, limit, request.cursor)
                    return answer
                break  # its pages are gone, so it has another record by now
            else:
                raise NotFoundError(
                    f"there is no table, view or function {request.database}.{request.name} in the catalog"
                )
        raise StateCorruptError(f"pages of partitions of {request.database}.{request.name} are missing")

    async def _partitions(self, record: dict[str, Any]) -> dict[str, Partition] | None:
        """Return the partitions of a table; None if pages of them are gone."""
        keys = [page_key(record["id"], page_id) for page_id in record.get("pages", ())]
        found = await stored(self._backend, keys)
        if len(found) < len(keys):
            return None
        return await apart(sum(len(page.value) for page in found.values()), _folded, [found[key] for key in keys])


def _folded(pages: list[KeyValue]) -> dict[str, Partition]:
    return folded(read_page(page.key.rpartition("/")[2], page.value, f"Catalog/{page.key}") for page in pages)


def _add_partitions(answer: pb.GetCatalogResponse, partitions: dict[str, Partition], limit: int, cursor: str) -> None:
    paths = sorted(path for path in partitions if path > cursor)
    for path in paths[:limit]:
        answer.partitions.add(path=path, json=_shown(partitions[path]))
    answer.next = paths[limit - 1] if len(paths) > limit else ""


def _kind(key: CatalogKey, item: KeyValue) -> str:
    try:
        return str(read_record(key, item.value, item.key)["kind"])
    except StateCorruptError:
        return "damaged"


def _shown(value: dict[str, Any]) -> str:
    return json.dumps(shown_json(value), ensure_ascii=False)
