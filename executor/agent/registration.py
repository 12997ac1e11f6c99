"""Registration, repeated whenever no scheduler knows us, and heartbeats that keep the lease."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from onager.errors import (
    ExecutorReplacedError,
    InvalidRequestError,
    OnagerError,
    UnknownExecutorError,
    VersionMismatchError,
)
from onager.executor.agent.backoff import Backoff
from onager.executor.agent.gateway import SchedulerGateway, tell
from onager.executor.settings import ExecutorSettings
from onager.features import FEATURES
from onager.ids import Incarnation
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.waiting import is_set_within

_CALL_TIMEOUT_S = 10.0
_CALM_S = 0.05
"""The least time between two registrations."""
_UNANSWERED_RETRY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity that registers: this life of this executor, and its versions."""

    incarnation: Incarnation
    pid: int
    spark_version: str
    python_version: str
    """Major and minor version: pickled functions need the same on both sides."""
    stream_address: str = ""
    """The address at which other executors read the streams of tasks here; empty if it cannot stream."""
    runs_programs: bool = False
    """Whether its slots are for programs."""


class Registration:
    """Keeps the executor registered; `lose` makes it register again, with the tasks that it holds."""

    def __init__(
        self,
        settings: ExecutorSettings,
        identity: Identity,
        gateway: SchedulerGateway,
        *,
        held: Callable[[], list[pb.TaskId]],
        on_registered: Callable[[pb.RegisterExecutorResponse], None],
        add_places: Callable[[pb.RegisterExecutorRequest], None],
        add_news: Callable[[pb.HeartbeatRequest], None],
        on_answer: Callable[[pb.HeartbeatResponse], None],
        on_refused: Callable[[str], None],
        address: str = "",
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._gateway = gateway
        self._held = held
        self._on_registered = on_registered
        self._add_places = add_places
        self._add_news = add_news
        self._on_answer = on_answer
        self._on_refused = on_refused
        self._address = address
        self._log = structlog.get_logger().bind(executor_id=settings.executor_id)
        self._registered = asyncio.Event()
        self._must_register = asyncio.Event()
        self._must_register.set()
        self._heartbeat_due = asyncio.Event()
        self._lease_ttl_s = 10.0
        self._is_draining = False

    async def wait_until_registered(self) -> None:
        """Wait until a scheduler knows this executor."""
        await self._registered.wait()

    def lose(self) -> None:
        """Note that a scheduler does not know this executor."""
        self._registered.clear()
        self._must_register.set()

    def announce_drain(self) -> None:
        """Tell the schedulers, at once and with every heartbeat from now on, that this executor takes no more work."""
        self._is_draining = True
        self.beat()

    def beat(self) -> None:
        """Send the next heartbeat at once."""
        self._heartbeat_due.set()

    async def register(self) -> None:
        """Register whenever that is needed; return only when this executor is refused for good."""
        backoff = Backoff(first_s=0.1, limit_s=2.0)
        while True:
            await self._must_register.wait()
            try:
                answer = await self._gateway.register(self._introduction(), _CALL_TIMEOUT_S)
            except (VersionMismatchError, ExecutorReplacedError, InvalidRequestError) as e:
                self._on_refused(str(e))
                return
            except OnagerError as e:
                tell(self._log, "registration_failed", e)
                await backoff.sleep()
                continue
            backoff.reset()
            self._lease_ttl_s = max(0.1, answer.lease_ttl_ms / 1000)
            self._must_register.clear()
            self._registered.set()
            self._heartbeat_due.set()
            self._log.info("registered", scheduler_id=answer.scheduler_id, slots=self._settings.slots)
            self._on_registered(answer)
            await asyncio.sleep(_CALM_S)

    async def keep_alive(self) -> None:
        """Send heartbeats three times per lease, for ever."""
        while True:
            await self._registered.wait()
            self._heartbeat_due.clear()
            interval_s = self._settings.heartbeat_interval_ms / 1000 or self._lease_ttl_s / 3
            request = pb.HeartbeatRequest(
                executor_id=self._settings.executor_id,
                incarnation=self._identity.incarnation,
                draining=self._is_draining,
            )
            self._add_news(request)
            try:
                answer = await self._gateway.heartbeat(request, min(_CALL_TIMEOUT_S, max(1.0, interval_s)))
            except UnknownExecutorError:
                self.lose()
                continue
            except OnagerError as e:
                tell(self._log, "heartbeat_failed", e)
                interval_s = min(interval_s, _UNANSWERED_RETRY_S)
            else:
                self._on_answer(answer)
            await is_set_within(self._heartbeat_due, interval_s)

    def _introduction(self) -> pb.RegisterExecutorRequest:
        request = pb.RegisterExecutorRequest(
            executor_id=self._settings.executor_id,
            incarnation=self._identity.incarnation,
            host=self._settings.host,
            pid=self._identity.pid,
            slots=self._settings.slots,
            protocol_version=PROTOCOL_VERSION,
            spark_version=self._identity.spark_version,
            python_version=self._identity.python_version,
            exchange_dir=self._settings.exchange_dir,
            running=self._held(),
            mode=self._settings.mode,
            address=self._address,
            stream_address=self._identity.stream_address,
            features=FEATURES,
            machine=self._settings.machine,
            runs_programs=self._identity.runs_programs,
        )
        self._add_places(request)
        return request
