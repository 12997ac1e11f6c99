"""Onager: Spark SQL and DataFrame jobs that outlive every process that runs them.

    import onager

    with onager.connect("127.0.0.1:50050") as client:
        print(client.sql("SELECT 1 AS one").to_pandas())

What users need is here; it is imported at first use, so that the processes of a cluster do not pay for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onager.client import JobHandle, JobProgress, JobState, OnagerClient, StageProgress, View, connect
    from onager.errors import JobCancelledError, JobFailedError, OnagerError, SchedulerUnreachableError

__version__ = "0.1.0"

__all__ = [
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
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'onager' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module("onager.errors" if name.endswith("Error") else "onager.client"), name)
    globals()[name] = value
    return value
