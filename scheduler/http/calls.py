"""Calls the gRPC service on behalf of a caller over HTTP: the same functions, roles, limits, and audit."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.message import Message

from onager.protocol.apart import apart
from onager.protocol.call_limits import STREAM_LIMITS
from onager.protocol.security.roles import check_role, full_name
from onager.protocol.serving import called, called_stream, counted, known_error
from onager.scheduler.api.job_queries import Standing, asked_job_id
from onager.scheduler.api.service import SchedulerService
from onager.scheduler.http.access import Caller
from onager.scheduler.http.coalescing import Coalesced

_NOBODY: Final = Caller("")


class Calls:
    """The methods of a scheduler's service."""

    def __init__(self, service: SchedulerService) -> None:
        self._service = service
        self._coalesced: Coalesced[bytes] = Coalesced()

    def check(self, caller: Caller, method: str) -> None:
        """Raise `RoleRefusedError` if the caller may not call *method*."""
        check_role(caller.principal, caller.role, full_name(method))

    async def call(self, caller: Caller, method: str, request: Message) -> Any:
        """Return the answer of *method*; errors of ours are raised."""
        self.check(caller, method)
        return await called(self._service, method, request, caller)

    async def answer(
        self, caller: Caller, method: str, request: Message, encode: Callable[[Any], bytes], *, form: str = ""
    ) -> bytes:
        """Return the answer of a method that only looks, as *encode* makes it.

        Callers that ask the same at the same time share one answer, which was begun after all of them had asked.
        *form* tells encodings of the same request apart.
        """
        self.check(caller, method)

        async def look() -> bytes:
            answer = await called(self._service, method, request, caller)
            encoded: bytes = await apart(answer.ByteSize(), encode, answer)
            return encoded

        return await self.shared((method, form, request.SerializeToString(deterministic=True)), look)

    async def shared(self, key: Hashable, look: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return what *look* returns, which callers with the same *key* share, as in `answer`."""
        return await self._coalesced.get(key, look)

    async def standing(self, job_id: str) -> Standing:
        """Return how far a job is; `JobNotFoundError` when there is none of that id."""
        try:
            return await self._service.queries.standing(asked_job_id(job_id))
        except Exception as error:  # noqa: BLE001 - the caller gets every error, as of a method
            raise known_error("GetJob", error) from None

    async def check_program(self, program_id: str) -> None:
        """Raise `NotFoundError` unless a job is the program of that id."""
        try:
            await self._service.of_programs.check(program_id)
        except Exception as error:  # noqa: BLE001 - the caller gets every error, as of a method
            raise known_error("WatchOutput", error) from None

    def stream(self, caller: Caller, method: str, request: Message) -> AsyncGenerator[Any, None]:
        """Yield the answers of *method*, of which so many run at a time as over gRPC; errors of ours are raised."""
        self.check(caller, method)
        return self._counted(caller, method, request)

    async def _counted(self, caller: Caller, method: str, request: Message) -> AsyncGenerator[Any, None]:
        with counted(self._service, method, STREAM_LIMITS[method]):
            async with aclosing(called_stream(self._service, method, request, caller)) as answers:
                async for answer in answers:
                    yield answer

    def source(self, method: str, request: Message) -> AsyncGenerator[Any, None]:
        """Yield the answers of *method* to all callers who follow it; each of them was checked."""
        return called_stream(self._service, method, request, _NOBODY)
