"""Where a program wants DataFrames to be kept: remembered, since programs ask for it, and no more.

What Spark would keep belongs to a process, and only makes it faster.
"""

import hashlib
from typing import Any, Final

from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import PERSISTED, StorageLevel
from onager.scheduler.connect.sessions import Session, Sessions

MOST: Final = 200
"""DataFrames of which a session remembers it."""
_TRIES: Final = 8
_DEFAULT: Final = StorageLevel(use_disk=True, use_memory=True, deserialized=True, replication=1)


def told(session: Session, relation: bytes) -> Any:
    """Return the StorageLevel of a DataFrame, as its program has asked for it."""
    name = _name(relation)
    for entry in session.message.entries:
        if (entry.kind, entry.name) == (PERSISTED, name):
            return StorageLevel.FromString(pb.ConnectMade.FromString(entry.command).command)
    return StorageLevel(replication=1)  # none


async def persist(sessions: Sessions, session: Session, asked: Any) -> None:
    """Remember what an AnalyzePlanRequest.Persist asks for, unless its DataFrame has a level.

    Of very many DataFrames, the first ones are forgotten.
    """
    name = _name(asked.relation)
    level = asked.storage_level if asked.HasField("storage_level") else _DEFAULT
    made = pb.ConnectMade(name=name, command=level.SerializeToString())
    for _ in range(_TRIES):
        known = [entry for entry in session.message.entries if entry.kind == PERSISTED]
        if any(entry.name == name for entry in known):
            return
        put = pb.ConnectEntry(kind=PERSISTED, name=name, command=made.SerializeToString())
        if await _changed(sessions, session, [put], known[: len(known) + 1 - MOST]):
            return
        session = await sessions.open(session.key)


async def unpersist(sessions: Sessions, session: Session, relation: bytes) -> None:
    """Forget the level of a DataFrame."""
    for _ in range(_TRIES):
        gone = [e for e in session.message.entries if (e.kind, e.name) == (PERSISTED, _name(relation))]
        if not gone or await _changed(sessions, session, [], gone):
            return
        session = await sessions.open(session.key)


async def _changed(
    sessions: Sessions, session: Session, put: list[pb.ConnectEntry], removed: list[pb.ConnectEntry]
) -> bool:
    now = session.message
    applied = pb.ConnectApplied(put=put, removed=removed, conf=now.conf, catalog=now.catalog, database=now.database)
    return await sessions.apply(session, applied, ((), {})) is not None


def _name(relation: bytes) -> str:
    return hashlib.sha256(relation).hexdigest()[:32]
