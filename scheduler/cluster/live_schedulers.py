"""The schedulers of the cluster: this one's registration, bound to its lease, and the others as the store lists them.

Schedulers use registrations to find each other, and to agree which one drives a job. A registration guards nothing: a
scheduler that has lost its own goes on serving, and registers again.
"""

import asyncio
import math
import os
import socket
from collections.abc import Callable

import structlog

from onager.clock import Clock
from onager.errors import LeaseExpiredError, StateBackendError
from onager.features import FEATURES, shared_features
from onager.ids import SchedulerId, new_incarnation
from onager.protocol import onager_pb2 as pb
from onager.scheduler import timing
from onager.scheduler.cluster.cluster_clock import ClusterClock
from onager.scheduler.loops import watching
from onager.scheduler.records import Record
from onager.scheduler.watched_records import WatchedRecords
from onager.state_backend import KeptLease, Keyspace, StateBackendClient, keep_lease
from onager.supervision import run_loops
from onager.version import __version__
from onager.waiting import is_set_within

log = structlog.get_logger(__name__)


class SchedulerRecord(Record):
    """The registration of one scheduler, for as long as it lives."""

    scheduler_id: str
    incarnation: str
    address: str
    """The address for clients, executors and other schedulers: ``host:port``."""
    host: str
    pid: int
    version: str
    started_ms: int
    features: tuple[str, ...] = ()
    """The features of `onager.features` that its release has."""
    mark: str = ""
    """The file by which others recognise the exchange directory that it sees; empty: it has written none."""
    sees_exchange: str = ""
    """The id of the exchange directory that it was admitted to; empty: it was not."""
    is_exchange_silent: bool = False
    """Whether the exchange directory, which it was admitted to, does not answer it now."""
    found: tuple[str, ...] = ()
    """The marks of other schedulers that processes which see the exchange directory have found there."""
    registered: int = 0
    """The revision at which it registered, in records that were written since; 0: it is that of the record."""


