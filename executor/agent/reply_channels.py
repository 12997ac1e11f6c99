"""Channels for reports to the schedulers that drive the jobs: a driver decides from memory."""

from collections import OrderedDict
from typing import Final

import grpc
import structlog

from onager.clock import Clock
from onager.errors import DiskError, OnagerError, SchedulerUnreachableError, StateUnavailableError, UnknownExecutorError
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayStub
from onager.protocol.security import ClientAccess

log = structlog.get_logger()

_ANSWER_S: Final = 1.0
"""A scheduler that takes longer probably hangs, or has lost its store: another one is asked."""
_PASSED_OVER_S: Final = 2.0
_NEVER_REACHED_S: Final = 30.0
"""How long a scheduler that has never answered is skipped: its address may lead nowhere from here."""
_MAX_CHANNELS: Final = 16


class ReplyChannels:
    """Channels to schedulers at the addresses that came with their launches."""

    def __init__(self, access: ClientAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._channels: OrderedDict[str, grpc.aio.Channel] = OrderedDict()
        self._passed_over: dict[str, float] = {}
        self._has_answered: set[str] = set()

    def is_passed_over(self, address: str) -> bool:
        """Return whether the scheduler at *address* did not answer lately, so that another one is asked at once."""
        now_s = self._clock.monotonic_s()
        return self._passed_over.get(address, now_s) > now_s

    async def report(self, address: str, request: pb.ReportTasksRequest) -> pb.ReportTasksResponse | None:
        """Return the answer of the scheduler at *address*; None when it gives none, and another one has to be asked.

        Only `UnknownExecutorError` is raised: any other error there, such as an unknown token or an address without a
        scheduler, need not happen elsewhere.
        """
        if self.is_passed_over(address):
            return None
        try:
            self._access.check(address)
            method = OnagerExecutorGatewayStub(await self._channel(address)).ReportTasks
            # When there are many channels, one that has not been used for long is closed, even with a call in flight.
            answer: pb.ReportTasksResponse = await self._access.call(method, request, address, _ANSWER_S)
        except UnknownExecutorError:
            raise
        except OnagerError as error:
            why = str(error)
        else:
            self._passed_over.pop(address, None)
            self._has_answered.add(address)
            return answer
        pause_s = _PASSED_OVER_S if address in self._has_answered else _NEVER_REACHED_S
        self._passed_over[address] = self._clock.monotonic_s() + pause_s
        log.info("driver_silent", scheduler=address, why=why)
        return None

    async def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._access.aio_channel(address)
        self._channels.move_to_end(address)
        while len(self._channels) > _MAX_CHANNELS:
            _, oldest = self._channels.popitem(last=False)
            await oldest.close(None)
        return channel

    async def close(self) -> None:
        """Close every connection."""
        for channel in self._channels.values():
            await channel.close(None)


def is_elsewhere_better(raw: grpc.aio.AioRpcError, error: OnagerError) -> bool:
    """Return whether another scheduler may do what one has failed to do."""
    # A scheduler that shuts down ends its waiting calls with CANCELLED.
    return isinstance(error, DiskError | SchedulerUnreachableError | StateUnavailableError) or (
        raw.code() is grpc.StatusCode.CANCELLED
    )
