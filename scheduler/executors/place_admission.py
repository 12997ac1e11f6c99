"""Which executors see the shared directories: what they say of them, compared with the store, and found by others."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import structlog

from onager.errors import StateCorruptError
from onager.ids import ExecutorId, new_nonce
from onager.place_files import EXCHANGE, is_id, is_place
from onager.protocol import onager_pb2 as pb
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.place_records import PlaceClaim, PlaceRecord
from onager.scheduler.executors.records import ExecutorRecord, ExecutorSession
from onager.scheduler.loops import watching
from onager.scheduler.policy.place_rules import (
    Admit,
    Ask,
    Begin,
    Make,
    Refuse,
    Renew,
    Tell,
    View,
    copy_text,
    judged,
)
from onager.state_backend import ABSENT, EventKind, Keyspace, Op, Put, StateBackendClient
from onager.supervision import run_loops

log = structlog.get_logger(__name__)

_MAX_MARKS: Final = 64
"""Marks that one answer asks for."""

Expected = Mapping[tuple[Keyspace, str], int]


class OwnLook(Protocol):
    """What this scheduler itself sees of the exchange directory."""

    async def run(self) -> None:
        """Look for as long as the scheduler lives."""
        ...

    def check(self) -> None:
        """Raise `PlaceNotSeenError` unless the directory is the cluster's; calls the disk, so in one of its threads."""
        ...

    @property
    def is_seen_better_elsewhere(self) -> bool:
        """Whether another scheduler sees the exchange directory, and this one does not, or gets no answers there."""
        ...

    @property
    def pending_mark(self) -> str:
        """The mark of this scheduler that somebody has to find; empty: none."""
        ...

    def was_found(self, mark: str) -> None:
        """Note that a process that sees the exchange directory has found the *mark* of a scheduler there."""
        ...

    async def finds(self, mark: str) -> bool | None:
        """Return whether it finds *mark*; None when it cannot tell, or does not see the directory itself."""
        ...


class _NoLook:
    """A scheduler that does not look itself."""

    pending_mark = ""
    is_seen_better_elsewhere = False

    async def run(self) -> None:
        await asyncio.Event().wait()

    def check(self) -> None:
        pass

    def was_found(self, mark: str) -> None:
        pass

    async def finds(self, mark: str) -> bool | None:
        del mark
        return None


