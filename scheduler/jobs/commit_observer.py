"""Observes what this scheduler has committed, where metrics are kept."""

from collections.abc import Sequence

from onager.execution_graph import Event
from onager.scheduler.jobs.job_log import StoredJob


class CommitObserver:
    """Called once for each job that this scheduler stored, and for each batch that it committed."""

    def submitted(self) -> None:
        """Note that a new job is in the store."""

    def committed(self, before: StoredJob, events: Sequence[Event], after: StoredJob) -> None:
        """Note that *events*, which lead from *before* to *after*, are in the job's log."""
