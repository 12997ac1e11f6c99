"""The stored record of an executor, and this scheduler's session with one life of it."""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

import psutil
from pydantic import Field

from onager.execution_graph import ExecutorSlot, JvmDeath
from onager.ids import ExecutorId, Incarnation, TaskKey
from onager.place_files import EXCHANGE
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_keys
from onager.scheduler.executors.place_records import WAITS, PlaceClaim
from onager.scheduler.records import Record

_COMES_BACK_MS: Final = 60_000
"""How long a lost executor may take to start its JVM again."""


class Loss(StrEnum):
    """How the life of an executor ended."""

    LEFT = "left"
    """It had been drained, and said goodbye or held nothing."""
    SAID_GOODBYE = "said_goodbye"
    """It ended at its own request, perhaps with tasks left."""
    RESTARTED = "restarted"
    """Another life of it has registered."""
    PROCESS = "process"
    """Its process on this machine died."""
    CONNECTION = "connection"
    """Its connection broke, and it did not call again."""
    LEASE = "lease"
    """It did not call within its lease."""


SHOWN_STATES: Final = ("alive", "quarantined", "no_space", "no_place", "draining", "left", "lost")
"""What `ExecutorRecord.state_and_reason` may return as the state."""


class ExecutorRecord(Record):
    """One executor in its latest life."""

    executor_id: str
    incarnation: str
    host: str
    pid: int
    slots: int
    spark_version: str
    python_version: str
    exchange_dir: str
    registered_ms: int
    lease_id: int
    state: Literal["alive", "draining", "lost"] = "alive"
    ended_ms: int | None = None
    reason: str | None = None
    """Why it is lost, or has left."""
    mode: Literal["pull", "push"] = "pull"
    address: str = ""
    """Push mode: the address at which it is called."""
    stream_address: str = ""
    """Where others read the streams of its tasks; empty if it cannot stream."""
    machine: str = ""
    """Tells its machine from others; empty: not known."""
    features: tuple[str, ...] = ()
    """The features of `onager.features` that its release has."""
    quarantined_until_ms: int = 0
    """It is quarantined until then, because it failed nearly all its tasks."""
    quarantine_reason: str = ""
    no_space: str = ""
    """Why it gets no work for now: its exchange is full."""
    has_left: bool = False
    """Whether it left after a drain, as it wanted to."""
    lost_before: str = ""
    """Why its life before was lost."""
    death: JvmDeath | None = None
    """How its JVM ended, if it ended by itself, with suspects of all jobs."""
    places: dict[str, PlaceClaim] = Field(default_factory=dict)
    """The shared directories that it has named."""
    runs_programs: bool = False
    """Whether its slots are for programs; those of any other are for tasks of Spark."""

    def is_quarantined(self, now_ms: int) -> bool:
        """Return whether it is quarantined."""
        return now_ms < self.quarantined_until_ms

    def takes_work(self, now_ms: int) -> bool:
        """Return whether tasks may be assigned to it."""
        return self.state == "alive" and not (self.is_quarantined(now_ms) or self.no_space or self.no_exchange)

    @property
    def no_exchange(self) -> str:
        """Return why it gets no work: it does not see the exchange directory; empty if it does, or names none."""
        claim = self.places.get(EXCHANGE)
        return "" if claim is None or claim.is_admitted else claim.why or WAITS

    def may_see(self, place: str, now_ms: int) -> bool:
        """Return whether it sees a place, or may do so soon: it is refused for a moment, or starts again."""
        if self.state == "lost":
            return not self.has_left and now_ms - (self.ended_ms or 0) < _COMES_BACK_MS
        claim = self.places.get(place)
        if claim is None:  # it checks nothing there, or nobody has judged it yet; without an exchange it runs nothing
            return not self.no_exchange
        return not claim.is_refused_for_good(now_ms)

    @property
    def unseen(self) -> str:
        """Return why it leaves some work to others: places that it does not see."""
        return "; ".join(claim.why for claim in self.places.values() if claim.why)

    def state_and_reason(self, now_ms: int) -> tuple[str, str]:
        """Return its state as shown to people, and the reason."""
        if self.state == "alive" and self.is_quarantined(now_ms):
            return "quarantined", self.quarantine_reason
        if self.state == "alive" and self.no_space:
            return "no_space", self.no_space
        if self.state == "alive" and self.no_exchange:
            return "no_place", self.no_exchange
        if self.state == "alive" and self.unseen:
            return "alive", self.unseen
        if self.state == "alive" and self.lost_before:
            return "alive", f"started again: {self.lost_before}"
        return "left" if self.state == "lost" and self.has_left else self.state, self.reason or ""


