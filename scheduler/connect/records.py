"""What is stored of sessions and of the commands in them.

- ``ConnectSessions/USER/SESSION``: the record of a session; a write expects it as it was read.
- ``ConnectEntries/USER/SESSION/NUMBER``: a command that made a view, a function, a data source; written once.
- ``ConnectOperations/USER/SESSION/OPERATION``: what a command answered, written in one transaction with its effect.
"""

from typing import Final, NamedTuple
from urllib.parse import quote

from pydantic import Field

from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MIB
from onager.scheduler.records import Record

MAX_SESSIONS: Final = 200
"""Sessions of one user, ended ones of the last hour included."""
MAX_ENTRIES: Final = 1_000
"""Views, functions, data sources and checkpoints of one session."""
MAX_ENTRY_BYTES: Final = MIB
"""One of them, as stored."""
MAX_ENTRIES_BYTES: Final = 6 * MIB
"""All of them together."""
MAX_CACHES: Final = 100
"""Cached DataFrames, tables and views of one session."""
MAX_CONF: Final = 1_000
"""Settings of one session."""
MAX_CONF_BYTES: Final = 256 * 1024
MAX_RESPONSES_BYTES: Final = MIB
"""What one command answers."""
MAX_OPERATIONS: Final = 64
"""Operations of one session that run at a time."""
MAX_ARTIFACTS: Final = 2_000
MAX_ARTIFACTS_BYTES: Final = 1024 * MIB
"""Files that were added to one session."""


class SessionKey(NamedTuple):
    """Whose session it is, and its id, which the client made."""

    user: str
    session_id: str

    @property
    def path(self) -> str:
        """Return the key in the store."""
        return f"{quote(self.user, safe='') or '%'}/{self.session_id}"


class EntryRecord(Record):
    """A command that is carried out again wherever the session is made again."""

    kind: str
    name: str
    number: int
    size_bytes: int


class ArtifactRecord(Record):
    """A file that a client added."""

    name: str
    digest: str
    size_bytes: int


class SessionRecord(Record):
    """A session, but for its entries' commands."""

    user: str
    session_id: str
    server_side_session_id: str
    revision: int = 1
    """Grows with every change of what follows it."""
    conf: dict[str, str] = Field(default_factory=dict)
    catalog: str = ""
    database: str = ""
    entries: tuple[EntryRecord, ...] = ()
    artifacts: tuple[ArtifactRecord, ...] = ()
    next_number: int = 1
    created_ms: int = 0
    used_ms: int = 0
    closed_ms: int = 0
    """When its client ended it; 0: it has not."""
    cloned_from: str = ""
    """Of a clone: the other id of its model."""
    is_made: bool = True
    """False while a clone is being made: it counts as ended until then, and goes with the ended ones."""
    program: str = ""
    """The path of the program whose it is; with that it stays, however long it is not used."""
    written_by: str = ""
    """Drawn for each write, to find out what became of one whose outcome was unknown."""

    @property
    def key(self) -> SessionKey:
        """Return the session's key."""
        return SessionKey(self.user, self.session_id)


class OperationRecord(Record):
    """A command that was carried out, or is by a job."""

    digest: str
    """Of the plan: another one under the same id is refused."""
    at_ms: int
    responses: tuple[str, ...] = ()
    """In Base64, without ids; of a job, what the client gets once it has succeeded."""
    work: str = ""
    """Of a job: which; empty: there is none."""
    session: str = ""
    """Of a job: the session as it was when the operation began, in Base64."""
    is_begun: bool = False
    """Of a job: whether it was submitted, in the transaction that wrote this. It is never submitted again."""


def session_message(record: SessionRecord, commands: dict[int, bytes]) -> pb.ConnectSession:
    """Return a session as Spark needs it."""
    return pb.ConnectSession(
        user=record.user,
        session_id=record.session_id,
        server_side_session_id=record.server_side_session_id,
        revision=record.revision,
        conf=record.conf,
        catalog=record.catalog,
        database=record.database,
        entries=[pb.ConnectEntry(kind=e.kind, name=e.name, command=commands[e.number]) for e in record.entries],
        artifacts=[pb.ConnectArtifact(name=a.name, digest=a.digest, size=a.size_bytes) for a in record.artifacts],
    )
