"""The records of the catalog: their keys, their JSON, and pages of partitions.

    databases/DB           {"kind": "database", "version": 1, "spark": {…}}
    tables/DB/TABLE        {"kind": "table" or "view", "version": 1, "id": …, "spark": {…}, "pages": […]}
    functions/DB/FUNCTION  {"kind": "function", "version": 1, "spark": {…}}
    pages/ID/PAGE          partitions of the table with that id, as zlib of {path: partition or null}
    marks/pages            put by each commit whose pages were stored before it

Names are percent-encoded in keys. What is below ``spark`` is Spark's. A page is never changed. The pages of a table
apply in the order in which its record names them: later ones override, null removes. ``merged``, in a table's record,
says how many of its first pages were made by merging all that were there. ``changes`` counts the changes of its
partitions; a partition's ``changed`` is the number of its own last change, and ``removed`` of the last by which any was
removed.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from onager.errors import SchemaVersionError, StateCorruptError

VERSION: Final = 1
MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4 * 1024
"""Of a partition's path."""
MAX_RECORD_BYTES: Final = 256 * 1024
MAX_PARTITION_BYTES: Final = 64 * 1024
MAX_PAGE_PARTITIONS: Final = 2_000
MAX_PAGE_BYTES: Final = 512 * 1024
"""Of a page's content, before compression."""
MAX_PAGES: Final = 16
"""Pages beside the merged ones; with more of them, all are merged."""
MAX_PARTITIONS: Final = 100_000
"""Of one table."""
DEFAULT_DATABASE: Final = "default"
MARK_KEY: Final = "marks/pages"

Partition = dict[str, Any]
Entries = Mapping[str, Partition | None]
"""Partitions by path; None: removed."""

_KINDS: Final = {"databases": ("database",), "tables": ("table", "view"), "functions": ("function",)}
_ID: Final = re.compile(r"[0-9a-f]{16}")
_PAGE_ID: Final = re.compile(r"[0-9a-f]{32}")


class CatalogKey(NamedTuple):
    """The key of a record, in its parts."""

    root: str
    """databases, tables, functions."""
    database: str
    name: str = ""

    @staticmethod
    def parsed(key: str) -> "CatalogKey | None":
        """Return the parts of *key*, or None if no record of the catalog has such a key."""
        root, *encoded = key.split("/")
        names = [unquote(each, errors="replace") for each in encoded]
        if root not in _KINDS or len(names) != (1 if root == "databases" else 2):
            return None
        if not all(
            0 < len(n.encode()) <= MAX_NAME_BYTES and quote(n, safe="") == e
            for n, e in zip(names, encoded, strict=True)
        ):
            return None
        return CatalogKey(root, *names)

    def __str__(self) -> str:
        return "/".join([self.root, *(quote(name, safe="") for name in self[1:] if name)])

    def description(self, record: Mapping[str, Any] | None = None) -> str:
        """Return what it is of, for people: ``table default.t``."""
        kind = _KINDS[self.root][0] if record is None else record["kind"]
        return f"{kind} {self.database}.{self.name}" if self.name else f"{kind} {self.database}"


