"""Onager: Spark SQL and DataFrame jobs that outlive every process that runs them.

    import onager

    with onager.connect("127.0.0.1:50050") as client:
        print(client.sql("SELECT 1 AS one").to_pandas())

What users need is here; it is imported at first use, so that the processes of a cluster do not pay for it.
"""

from typing import TYPE_CHECKING, Any

from onager.version import __version__

if TYPE_CHECKING:
    from onager.client import JobHandle, JobProgress, JobState, OnagerClient, StageProgress, View, connect
    from onager.errors import JobCancelledError, JobFailedError, OnagerError, SchedulerUnreachableError
    from onager.protocol.security import ClientSecurity

__all__ = [
    "ClientSecurity",
    "JobCancelledError",
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
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'onager' has no attribute {name!r}")
    from importlib import import_module

    module = {"ClientSecurity": "onager.protocol.security"}.get(
        name, "onager.errors" if name.endswith("Error") else "onager.client"
    )
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