class PlaceAdmission:
    """The places as the store has them, and the executors that claim to see them."""

    def __init__(
        self, backend: StateBackendClient, executors: ExecutorManager, live_schedulers: LiveSchedulers
    ) -> None:
        self._backend = backend
        self._executors = executors
        self._schedulers = live_schedulers
        self.own: OwnLook = _NoLook()
        self._known: dict[str, PlaceRecord] = {}
        self._is_following = False
        """Whether what is not known is not in the store, either, or has just come there."""
        self._pending: dict[str, tuple[ExecutorId, str]] = {}
        """The executors whose marks are to be found, and their places, by mark."""
        executors.on_claims = self._note

    def check_exchange(self) -> None:
        """Raise `PlaceNotSeenError` unless this scheduler sees the exchange directory; calls its disk."""
        self.own.check()

    async def run(self) -> None:
        """Follow the places for as long as the scheduler lives."""
        await run_loops(watch_of_places=watching(self._watch), own_exchange=self.own.run())

    async def _watch(self) -> None:
        page = await self._backend.get_from_prefix(Keyspace.Places, "")
        self._known = {item.key: PlaceRecord.decoded(item.value, f"Places/{item.key}") for item in page}
        async with self._backend.watch(Keyspace.Places, from_revision=page.revision + 1) as events:
            self._is_following = True
            try:
                async for event in events:
                    if event.kind is EventKind.PUT:
                        self._known[event.key] = PlaceRecord.decoded(event.value, f"Places/{event.key}")
                    else:
                        self._known.pop(event.key, None)
            finally:
                self._is_following = False

    # ---------------------------------------------------------------- executors that claim

    async def judge(self, session: ExecutorSession, views: Sequence[pb.PlaceView]) -> list[pb.PlaceVerdict]:
        """Return what to tell an executor of each of its *views*; its record says so to other schedulers."""
        try:
            return [_about(view, await self._judge(session, view)) for view in views if is_place(view.name)]
        except StateCorruptError as error:
            log.error("place_record_damaged", error=str(error), advice="onager state rm Places/NAME")  # noqa: TRY400
            return []

    async def _judge(self, session: ExecutorSession, reported: pb.PlaceView) -> pb.PlaceVerdict:
        name, claim = reported.name, self._claim_of(session, reported.name)
        if name not in self._known and self._is_following and claim is not None and _still_has_no_id(reported, claim):
            return pb.PlaceVerdict(name=name, new_id=new_nonce())
        known = self._known.get(name) or (await self._read(name))[0]
        if claim is not None and not reported.problem and claim.mark == reported.mark and known is not None:
            if claim.is_admitted and claim.place_id == known.place_id == reported.id:
                if known.generation_before and reported.generation == known.generation:
                    await self._settle(name)
                return _admitted(name, known)
            if claim.is_missed:
                return _refused(name, known.place_id, claim.why)
        return await self._decide(session, reported, claim)

    def _claim_of(self, session: ExecutorSession, name: str) -> PlaceClaim | None:
        return (self._executors.registry.find(session.executor_id) or session.record).places.get(name)

    async def _decide(  # noqa: PLR0911 - one for each decision
        self, session: ExecutorSession, reported: pb.PlaceView, before: PlaceClaim | None
    ) -> pb.PlaceVerdict:
        """Decide by what is in the store; *before* is the claim so far."""
        record = session.record
        view = View(
            place=reported.name,
            path=reported.path,
            host=record.host,
            wanted=reported.wanted,
            id=reported.id if is_id(reported.id) else "",
            generation=reported.generation,
            mark=reported.mark,
            problem=reported.problem,
        )
        known, revision = await self._read(view.place)
        place_id = "" if known is None else known.place_id
        is_like = known is not None and view.id == known.place_id and not view.problem
        has_witness = is_like and await self.has_witness(view.place, known, record.incarnation)
        claim = PlaceClaim(path=view.path, mark=view.mark)
        admitted = claim.model_copy(update={"place_id": view.id})
        decision = judged(known, view, has_witness=has_witness)
        match decision:
            case Make():
                await self._write(session, view.place, claim, before)
                return pb.PlaceVerdict(name=view.place, new_id=new_nonce())
            case Tell():
                await self._write(session, view.place, claim, before)
                return pb.PlaceVerdict(name=view.place, id=place_id)
            case Begin():
                made = PlaceRecord(place_id=view.id, generation=view.generation)
                return await self._admit(session, view, admitted, before, made, ABSENT)
            case Renew():
                assert known is not None
                made = next_generation(known, view.generation)
                return await self._admit(session, view, admitted, before, made, revision)
            case Admit():
                return await self._admit(session, view, admitted, before, None, revision)
            case Ask():
                found = await self.own.finds(view.mark) if view.place == EXCHANGE else None
                if found:
                    return await self._admit(session, view, admitted, before, None, revision)
                if found is False:
                    why = copy_text(
                        view, f"scheduler {self._schedulers.id} does not find there what this executor wrote"
                    )
                    claim = claim.model_copy(update={"why": why, "is_missed": True})
            case Refuse(why):
                claim = claim.model_copy(update={"why": why})
        await self._write(session, view.place, claim, before)
        return _refused(view.place, place_id, claim.why)

    async def _admit(
        self,
        session: ExecutorSession,
        view: View,
        claim: PlaceClaim,
        before: PlaceClaim | None,
        made: PlaceRecord | None,
        revision: int,
    ) -> pb.PlaceVerdict:
        """Admit an executor, together with a change of the place, if it is one; the place must be as it was read."""
        ops = [] if made is None else [Put(Keyspace.Places, view.place, made.encoded())]
        expect = {(Keyspace.Places, view.place): revision}
        is_written = await self._write(session, view.place, claim, before, ops, expect)
        known, _ = await self._read(view.place)
        if not is_written:
            return _refused(view.place, "" if known is None else known.place_id, "")  # it asks again
        log.info("place_admitted", place=view.place, executor_id=session.executor_id, path=view.path, id=view.id)
        return pb.PlaceVerdict(name=view.place, id=view.id) if known is None else _admitted(view.place, known)

    async def _write(
        self,
        session: ExecutorSession,
        name: str,
        claim: PlaceClaim,
        before: PlaceClaim | None,
        ops: Sequence[Op] = (),
        expect: Expected | None = None,
    ) -> bool:
        claim = claim.after(before, self._schedulers.clock.now_ms())
        if before == claim and not ops:
            return True
        if claim.why and (before is None or before.why != claim.why):
            log.error("place_not_seen", place=name, executor_id=session.executor_id, why=claim.why)
        return await self._executors.claim(
            session.executor_id, session.incarnation, name, claim, ops, expect, instead_of=before
        )

    async def _settle(self, name: str) -> None:
        """Note that the last generation is in the directory, so that the one before proves nothing any more."""
        known, revision = await self._read(name)
        if known is not None and known.generation_before:
            settled = known.model_copy(update={"generation_before": 0})
            put = Put(Keyspace.Places, name, settled.encoded())
            await self._backend.put_txn([put], expect={(Keyspace.Places, name): revision})

    async def _read(self, name: str) -> tuple[PlaceRecord | None, int]:
        found = await self._backend.get(Keyspace.Places, name)
        if found is None:
            self._known.pop(name, None)
            return None, ABSENT
        self._known[name] = PlaceRecord.decoded(found.value, f"Places/{name}")
        return self._known[name], found.mod_revision

    # ---------------------------------------------------------------- processes that look

    async def has_witness(self, name: str, known: PlaceRecord | None, incarnation: str) -> bool:
        """Return whether another process lives that was admitted to the place."""
        if known is None:
            return False
        if self._lives_admitted(name, known, incarnation):
            return True
        await self._executors.refresh()
        await self._schedulers.refresh()
        return self._lives_admitted(name, known, incarnation)

    def _lives_admitted(self, name: str, known: PlaceRecord, incarnation: str) -> bool:
        """Return whether another process than *incarnation* lives that was admitted, by the store as last seen."""
        executors = (r for r in self._executors.registry if r.state != "lost" and r.incarnation != incarnation)
        if any(_sees(record, name, known.place_id) for record in executors):
            return True
        schedulers = (r for r in (self._schedulers.record, *self._schedulers.others()) if r.incarnation != incarnation)
        return name == EXCHANGE and any(record.sees_exchange == known.place_id for record in schedulers)

    def to_look_for(self, session: ExecutorSession) -> list[pb.PlaceMark]:
        """Return the marks of others that this executor may find, and was not asked for yet."""
        seen = {name for name, claim in session.record.places.items() if claim.is_admitted}
        if not seen:
            return []
        wanted = [(name, mark) for mark, (_, name) in self._pending.items() if name in seen]
        if EXCHANGE in seen:
            own = self.own.pending_mark
            marks = [r.mark for r in self._schedulers.others() if r.mark and not r.sees_exchange]
            wanted += [(EXCHANGE, mark) for mark in (own, *marks) if mark]
        new = [(name, mark) for name, mark in wanted if mark not in session.marks_asked][:_MAX_MARKS]
        if len(session.marks_asked) > 16 * _MAX_MARKS:
            session.marks_asked.clear()
        session.marks_asked.update(mark for _, mark in new)
        return [pb.PlaceMark(place=name, mark=mark) for name, mark in new]

    async def looked(self, session: ExecutorSession, marks: Iterable[pb.PlaceMark]) -> bool:
        """Take what an executor found; return whether another one takes work now because of it."""
        is_new = False
        for found in marks:
            claim = session.record.places.get(found.place)
            if claim is None or not claim.is_admitted:
                continue
            if found.mark in self._pending:
                is_new |= await self._found(session, claim.place_id, found)
            elif found.seen and found.place == EXCHANGE:
                self.own.was_found(found.mark)
        return is_new

    async def _found(self, witness: ExecutorSession, place_id: str, found: pb.PlaceMark) -> bool:
        executor_id, name = self._pending[found.mark]
        record = self._executors.registry.find(executor_id)
        before = claim = None if record is None else record.places.get(name)
        if record is None or claim is None or claim.mark != found.mark or not claim.is_pending or name != found.place:
            return False
        if found.seen:
            claim = claim.model_copy(update={"place_id": place_id})
            log.info("place_admitted", place=name, executor_id=executor_id, path=claim.path, id=place_id)
        else:
            view = View(place=name, path=claim.path, host=record.host)
            evidence = f"executor {witness.executor_id} on {witness.record.host} does not find there what it wrote"
            claim = claim.model_copy(update={"why": copy_text(view, evidence), "is_missed": True})
            log.error("place_not_seen", place=name, executor_id=executor_id, why=claim.why)
        known, revision = await self._read(name)
        if known is None or known.place_id != place_id:
            return False
        claim = claim.after(before, self._schedulers.clock.now_ms())
        expect = {(Keyspace.Places, name): revision}
        is_written = await self._executors.claim(
            executor_id, record.incarnation, name, claim, (), expect, instead_of=before
        )
        return is_written and found.seen

    def _note(self, record: ExecutorRecord) -> None:
        """Note which marks of an executor are to be found."""
        executor_id = ExecutorId(record.executor_id)
        for mark in [mark for mark, (of, _) in self._pending.items() if of == executor_id]:
            del self._pending[mark]
        if record.state != "lost":
            pending = {claim.mark: name for name, claim in record.places.items() if claim.is_pending}
            self._pending |= {mark: (executor_id, name) for mark, name in pending.items()}


