"""Onager: Spark SQL and DataFrame jobs that outlive every process that runs them.

    import onager

    with onager.connect("127.0.0.1:50050") as client:
        print(client.sql("SELECT 1 AS one").to_pandas())

What users need is here, and is imported at first use, so that the processes of a cluster do not pay for it.
"""

import os
from typing import TYPE_CHECKING, Any

from onager.version import __version__

if TYPE_CHECKING:
    from onager.client import (
        AttemptLog,
        AuditEntry,
        CatalogEntry,
        JobEvent,
        JobHandle,
        JobProgress,
        JobState,
        OnagerClient,
        StageProgress,
        View,
        connect,
    )
    from onager.errors import JobCancelledError, JobFailedError, OnagerError, SchedulerUnreachableError
    from onager.programs.once import RunningProgram, once
    from onager.protocol.security import ClientSecurity

    program: RunningProgram | None
    """The program of this process, if ``onager run`` has started it."""

__all__ = [
    "AttemptLog",
    "AuditEntry",
    "CatalogEntry",
    "ClientSecurity",
    "JobCancelledError",
    "JobEvent",
    "JobFailedError",
    "JobHandle",
    "JobProgress",
    "JobState",
    "OnagerClient",
    "OnagerError",
    "SchedulerUnreachableError",
    "StageProgress",
    "View",
    "__version__",
    "connect",
    "once",
    "program",
]


# A process that calls schedulers may start others by fork, as PySpark starts its JVM, since it has something to do
# before exec. gRPC's own fork handlers do not survive that while calls are in flight: one such child in a hundred
# aborts. A program that uses gRPC in a forked child can set the variable itself.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


def __getattr__(name: str) -> Any:
    if name == "program":  # not kept: what imports it before the program begins gets None
        from onager.programs.once import running

        return running()
    if name not in __all__:
        raise AttributeError(f"module 'onager' has no attribute {name!r}")
    from importlib import import_module

    module = {"ClientSecurity": "onager.protocol.security", "once": "onager.programs.once"}.get(
        name, "onager.errors" if name.endswith("Error") else "onager.client"
    )
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
