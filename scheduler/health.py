"""gRPC's health protocol on an address of its own: load balancers and probes have neither certificates nor tokens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from onager.protocol.border import Border
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.ports import unusable_address
from onager.scheduler import timing

log = structlog.get_logger(__name__)

LIVENESS: Final = "onager.Liveness"
"""The name under which the health of the process alone is reported: a supervisor ends the process by it."""
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


async def tell_health(checks: HealthServicer, services: Sequence[str], is_worse: Callable[[], bool]) -> None:
    """Tell load balancers, for ever, to send callers elsewhere while *is_worse* says that they are served better there.

    *checks* says already that *services* are served.
    """
    was_worse = False
    while True:
        if (now_worse := is_worse()) != was_worse:
            log.warning("health_changed", serving=not now_worse)
            for name in ("", *services):
                await checks.set(name, _NOT_SERVING if now_worse else _SERVING)
            was_worse = now_worse
        await asyncio.sleep(timing.HEALTH_LOOK_S)


@asynccontextmanager
async def serving_health(checks: HealthServicer, listen: str | None) -> AsyncIterator[None]:
    """Serve *checks* at *listen*, in plaintext, inside the block; None serves nothing.

    `InvalidSettingError` when the address cannot be used.
    """
    if listen is None:
        yield
        return
    server = grpc.aio.server(options=SERVER_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(checks, Border(server))
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise unusable_address("--health-listen", listen) from error
    await server.start()
    log.info("health_ready", address=f"{listen.rpartition(':')[0]}:{port}")
    try:
        yield
    finally:
        # Finish even when the process is in a hurry: a server that is not stopped complains.
        await asyncio.shield(server.stop(timing.STOP_GRACE_S))
