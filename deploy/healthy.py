"""Whether a process of a cluster is well, as an exit code: for the health checks of containers.

python healthy.py scheduler HOST:PORT     the scheduler that tells its health there (--health-listen) serves
python healthy.py executor ID             the schedulers (by the variables that clients read) know the executor
"""

import sys

_TIMEOUT_S = 5.0


def main(kind: str, name: str) -> int:
    """Return 0 for well, 1 for not."""
    return 0 if (_is_serving if kind == "scheduler" else _is_alive)(name) else 1


def _is_serving(address: str) -> bool:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            print(error, file=sys.stderr)
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _is_alive(executor_id: str) -> bool:
    import onager

    with onager.connect(connect_timeout_s=_TIMEOUT_S) as client:
        return any(e.executor_id == executor_id and e.state != "lost" for e in client.executors())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
