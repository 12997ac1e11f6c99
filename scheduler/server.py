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
    add_OnagerReplicaServicer_to_server,
    add_OnagerSchedulerServicer_to_server,
)
from onager.protocol.security import ServerAccess
from onager.scheduler.app import Replica
from onager.scheduler.connect.handler import SparkConnectHandler
from onager.scheduler.health import LIVENESS

SERVICES: Final = tuple(s.full_name for s in pb.DESCRIPTOR.services_by_name.values() if s.name != "OnagerExecutor")
"""What a scheduler serves, by the names that its health has."""


async def serve(
    replica: Replica, listen: str, access: ServerAccess | None = None, checks: AsyncHealthServicer | None = None
) -> tuple[grpc.aio.Server, int]:
    """Start the gRPC server of *replica* on *listen*; return it and its port.

    *access* says who may call, by default according to the settings of *replica*; *checks* is told that it serves.
    `InvalidSettingError` when the address cannot be used.
    """
    access = access or ServerAccess(replica.settings.server_security, listen)
    access.on_refusal = replica.notes.refused
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=access.interceptors)
    border = Border(server)
    add_OnagerSchedulerServicer_to_server(replica.service, border)
    add_OnagerExecutorGatewayServicer_to_server(replica.gateway, border)
    add_OnagerReplicaServicer_to_server(replica.for_replicas, border)
    share = replica.settings.stream_share_percent
    server.add_generic_rpc_handlers((SparkConnectHandler(replica.spark_connect, replica.stopping, share),))
    checks = checks or AsyncHealthServicer()
    border.add_looking(checks, SERVICES)
    port = access.add_port(server, listen)
    replica.members.advertise(replica.settings.advertised(port))
    await server.start()
    for name in ("", LIVENESS, *SERVICES):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    return server, port
