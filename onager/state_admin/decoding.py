"""Records of all keyspaces as JSON for people: plain and compressed ones, chunks, blobs, results."""

import base64
import contextlib
import json
import struct
from collections.abc import Sequence
from typing import Any, Final

from onager.catalog_records import parsed_page_key, plain_json, read_page
from onager.errors import OnagerError, StateCorruptError
from onager.redaction import may_hold_secrets, shown_json, shown_text
from onager.scheduler.records import beginning, plain_size, unpack
from onager.state_backend import VALUE_CHUNK_BYTES, Keyspace

SHOWN_BYTES: Final = 4 * 1024 * 1024
"""Larger records are shown by their size and beginning: decoding one as JSON takes ten times its size."""
_BEGINNING_BYTES: Final = 4 * 1024
_RESULT_ROWS: Final = 20
_STAGE_PLAN: Final = b"ONGRPLAN"
_STAGE_PLAN_PREFIX: Final = struct.Struct(">8sHI")
"""The prefix that `onager.executor.spark.plan_codec` writes; that must not be imported here, and a test compares
both."""


def decoded(keyspace: Keyspace, key: str, value: bytes) -> str:  # noqa: PLR0911 - one case a kind
    """Return a record's value as JSON text; `StateCorruptError` when it cannot be read.

    A value that is not JSON itself is shown as an object: with ``text``, or with its size and beginning in ``base64``.
    """
    path = f"{keyspace}/{key}"
    match keyspace:
        case Keyspace.Heartbeats:
            return _json({"incarnation": _text(value, path)})
        case Keyspace.Results:
            return _json(_result(unpack(value, path), path))
        case Keyspace.GraphChunks if len(value) == VALUE_CHUNK_BYTES or not path.endswith("/0000"):
            # Cut after packing, so it can be read only with the others, as `onager state get` does.
            return _json({"chunk_of": path.rpartition("/")[0], "size_bytes": len(value)})
        case Keyspace.History:
            return content(b'{"batches":[%b]}' % unpack(value, path).replace(b"\n", b","))
        case Keyspace.Catalog:
            return _catalog(key, value, path)
        case Keyspace.Plans if not value:
            return _json({"job_id": key.rpartition("/")[2]})
        case _:
            return content(unpack(value, path))


def shown(keyspace: Keyspace, key: str, value: bytes, most_bytes: int = SHOWN_BYTES) -> str:
    """Return `decoded`, or an object that says why the value is unreadable, or its beginning where it is too large."""
    path = f"{keyspace}/{key}"
    try:
        if (size := plain_size(value)) > most_bytes:
            return _json(_begun(size, beginning(value, _BEGINNING_BYTES, path)))
        return decoded(keyspace, key, value)
    except OnagerError as error:
        return _json({"unreadable": str(error), "size_bytes": len(value)})


def joined(keyspace: Keyspace, path: str, pieces: Sequence[bytes]) -> str:
    """Return the joined content of several chunks as JSON text: a snapshot is cut after packing, a blob before."""
    if keyspace is Keyspace.GraphChunks:
        pieces = [b"".join(pieces)]
    if (size := sum(map(plain_size, pieces))) > SHOWN_BYTES:
        return _json(_begun(size, beginning(pieces[0], _BEGINNING_BYTES, path)))
    return content(b"".join([unpack(piece, path) for piece in pieces]))


def content(plain: bytes) -> str:
    """Return unpacked bytes as JSON text: unchanged if they are JSON, else as text or by their beginning.

    Secrets among settings and options are redacted.
    """
    if plain.startswith(_STAGE_PLAN):
        return _stage_plan(plain)
    text = _text_of(plain)
    if text is not None:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
            if isinstance(value, dict | list):
                return _json(shown_json(value)) if may_hold_secrets(text) else text
        return _json({"size_bytes": len(plain), "text": shown_text(text)})
    return _json(_begun(len(plain), plain[:_BEGINNING_BYTES]))


def _begun(size_bytes: int, start: bytes) -> dict[str, Any]:
    if may_hold_secrets(start.decode("latin-1")):
        return {"size_bytes": size_bytes}
    return {"size_bytes": size_bytes, "base64": base64.b64encode(start).decode()}


def _text_of(plain: bytes) -> str | None:
    if not plain or len(plain) > SHOWN_BYTES or b"\0" in plain:
        return None
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return None


def _stage_plan(plain: bytes) -> str:
    """Return the text part of an encoded stage plan; its attachments are Spark's own bytes."""
    try:
        _, version, length = _STAGE_PLAN_PREFIX.unpack_from(plain)
        header = json.loads(plain[_STAGE_PLAN_PREFIX.size : _STAGE_PLAN_PREFIX.size + length])
    except (struct.error, ValueError) as error:
        raise StateCorruptError(f"a stage plan cannot be read: {error}") from error
    return _json({"size_bytes": len(plain), "stage_plan_version": version, "header": shown_json(header)})


def _result(plain: bytes, path: str) -> dict[str, Any]:
    import pyarrow as pa  # takes a quarter of a second

    try:
        with pa.ipc.open_stream(plain) as reader:
            schema, batches = reader.schema, list(reader)
    except (OSError, pa.ArrowInvalid) as error:
        raise StateCorruptError(f"{path} is not a whole Arrow stream: {error}") from error
    table = pa.Table.from_batches(batches, schema)
    names = [f"{field.name}: {field.type}" for field in schema]
    rows = [[_plain(column[i].as_py()) for column in table.columns] for i in range(min(_RESULT_ROWS, table.num_rows))]
    return {"size_bytes": len(plain), "columns": names, "row_count": table.num_rows, "first_rows": rows}


def _catalog(key: str, value: bytes, path: str) -> str:
    page = parsed_page_key(key)
    return content(value if page is None else plain_json(read_page(page[1], value, path)))


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _text(value: bytes, path: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise StateCorruptError(f"{path} is not text: {error.reason}") from error


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
