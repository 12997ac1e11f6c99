"""The gRPC server of a scheduler."""

from typing import Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer as AsyncHealthServicer

from onager.protocol import onager_pb2 as pb
from onager.protocol.border import Border
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import (
    add_OnagerExecutorGatewayServicer_to_server,
    add_OnagerSchedulerGatewayServicer_to_server,
    add_OnagerSchedulerServicer_to_server,
)
from onager.protocol.security import ServerAccess
from onager.scheduler.app import SchedulerApp
from onager.scheduler.connect.handler import SparkConnectHandler
from onager.scheduler.health import LIVENESS

SERVICES: Final = tuple(s.full_name for s in pb.DESCRIPTOR.services_by_name.values() if s.name != "OnagerExecutor")
"""What a scheduler serves, by the names that its health has."""


async def serve(
    scheduler: SchedulerApp, listen: str, access: ServerAccess | None = None, checks: AsyncHealthServicer | None = None
) -> tuple[grpc.aio.Server, int]:
    """Start the gRPC server of *scheduler* on *listen*; return it and its port.

    *access* says who may call, by default according to the settings of *scheduler*; *checks* then says that it serves.
    `InvalidSettingError` when the address cannot be used.
    """
    access = access or ServerAccess(scheduler.settings.server_security, listen)
    access.on_refusal = scheduler.notes.refused
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=access.interceptors)
    border = Border(server)
    add_OnagerSchedulerServicer_to_server(scheduler.service, border)
    add_OnagerExecutorGatewayServicer_to_server(scheduler.gateway, border)
    add_OnagerSchedulerGatewayServicer_to_server(scheduler.for_schedulers, border)
    share = scheduler.settings.stream_share_percent
    server.add_generic_rpc_handlers((SparkConnectHandler(scheduler.spark_connect, scheduler.stopping, share),))
    checks = checks or AsyncHealthServicer()
    border.add_looking(checks, SERVICES)
    port = access.add_port(server, listen)
    scheduler.schedulers.advertise(scheduler.settings.advertised(port))
    await server.start()
    for name in ("", LIVENESS, *SERVICES):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    return server, port
