"""Manages executors: registration, leases, drain, and loss by lease, by connection, by process and by farewell."""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from onager.clock import Clock
from onager.errors import StateCorruptError, StateUnavailableError, UnknownExecutorError
from onager.execution_graph import ExecutorLost, JvmDeath
from onager.features import shared_features
from onager.ids import ExecutorId, program_host_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.security.places import is_loopback
from onager.protocol.task_keys import task_key
from onager.scheduler import timing
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.executors.admission import Admission
from onager.scheduler.executors.failure_detector import FailureDetector
from onager.scheduler.executors.leases import ExecutorLeases
from onager.scheduler.executors.loads import ExecutorLoads
from onager.scheduler.executors.losses import ExecutorLosses, LossObserver, OnLost
from onager.scheduler.executors.place_records import PlaceClaim
from onager.scheduler.executors.records import ExecutorRecord, ExecutorSession, Loss, executor_info, local_process
from onager.scheduler.executors.registration import registered_record
from onager.scheduler.executors.registry import ExecutorRegistry
from onager.scheduler.loops import every
from onager.state_backend import (
    ABSENT,
    Committed,
    Delete,
    Keyspace,
    LeaseId,
    Op,
    Put,
    StateBackendClient,
    commit_settled,
)
from onager.supervision import run_loops

log = structlog.get_logger(__name__)

_TRIES: Final = 10


