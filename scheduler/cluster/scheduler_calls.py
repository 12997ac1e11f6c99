"""Calls to other schedulers: channels to the live ones, and a short break from one that does not answer."""

from typing import Any, Final

import grpc
import structlog

from onager.clock import Clock
from onager.errors import OnagerError
from onager.ids import SchedulerId
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerSchedulerGatewayStub
from onager.protocol.security import ClientAccess
from onager.scheduler import timing
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.live_schedulers import LiveSchedulers, SchedulerRecord
from onager.supervision import unless_cut

log = structlog.get_logger(__name__)

_BYTES_PER_S: Final = 4 * 1024 * 1024
"""The rate by which a large request extends the time limit of its answer."""


class SchedulerCalls:
    """One channel to each life of another scheduler."""

    def __init__(self, schedulers: LiveSchedulers, access: ClientAccess, clock: Clock, *, timeout_s: float) -> None:
        self._schedulers = schedulers
        self._access = access
        self._clock = clock
        self._timeout_s = timeout_s
        self._channels: dict[str, tuple[grpc.aio.Channel, Any]] = {}
        self._passed_over_until_s: dict[str, float] = {}

    def answers(self, scheduler_id: SchedulerId) -> bool:
        """Return whether the store lists the scheduler as live, and it has answered its latest calls."""
        record = self._schedulers.find(scheduler_id)
        if record is None:
            return False
        until_s = self._passed_over_until_s.get(record.incarnation)
        return until_s is None or self._clock.monotonic_s() >= until_s

    async def forward(self, scheduler_id: SchedulerId, request: pb.ForwardRequest) -> pb.ForwardResponse:
        """Forward *request*.

        `NotDrivingError` when no answer came, whatever the reason. Then the scheduler is skipped for a while, unless
        the call ended because that life is over.
        """
        record = self._schedulers.find(scheduler_id)
        if record is None:
            raise NotDrivingError(f"{scheduler_id} is gone")
        life = record.incarnation
        stub = self._stub(record)
        timeout_s = self._timeout_s + request.ByteSize() / _BYTES_PER_S
        try:
            answer: pb.ForwardResponse = await unless_cut(
                stub.Forward(request, timeout=timeout_s, metadata=self._access.metadata()),
                NotDrivingError(f"{scheduler_id} is gone, and its connection is closed"),
            )
        except grpc.aio.AioRpcError as raw:
            error = self._access.error_of(raw, record.address)
            if life not in self._passed_over_until_s:
                log.warning("scheduler_passed_over", scheduler_id=scheduler_id, address=record.address, why=str(error))
            self._passed_over_until_s[life] = self._clock.monotonic_s() + timing.SCHEDULER_PASSED_OVER_S
            raise NotDrivingError(f"{scheduler_id}: {error}") from error
        if self._passed_over_until_s.pop(life, None) is not None:
            log.info("scheduler_answers_again", scheduler_id=scheduler_id)
        return answer

    async def ask_executors(
        self, scheduler_id: SchedulerId, request: pb.AskExecutorsRequest
    ) -> pb.AskExecutorsResponse:
        """Have the scheduler ask the executors that wait there; an empty answer when it does not give one in time."""
        record = self._schedulers.find(scheduler_id)
        if record is None:
            return pb.AskExecutorsResponse()
        timeout_s = request.wait_ms / 1000 + self._timeout_s
        try:
            answer: pb.AskExecutorsResponse = await self._access.call(
                self._stub(record).AskExecutors, request, record.address, timeout_s
            )
        except OnagerError as error:
            log.info("executors_not_asked", scheduler_id=scheduler_id, why=str(error))
            return pb.AskExecutorsResponse()
        return answer

    def _stub(self, record: SchedulerRecord) -> Any:
        if record.incarnation not in self._channels:
            channel = self._access.aio_channel(record.address)
            self._channels[record.incarnation] = (channel, OnagerSchedulerGatewayStub(channel))
        return self._channels[record.incarnation][1]

    async def close_gone(self) -> None:
        """Close the channels to lives that are over; calls in flight there end in `NotDrivingError`."""
        live = {record.incarnation for s in self._schedulers.live if (record := self._schedulers.find(s)) is not None}
        for life in [life for life in self._passed_over_until_s if life not in live]:
            del self._passed_over_until_s[life]
        for life in [life for life in self._channels if life not in live]:
            await self._channels.pop(life)[0].close(None)

    async def close(self) -> None:
        """Close all channels; calls in flight end."""
        while self._channels:
            await self._channels.popitem()[1][0].close(None)
