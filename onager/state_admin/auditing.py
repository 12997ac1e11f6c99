"""Listing who changed what."""

from typing import Final

from onager.errors import SchemaVersionError, StateCorruptError
from onager.protocol import onager_pb2 as pb
from onager.redaction import shown_text
from onager.scheduler.jobs.audit import AuditRecord, key_ms, since_key
from onager.state_backend import Keyspace, KeyValue, StateBackendClient

_LIST_DEFAULT: Final = 100
_PAGE: Final = 128
_FIELDS: Final = {"at_ms", "principal", "address", "scheduler_id", "action", "target"}
_MAX_READ: Final = 4_096
"""Records read for one answer, however few of them are wanted."""
_MAX_BYTES: Final = 1024 * 1024
"""The records of one answer, about."""


async def list_audit(backend: StateBackendClient, request: pb.ListAuditRequest) -> pb.ListAuditResponse:
    """Return a page of the audit, oldest first: keys are in the order of time, and new ones come last.

    A record that cannot be read is shown with the action ``unreadable``.
    """
    response = pb.ListAuditResponse()
    limit = request.limit or _LIST_DEFAULT
    after, read, size = max(since_key(request.since_ms), request.cursor), 0, 0
    while True:
        page = await backend.scan(Keyspace.Audit, limit=_PAGE, start_after=after)
        for item in page:
            if request.until_ms and key_ms(item.key) >= request.until_ms:
                return response
            after, read = item.key, read + 1
            entry = _entry(item)
            if _is_wanted(entry, request):
                response.entries.append(entry)
                size += len(item.value)
            if len(response.entries) == limit or read == _MAX_READ or size > _MAX_BYTES:
                response.next = after
                return response
        if not page.has_more:
            return response


def _is_wanted(entry: pb.AuditEntry, request: pb.ListAuditRequest) -> bool:
    return all(getattr(request, name) in ("", getattr(entry, name)) for name in ("action", "target", "principal"))


def _entry(item: KeyValue) -> pb.AuditEntry:
    try:
        record = AuditRecord.decoded(item.value, f"Audit/{item.key}")
    except (StateCorruptError, SchemaVersionError) as error:
        return pb.AuditEntry(
            at_ms=key_ms(item.key), action="unreadable", target=f"Audit/{item.key}", outcome=str(error)
        )
    fields = record.model_dump(include=_FIELDS)
    return pb.AuditEntry(**fields, detail=shown_text(record.detail), outcome=shown_text(record.outcome))
