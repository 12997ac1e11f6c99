"""Roles of tokens, and the roles that may call each method."""

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """The kind of caller that a token belongs to."""

    CLIENT = "client"
    """Submits, watches, fetches, cancels, lists."""
    EXECUTOR = "executor"
    SCHEDULER = "scheduler"
    """Calls other schedulers, and executors in push mode."""
    ADMIN = "admin"
    """May do what clients may, and read and change the state."""


_CLIENTS: Final = frozenset({Role.CLIENT, Role.ADMIN})
_ADMINS: Final = frozenset({Role.ADMIN})
_EXECUTORS: Final = frozenset({Role.EXECUTOR})
_SCHEDULERS: Final = frozenset({Role.SCHEDULER})
_EVERYBODY: Final = frozenset(Role)

_BY_SERVICE: Final = {
    "OnagerScheduler": {
        "SubmitJob": _CLIENTS,
        "GetJob": _CLIENTS,
        "ListJobs": _CLIENTS,
        "WatchJob": _CLIENTS,
        "WatchEvents": _CLIENTS,
        "CancelJob": _CLIENTS,
        "FetchResult": _CLIENTS,
        "ListExecutors": _EVERYBODY,
        "ListSchedulers": _EVERYBODY,
        "ListState": _ADMINS,
        "GetState": _ADMINS,
        "WatchState": _ADMINS,
        "RemoveState": _ADMINS,
        "CheckState": _ADMINS,
        "BackupState": _ADMINS,
        "ListAudit": _ADMINS,
    },
    "OnagerExecutorGateway": {
        "RegisterExecutor": _EXECUTORS,
        "Heartbeat": _EXECUTORS,
        "PollWork": _EXECUTORS,
        "ReportTasks": _EXECUTORS,
        "FetchBlob": _EXECUTORS,
        "DeregisterExecutor": _EXECUTORS,
    },
    "OnagerExecutor": {"AnswerPoll": _SCHEDULERS},
    "OnagerReplica": {"Forward": _SCHEDULERS, "Attend": _SCHEDULERS},
}
ROLES: Final = {
    f"/onager.v1.{service}/{method}": roles
    for service, methods in _BY_SERVICE.items()
    for method, roles in methods.items()
}
"""The roles that may call a method, by its full name; a method that is not here takes only tokens without a role."""