class LiveSchedulers:
    """The schedulers of the cluster, always including this one."""

    def __init__(
        self, backend: StateBackendClient, clock: Clock, *, scheduler_id: str, address: str, lease_ttl_s: float
    ) -> None:
        self._backend = backend
        self.clock = clock if isinstance(clock, ClusterClock) else ClusterClock(clock)
        self._lease_ttl_s = lease_ttl_s
        self.record = SchedulerRecord(
            scheduler_id=scheduler_id,
            incarnation=new_incarnation(),
            address=address,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_ms=clock.now_ms(),
            features=tuple(sorted(FEATURES)),
        )
        self._registered = 0
        """The revision at which this scheduler registered; 0: it has not."""
        self.lease: KeptLease | None = None
        """The lease of this process, while it has one."""
        self._records = WatchedRecords(backend, Keyspace.Schedulers, SchedulerRecord, "scheduler_id", self._changed)
        self._ahead_ms: dict[str, int] = {}
        """By how much the clocks of other lives' machines are ahead of the cluster's time."""
        self._ended: set[str] = set()
        """Lives that this scheduler saw end, though their records are still there."""
        self._listeners: list[Callable[[], None]] = []
        self._look = asyncio.Event()
        """Set when our own record may be missing or wrong."""
        self._leaving = asyncio.Event()
        self._left = asyncio.Event()
        self._left.set()

    # ---------------------------------------------------------------- looking

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* whenever a scheduler came or went."""
        self._listeners.append(listener)

    @property
    def id(self) -> SchedulerId:
        """Return the id of this scheduler."""
        return SchedulerId(self.record.scheduler_id)

    @property
    def live(self) -> frozenset[SchedulerId]:
        """Return the live schedulers, including this one unless it is leaving.

        Taken from the store as last seen, except where this scheduler knows better (`end`).
        """
        others = frozenset(SchedulerId(r.scheduler_id) for r in self.others() if r.incarnation not in self._ended)
        return others if self._leaving.is_set() else others | {self.id}

    @property
    def features(self) -> frozenset[str]:
        """Return the features that every registered scheduler has.

        During a rolling upgrade nothing starts that needs another one, until the last scheduler is upgraded.
        """
        return shared_features(record.features for record in (self.record, *self.others()))

    @property
    def is_registered(self) -> bool:
        """Return whether this life of the scheduler is registered, by the store as last seen."""
        found = self._records.find(self.id)
        return found is not None and found.incarnation == self.record.incarnation

    def others(self) -> list[SchedulerRecord]:
        """Return the other schedulers by the store as last seen, including those whose end was seen here."""
        return [record for record in self._records if record.scheduler_id != self.id]

    def find(self, scheduler_id: SchedulerId) -> SchedulerRecord | None:
        """Return the record of another scheduler as last seen."""
        return self._records.find(scheduler_id)

    def elders(self) -> list[SchedulerRecord]:
        """Return the live schedulers that registered before this one, the eldest first: they know the cluster's time.

        A scheduler that has not registered comes after all others.
        """
        mine = self._since(self.id) if self.is_registered else math.inf
        others = [record for record in self.others() if record.scheduler_id in self.live]
        elders = [record for record in others if self._since(record.scheduler_id) < mine]
        return sorted(elders, key=lambda record: self._since(record.scheduler_id))

    def _since(self, scheduler_id: str) -> int:
        """Return the revision at which a scheduler registered."""
        record = self._records.find(scheduler_id)
        return record.registered if record is not None and record.registered else self._records.revision(scheduler_id)

    def follow_clock(self, record: SchedulerRecord, answer: pb.AttendResponse) -> None:
        """Take in the time of another scheduler, and set the cluster's clock by the eldest."""
        if record in self.elders()[:1]:
            self.clock.follow(answer.now_ms)
        self._ahead_ms[record.incarnation] = answer.machine_ms - answer.now_ms

    def infos(self) -> list[pb.SchedulerInfo]:
        """Return the information shown to people about all schedulers, by id."""
        return [self._info(r) for r in sorted([*self.others(), self.record], key=lambda r: r.scheduler_id)]

    def _info(self, record: SchedulerRecord) -> pb.SchedulerInfo:
        return pb.SchedulerInfo(
            scheduler_id=record.scheduler_id,
            incarnation=record.incarnation,
            address=record.address,
            host=record.host,
            pid=record.pid,
            version=record.version,
            started_ms=record.started_ms,
            answering=record.incarnation == self.record.incarnation,
            clock_ahead_ms=self.clock.ahead_ms if record is self.record else self._ahead_ms.get(record.incarnation, 0),
        )

    def end(self, record: SchedulerRecord, why: str) -> None:
        """Declare another scheduler's life over, before its lease ends.

        If that is wrong, two schedulers drive some jobs until it is taken back, and the logs settle it.
        """
        if record.incarnation in self._ended or all(r.incarnation != record.incarnation for r in self.others()):
            return
        log.info("scheduler_found_dead", scheduler_id=record.scheduler_id, address=record.address, why=why)
        self._ended.add(record.incarnation)
        self._tell(SchedulerId(record.scheduler_id))

    def go_on(self, record: SchedulerRecord) -> None:
        """Take back that the scheduler's life is over, because it has answered."""
        if self._forget_end(record):
            log.info("scheduler_answers_again", scheduler_id=record.scheduler_id)
            self._tell(SchedulerId(record.scheduler_id))

    # ---------------------------------------------------------------- life

    def advertise(self, address: str) -> None:
        """Set the address at which others reach this scheduler, before `run`."""
        self.record = self.record.model_copy(update={"address": address})

    def change(self, **fields: object) -> None:
        """Change this scheduler's record, here at once, and in the store as soon as that answers."""
        self.record = self.changed(**fields)
        self._look.set()

    def changed(self, **fields: object) -> SchedulerRecord:
        """Return what `change` would make of this scheduler's record."""
        return self.record.model_copy(update={**fields, "registered": self._registered})

    async def run(self) -> None:
        """Stay registered, and follow the others, for as long as the scheduler lives."""
        await run_loops(watch_of_schedulers=watching(self._records.watch), registration=self._registration())

    async def leave(self, within_s: float) -> None:
        """Remove this scheduler's registration, so that no other waits for it; if that fails, its lease does it."""
        self._leaving.set()
        self._look.set()
        for listener in self._listeners:
            listener()
        if not await is_set_within(self._left, within_s):
            log.warning("scheduler_not_taken_out", scheduler_id=self.id)

    async def _registration(self) -> None:
        await self._stay_registered()
        await asyncio.Event().wait()  # it leaves, and the process ends

    async def _stay_registered(self) -> None:
        while not self._leaving.is_set():
            self._left.clear()
            try:
                async with keep_lease(self._backend, self._lease_ttl_s, self.clock) as lease:
                    self.lease = lease
                    await self._register(lease)
                    if lease.is_lost:
                        log.warning("scheduler_lease_lost", scheduler_id=self.id)
            except LeaseExpiredError:
                log.warning("scheduler_lease_lost", scheduler_id=self.id)
            except StateBackendError as error:
                log.warning("scheduler_not_registered", scheduler_id=self.id, error=str(error))
                await asyncio.sleep(timing.STORE_AGAIN_S)
            finally:
                self.lease = None
                self._left.set()

    async def _register(self, lease: KeptLease) -> None:
        """Keep our record in the store until the lease is lost or this scheduler leaves."""
        lost = asyncio.create_task(lease.wait_lost())
        try:
            await self._put(lease)
            while not (lease.is_lost or self._leaving.is_set()):
                looking = asyncio.create_task(self._look.wait())
                try:
                    await asyncio.wait([lost, looking], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    looking.cancel()
                self._look.clear()
                if not (lease.is_lost or self._leaving.is_set()):
                    await self._put_if_gone(lease)
        finally:
            lost.cancel()

    async def _put_if_gone(self, lease: KeptLease) -> None:
        found = self._records.find(self.id)
        if found is None:
            await self._put(lease)  # an operator removed it by hand
        elif found.incarnation == self.record.incarnation and found != self.record:
            await self._put(lease)  # it has changed
        elif found.incarnation != self.record.incarnation:
            log.error(
                "scheduler_id_taken",
                scheduler_id=self.id,
                by=found.address,
                advice="give each scheduler an ONAGER_SCHEDULER_SCHEDULER_ID of its own; this one goes on unlisted",
            )

    async def _put(self, lease: KeptLease) -> None:
        # A record of the same id belongs to an earlier life of ours, whose lease has not run out yet.
        is_listed = self.is_registered
        if not is_listed:
            self._registered = 0
        record = self.record = self.changed()  # which may change while this is written
        revision = await self._backend.put(Keyspace.Schedulers, self.id, record.encoded(), lease=lease.id)
        self._registered = self._registered or revision
        self._records.seen(record, revision)
        if not is_listed:
            log.info("scheduler_registered", scheduler_id=self.id, address=self.record.address)

    # ---------------------------------------------------------------- the others

    async def refresh(self) -> None:
        """Read the registrations of all schedulers."""
        await self._records.refresh()

    def _changed(self, key: str, record: SchedulerRecord | None, before: SchedulerRecord | None) -> None:
        # After its registration has changed, that life goes on, or a new one has begun.
        was_ended = before is not None and self._forget_end(before)
        if record is None and before is not None:
            self._ahead_ms.pop(before.incarnation, None)
        if record != before or was_ended:
            self._tell(SchedulerId(key))

    def _forget_end(self, record: SchedulerRecord) -> bool:
        was_ended = record.incarnation in self._ended
        self._ended.discard(record.incarnation)
        return was_ended

    def _tell(self, scheduler_id: SchedulerId) -> None:
        if scheduler_id == self.id:
            self._look.set()
        else:
            self.clock.share()
            log.info("schedulers_changed", scheduler_id=scheduler_id, live=len(self.live))
        for listener in self._listeners:
            listener()
