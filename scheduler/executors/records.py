"""What is stored of an executor, and this replica's session with one life of it."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

import psutil

from onager.execution_graph import ExecutorSlot
from onager.ids import ExecutorId, Incarnation, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_keys
from onager.scheduler.records import Record

_LOOPBACK = ("ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "unix:")


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
    """Push mode: where it is called."""
    stream_address: str = ""
    """Where others read what its tasks stream; empty where they cannot."""
    fetches_inputs: bool = False
    """Inputs that are many may be told it by the digest of a blob. Unknown to the version before."""
    set_aside_until_ms: int = 0
    """It gets no work until then, because it failed nearly all that it was given."""
    set_aside_reason: str = ""
    no_space: str = ""
    """Why it gets no work for now: its exchange is full. Unknown to schedulers of the version before."""
    has_left: bool = False
    """It is lost as it wanted to be: it was drained. Unknown to schedulers of the version before."""

    def is_set_aside(self, now_ms: int) -> bool:
        """Return whether it gets no work for a while."""
        return now_ms < self.set_aside_until_ms

    def takes_work(self, now_ms: int) -> bool:
        """Return whether tasks may be handed to it."""
        return self.state == "alive" and not self.is_set_aside(now_ms) and not self.no_space

    def told(self, now_ms: int) -> tuple[str, str]:
        """Return what people are told of its state, and the reason."""
        if self.state == "alive" and self.is_set_aside(now_ms):
            return "set_aside", self.set_aside_reason
        if self.state == "alive" and self.no_space:
            return "no_space", self.no_space
        return "left" if self.state == "lost" and self.has_left else self.state, self.reason or ""


@dataclass(slots=True, kw_only=True)
class ExecutorSession:
    """What this replica knows of a living executor from talking with it; lost with the replica, at no harm."""

    record: ExecutorRecord
    seen_s: float
    """When it was last heard of, by the steady clock."""
    seen_ms: int
    renewed_s: float
    list_number: int = 0
    held: dict[TaskKey, float] = field(default_factory=dict)
    """The tasks that it has, by its lists and our launches, and when they were handed out."""
    listed: frozenset[TaskKey] = frozenset()
    """What was in its latest list: it came there, and may have been reported to another replica since."""
    in_doubt: frozenset[TaskKey] = frozenset()
    """What was handed out and not in that list: it is on its way, or has been reported to another replica already."""
    local_process: psutil.Process | None = None
    """The process itself, when it runs on this machine: its death can be seen."""
    suspect_s: float | None = None
    """When its connection broke, until it is heard of again."""
    is_gone: bool = False
    compared: dict[str, int] = field(default_factory=dict)
    """The latest list that each other replica has held against its graphs."""
    unwanted: dict[TaskKey, None] = field(default_factory=dict)
    """What other replicas say that it need not go on with, until it is told."""
    judged_s: float = -1.0
    """When it was last looked whether all that it holds is wanted."""
    exchange: pb.ExchangeUse | None = None
    """The exchange directory as it last saw it."""
    late_task_sets: list[pb.TaskSet] = field(default_factory=list)
    """Launches that other replicas have repeated, until they are on their way."""
    call_failed_s: float | None = None
    """Push mode: when it was told last that the executor could not be called, until a call comes through."""

    @property
    def executor_id(self) -> ExecutorId:
        """Return whose session it is."""
        return ExecutorId(self.record.executor_id)

    @property
    def incarnation(self) -> Incarnation:
        """Return in which life."""
        return Incarnation(self.record.incarnation)

    @property
    def slot(self) -> ExecutorSlot:
        """Return who would run a task launched now."""
        return ExecutorSlot(self.record.executor_id, self.record.incarnation, self.list_number)

    def note_launch(self, task_set: pb.TaskSet, now_s: float) -> None:
        """Remember that tasks are on their way to the executor."""
        self.held.update(dict.fromkeys(task_keys(task_set), now_s))

    @property
    def is_draining(self) -> bool:
        """Return whether it takes no more work."""
        return self.record.state != "alive"

    def runs(self, job_id: str) -> bool:
        """Return whether it is likely to have tasks of the job."""
        return any(key.job_id == job_id and key not in self.in_doubt for key in self.held)

    def info(self, now_ms: int) -> pb.ExecutorInfo:
        """Return what people are told."""
        info = executor_info(self.record, now_ms)
        info.running = len(self.held)
        info.last_seen_ms = self.seen_ms
        if self.exchange is not None:
            info.exchange.CopyFrom(self.exchange)
        return info


def executor_info(record: ExecutorRecord, now_ms: int) -> pb.ExecutorInfo:
    """Return what people are told of an executor that this replica only knows from the store."""
    state, reason = record.told(now_ms)
    return pb.ExecutorInfo(
        executor_id=record.executor_id,
        incarnation=record.incarnation,
        host=record.host,
        slots=record.slots,
        state=state,
        reason=reason,
        set_aside_until_ms=record.set_aside_until_ms if state == "set_aside" else 0,
        registered_ms=record.registered_ms,
        last_seen_ms=record.ended_ms or 0,
        spark_version=record.spark_version,
        pid=record.pid,
        mode=record.mode,
        address=record.address,
        stream_address=record.stream_address,
    )


def local_process(peer: str, pid: int) -> psutil.Process | None:
    """Return the process *pid* when *peer* (gRPC's name of the other end) is on this machine and there is one."""
    if not peer.startswith(_LOOPBACK) or not pid:
        return None
    try:
        process = psutil.Process(pid)
    except (psutil.Error, ValueError, OverflowError):
        return None
    return process


def has_died(process: psutil.Process) -> bool:
    """Return whether the process has ended (a zombie that nobody has waited for has)."""
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
    """A waiting poll: slots that its executor has free, and what the answer will hold."""

    session: ExecutorSession
    credit: int
    launches: list[pb.TaskSet] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the poll has something to say."""
    is_nudged: bool = False
    """Whether its executor has something else to hear than launches, or to ask elsewhere."""
    settled: asyncio.Event = field(default_factory=_set_event)
    """Clear while slots of it are being filled."""
    filling: int = 0
    """How many rounds of filling slots of it go on."""
    taken: int = 0
    """Slots that these rounds may fill."""

    @property
    def can_be_filled(self) -> bool:
        """Return whether the poll still waits, and its executor lives."""
        return not (self.answered.is_set() or self.session.is_gone or self.session.is_draining)