def next_generation(known: PlaceRecord, shown: int) -> PlaceRecord:
    """Return the place with a new generation; the process that is to write it has *shown* the one before."""
    newest = max(known.generation, shown)
    return known.model_copy(update={"generation": newest + 1, "generation_before": shown})


def _sees(record: ExecutorRecord, name: str, place_id: str) -> bool:
    claim = record.places.get(name)
    return claim is not None and claim.place_id == place_id


def _still_has_no_id(reported: pb.PlaceView, claim: PlaceClaim) -> bool:
    """Return whether an executor has not made the id of a place, as it was asked to: perhaps it may only read there."""
    return (
        not reported.id
        and claim.path == reported.path
        and claim.mark == reported.mark
        and not (claim.place_id or claim.why)
    )


def _about(view: pb.PlaceView, verdict: pb.PlaceVerdict) -> pb.PlaceVerdict:
    """Return the verdict with the mark that it is about: it holds for no other one."""
    verdict.mark = view.mark
    return verdict


def _admitted(name: str, known: PlaceRecord) -> pb.PlaceVerdict:
    return pb.PlaceVerdict(name=name, id=known.place_id, admitted=True, generation=known.generation)


def _refused(name: str, place_id: str, why: str) -> pb.PlaceVerdict:
    return pb.PlaceVerdict(name=name, id=place_id, why=why)
