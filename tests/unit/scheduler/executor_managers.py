"""Managers of executors, and what executors register with."""

from onager.clock import ManualClock
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler import timing
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.executors.manager import ExecutorManager
from onager.state_backend.memory import MemoryBackend

MACHINE = "this-machine"


def request(executor_id="e1", incarnation="one", **changes):
    given = {
        "executor_id": executor_id,
        "incarnation": incarnation,
        "host": "h",
        "slots": 2,
        "protocol_version": PROTOCOL_VERSION,
        "spark_version": "4.3.0",
        "python_version": "3.11",
    }
    return pb.RegisterExecutorRequest(**{**given, **changes})


ALONE = Precedence(LiveSchedulers(MemoryBackend(), ManualClock(), scheduler_id="s", address="", lease_ttl_s=1))


async def nothing():
    pass


def made(backend, clock, on_lost):
    manager = ExecutorManager(
        backend,
        clock,
        lease_ttl_s=6,
        connection_grace_s=1,
        lost_retention_s=600,
        precedence=ALONE,
        machine=MACHINE,
    )
    manager.serve(on_lost=on_lost, on_take_over=nothing)
    return manager


async def watched(manager, clock, ms):
    """Let time pass, and the manager look as often as it should."""
    step_ms = int(1000 * timing.EXECUTORS_LOOK_S)
    while ms > 0:
        clock.advance(min(step_ms, ms))
        await manager.watch.look()
        ms -= step_ms
