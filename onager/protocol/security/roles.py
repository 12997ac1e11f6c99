"""Roles of tokens, and the roles that may call each method."""

from enum import StrEnum
from typing import Final

from onager.access_errors import RoleRefusedError


class Role(StrEnum):
    """The kind of caller that a token belongs to."""

    VIEWER = "viewer"
    """Looks at jobs, executors and schedulers; changes nothing, and fetches no results."""
    OPERATOR = "operator"
    """May do what clients may, and drain executors."""
    CLIENT = "client"
    """Submits, watches, fetches, cancels, lists."""
    EXECUTOR = "executor"
    SCHEDULER = "scheduler"
    """Calls other schedulers, and executors in push mode."""
    ADMIN = "admin"
    """May do what operators may, and read and change the state."""


_CLIENTS: Final = frozenset({Role.CLIENT, Role.OPERATOR, Role.ADMIN})
_LOOKERS: Final = _CLIENTS | {Role.VIEWER}
_OPERATORS: Final = frozenset({Role.OPERATOR, Role.ADMIN})
_ADMINS: Final = frozenset({Role.ADMIN})
_EXECUTORS: Final = frozenset({Role.EXECUTOR})
_SCHEDULERS: Final = frozenset({Role.SCHEDULER})
_EVERYBODY: Final = frozenset(Role)

CONNECT: Final = "/spark.connect.SparkConnectService/"
"""The beginning of the names of Spark Connect's methods. Executors call them, too, for programs (`servers`)."""
_BY_SERVICE: Final = {
    "OnagerScheduler": {
        "SubmitJob": _CLIENTS,
        "GetJob": _LOOKERS,
        "ListJobs": _LOOKERS,
        "WatchJob": _LOOKERS,
        "WatchEvents": _LOOKERS,
        "GetFinalPlan": _LOOKERS,
        "ExportJob": _LOOKERS,
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
        "RetryJob": _CLIENTS,
        "FetchLogs": _LOOKERS,
        "DrainExecutor": _OPERATORS,
        "GetCatalog": _LOOKERS,
        "BeginProgram": _CLIENTS,
        "EndProgram": _CLIENTS,
        "GetProgram": _LOOKERS,
        "ListProgramCalls": _LOOKERS,
        "WatchOutput": _LOOKERS,
    },
    "OnagerExecutorGateway": {
        "RegisterExecutor": _EXECUTORS,
        "Heartbeat": _EXECUTORS,
        "PollWork": _EXECUTORS,
        "ReportTasks": _EXECUTORS,
        "FetchBlob": _EXECUTORS,
        "ReadCatalog": _EXECUTORS,
        "DeregisterExecutor": _EXECUTORS,
        "AwaitRequests": _EXECUTORS,
        "BeginAttempt": _EXECUTORS,
        "EndAttempt": _EXECUTORS,
    },
    "OnagerExecutor": {"AnswerPoll": _SCHEDULERS},
    "OnagerSchedulerGateway": {"Forward": _SCHEDULERS, "Attend": _SCHEDULERS, "AskExecutors": _SCHEDULERS},
}
ROLES: Final = {
    f"/onager.v1.{service}/{method}": roles
    for service, methods in _BY_SERVICE.items()
    for method, roles in methods.items()
}
ROLES.update(
    {
        f"{CONNECT}{method}": _CLIENTS
        for method in (
            "ExecutePlan",
            "AnalyzePlan",
            "Config",
            "AddArtifacts",
            "ArtifactStatus",
            "Interrupt",
            "ReattachExecute",
            "ReleaseExecute",
            "ReleaseSession",
            "FetchErrorDetails",
            "CloneSession",
            "GetStatus",
        )
    }
)
"""The roles that may call a method, by its full name; a method that is not here takes only tokens without a role."""


def full_name(method: str, service: str = "OnagerScheduler") -> str:
    """Return the name by which `ROLES` has a method of a service."""
    return f"/onager.v1.{service}/{method}"


def may_call(role: Role | None, method: str) -> bool:
    """Return whether a token of *role* may call a method, given by its full name; one without a role may call any."""
    return role is None or role in ROLES.get(method, frozenset())


def check_role(name: str, role: Role | None, method: str) -> None:
    """Raise `RoleRefusedError` if the token *name* of *role* may not call a method."""
    if role is not None and not may_call(role, method):
        raise RoleRefusedError(name, role, method, sorted(ROLES.get(method, frozenset())))
