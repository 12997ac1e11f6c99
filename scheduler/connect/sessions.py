"""Sessions in the store: opened by whoever asks first, changed only as they were read, ended by name or by age."""

import asyncio
import contextlib
import re
import secrets
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import structlog

from onager.clock import Clock
from onager.errors import BusyError, SchemaVersionError, StateCorruptError
from onager.program_files import files_digest
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import CACHE, KEPT
from onager.scheduler.connect.failures import ConnectError, invalid, too_large
from onager.scheduler.connect.program_calls import ProgramCall
from onager.scheduler.connect.records import (
    MAX_CACHES,
    MAX_CONF,
    MAX_CONF_BYTES,
    MAX_ENTRIES,
    MAX_ENTRIES_BYTES,
    MAX_ENTRY_BYTES,
    MAX_SESSIONS,
    EntryRecord,
    SessionKey,
    SessionRecord,
    session_message,
)
from onager.scheduler.records import NOTHING_MORE, Extra, pack_blob, unpack
from onager.state_backend import (
    ABSENT,
    Conflict,
    Delete,
    DeleteRange,
    KeyRange,
    Keyspace,
    Op,
    Put,
    StateBackendClient,
    commit_settled,
    each_page,
)

log = structlog.get_logger(__name__)

_AT_HAND: Final = 256
"""Sessions whose commands are kept at hand."""
_USED_EVERY_MS: Final = 60_000
"""Interval between writes that say that a session is used."""
_TOMBSTONE_MS: Final = 3_600_000
_TRIES: Final = 20
_CHANGE_TRIES: Final = 30
_PAGE: Final = 200
_NAMES: Final = re.compile(rb"[0-9a-f]{64}|(?:connect-)?[0-9a-f]{32}")
"""What looks like the digest of a file, or the id of a checkpoint or a cache, in an unreadable record: that stays."""

Answer = bytes | ConnectError
"""What a call that changes a session answers."""
_Done = TypeVar("_Done")
OnUncached = Callable[[Collection[str]], Awaitable[None]]
"""Takes ids of caches."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it is stored."""

    record: SessionRecord
    mod_revision: int
    message: pb.ConnectSession
    """As Spark needs it; not to be changed."""
    call: ProgramCall | None = None
    """The call of a program for which it was opened: nothing is written for one of an earlier attempt."""

    @property
    def key(self) -> SessionKey:
        """Return the session's key."""
        return self.record.key

    def of_answer(self, kind: Callable[..., Any]) -> bytes:
        """Return what is in every answer of the *kind*, encoded: two encoded messages in a row are one."""
        answer = kind(session_id=self.key.session_id, server_side_session_id=self.record.server_side_session_id)
        return bytes(answer.SerializeToString())