class ExecutorManager:
    """The executors of the cluster: the store says which live (a key bound to a lease), sessions say what they do."""

    def __init__(
        self,
        backend: StateBackendClient,
        clock: Clock,
        *,
        lease_ttl_s: float,
        connection_grace_s: float,
        lost_retention_s: float,
        precedence: Precedence,
        machine: str,
    ) -> None:
        self._backend = backend
        self._machine = machine
        """Tells this machine from others."""
        self._clock = clock
        self._losses = ExecutorLosses(clock)
        self._on_take_over: Callable[[], Awaitable[None]] = _nothing
        self._sessions: dict[ExecutorId, ExecutorSession] = {}
        self.watch = FailureDetector(
            self, precedence, backend, clock, connection_grace_s=connection_grace_s, lost_retention_s=lost_retention_s
        )
        self._registry = ExecutorRegistry(backend, self._on_change, self.watch.expire_lost)
        self.leases = ExecutorLeases(backend, clock, self._registry, lease_ttl_s)
        self._admission = Admission(machine)
        self.on_record: Callable[[ExecutorId], None] = lambda _: None
        """Called when the record of an executor that talks with this scheduler has changed."""
        self.on_claims: Callable[[ExecutorRecord], None] = lambda _: None
        """Called with each record that is new here, or has changed."""
        self.loads = ExecutorLoads(backend, clock, lambda: self.sessions)

    def serve(self, *, on_lost: OnLost, on_take_over: Callable[[], Awaitable[None]]) -> None:
        """Tell jobs of losses by *on_lost*; call *on_take_over* before talking with an executor of another scheduler.

        To be called once, before anything else.
        """
        self._losses.serve(on_lost)
        self._on_take_over = on_take_over

    def observe(self, observer: LossObserver) -> None:
        """Tell *observer* of losses."""
        self._losses.observer = observer

    # ---------------------------------------------------------------- looking

    def require(self, executor_id: str, incarnation: str) -> ExecutorSession:
        """Return the session of a life that talks with this scheduler; `UnknownExecutorError` when there is none."""
        session = self._sessions.get(ExecutorId(executor_id))
        if session is None or session.incarnation != incarnation:
            raise UnknownExecutorError(executor_id)
        return session

    def note_call(self, session: ExecutorSession) -> None:
        """Note that the executor lives; `renew` writes it to the store."""
        session.seen_s = self._clock.monotonic_s()
        session.seen_ms = self._clock.now_ms()
        session.suspect_s = None

    def is_alive(self, executor_id: str, incarnation: str) -> bool:
        """Return whether this life of the executor goes on, by the store as last seen."""
        return self._registry.is_alive(executor_id, incarnation)

    def session(self, executor_id: ExecutorId) -> ExecutorSession | None:
        """Return the session with an executor that talks with this scheduler."""
        return self._sessions.get(executor_id)

    @property
    def total_slots(self) -> int:
        """Return the slots for tasks of all executors that take work."""
        now_ms = self._clock.now_ms()
        return sum(record.slots for record in self._registry.that_run(programs=False) if record.takes_work(now_ms))

    def taking_work(self, *, programs: bool = False) -> frozenset[str]:
        """Return the executors that take tasks, or *programs*, by the store as last seen."""
        now_ms = self._clock.now_ms()
        records = self._registry.that_run(programs=programs)
        return frozenset(record.executor_id for record in records if record.takes_work(now_ms))

    def may_see(self, place: str) -> bool:
        """Return whether an executor sees a place, or may see it soon, by the store as last seen."""
        now_ms = self._clock.now_ms()
        return any(record.may_see(place, now_ms) for record in self._registry.that_run(programs=False))

    def streaming(self) -> frozenset[str]:
        """Return the executors that take work and whose tasks can stream, by the store as last seen."""
        now_ms = self._clock.now_ms()
        return frozenset(r.executor_id for r in self._registry if r.takes_work(now_ms) and self._streams_at(r))

    def stream_address(self, executor_id: str, incarnation: str) -> str:
        """Return where this life of the executor streams, by the store as last seen; empty where it does not."""
        found = self._registry.find(executor_id)
        return "" if found is None or found.incarnation != incarnation else self._streams_at(found)

    def _streams_at(self, record: ExecutorRecord) -> str:
        """Return where the executor streams; empty if only its own machine could read it, and there are others."""
        is_reached = self._registry.is_one_machine or not is_loopback(record.stream_address)
        return record.stream_address if is_reached else ""

    @property
    def features(self) -> frozenset[str]:
        """The features of this release that every executor that takes work has, by the store as last seen."""
        now_ms = self._clock.now_ms()
        return shared_features(record.features for record in self._registry if record.takes_work(now_ms))

    @property
    def is_space_short(self) -> bool:
        """Whether some executor finds no space in the exchange, by the store as last seen."""
        return any(record.no_space and record.state == "alive" for record in self._registry)

    def takes_work(self, session: ExecutorSession) -> bool:
        """Return whether tasks may be assigned to the executor."""
        return session.record.takes_work(self._clock.now_ms())

    def add_quarantine(self, session: ExecutorSession, answer: pb.HeartbeatResponse | pb.PollWorkResponse) -> None:
        """Add to an answer that the executor is quarantined, until when and why."""
        if session.record.is_quarantined(self._clock.now_ms()):
            answer.quarantine.until_ms = session.record.quarantined_until_ms
            answer.quarantine.reason = session.record.quarantine_reason

    @property
    def registry(self) -> ExecutorRegistry:
        """Return all executors, by the store as last seen."""
        return self._registry

    @property
    def sessions(self) -> Iterable[ExecutorSession]:
        """Return the sessions with executors that talk with this scheduler."""
        return list(self._sessions.values())

    def infos(self) -> list[pb.ExecutorInfo]:
        """Return the information shown to people about all executors, by id."""
        now_ms = self._clock.now_ms()
        records = self._registry.that_run(programs=False)
        return [self.info(r, now_ms) for r in sorted(records, key=lambda record: record.executor_id)]

    def info(self, record: ExecutorRecord, now_ms: int) -> pb.ExecutorInfo:
        """Return the information shown to people about an executor, with the programs that run beside its tasks."""
        session = self._sessions.get(ExecutorId(record.executor_id))
        info = executor_info(record, now_ms) if session is None else session.info(now_ms)
        if (load := self.loads.find(record)) is not None:
            load.add_to(info)
        beside = self._registry.find(program_host_id(record.executor_id))
        if beside is not None and beside.takes_work(now_ms):
            load = self.loads.find(beside)
            info.programs, info.program_slots = 0 if load is None else load.running, beside.slots
        return info

    # ---------------------------------------------------------------- registration

    async def register(self, request: pb.RegisterExecutorRequest) -> ExecutorSession:
        """Admit one life of an executor, and declare an earlier one lost at once; repeating it is harmless.

        Errors as in `Admission.check`.
        """
        self._admission.check(request, (r for r in self._registry if r.state != "lost"))
        executor_id = ExecutorId(request.executor_id)
        is_caught_up = False
        for _ in range(_TRIES):
            stored = await self._backend.get(Keyspace.Executors, executor_id)
            revision, before = ABSENT, None
            if stored is not None:
                revision = stored.mod_revision
                try:
                    before = ExecutorRecord.decoded(stored.value, f"executor {executor_id}")
                except StateCorruptError as error:
                    log.error("executor_record_damaged", executor_id=executor_id, error=str(error))  # noqa: TRY400
            if not is_caught_up and (request.running or (before is not None and before.state != "lost")):
                is_caught_up = True
                await self._on_take_over()  # other schedulers may have launched tasks there, unless it is new
            if before is not None and before.incarnation != request.incarnation and before.state != "lost":
                self._admission.replaced(before)
                await self._tell_lost(before, "it started again")
            lease = await self._backend.lease(self.leases.ttl_s)
            record = registered_record(request, before, lease_id=lease.id, now_ms=self._clock.now_ms())
            puts = [
                Put(Keyspace.Executors, executor_id, record.encoded()),
                Put(Keyspace.Heartbeats, executor_id, request.incarnation.encode(), lease=lease.id),
            ]
            result = await commit_settled(self._backend, puts, {(Keyspace.Executors, executor_id): revision})
            if isinstance(result, Committed):
                if before is not None and before.incarnation != request.incarnation and before.state != "lost":
                    self._losses.observer.lost(Loss.RESTARTED)
                if before is not None:
                    await self._backend.revoke(LeaseId(before.lease_id))
                return self._begin(record, result.revision, request)
            await self._backend.revoke(lease.id)
        raise StateUnavailableError(f"executor {executor_id} could not be registered in {_TRIES} tries; try again")

    def _begin(self, record: ExecutorRecord, revision: int, request: pb.RegisterExecutorRequest) -> ExecutorSession:
        executor_id = ExecutorId(record.executor_id)
        known = self._sessions.get(executor_id)
        if known is not None:
            known.is_gone = True
        session = self._open(record, revision)
        if known is not None and known.incarnation == record.incarnation:
            session.list_number = known.list_number
        session.held = dict.fromkeys((task_key(task) for task in request.running), session.seen_s)
        log.info("executor_registered", executor_id=executor_id, slots=record.slots, host=record.host, pid=record.pid)
        return session

    async def take_over(self, executor_id: str, incarnation: str) -> ExecutorSession:
        """Begin to talk with an executor that registered with another scheduler: its tasks go on.

        Before that, this scheduler reads what others have launched there. Nothing is written: several schedulers may
        talk with an executor at a time. `UnknownExecutorError` when it is not alive by the store, and has to register.
        """
        stored = await self._backend.get(Keyspace.Executors, executor_id)
        if stored is None:
            raise UnknownExecutorError(executor_id)
        try:
            record = ExecutorRecord.decoded(stored.value, f"executor {executor_id}")
        except StateCorruptError as error:
            raise UnknownExecutorError(executor_id) from error
        if record.incarnation != incarnation or record.state == "lost":
            raise UnknownExecutorError(executor_id)
        self._registry.seen(record, stored.mod_revision)
        await self._on_take_over()
        session = self._sessions.get(ExecutorId(executor_id))
        if session is not None and session.incarnation == incarnation:
            return session
        latest = self._registry.find(executor_id)
        if latest is None or latest.incarnation != incarnation or latest.state == "lost":
            raise UnknownExecutorError(executor_id)
        session = self._open(latest, self._registry.revision(executor_id))
        session.renewed_s = session.asked_s = -math.inf  # perhaps no scheduler has renewed it for a while
        log.info("executor_taken_over", executor_id=executor_id, slots=record.slots, host=record.host)
        return session

    def _open(self, record: ExecutorRecord, revision: int) -> ExecutorSession:
        now_s = self._clock.monotonic_s()
        session = ExecutorSession(
            record=record,
            seen_s=now_s,
            seen_ms=self._clock.now_ms(),
            renewed_s=now_s,
            asked_s=now_s,
            local_process=local_process(record, self._machine),
        )
        self._sessions[session.executor_id] = session
        self._registry.seen(record, revision)
        self._registry.beats(record.executor_id, revision)
        return session

    # ---------------------------------------------------------------- life

    async def drain(self, session: ExecutorSession) -> None:
        """Note that the executor takes no more work, and no programs beside it."""
        if not session.is_draining:
            session.record = session.record.model_copy(update={"state": "draining"})
            if await self._update(session.executor_id, session.incarnation, _if_alive(state="draining")):
                log.info("executor_draining", executor_id=session.executor_id, running=len(session.held))
        await self.drain_programs(session.executor_id)

    async def drain_programs(self, executor_id: str) -> None:
        """Have what runs programs beside an executor take no more of them, pass on those that it runs, and leave."""
        if (beside := self._registry.find(program_host_id(executor_id))) is not None:
            await self._update(beside.executor_id, beside.incarnation, _if_alive(state="draining"))

    async def note_space(self, session: ExecutorSession, why_none: str) -> bool:
        """Note that the executor takes no work because of *why_none*, or does again; return whether that is new."""
        if session.record.no_space == why_none:
            return False
        if not await self._update(session.executor_id, session.incarnation, _if_alive(no_space=why_none)):
            return False
        (log.warning if why_none else log.info)(
            "executor_without_space" if why_none else "executor_has_space",
            executor_id=session.executor_id,
            reason=why_none,
        )
        return True

    async def claim(
        self,
        executor_id: str,
        incarnation: str,
        name: str,
        claim: PlaceClaim,
        ops: Sequence[Op] = (),
        expect: Mapping[tuple[Keyspace, str], int] | None = None,
        *,
        instead_of: PlaceClaim | None,
    ) -> bool:
        """Note what an executor sees of the place *name*, together with *ops*, if all is as is *expect*ed.

        Return False when its claim is not the one any more by which that was decided, *instead_of*. One that is leaving
        counts for others until it is gone, so its claim is noted, too.
        """

        def change(known: ExecutorRecord) -> dict[str, object] | None:
            is_current = known.state != "lost" and known.places.get(name) == instead_of
            return {"places": {**known.places, name: claim}} if is_current else None

        return await self._update(executor_id, incarnation, change, ops, expect)

    async def _update(
        self,
        executor_id: str,
        incarnation: str,
        change: Callable[[ExecutorRecord], dict[str, object] | None],
        ops: Sequence[Op] = (),
        expect: Mapping[tuple[Keyspace, str], int] | None = None,
    ) -> bool:
        """Write what *change* makes of an executor's record; return False when it makes nothing, or this life is over.

        With *expect*, it is written together with *ops* or not at all, and only tried once.
        """
        for _ in range(_TRIES if expect is None else 1):
            known = self._registry.find(executor_id)
            changed = None if known is None or known.incarnation != incarnation else change(known)
            if known is None or changed is None:
                return False
            record = known.model_copy(update=changed)
            own = {(Keyspace.Executors, executor_id): self._registry.revision(executor_id)}
            puts = [Put(Keyspace.Executors, executor_id, record.encoded()), *ops]
            result = await commit_settled(self._backend, puts, {**own, **(expect or {})})
            if isinstance(result, Committed):
                self._registry.seen(record, result.revision)
                return True
            await self._registry.read(executor_id)
        return False

    def suspect(self, session: ExecutorSession) -> None:
        """Note that the executor's connection broke while it waited for work."""
        if session.suspect_s is None and not session.is_gone:
            session.suspect_s = self._clock.monotonic_s()

    async def deregister(self, executor_id: str, incarnation: str, reason: str, death: JvmDeath | None = None) -> None:
        """End a life of an executor at its own request; its remaining tasks are launched again.

        *death*: how its JVM ended, if it ended by itself.
        """
        if not self.is_alive(executor_id, incarnation):
            await self._registry.read(executor_id)  # it may just have registered with another scheduler
        found = self._registry.find(executor_id)
        if found is not None and self.is_alive(executor_id, incarnation):
            await self.lose(found, Loss.SAID_GOODBYE, reason or "it left", death)

    async def lose(self, record: ExecutorRecord, how: Loss, reason: str, death: JvmDeath | None = None) -> None:
        """End a life of an executor: it no longer counts, and its tasks are launched again.

        A drained executor counts as having left if it said goodbye, or held no tasks.
        """
        executor_id = ExecutorId(record.executor_id)
        known = self._registry.find(executor_id) or record
        revision = self._registry.revision(executor_id)
        is_mine, has_left = True, False
        if known.incarnation == record.incarnation and known.state != "lost":
            has_left = known.state == "draining" and (how is Loss.SAID_GOODBYE or self._holds_nothing(known))
            ended = {"state": "lost", "ended_ms": self._clock.now_ms(), "reason": reason, "has_left": has_left}
            gone = known.model_copy(update={**ended, "death": death})
            self._registry.expect(gone)
            try:
                put = Put(Keyspace.Executors, executor_id, gone.encoded())
                ops: list[Op] = [put, Delete(Keyspace.Heartbeats, executor_id)]
                result = await commit_settled(self._backend, ops, {(Keyspace.Executors, executor_id): revision})
            except BaseException:
                self._registry.withdraw(gone, known)
                raise
            if isinstance(result, Committed):
                self._registry.seen(gone, result.revision)
                self._registry.stopped(executor_id, result.revision)
                self._losses.observer.lost(Loss.LEFT if has_left else how)
            else:
                self._registry.withdraw(gone, known)
                await self._registry.read(executor_id)
                if self.is_alive(executor_id, record.incarnation):
                    return  # a scheduler has learned of it meanwhile
                is_mine = False  # another scheduler was first, and tells the jobs
            await self._backend.revoke(LeaseId(known.lease_id))
        session = self._sessions.get(executor_id)
        if session is not None and session.incarnation == record.incarnation:
            self.end_session(session)
        lost = known if known.incarnation == record.incarnation else record
        if is_mine:
            await self._tell_lost(lost, reason, has_left=has_left, death=death)
        else:
            self._losses.found_elsewhere(lost, reason, death)

    def _holds_nothing(self, record: ExecutorRecord) -> bool:
        session = self._sessions.get(ExecutorId(record.executor_id))
        return session is not None and session.incarnation == record.incarnation and not session.held

    async def _tell_lost(
        self, record: ExecutorRecord, reason: str, *, has_left: bool = False, death: JvmDeath | None = None
    ) -> None:
        what = {"executor_id": record.executor_id, "incarnation": record.incarnation, "reason": reason}
        (log.info if has_left else log.warning)("executor_left" if has_left else "executor_lost", **what)
        await self._losses.tell(record.executor_id, record.incarnation, reason, death)

    async def declare_lost(self, executor_id: str, incarnation: str, reason: str) -> None:
        """Tell the jobs that a life is over which some of them still count on."""
        await self._losses.tell(executor_id, incarnation, reason)

    async def tell_losses(self) -> None:
        """Tell jobs of losses that they do not know yet."""
        await self._losses.tell_due(self._registry)

    def recent_losses(self) -> list[ExecutorLost]:
        """Return the losses to tell a job that this scheduler begins to drive."""
        return [lost for lost in self._losses.recent if not self.is_alive(lost.executor_id, lost.incarnation)]

    # ---------------------------------------------------------------- loops

    async def start(self, *, is_strict: bool = True) -> None:
        """Read all executors; the live ones have one lease's time to report to this scheduler."""
        await self.refresh(is_strict=is_strict)
        self.watch.begin()

    async def refresh(self, *, is_strict: bool = False) -> None:
        """Read all executors and their heartbeats."""
        await self._registry.refresh(is_strict=is_strict)

    async def run(self) -> None:
        """Watch over the executors for as long as the scheduler lives."""
        await run_loops(
            registry=self._registry.run(),
            loads=self.loads.run(),
            watch_over_executors=every(timing.EXECUTORS_LOOK_S, self.watch.look),
        )

    def _on_change(self, record: ExecutorRecord, before: ExecutorRecord | None) -> None:
        """Apply what another scheduler wrote about an executor, which may talk with this one, too."""
        self.watch.note_seen(ExecutorId(record.executor_id))
        self.on_claims(record)
        if before is not None and before.state != "lost" and before.incarnation != record.incarnation:
            self._losses.found_elsewhere(before, "it started again")
        elif before is not None and before.state != "lost" and record.state == "lost":
            self._losses.found_elsewhere(before, record.reason or "it is gone", record.death)
        session = self._sessions.get(ExecutorId(record.executor_id))
        if session is None:
            return
        if session.incarnation == record.incarnation and record.state != "lost":
            session.record = record
        else:
            self.end_session(session)
        self.on_record(session.executor_id)

    def end_session(self, session: ExecutorSession) -> None:
        """End the session with this life of the executor, until it calls again."""
        session.is_gone = True
        if self._sessions.get(session.executor_id) is session:
            del self._sessions[session.executor_id]


def _if_alive(**change: object) -> Callable[[ExecutorRecord], dict[str, object] | None]:
    return lambda known: change if known.state == "alive" else None


async def _nothing() -> None:
    pass
