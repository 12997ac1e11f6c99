"""An index of the tasks that each executor holds, over all cached jobs: looked up for each list of an executor.

A graph knows its running tasks by partition. Searching all of them for one executor, for each executor's list, would
take time that grows with the square of the cluster.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from onager.execution_graph import (
    Event,
    ExecutionGraph,
    ExecutorLife,
    HeldTask,
    RunningStage,
    TasksLaunched,
    TasksSpeculated,
    not_held,
    running_count,
)
from onager.ids import JobId

_SLACK = 64
_held = partial(tuple.__new__, HeldTask)
"""Makes one of its four parts, at half of what calling its class costs: that is done for every task."""


class HeldTasks:
    """An index that launches add to; tasks that are no longer held are dropped when they are found."""

    def __init__(self) -> None:
        self._lives: dict[ExecutorLife, dict[JobId, set[HeldTask]]] = {}
        self._jobs: dict[JobId, set[ExecutorLife]] = {}
        self._sizes: dict[JobId, int] = {}

    def learn(self, job_id: JobId, graph: ExecutionGraph, events: Sequence[Event] | None) -> None:
        """Take in *graph*, to which *events* led from the one before; None when the events are not known."""
        if not graph.is_active:
            self.forget(job_id)
        elif events is None or self._sizes.get(job_id, 0) > _SLACK + 2 * running_count(graph):
            self.forget(job_id)
            for stage in graph.stages:
                if isinstance(stage, RunningStage):
                    for partition, task in stage.in_hand():
                        life = ExecutorLife(task.executor_id, task.incarnation)
                        held = HeldTask(stage.spec.stage_id, stage.attempt, partition, task.attempt)
                        self._add(job_id, life, (held,))
        else:
            for event in events:
                if isinstance(event, TasksLaunched | TasksSpeculated):
                    life = ExecutorLife(event.executor_id, event.incarnation)
                    stage_id, attempt = event.stage_id, event.stage_attempt
                    self._add(job_id, life, [_held((stage_id, attempt, *task)) for task in event.tasks])

    def forget(self, job_id: JobId) -> None:
        """Drop a job."""
        for life in self._jobs.pop(job_id, ()):
            jobs = self._lives[life]
            del jobs[job_id]
            if not jobs:
                del self._lives[life]
        self._sizes.pop(job_id, None)

    def of(
        self, life: ExecutorLife, graph_of: Callable[[JobId], ExecutionGraph | None]
    ) -> Iterable[tuple[JobId, set[HeldTask]]]:
        """Yield the jobs for which *graph_of* returns a graph, each with its tasks held by this life."""
        for job_id, tasks in list(self._lives.get(life, {}).items()):
            graph = graph_of(job_id)
            if graph is None:
                continue
            gone = not_held(graph, tasks, *life)
            tasks.difference_update(gone)
            self._sizes[job_id] -= len(gone)
            if tasks:
                yield job_id, tasks

    def _add(self, job_id: JobId, life: ExecutorLife, tasks: Sequence[HeldTask]) -> None:
        held = self._lives.setdefault(life, {}).setdefault(job_id, set())
        before = len(held)
        held.update(tasks)
        self._jobs.setdefault(job_id, set()).add(life)
        self._sizes[job_id] = self._sizes.get(job_id, 0) + len(held) - before