class Sessions:
    """The sessions of all users."""

    def __init__(
        self, backend: StateBackendClient, clock: Clock, *, retention_s: int, on_uncached: OnUncached | None = None
    ) -> None:
        """A session that was not used for *retention_s* is forgotten.

        *on_uncached* gets the ids of what a session caches no more. A scheduler that dies before leaves it to a sweep.
        """
        self._on_uncached = on_uncached
        self._backend = backend
        self._clock = clock
        self._retention_ms = retention_s * 1000
        self._at_hand: OrderedDict[SessionKey, Session] = OrderedDict()
        self._turns: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()

    # ---------------------------------------------------------------- reading

    async def find(self, key: SessionKey) -> Session | None:
        """Return a session, also one that has ended; None if it was never opened."""
        at_hand = self._at_hand.get(key)
        place = (Keyspace.ConnectSessions, key.path)
        if at_hand is not None:
            found = await self._backend.get(*place)
            if found is None:
                return None
            if found.mod_revision == at_hand.mod_revision:
                return at_hand
        snapshot = await self._backend.read_txn([place], [KeyRange(Keyspace.ConnectEntries, f"{key.path}/")])
        found = snapshot.values[place]
        if found is None:
            return None
        record = SessionRecord.decoded(found.value, f"ConnectSessions/{key.path}")
        commands = {
            int(item.key.rpartition("/")[2]): unpack(item.value, f"ConnectEntries/{item.key}")
            for item in snapshot.ranges[0]
        }
        return self._kept(Session(record, found.mod_revision, session_message(record, commands)))

    def at_hand(self, key: SessionKey) -> Session | None:
        """Return a session as last seen here, which need not be as it is now."""
        return self._at_hand.get(key)

    async def open(self, key: SessionKey, observed: str = "", call: ProgramCall | None = None) -> Session:
        """Return a session, which is made if there is none; *observed* is its other id as the client knows it.

        *call*: the call of a program for which it is opened. `ConnectError` for one that has ended, or that is another
        one by now.
        """
        _check_id(key.session_id)
        for _ in range(_TRIES):
            session = _for_call(await self.find(key), call)
            if session is None and not observed:
                session = await self._make(key, call)
                if session is None:
                    await _check_counts(call)
                    continue
            if session is None or (observed and session.record.server_side_session_id != observed):
                raise invalid("SESSION_CHANGED", key.session_id, "The session is gone, or another one took its place.")
            if session.record.closed_ms:
                raise invalid("SESSION_CLOSED", key.session_id, "Session was closed.")
            if self._clock.now_ms() - session.record.used_ms > _USED_EVERY_MS:
                session = await self._write(session, session.record) or _for_call(await self.find(key), call) or session
            return session
        raise BusyError(f"session {key.session_id} changes too often to be opened")

    def _kept(self, session: Session) -> Session:
        self._at_hand[session.key] = session
        self._at_hand.move_to_end(session.key)
        if len(self._at_hand) > _AT_HAND:
            self._at_hand.popitem(last=False)
        return session

    # ---------------------------------------------------------------- changing

    async def _make(self, key: SessionKey, call: ProgramCall | None) -> Session | None:
        if call is None:
            await self._check_room(key)
        record = SessionRecord(user=key.user, session_id=key.session_id, server_side_session_id=str(uuid.uuid4()))
        program = "" if call is None else call.fence.key.path
        record = record.model_copy(update={"created_ms": self._clock.now_ms(), "program": program})
        session = Session(record, ABSENT, pb.ConnectSession(), call)
        made = await self._write(session, session.record)
        if made is not None:
            log.info("connect_session_opened", user=key.user, session=key.session_id)
        return made

    async def _check_room(self, key: SessionKey) -> None:
        prefix = f"{key.path.rpartition('/')[0]}/"
        of_user = await self._backend.scan_keys(Keyspace.ConnectSessions, prefix, limit=MAX_SESSIONS)
        if len(of_user) >= MAX_SESSIONS:
            unit = "sessions (end some of them)"
            raise too_large(f"user {key.user!r}", len(of_user) + 1, MAX_SESSIONS, unit, is_passing=True)

    async def change(self, session: Session, changed: Mapping[str, Any], answer: Answer) -> Session | None:
        """Write a session with *changed* fields of its record; None when it is not as it was read.

        With it goes the record of the call for which it is done, if that is a program's, and *answer* is its outcome.
        """
        return await self._answered(session, _next(session.record.model_copy(update=changed)), [], answer)

    async def apply(
        self,
        session: Session,
        applied: pb.ConnectApplied,
        extra: Extra = NOTHING_MORE,
        answer: Answer | None = None,
    ) -> Session | None:
        """Write what a command made of a session, with *extra*; None when either is not as it was read.

        *answer*: as in `change`, instead of *extra*.
        """
        record = session.record
        _check_conf(applied.conf)
        gone = {(e.kind, e.name) for e in (*applied.removed, *applied.put)}
        entries = [e for e in record.entries if (e.kind, e.name) not in gone]
        ops: list[Op] = [
            Delete(Keyspace.ConnectEntries, f"{record.key.path}/{e.number:08d}")
            for e in record.entries
            if (e.kind, e.name) in gone
        ]
        number = record.next_number
        for put in {(e.kind, e.name): e for e in applied.put}.values():
            stored = pack_blob(put.command)
            if len(stored) > MAX_ENTRY_BYTES:
                raise too_large(f"the {put.kind} {put.name}", len(stored), MAX_ENTRY_BYTES)
            ops.append(Put(Keyspace.ConnectEntries, f"{record.key.path}/{number:08d}", stored))
            entries.append(EntryRecord(kind=put.kind, name=put.name, number=number, size_bytes=len(put.command)))
            number += 1
        if len(entries) > MAX_ENTRIES:
            raise too_large("the session", len(entries), MAX_ENTRIES, "views, functions and checkpoints")
        if (count := sum(e.kind == CACHE for e in entries)) > MAX_CACHES:
            raise too_large("the session", count, MAX_CACHES, "cached DataFrames (unpersist some of them)")
        if (size := sum(e.size_bytes for e in entries)) > MAX_ENTRIES_BYTES:
            raise too_large("what views and functions of the session are made of", size, MAX_ENTRIES_BYTES)
        changed = record.model_copy(
            update={
                "conf": dict(sorted(applied.conf.items())),
                "catalog": applied.catalog,
                "database": applied.database,
                "entries": tuple(entries),
                "next_number": number,
            }
        )
        if answer is not None:
            return await self._answered(session, _next(changed), ops, answer)
        return await self._write(session, _next(changed), ops, extra)

    async def _answered(
        self, session: Session, record: SessionRecord, ops: Sequence[Op], answer: Answer
    ) -> Session | None:
        """Write a session with the outcome of the call for which that is done, if it is recorded: *answer*."""
        call = session.call
        if call is None or not call.name.is_recorded:
            return await self._write(session, record, ops)
        if isinstance(answer, ConnectError):
            extra = call.extra(**call.outcome_of_error(answer), is_done=True)
        else:
            extra = call.extra(**await call.outcome_of([answer]), is_done=True)
        written = await self._write(session, record, ops, extra)
        if written is not None:
            call.took(extra, written.mod_revision)
            if isinstance(answer, ConnectError):
                answer.is_recorded = True
        return written

    async def until_done(self, session: Session, tried: Callable[[Session], Awaitable[_Done | None]]) -> _Done:
        """Try to change a session until that is done: the first time at once, and then one after the other.

        `CallAnsweredError` if the call for which it is done was answered elsewhere meanwhile.
        """
        if (done := await tried(session)) is not None:
            return done
        async with self._turns.setdefault(session.key, asyncio.Lock()):
            for _ in range(_CHANGE_TRIES):
                await _check_open(session.call)
                if (done := await tried(await self.open(session.key, call=session.call))) is not None:
                    return done
        raise BusyError("the session changes too often: try again")

    async def close(self, key: SessionKey) -> Session | None:
        """End a session, for good; return it as it was, None if there is none."""
        _check_id(key.session_id)
        for _ in range(_TRIES):
            session = await self.find(key)
            if session is None or session.record.closed_ms:
                return session
            gone = {"closed_ms": self._clock.now_ms(), "conf": {}, "entries": (), "artifacts": ()}
            ops: list[Op] = [DeleteRange(Keyspace.ConnectEntries, f"{key.path}/"), Put(*end_of(key), b"{}")]
            if await self._write(session, _next(session.record.model_copy(update=gone)), ops) is not None:
                log.info("connect_session_closed", user=key.user, session=key.session_id)
                return session
        raise BusyError(f"session {key.session_id} changes too often to be closed")

    async def clone(self, session: Session, to: SessionKey, answered: Callable[[Session], bytes]) -> Session:
        """Make a session of *session* as it is; the same call again returns the one that was made, while it is new.

        With it goes the record of the call for which that is done, as in `change`; *answered*: its answer.
        """
        _check_id(to.session_id)
        found = _for_call(await self.find(to), session.call)
        if found is None:
            if session.call is None:
                await self._check_room(to)
            found = await self._begin_clone(session, to) or _for_call(await self.find(to), session.call)
        if found is not None and _is_left_over(found.record, session.record):
            begun = found.record.model_copy(update={"revision": session.record.revision})
            found = await self._write(found, begun) or found
        if found is None or not _is_new_clone(found.record, session.record):
            raise invalid("SESSION_ALREADY_EXISTS", to.session_id, "Session already exists.")
        if found.record.is_made:
            return found
        stored = [
            Put(Keyspace.ConnectEntries, f"{to.path}/{entry.number:08d}", pack_blob(message.command))
            for entry, message in zip(session.record.entries, session.message.entries, strict=True)
        ]
        await self._backend.put_all(stored)
        own = {
            "user",
            "session_id",
            "server_side_session_id",
            "created_ms",
            "cloned_from",
        }
        record = session.record.model_copy(update=found.record.model_dump(include=own))
        made = await self._answered(found, record, [], answered(found))
        if made is None:
            await _check_open(session.call)
            raise BusyError(f"session {to.session_id} is being made by another call: try again")
        return made

    async def _begin_clone(self, session: Session, to: SessionKey) -> Session | None:
        """Write the record of a clone that has no entries yet: by it a sweep finds what a dead scheduler leaves."""
        now_ms = self._clock.now_ms()
        record = SessionRecord(
            user=to.user,
            session_id=to.session_id,
            server_side_session_id=str(uuid.uuid4()),
            revision=session.record.revision,
            created_ms=now_ms,
            closed_ms=now_ms,
            cloned_from=session.record.server_side_session_id,
            is_made=False,
        )
        return await self._write(Session(record, ABSENT, pb.ConnectSession(), session.call), record)

    async def _write(
        self, session: Session, record: SessionRecord, ops: Sequence[Op] = (), extra: Extra = NOTHING_MORE
    ) -> Session | None:
        mine = secrets.token_hex(8)
        record = record.model_copy(update={"used_ms": self._clock.now_ms(), "written_by": mine})
        place = (Keyspace.ConnectSessions, record.key.path)
        more, expected = extra
        fenced = {} if session.call is None else session.call.fence.expected
        ops, expect = [Put(*place, record.encoded()), *ops, *more], {place: session.mod_revision, **fenced, **expected}
        if isinstance(await commit_settled(self._backend, ops, expect), Conflict):
            return None
        self._at_hand.pop(record.key, None)
        if (gone := _caches(session.record) - _caches(record)) and self._on_uncached is not None:
            await self._on_uncached(gone - await self._cached_by_others(record) if record.closed_ms else gone)
        return _for_call(await self.find(record.key), session.call)

    async def _cached_by_others(self, ended: SessionRecord) -> set[str]:
        """Return what other sessions of the user cache: those that were cloned have the caches of their model."""
        user = ended.key.path.rpartition("/")[0]
        found: set[str] = set()
        async for page in each_page(self._backend.scan, Keyspace.ConnectSessions, f"{user}/", limit=_PAGE):
            for item in page:
                with contextlib.suppress(StateCorruptError, SchemaVersionError):
                    found |= _caches(SessionRecord.decoded(item.value, f"ConnectSessions/{item.key}"))
        return found

    # ---------------------------------------------------------------- age

    async def sweep(self, programs: Collection[str] = ()) -> set[str]:
        """Forget sessions that are past their retention; return what the others have.

        That is the digests of their files, the jobs that have made their checkpoints, and the ids of what they cache.
        Sessions of *programs*, by their paths, stay, since these go on; those of other programs go.
        """
        now_ms = self._clock.now_ms()
        kept: set[str] = set()
        async for page in each_page(self._backend.scan, Keyspace.ConnectSessions, limit=_PAGE):
            for item in page:
                try:
                    record = SessionRecord.decoded(item.value, f"ConnectSessions/{item.key}")
                except (StateCorruptError, SchemaVersionError) as error:
                    log.warning("connect_session_unreadable", key=item.key, error=str(error))
                    kept.update(found.decode() for found in _NAMES.findall(item.value))
                    continue
                is_over = record.closed_ms and now_ms - record.closed_ms > _TOMBSTONE_MS
                is_unused = now_ms - record.used_ms > self._retention_ms
                if record.program not in programs and (record.program or is_over or is_unused):
                    await self._forget(item.key, item.mod_revision)
                else:
                    kept.update(artifact.digest for artifact in record.artifacts)
                    kept.add(files_digest((artifact.name, artifact.digest) for artifact in record.artifacts))
                    kept.update(entry.name for entry in record.entries if entry.kind in (KEPT, CACHE))
        return kept

    async def _forget(self, path: str, mod_revision: int) -> None:
        ops: list[Op] = [
            Delete(Keyspace.ConnectSessions, path),
            DeleteRange(Keyspace.ConnectEntries, f"{path}/"),
            DeleteRange(Keyspace.ConnectOperations, f"{path}/"),
        ]
        await self._backend.put_txn(ops, expect={(Keyspace.ConnectSessions, path): mod_revision})


