"""Where a program wants DataFrames to be kept: remembered, since programs ask for it, and no more.

What Spark would keep belongs to a process, and only makes it faster.
"""

import hashlib
from typing import Any, Final

from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import PERSISTED, StorageLevel
from onager.scheduler.connect.sessions import Session, Sessions

MAX_LEVELS: Final = 200
"""DataFrames of which a session remembers it."""
_DEFAULT: Final = StorageLevel(use_disk=True, use_memory=True, deserialized=True, replication=1)


def level_of(session: Session, relation: bytes) -> Any:
    """Return the StorageLevel of a DataFrame, as its program has asked for it."""
    name = _name(relation)
    for entry in session.message.entries:
        if (entry.kind, entry.name) == (PERSISTED, name):
            return StorageLevel.FromString(pb.ConnectMade.FromString(entry.command).command)
    return StorageLevel(replication=1)  # none


async def persist(sessions: Sessions, session: Session, asked: Any, answer: bytes) -> None:
    """Remember what an AnalyzePlanRequest.Persist asks for, unless its DataFrame has a level; *answer* it.

    Of very many DataFrames, the first ones are forgotten.
    """
    name = _name(asked.relation)
    level = asked.storage_level if asked.HasField("storage_level") else _DEFAULT
    made = pb.ConnectMade(name=name, command=level.SerializeToString())
    put = pb.ConnectEntry(kind=PERSISTED, name=name, command=made.SerializeToString())

    async def tried(session: Session) -> Session | None:
        known = [entry for entry in session.message.entries if entry.kind == PERSISTED]
        if any(entry.name == name for entry in known):
            return session
        return await _changed(sessions, session, answer, [put], known[: max(0, len(known) + 1 - MAX_LEVELS)])

    await sessions.until_done(session, tried)


async def unpersist(sessions: Sessions, session: Session, relation: bytes, answer: bytes) -> None:
    """Forget the level of a DataFrame; *answer* the call."""
    name = _name(relation)

    async def tried(session: Session) -> Session | None:
        gone = [entry for entry in session.message.entries if (entry.kind, entry.name) == (PERSISTED, name)]
        return await _changed(sessions, session, answer, [], gone) if gone else session

    await sessions.until_done(session, tried)


async def _changed(
    sessions: Sessions,
    session: Session,
    answer: bytes,
    put: list[pb.ConnectEntry],
    removed: list[pb.ConnectEntry],
) -> Session | None:
    now = session.message
    applied = pb.ConnectApplied(put=put, removed=removed, conf=now.conf, catalog=now.catalog, database=now.database)
    return await sessions.apply(session, applied, answer=answer)


def _name(relation: bytes) -> str:
    return hashlib.sha256(relation).hexdigest()[:32]
