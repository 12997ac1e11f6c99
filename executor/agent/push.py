"""Push mode: the port on which schedulers answer an executor's polls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from onager.executor.agent.agent import Agent
from onager.executor.settings import ExecutorSettings
from onager.protocol import onager_pb2 as pb
from onager.protocol.border import Border
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import OnagerExecutorServicer, add_OnagerExecutorServicer_to_server
from onager.protocol.security import ServerAccess
from onager.protocol.serving import translated

log = structlog.get_logger()

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["OnagerExecutor"].full_name

Context = Any


class ExecutorService(OnagerExecutorServicer):  # type: ignore[misc]
    """The service for schedulers."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @translated
    async def AnswerPoll(self, request: pb.AnswerPollRequest, context: Context) -> pb.AnswerPollResponse:  # noqa: ARG002, N802
        """Take the answer to a poll."""
        self._agent.answer_poll(request)
        return pb.AnswerPollResponse()


class Port:
    """An open port that is not served yet."""

    def __init__(self, settings: ExecutorSettings, access: ServerAccess) -> None:
        """Listen as *settings* say; `InvalidSettingError` when the address cannot be used."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=access.interceptors)
        self.address = settings.advertised(access.add_port(self._server, settings.listen))
        """Where schedulers reach it."""

    @asynccontextmanager
    async def serving(self, agent: Agent) -> AsyncIterator[None]:
        """Serve calls to *agent* inside the block."""
        border = Border(self._server)
        add_OnagerExecutorServicer_to_server(ExecutorService(agent), border)
        checks = HealthServicer()
        border.add_looking(checks, [_SERVICE])
        await self._server.start()
        for name in ("", _SERVICE):
            await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info("executor_serves", address=self.address)
        try:
            yield
        finally:
            await self._server.stop(None)
