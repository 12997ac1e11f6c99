"""What a program caches: `cache()` and `persist()`, CACHE TABLE, and their opposites.

A session has an entry for each. Nothing runs for it: the first job that reads its rows makes them.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from onager.executor.spark.connect import entries
from onager.executor.spark.connect.sessions import USUAL_LEVEL, ConnectSession
from onager.executor.spark.jvm import JavaObject, Jvm
from onager.executor.spark.planning.names import quoted
from onager.protocol.spark_connect import AnalyzePlanRequest, AnalyzePlanResponse, Relation, StorageLevel

_NONE: Final = StorageLevel(replication=1)


def persist(content: bytes, session: ConnectSession) -> entries.Change:
    """Return the change for an AnalyzePlanRequest that persists a DataFrame or takes that back; Spark's errors."""
    asked = AnalyzePlanRequest.FromString(content)
    if asked.HasField("unpersist"):
        return _uncached(session, asked.unpersist.relation)
    return _cached(session, asked.persist.relation, asked.persist.storage_level if _has_level(asked) else None)


def storage_level(content: bytes, session: ConnectSession) -> bytes:
    """Return the AnalyzePlanResponse to a request for the level at which a DataFrame is persisted."""
    asked = AnalyzePlanRequest.FromString(content).get_storage_level
    found = session.caches.of(_frame(session, asked.relation), cascades=False)
    answer = AnalyzePlanResponse()
    answer.get_storage_level.storage_level.CopyFrom(session.levels[found[0]] if found else _NONE)
    return bytes(answer.SerializeToString())


def is_cached(name: str, session: ConnectSession) -> bool:
    """Return whether the table or view *name* is cached; Spark's errors."""
    return bool(session.caches.of(_frame(session, _table(name)), cascades=False))


def cached_table(name: str, session: ConnectSession, level: Any = None) -> entries.Change:
    """Return the change that caches the table or view *name*."""
    return _cached(session, _table(name), level, table=name)


def uncached_table(name: str, session: ConnectSession) -> entries.Change:
    """Return the change that caches the table or view *name* no more; of a table, also what is made of it."""
    is_view = name.strip("`").lower() in {view.lower() for view in session.connect.temporary_views()}
    return _uncached(session, _table(name), cascades=not is_view)


def cleared(session: ConnectSession) -> entries.Change:
    """Return the change by which nothing is cached."""
    return entries.Change([], entries.cached(session.stored))


def of_statement(jvm: Jvm, kind: str, plan: JavaObject, session: ConnectSession) -> entries.Change:
    """Return the change for a parsed statement of *kind*, one of `STATEMENTS`; Spark's errors."""
    return STATEMENTS[kind](jvm, plan, session)


def _cache_table(jvm: Jvm, plan: JavaObject, session: ConnectSession) -> entries.Change:
    named = session.connect.level(plan)
    level = StorageLevel.FromString(named) if named else None
    return cached_table(_name(jvm, plan.multipartIdentifier()), session, level)


def _uncache_table(jvm: Jvm, plan: JavaObject, session: ConnectSession) -> entries.Change:
    name = _name(jvm, plan.table().multipartIdentifier())
    if plan.ifExists() and not session.spark.catalog.tableExists(name):
        return entries.Change([], [])
    return uncached_table(name, session)


STATEMENTS: Final[Mapping[str, Callable[[Jvm, JavaObject, ConnectSession], entries.Change]]] = {
    "CacheTable": _cache_table,
    "UncacheTable": _uncache_table,
    "ClearCacheCommand": lambda _jvm, _plan, session: cleared(session),
}
"""What to do for parsed statements, by their classes."""


def _cached(session: ConnectSession, relation: bytes, level: Any = None, *, table: str = "") -> entries.Change:
    request = AnalyzePlanRequest()
    request.persist.relation = relation
    request.persist.storage_level.CopyFrom(USUAL_LEVEL if level is None else level)
    command = request.SerializeToString()
    reads = session.reads("AnalyzePlanRequest", command)
    session.make({*reads, *entries.caches(session.stored)})
    cache_id = uuid.uuid4().hex
    if not session.cache(cache_id, request.persist, {}, session.slots, table):
        return entries.Change([], [])  # it is cached; the first level counts, as in Spark
    return entries.cache(session.stored, cache_id, command, reads, slots=session.slots, table=table)


def _uncached(session: ConnectSession, relation: bytes, *, cascades: bool = False) -> entries.Change:
    session.make({*session.reads("Relation", relation), *entries.caches(session.stored)})
    found = set(session.caches.of(_frame(session, relation), cascades=cascades))
    return entries.Change([], [entry for entry in entries.cached(session.stored) if entry.name in found])


def _frame(session: ConnectSession, relation: bytes) -> JavaObject:
    return session.connect.dataset(session.connect.plan(relation))


def _table(name: str) -> bytes:
    return bytes(Relation(read={"named_table": {"unparsed_identifier": name}}).SerializeToString())


def _name(jvm: Jvm, parts: JavaObject) -> str:
    return ".".join(quoted(str(part)) for part in jvm.items(parts))


def _has_level(asked: Any) -> bool:
    return bool(asked.persist.HasField("storage_level"))
