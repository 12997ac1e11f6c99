"""Counters of what happened to jobs, from the events that this scheduler has committed.

The log lets one scheduler win each position, and that one counts: so over all schedulers, everything is counted once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from prometheus_client.registry import CollectorRegistry

from onager.execution_graph import (
    Event,
    ExecutionGraph,
    Failed,
    FailureCause,
    FailureKind,
    FeedEnded,
    JobPlanned,
    JobState,
    OutputsTaken,
    PartitionsAdded,
    RunningStage,
    StagesStarted,
    StageWork,
    TasksLaunched,
    TaskSucceeded,
)
from onager.execution_graph.intervals import AttemptKey, Outcome, endings
from onager.scheduler.jobs.commit_observer import CommitObserver
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.tallies import Distribution, Tally

_MS = 0.001
_SUCCESSFUL = "successful"
_KINDS = tuple(kind.value for kind in (*FailureKind, *FailureCause))


class CommitMetrics(CommitObserver):
    """Counts events; one that changed nothing, because it came twice, is not counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._submitted = Tally(catalog.JOBS_SUBMITTED)
        failed = [(JobState.FAILED.value, kind) for kind in _KINDS]
        self._ended = Tally(
            catalog.JOBS_ENDED, [(JobState.SUCCESSFUL.value, ""), (JobState.CANCELLED.value, ""), *failed]
        )
        self._duration = Distribution(catalog.JOB_DURATION)
        self._to_first_task = Distribution(catalog.SUBMIT_TO_FIRST_TASK)
        self._planning = Distribution(catalog.PLANNING)
        self._tasks_ended = Tally(catalog.TASKS_ENDED, [(work.value, _SUCCESSFUL) for work in StageWork])
        self._run = Distribution(catalog.TASK_RUN)
        self._retried = Tally(catalog.TASKS_RETRIED, [(kind,) for kind in _KINDS])
        self._rerun = Tally(catalog.FINISHED_TASKS_RERUN)
        self._rollbacks = Tally(catalog.STAGE_ROLLBACKS)
        self._reused = Tally(catalog.STAGES_REUSED)
        self._reused_bytes = Tally(catalog.REUSED_BYTES)
        self._reused_lost = Tally(catalog.REUSED_LOST)
        self._io = Tally(catalog.EXCHANGE_IO, [("read",), ("written",)])
        self._spill = Tally(catalog.SPILL)
        for each in vars(self).values():  # all of them are
            registry.register(each)

    def submitted(self) -> None:
        """Count a new job."""
        self._submitted.add()

    def committed(self, before: StoredJob, events: Sequence[Event], after: StoredJob) -> None:
        """Count what *events* say."""
        graph = before.graph
        succeeded: dict[tuple[int, int], list[TaskSucceeded]] = defaultdict(list)
        is_usual = True
        for event in events:
            if isinstance(event, TaskSucceeded):
                succeeded[event.stage_id, event.stage_attempt].append(event)
            elif isinstance(event, TasksLaunched):
                if _is_first_launch(event):
                    self._to_first_task.observe((event.at_ms - graph.submitted_ms) * _MS)
            elif not isinstance(event, StagesStarted):
                is_usual = is_usual and isinstance(event, JobPlanned | PartitionsAdded | FeedEnded)
                self._ended_by(graph, event, after.graph)
        for (stage_id, attempt), found in succeeded.items():
            self._succeeded(graph, stage_id, attempt, found)
        if not is_usual:
            pairs = list(zip(graph.stages, after.graph.stages, strict=False))  # planning adds stages
            self._rollbacks.add(n=sum(new.attempt - old.attempt for old, new in pairs))
            self._reused_lost.add(n=sum(old.spec.taken is not None and new.spec.taken is None for old, new in pairs))
        if not after.graph.is_active:
            self._job_ended(after.graph)

    def _ended_by(self, graph: ExecutionGraph, event: Event, after: ExecutionGraph) -> None:
        """Count the attempts that *event* ended, if *graph* knew them."""
        if isinstance(event, OutputsTaken):
            self._taken(graph, event, after)
        for key, ending in endings(event, partial(_held_by, graph)):
            stage = _running(graph, key[0], key[1])
            if stage is None or not _holds(stage, key[2], key[3]):
                continue
            self._tasks_ended.add(stage.spec.work.value, ending.kind or _SUCCESSFUL)
            if ending.outcome is not Outcome.SUCCESSFUL and after.is_active:
                self._retried.add(ending.kind)
            if (metrics := ending.metrics) is None:
                continue
            self._moved(metrics.bytes_in, metrics.bytes_out, metrics.spill_bytes)
            if ending.outcome is Outcome.SUCCESSFUL:
                self._run.observe(metrics.run_ms * _MS)
                if isinstance(event, JobPlanned) and event.fused_output is None:
                    self._planning.observe(metrics.run_ms * _MS)

    # ---------------------------------------------------------------- one by one

    def _succeeded(self, graph: ExecutionGraph, stage_id: int, attempt: int, events: Iterable[TaskSucceeded]) -> None:
        """Count successes in one attempt of a stage: the only code here that runs for each task."""
        stage = _running(graph, stage_id, attempt)
        if stage is None:
            return
        held, again = stage.running.get, stage.ledger.successes
        runs: list[float] = []
        read = written = spilled = rerun = 0
        for event in events:
            task = held(event.partition)
            if (task is None or task.attempt != event.task_attempt) and not _is_second(stage, event):
                continue
            metrics = event.metrics
            runs.append(metrics.run_ms * _MS)
            read += metrics.bytes_in
            written += metrics.bytes_out
            spilled += metrics.spill_bytes
            if again and event.partition in again:
                rerun += 1
        self._run.observe_all(runs)
        self._tasks_ended.add(stage.spec.work.value, _SUCCESSFUL, n=len(runs))
        self._moved(read, written, spilled)
        if rerun:
            self._rerun.add(n=rerun)

    def _taken(self, graph: ExecutionGraph, event: OutputsTaken, after: ExecutionGraph) -> None:
        now, before = ({s.spec.stage_id for s in g.stages if s.spec.taken is not None} for g in (after, graph))
        taken = [each for each in event.taken if each.stage_id in now - before]
        self._reused.add(n=len(taken))
        self._reused_bytes.add(n=sum(output.bytes for each in taken for output in each.outputs))

    def _job_ended(self, graph: ExecutionGraph) -> None:
        failure = graph.outcome.failure if isinstance(graph.outcome, Failed) else None
        self._ended.add(graph.state.value, "" if failure is None else failure.shown_kind)
        self._duration.observe(((graph.ended_ms or 0) - graph.submitted_ms) * _MS)

    def _moved(self, read: int, written: int, spilled: int) -> None:
        for direction, count in (("read", read), ("written", written)):
            if count:
                self._io.add(direction, n=count)
        if spilled:
            self._spill.add(n=spilled)


def _is_first_launch(event: TasksLaunched) -> bool:
    return (event.stage_id, event.stage_attempt, event.tasks) == (0, 0, ((0, 0),))


def _running(graph: ExecutionGraph, stage_id: int, attempt: int | None) -> RunningStage | None:
    stage = graph.stages[stage_id] if stage_id < len(graph.stages) else None
    return stage if isinstance(stage, RunningStage) and attempt in (None, stage.attempt) else None


def _holds(stage: RunningStage, partition: int, attempt: int) -> bool:
    """Return whether an executor held this attempt, as far as the graph knew."""
    return any(
        task is not None and task.attempt == attempt
        for task in (stage.running.get(partition), stage.speculative.get(partition))
    )


def _is_second(stage: RunningStage, event: TaskSucceeded) -> bool:
    return bool(stage.speculative) and _holds(stage, event.partition, event.task_attempt)


def _held_by(graph: ExecutionGraph, executor_id: str, incarnation: str) -> Iterator[AttemptKey]:
    for stage in graph.stages:
        if isinstance(stage, RunningStage):
            for partition, task in stage.in_hand():
                if (task.executor_id, task.incarnation) == (executor_id, incarnation):
                    yield stage.spec.stage_id, stage.attempt, partition, task.attempt