@dataclass(slots=True, kw_only=True)
class ExecutorSession:
    """What this scheduler knows of a living executor from talking with it; lost with the scheduler, without harm."""

    record: ExecutorRecord
    seen_s: float
    """When it last called, by the monotonic clock."""
    seen_ms: int
    renewed_s: float
    """When the store was asked for the latest renewal of its lease that it took, by the monotonic clock."""
    asked_s: float
    """When the store was last asked for one."""
    list_number: int = 0
    held: dict[TaskKey, float] = field(default_factory=dict)
    """The tasks that it holds, by its lists and our launches, and when they were launched."""
    listed: frozenset[TaskKey] = frozenset()
    """The tasks in its latest list: they arrived, and may have been reported to another scheduler since."""
    in_doubt: frozenset[TaskKey] = frozenset()
    """Launched tasks that were not in that list: on their way, or already reported to another scheduler."""
    reporting: set[TaskKey] = field(default_factory=set)
    """Tasks whose reports are being applied: they have ended, and nobody has to stop them."""
    local_process: psutil.Process | None = None
    """Its process, if it runs on this machine, so that its death can be seen."""
    suspect_s: float | None = None
    """When its connection broke, until it calls again."""
    is_gone: bool = False
    compared: dict[str, int] = field(default_factory=dict)
    """The latest list that each scheduler, this one included, has compared with its graphs."""
    unwanted: dict[TaskKey, None] = field(default_factory=dict)
    """Tasks that other schedulers no longer want; kept until the executor has been asked to stop them."""
    judged_s: float = -1.0
    """When all its held tasks were last checked for being wanted."""
    exchange: pb.ExchangeUse | None = None
    """The exchange directory as it last saw it."""
    load: pb.ExecutorLoad | None = None
    """What it said of its load, until that is written."""
    load_due_s: float = 0.0
    """When its load may be written again, by the monotonic clock."""
    late_task_sets: list[pb.TaskSet] = field(default_factory=list)
    """Launches that other schedulers have repeated, until they are on their way."""
    marks_asked: set[str] = field(default_factory=set)
    """The marks of others that it was asked to look for."""
    call_failed_s: float | None = None
    """Push mode: when it was last logged that the executor could not be called, until a call succeeds."""

    @property
    def executor_id(self) -> ExecutorId:
        """Return the executor's id."""
        return ExecutorId(self.record.executor_id)

    @property
    def incarnation(self) -> Incarnation:
        """Return the executor's incarnation."""
        return Incarnation(self.record.incarnation)

    @property
    def slot(self) -> ExecutorSlot:
        """Return the slot on which a task launched now would run."""
        return ExecutorSlot(
            self.record.executor_id,
            self.record.incarnation,
            self.list_number,
            is_empty=self.held.keys() <= self.reporting,
        )

    def note_launch(self, task_set: pb.TaskSet, now_s: float) -> None:
        """Remember that tasks are on their way to the executor."""
        self.held.update(dict.fromkeys(task_keys(task_set), now_s))

    @property
    def is_draining(self) -> bool:
        """Return whether it takes no more work."""
        return self.record.state != "alive"

    @property
    def running(self) -> list[TaskKey]:
        """Return the tasks that it is likely to have, and has not ended."""
        return [key for key in self.held if key not in self.in_doubt and key not in self.reporting]

    def runs(self, job_id: str) -> bool:
        """Return whether it is likely to have tasks of the job."""
        return any(key.job_id == job_id for key in self.running)

    def info(self, now_ms: int) -> pb.ExecutorInfo:
        """Return the information shown to people."""
        info = executor_info(self.record, now_ms)
        info.running = len(self.held)
        info.last_seen_ms = self.seen_ms
        if self.exchange is not None:
            info.exchange.CopyFrom(self.exchange)
        return info


def executor_info(record: ExecutorRecord, now_ms: int) -> pb.ExecutorInfo:
    """Return the information shown about an executor that this scheduler knows only from the store."""
    state, reason = record.state_and_reason(now_ms)
    return pb.ExecutorInfo(
        executor_id=record.executor_id,
        incarnation=record.incarnation,
        host=record.host,
        slots=record.slots,
        state=state,
        reason=reason,
        quarantined_until_ms=record.quarantined_until_ms if state == "quarantined" else 0,
        registered_ms=record.registered_ms,
        last_seen_ms=record.ended_ms or 0,
        spark_version=record.spark_version,
        pid=record.pid,
        mode=record.mode,
        address=record.address,
        stream_address=record.stream_address,
    )


def local_process(record: ExecutorRecord, machine: str) -> psutil.Process | None:
    """Return the executor's process if it runs on *machine*, which is this one.

    The address that it calls from tells nothing: a proxy on this machine may pass on the calls of another one.
    """
    if record.machine != machine or not record.pid:
        return None
    try:
        return psutil.Process(record.pid)
    except (psutil.Error, ValueError, OverflowError):
        return None


def has_died(process: psutil.Process) -> bool:
    """Return whether the process has ended, perhaps as a zombie that was not waited for."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Offer:
    """A waiting poll: the free slots of its executor, and the coming content of its answer."""

    session: ExecutorSession
    credit: int
    launches: list[pb.TaskSet] = field(default_factory=list)
    """`Dispatcher` puts them here, and `Polls` into the answer."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the answer has content."""
    is_nudged: bool = False
    """Whether the answer has something other than launches for its executor, or sends it elsewhere."""
    settled: asyncio.Event = field(default_factory=_set_event)
    """Clear while its slots are being filled."""
    filling: int = 0
    """How many rounds are filling its slots."""
    taken: int = 0
    """Slots that these rounds may fill."""

    @property
    def can_be_filled(self) -> bool:
        """Return whether the poll still waits, and its executor lives."""
        return not (self.answered.is_set() or self.session.is_gone or self.session.is_draining)
