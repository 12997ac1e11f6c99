"""Notice at once that another scheduler has died: a call to each is always in flight, and breaks off with its process.

The lease runs for seconds more. A port that refuses connections, though the process behind it has answered there
before, is as good a sign. Where it is wrong (a firewall changed in between), the worst is that two schedulers drive
some jobs until the call succeeds again. Silence proves nothing: a scheduler that hangs, or whose machine has vanished,
counts as dead only when its lease ends.
"""

import asyncio
from typing import Any, Final

import grpc

from onager.errors import OnagerError, SchedulerUnreachableError
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerSchedulerGatewayStub
from onager.protocol.security import ClientAccess
from onager.scheduler import timing
from onager.scheduler.cluster.live_schedulers import LiveSchedulers, SchedulerRecord
from onager.supervision import Background, unless_cut

_REFUSED: Final = "Connection refused"
"""gRPC's words; should it use others, the lease decides."""


class SchedulerWatch:
    """Keeps a call in flight to each other scheduler."""

    def __init__(self, schedulers: LiveSchedulers, access: ClientAccess, *, timeout_s: float) -> None:
        self._schedulers = schedulers
        self._access = access
        self._timeout_s = timeout_s
        self._changed = asyncio.Event()
        self._changed.set()
        self._background = Background()

    def on_schedulers(self) -> None:
        """Look again at which schedulers are registered."""
        self._changed.set()

    async def run(self) -> None:
        """Keep a call to each registered scheduler, for as long as this one lives."""
        await self._background.run(scheduler_watch=self._follow())

    async def set_clock(self) -> None:
        """Ask the schedulers that are there for the cluster's time, the eldest first, until one tells it."""
        for record in self._schedulers.elders():
            channel = self._access.aio_channel(record.address)
            stub: Any = OnagerSchedulerGatewayStub(channel)
            try:
                answer = await stub.Attend(
                    pb.AttendRequest(), timeout=self._timeout_s, metadata=self._access.metadata()
                )
            except (grpc.aio.AioRpcError, OnagerError):
                continue
            finally:
                await channel.close(None)
            if answer.incarnation == record.incarnation and answer.now_ms:
                self._schedulers.clock.follow(answer.now_ms)
                return

    async def _follow(self) -> None:
        attending: dict[str, asyncio.Task[None]] = {}
        while True:
            await self._changed.wait()
            self._changed.clear()
            records = {record.incarnation: record for record in self._schedulers.others()}
            for life in [life for life in attending if life not in records]:
                attending.pop(life).cancel()
            for life, record in records.items():
                if life not in attending:
                    name = f"attending to {record.scheduler_id}"
                    attending[life] = self._background.start(name, self._attend(record))

    async def _attend(self, record: SchedulerRecord) -> None:
        """Repeat the call until the life is known to be over, or the scheduler turns out not to offer it."""
        channel = self._access.aio_channel(record.address)
        stub: Any = OnagerSchedulerGatewayStub(channel)
        has_answered, wait_s, pause_s = False, 0.0, timing.ATTEND_FIRST_PAUSE_S
        try:
            while True:
                try:
                    call = stub.Attend(
                        pb.AttendRequest(wait_ms=int(wait_s * 1000)),
                        timeout=wait_s + self._timeout_s,
                        metadata=self._access.metadata(),
                    )
                    answer: pb.AttendResponse = await unless_cut(
                        call, SchedulerUnreachableError(record.address, "the call was cut")
                    )
                except (grpc.aio.AioRpcError, OnagerError) as error:
                    if has_answered and _REFUSED in str(error):
                        self._schedulers.end(record, "it refuses connections")
                    if not wait_s:
                        await asyncio.sleep(pause_s)
                        pause_s = min(timing.ATTEND_LONGEST_PAUSE_S, 2 * pause_s)
                    wait_s = 0.0  # retry at once: did only the connection break, or the process?
                    continue
                if answer.incarnation != record.incarnation:
                    if answer.scheduler_id == record.scheduler_id:
                        self._schedulers.end(record, "another life of it answers")
                    return
                self._schedulers.go_on(record)
                self._schedulers.follow_clock(record, answer)
                has_answered, pause_s = True, timing.ATTEND_FIRST_PAUSE_S
                wait_s = 0.0 if answer.leaving else timing.ATTEND_WAIT_S
                if answer.leaving:
                    await asyncio.sleep(pause_s)
        finally:
            await channel.close(None)
