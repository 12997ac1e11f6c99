"""Who changed what, as plain values."""

from collections.abc import Iterator
from dataclasses import dataclass

from onager.client.connection import Connection
from onager.client.copying import copied
from onager.protocol import onager_pb2 as pb


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An act at somebody's request, or several of one kind."""

    at_ms: int
    """Since the Unix epoch, by the clock of the scheduler that was asked."""
    principal: str
    """The name of the caller's token; empty without tokens, and for a token without a name."""
    address: str
    """The caller's address."""
    scheduler_id: str
    """The scheduler that was asked. Empty for a command that opened the store itself; then the principal is a user of
    the machine at that address."""
    action: str
    """``cancel``, ``retry``, ``drain``, ``remove_state``, ``backup`` or ``restore``; of everyday acts ``submit``,
    ``fetch``, ``change_tables``, ``interrupt``, ``login`` or ``refuse``; ``unreadable`` for a damaged record."""
    target: str
    """The job, executor, path, file or call; empty where a record stands for many everyday acts."""
    detail: str
    """The reason given, the tables, or how many acts it stands for."""
    outcome: str
    """``done``, with more after a colon; why it was not done; or ``begun``, where nobody knows: the scheduler died, or
    the caller left."""


def list_audit(connection: Connection, request: pb.ListAuditRequest) -> Iterator[AuditEntry]:
    """Yield what *request* asks for, page by page."""
    for answer in connection.pages("ListAudit", request):
        for entry in answer.entries:
            yield copied(AuditEntry, entry)
