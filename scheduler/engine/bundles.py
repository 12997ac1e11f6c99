"""What most parts of a scheduler work with, in three bundles."""

from dataclasses import dataclass

from onager.clock import Clock
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.job_writers import JobWriters
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import StateBackendClient


@dataclass(frozen=True, slots=True)
class Env:
    """The settings of this scheduler, and its clock."""

    settings: SchedulerSettings
    clock: Clock


@dataclass(frozen=True, slots=True)
class Store:
    """The state backend, and what this scheduler knows of the jobs in it."""

    backend: StateBackendClient
    jobs: JobStore
    writers: JobWriters
    blobs: BlobStore

    @property
    def heads(self) -> JobHeads:
        """Return the heads of all jobs."""
        return self.jobs.heads


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The schedulers and the executors, as this scheduler knows them."""

    schedulers: LiveSchedulers
    ownership: Ownership
    precedence: Precedence
    executors: ExecutorManager
