"""The sessions of a mended program: settings, views and functions are made again as it makes its calls.

So a call that was added, or that differs, finds the session as it is at that place of the program, not as the program
before has left it. What a session holds by values stays: files, checkpoints, caches and variables. A copy of how it was
is kept, and put back with the program.
"""

from collections.abc import Iterable
from typing import Final

from onager.errors import InvalidRequestError
from onager.protocol.spark_connect import CACHE, KEPT
from onager.scheduler.connect.records import SessionKey, SessionRecord
from onager.scheduler.program_records import ProgramRecord
from onager.scheduler.records import Extra
from onager.state_backend import Delete, Keyspace, Op, Put, StateBackendClient

_VARIABLE: Final = "variable"
"""The kind of the entry that a variable of SQL is."""
_MOST: Final = 16
"""Sessions that are written in one transaction."""
_STAYING: Final = (KEPT, CACHE, _VARIABLE)
_Place = tuple[Keyspace, str]


async def made_anew(backend: StateBackendClient, keys: Iterable[SessionKey]) -> tuple[tuple[str, ...], Extra]:
    """Return the paths of the sessions in which settings are made again, and what begins that.

    A session that is the clone of another one stays as it is. `InvalidRequestError` for too many sessions.
    """
    keys = sorted(keys)
    if len(keys) > _MOST:
        raise InvalidRequestError(
            f"it has {len(keys):,} sessions, and a mended program goes on with at most {_MOST}: retry it as it is"
        )
    ops: list[Op] = []
    expected: dict[_Place, int] = {}
    paths: list[str] = []
    for key in keys:
        found = await backend.get(*_session(key.path))
        if found is None:
            continue
        record = SessionRecord.decoded(found.value, f"ConnectSessions/{key.path}")
        if record.closed_ms or record.cloned_from:
            continue
        entries = tuple(entry for entry in record.entries if entry.kind in _STAYING)
        changed = {"conf": {}, "catalog": "", "database": "", "entries": entries, "revision": record.revision + 1}
        ops += [
            Put(*_session(key.path), record.model_copy(update=changed).encoded()),
            Put(*_copy(key.path), found.value),
        ]
        expected[_session(key.path)] = found.mod_revision
        paths.append(key.path)
    return tuple(paths), (ops, expected)


async def put_back(backend: StateBackendClient, program: ProgramRecord) -> Extra:
    """Return what puts the sessions of a program back to what they were before it was mended."""
    assert program.mending is not None
    ops: list[Op] = []
    expected: dict[_Place, int] = {}
    for path in program.mending.sessions:
        places = [_session(path), _copy(path)]
        found = (await backend.read_txn(places)).values
        now, before = found[places[0]], found[places[1]]
        if now is None or before is None:
            continue
        session = SessionRecord.decoded(now.value, f"ConnectSessions/{path}")
        record = SessionRecord.decoded(before.value, f"ConnectOperations/{before.key}")
        newer = {"revision": session.revision + 1, "next_number": session.next_number}
        restored = record.model_copy(update=newer)
        ops += [Put(*places[0], restored.encoded()), Delete(*places[1])]
        expected[places[0]] = now.mod_revision
    return ops, expected


def _session(path: str) -> _Place:
    return Keyspace.ConnectSessions, path


def _copy(path: str) -> _Place:
    return Keyspace.ConnectOperations, f"{path}/before"