def is_table_id(text: object) -> bool:
    """Return whether *text* can be the id of a table."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def page_key(table_id: str, page_id: str) -> str:
    """Return the key of a page."""
    return f"pages/{table_id}/{page_id}"


def parsed_page_key(key: str) -> tuple[str, str] | None:
    """Return the table's id and the page's id, or None if *key* is not that of a page."""
    root, _, rest = key.partition("/")
    table_id, _, page_id = rest.partition("/")
    return (table_id, page_id) if root == "pages" and is_table_id(table_id) and _PAGE_ID.fullmatch(page_id) else None


def plain_json(value: object) -> bytes:
    """Return *value* as JSON; `ValueError` for what JSON or UTF-8 does not have."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def parsed_json(text: bytes | str) -> dict[str, Any]:
    """Return the object that *text* is; `ValueError` for anything else."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - it is the text that is wrong
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def checked(key: CatalogKey, record: dict[str, Any], what: str) -> dict[str, Any]:
    """Return *record* if it can stand under *key*; `StateCorruptError` or `SchemaVersionError`, naming *what*, else."""
    version = record.get("version")
    if isinstance(version, int) and version > VERSION:
        raise SchemaVersionError(what, version, VERSION)
    if (why := next(_faults(key, record), None)) is not None:
        raise StateCorruptError(f"{what} cannot be read: {why}")
    return record


def _faults(key: CatalogKey, record: dict[str, Any]) -> Iterator[str]:
    if record.get("version") != VERSION or isinstance(record.get("version"), bool):
        yield f"its version is {record.get('version')!r}"
    if (kind := record.get("kind")) not in _KINDS[key.root]:
        yield f"its kind is {kind!r}"
    if not isinstance(record.get("spark"), dict):
        yield "it has no object `spark`"
    if key.root == "tables":
        if not is_table_id(record.get("id")):
            yield "its id is not 16 hexadecimal digits"
        pages = record.get("pages", [])
        if not isinstance(pages, list) or not all(isinstance(p, str) and _PAGE_ID.fullmatch(p) for p in pages):
            yield "its pages are not a list of names of pages"
        if not isinstance(record.get("merged", 0), int):
            yield "`merged` is not a number"


def read_record(key: CatalogKey, value: bytes, what: str) -> dict[str, Any]:
    """Return the record as stored; errors as in `checked`."""
    try:
        record = parsed_json(value)
    except ValueError as error:
        raise StateCorruptError(f"{what} cannot be read: {error}") from error
    return checked(key, record, what)


def location_of(record: Mapping[str, Any]) -> str:
    """Return where a table lies, as its record says; empty: nowhere, as a view."""
    storage = record["spark"].get("storage")
    location = storage.get("location") if isinstance(storage, dict) else None
    return location if isinstance(location, str) else ""


def new_partitions_at(record: Mapping[str, Any]) -> str:
    """Return below which URI partitions lie that rows are added to, and that are not there: never where others lay.

    All that add rows agree on it, unless a partition was removed between two of them.
    """
    removed = record.get("removed", 0)
    return f"{location_of(record)}/v-{removed:016x}" if removed else location_of(record)


# ---------------------------------------------------------------- pages


def pages_of(entries: Entries) -> Iterator[tuple[str, bytes]]:
    """Yield pages that hold *entries*, by path: the id of each, and its content as stored."""
    for page in _in_pages(entries):
        content = b"{%b}" % b",".join(page)
        yield hashlib.sha256(content).hexdigest()[:32], zlib.compress(content)


def page_count(entries: Entries) -> int:
    """Return how many pages *entries* take, unless they are long."""
    return -(-len(entries) // MAX_PAGE_PARTITIONS)


def _in_pages(entries: Entries) -> Iterator[list[bytes]]:
    page, size = list[bytes](), 0
    for path, partition in sorted(entries.items()):
        entry = b"%b:%b" % (plain_json(path), plain_json(partition))
        if page and (len(page) == MAX_PAGE_PARTITIONS or size + len(entry) > MAX_PAGE_BYTES):
            yield page
            page, size = [], 0
        page.append(entry)
        size += len(entry) + 1
    if page:
        yield page


def read_page(page_id: str, stored: bytes, what: str) -> Entries:
    """Return what `pages_of` put into a page; `StateCorruptError`, naming *what*, when it is damaged."""
    try:
        return _page(page_id, stored)
    except (ValueError, zlib.error) as error:
        raise StateCorruptError(f"{what} cannot be read: {error}") from error


def _page(page_id: str, stored: bytes) -> Entries:
    inflate = zlib.decompressobj()
    content = inflate.decompress(stored, 2 * MAX_PAGE_BYTES)
    if not inflate.eof or inflate.unused_data or hashlib.sha256(content).hexdigest()[:32] != page_id:
        raise ValueError("its content is not what its name says")
    entries = parsed_json(content)
    if not all(each is None or isinstance(each, dict) for each in entries.values()):
        raise ValueError("a partition in it is not an object")
    return entries


def unnumbered(partition: Partition | None) -> Partition | None:
    """Return a partition without the number of its last change."""
    return None if partition is None else {name: value for name, value in partition.items() if name != "changed"}


def folded(pages: Iterable[Entries]) -> dict[str, Partition]:
    """Return the partitions that *pages* make, applied in order."""
    found: dict[str, Partition] = {}
    for page in pages:
        for path, partition in page.items():
            if partition is None:
                found.pop(path, None)
            else:
                found[path] = partition
    return found
