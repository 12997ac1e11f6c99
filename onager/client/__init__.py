"""The Python client: submit SQL or functions to a cluster, watch them, and fetch their results as Arrow."""

from onager.client.audit import AuditEntry
from onager.client.catalog import CatalogEntry
from onager.client.client import OnagerClient, connect
from onager.client.events import JobEvent
from onager.client.job import JobHandle
from onager.client.logs import AttemptLog
from onager.client.progress import JobProgress, JobState, Latency, StageProgress, TimeShare
from onager.client.script import Script, Step
from onager.client.spec import View

__all__ = [
    "AttemptLog",
    "AuditEntry",
    "CatalogEntry",
    "JobEvent",
    "JobHandle",
    "JobProgress",
    "JobState",
    "Latency",
    "OnagerClient",
    "Script",
    "StageProgress",
    "Step",
    "TimeShare",
    "View",
    "connect",
]
