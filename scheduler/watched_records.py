"""A cache of all records of one keyspace, kept fresh by a watch."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Generic, TypeVar

import structlog

from onager.errors import SchemaVersionError, StateCorruptError
from onager.scheduler.records import Record
from onager.state_backend import ABSENT, EventKind, Keyspace, StateBackendClient

log = structlog.get_logger(__name__)

_R = TypeVar("_R", bound=Record)
OnChange = Callable[[str, _R | None, _R | None], None]
"""Called with a key, the record that is new there or None if it is gone, and the one before it."""


def _ignore(key: str, record: object, before: object) -> None:
    del key, record, before


class WatchedRecords(Generic[_R]):
    """The records by key, each with its revision.

    Of a record that cannot be read the one before stays, until all are read again: then it counts as gone.
    """

    def __init__(
        self,
        backend: StateBackendClient,
        keyspace: Keyspace,
        kind: type[_R],
        id_field: str,
        on_change: OnChange[_R] = _ignore,
    ) -> None:
        """Make it; the field *id_field* of a record is its key."""
        self._backend = backend
        self._keyspace = keyspace
        self._kind = kind
        self._key_of: Callable[[_R], str] = attrgetter(id_field)
        self._on_change = on_change
        self._records: dict[str, tuple[int, _R]] = {}

    def find(self, key: str) -> _R | None:
        """Return the record as last seen."""
        found = self._records.get(key)
        return None if found is None else found[1]

    def revision(self, key: str) -> int:
        """Return the revision of the record as last seen, `ABSENT` when there is none."""
        found = self._records.get(key)
        return ABSENT if found is None else found[0]

    def revisions(self) -> dict[str, int]:
        """Return the revision of each record, by key."""
        return {key: revision for key, (revision, _) in list(self._records.items())}

    def __iter__(self) -> Iterator[_R]:
        # In one step for threads that look while a watch changes it.
        return iter([record for _, record in list(self._records.values())])

    def seen(self, record: _R, revision: int) -> None:
        """Take in a record as of *revision*; a record older than the known one changes nothing."""
        key = self._key_of(record)
        if revision > self.revision(key):
            before = self.find(key)
            self._records[key] = (revision, record)
            self._on_change(key, record, before)

    def forget(self, key: str) -> None:
        """Drop a record that is gone."""
        found = self._records.pop(key, None)
        if found is not None:
            self._on_change(key, None, found[1])

    def take(self, key: str, value: bytes, revision: int, *, is_strict: bool = False) -> bool:
        """Take in a record as it is stored; return False for one that cannot be read.

        If *is_strict*, raise `SchemaVersionError` for one of another release.
        """
        try:
            self.seen(self._kind.decoded(value, f"{self._keyspace}/{key}"), revision)
        except (StateCorruptError, SchemaVersionError) as error:
            if is_strict and isinstance(error, SchemaVersionError):
                raise
            log.error("record_unreadable", key=f"{self._keyspace}/{key}", error=str(error))  # noqa: TRY400
            return False
        return True

    async def refresh(self, *, is_strict: bool = False) -> int:
        """Read all records; return the revision to watch from."""
        page = await self._backend.get_from_prefix(self._keyspace, "")
        for item in page:
            is_readable = self.take(item.key, item.value, item.mod_revision, is_strict=is_strict)
            if not is_readable and item.mod_revision > self.revision(item.key):
                self.forget(item.key)
        found = {item.key for item in page}
        for key, revision in self.revisions().items():
            if key not in found and revision <= page.revision:
                self.forget(key)
        return page.revision

    async def watch(self) -> None:
        """Read all records, and follow their changes until the watch ends."""
        revision = await self.refresh()
        async with self._backend.watch(self._keyspace, from_revision=revision + 1) as events:
            async for event in events:
                if event.kind is EventKind.PUT:
                    self.take(event.key, event.value, event.mod_revision)
                elif self.revision(event.key) < event.mod_revision:
                    self.forget(event.key)