def _for_call(session: Session | None, call: ProgramCall | None) -> Session | None:
    return session if session is None or session.call is call else replace(session, call=call)


async def _check_open(call: ProgramCall | None) -> None:
    """Raise if nothing is to be done for the call any more."""
    if call is not None and call.name.is_recorded:
        await call.look_unless_answered()
    else:
        await _check_counts(call)


async def _check_counts(call: ProgramCall | None) -> None:
    if call is not None:
        await call.check()


def end_of(key: SessionKey) -> tuple[Keyspace, str]:
    """Return the place that is taken once a session has ended: no job is submitted for it any more."""
    return Keyspace.ConnectOperations, f"{key.path}/end"


def _is_new_clone(record: SessionRecord, model: SessionRecord) -> bool:
    """Return whether *record* is what a clone of *model* is made as, or is becoming one."""
    is_open = not record.closed_ms or not record.is_made
    return is_open and (record.cloned_from, record.revision) == (model.server_side_session_id, model.revision)


def _is_left_over(record: SessionRecord, model: SessionRecord) -> bool:
    """Return whether *record* is that of a clone that was begun, of *model* as it was before, and is not made."""
    is_of_model = record.cloned_from == model.server_side_session_id
    return not record.is_made and is_of_model and record.revision != model.revision


def _caches(record: SessionRecord) -> set[str]:
    return {entry.name for entry in record.entries if entry.kind == CACHE}


def _next(record: SessionRecord) -> SessionRecord:
    return record.model_copy(update={"revision": record.revision + 1})


def _check_id(session_id: str) -> None:
    try:
        is_id = str(uuid.UUID(session_id)) == session_id.lower()
    except ValueError:
        is_id = False
    if not is_id:
        raise invalid("FORMAT", session_id[:80], "Handle must be an UUID string of the format '00112233-4455-…'.")


def _check_conf(conf: Mapping[str, str]) -> None:
    if len(conf) > MAX_CONF:
        raise too_large("the session", len(conf), MAX_CONF, "settings")
    if (size := sum(len(k) + len(v) for k, v in conf.items())) > MAX_CONF_BYTES:
        raise too_large("what is set in the session", size, MAX_CONF_BYTES, "characters")
