"""The gRPC server of a scheduler."""

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer as AsyncHealthServicer
from grpc_reflection.v1alpha import reflection

from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import (
    add_OnagerExecutorGatewayServicer_to_server,
    add_OnagerReplicaServicer_to_server,
    add_OnagerSchedulerServicer_to_server,
)
from onager.protocol.ports import unusable_address
from onager.protocol.security import ServerAccess
from scheduler.replica import Replica


async def serve(
    replica: Replica, listen: str, access: ServerAccess | None = None, checks: AsyncHealthServicer | None = None
) -> tuple[grpc.aio.Server, int]:
    """Start the gRPC server of *replica* on *listen*; return it and its port.

    *access* says who may call, by default what the settings of *replica* say; *checks* is told that it serves.
    `InvalidSettingError` when the address cannot be used.
    """
    access = access or ServerAccess(replica.settings.server_security, listen)
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=access.interceptors)
    add_OnagerSchedulerServicer_to_server(replica.service, server)
    add_OnagerExecutorGatewayServicer_to_server(replica.gateway, server)
    add_OnagerReplicaServicer_to_server(replica.for_replicas, server)
    checks = checks or AsyncHealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    services = [s.full_name for s in pb.DESCRIPTOR.services_by_name.values() if s.name != "OnagerExecutor"]
    reflection.enable_server_reflection([*services, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    try:
        port = access.add_port(server, listen)
    except RuntimeError as error:
        raise unusable_address("--listen", listen) from error
    if not port:
        raise unusable_address("--listen", listen)
    replica.peers.advertise(replica.settings.advertised(port))
    await server.start()
    for name in ("", *services):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    return server, port
