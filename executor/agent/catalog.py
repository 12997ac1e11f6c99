"""Reads of the catalog for the worker's threads, which wait, through the agent's connections."""

import asyncio
from concurrent.futures import Future

from onager.clock import Clock
from onager.errors import OnagerError
from onager.executor.agent.backoff import Backoff
from onager.executor.agent.gateway import SchedulerGateway
from onager.protocol import onager_pb2 as pb

_CALL_TIMEOUT_S = 10.0
_PATIENCE_S = 60.0
"""How long no scheduler may answer before the planning fails, to be tried again: longer than a takeover takes."""


class CatalogClient:
    """Reads the catalog through schedulers; made in the agent's event loop, callable from any thread."""

    def __init__(self, gateway: SchedulerGateway, clock: Clock, *, executor_id: str, incarnation: str) -> None:
        self._gateway = gateway
        self._clock = clock
        self._executor_id = executor_id
        self._incarnation = incarnation
        self._loop = asyncio.get_running_loop()

    def read(self, request: pb.ReadCatalogRequest) -> Future[pb.ReadCatalogResponse]:
        """Begin to read; see `onager.executor.work.CatalogReader`."""
        return asyncio.run_coroutine_threadsafe(self._read(request), self._loop)

    async def _read(self, request: pb.ReadCatalogRequest) -> pb.ReadCatalogResponse:
        request.executor_id, request.incarnation = self._executor_id, self._incarnation
        until_s = self._clock.monotonic_s() + _PATIENCE_S
        backoff = Backoff(first_s=0.1, limit_s=2.0)
        while True:
            try:
                return await self._gateway.read_catalog(request, _CALL_TIMEOUT_S)
            except OnagerError as e:
                if not e.retryable or self._clock.monotonic_s() >= until_s:
                    raise
                await backoff.sleep()
