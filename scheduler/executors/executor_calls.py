"""Calls to executors in push mode, which carry the answers to their polls."""

from collections.abc import Callable

import grpc

from onager.clock import Clock
from onager.errors import (
    ExecutorUnreachableError,
    InvalidRequestError,
    InvalidSettingError,
    OnagerError,
    SchedulerUnreachableError,
    TlsError,
)
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorStub
from onager.protocol.security import ClientAccess
from onager.scheduler import timing
from onager.scheduler.executors.records import ExecutorRecord


class CallObserver:
    """Observes the results of calls; this one ignores them."""

    def answered(self, took_s: float) -> None:
        """Note that an executor took a call, *took_s* after it was made."""

    def failed(self) -> None:
        """Note that a call failed; what it carried goes with the executor's next poll."""


class ExecutorCalls:
    """One channel to each life of an executor that is called."""

    observer = CallObserver()
    """Observes the calls; set where metrics are kept."""

    def __init__(self, access: ClientAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}

    def check(self, request: pb.RegisterExecutorRequest) -> None:
        """Raise `InvalidRequestError` when the address in an executor's registration must not be called."""
        if request.mode != "push":
            return
        try:
            self._access.check(request.address, "address of the executor")
        except InvalidSettingError as error:
            raise InvalidRequestError(
                f"executor {request.executor_id} wants to be sent work at {request.address}, where the scheduler "
                "would send it unencrypted; give the schedulers ONAGER_SCHEDULER_OUTGOING_TLS_CA, or --insecure if "
                "the network between is trusted"
            ) from error

    async def answer_poll(self, record: ExecutorRecord, list_number: int, answer: pb.PollWorkResponse) -> None:
        """Send *answer* to the executor, whose poll had list *list_number*.

        `onager.executor.agent.push.ExecutorService` takes it there.
        `ExecutorUnreachableError` when it is not known to have arrived, `UnknownExecutorError` when another life of the
        executor answers.
        """
        life = record.executor_id, record.incarnation
        began_s = self._clock.monotonic_s()
        try:
            self._access.check(record.address, "address of the executor")
            if life not in self._channels:
                self._channels[life] = self._access.aio_channel(record.address)
            request = pb.AnswerPollRequest(
                executor_id=record.executor_id,
                incarnation=record.incarnation,
                list_number=list_number,
                answer=answer,
            )
            method = OnagerExecutorStub(self._channels[life]).AnswerPoll
            await self._access.call(method, request, record.address, timing.ANSWER_TAKEN_S)
        except OnagerError as error:
            self.observer.failed()
            if isinstance(error, SchedulerUnreachableError) and not isinstance(error, TlsError):
                raise ExecutorUnreachableError(record.executor_id, record.address, error.why) from error
            raise
        self.observer.answered(self._clock.monotonic_s() - began_s)

    async def close_gone(self, is_alive: Callable[[str, str], bool]) -> None:
        """Close the connections to lives of executors that are over; calls in flight end."""
        for life in [life for life in self._channels if not is_alive(*life)]:
            await self._channels.pop(life).close(None)

    async def close(self) -> None:
        """Close all connections."""
        await self.close_gone(lambda *_: False)
