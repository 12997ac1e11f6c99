"""How far running jobs are, and how much longer they are likely to run: in memory alone, with the driver of each job.

A stage is done to the part of its tasks that have succeeded, and those in part that run, where their executors tell how
much of their input they have read. While a stage's attempt lasts, its reported fraction never falls; when stages run
again, or others take their place, the job's fraction may fall, and says why.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onager.execution_graph import ExecutionGraph, RunningStage, Stage, StageWork, SuccessfulStage
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key

_MAX_JOBS: Final = 10_000
_MAX_ATTEMPTS: Final = 10_000
"""Of one job."""
_MAX_OF_A_TASK: Final = 0.99
"""A task that runs is not done."""
_MAX_OF_A_GROWING_STAGE: Final = 0.5
"""As long as it is not known how many tasks a stage will have, it counts as no more than half done."""
_SHOWN_FROM: Final = 0.1
"""How much must be done before anything is said of the rest."""
_EARLIER: Final = 0.75
_LATER: Final = 1.5
"""How far the time that is left may be off, either way."""

_COUNTED: Final = frozenset(
    (StageWork.QUERY, StageWork.PUBLISH_PLAN, StageWork.PUBLISH, StageWork.STEP, StageWork.PROGRAM)
)
"""Planning is no part of what a job is to do."""

_NO_STEPS: Final[Mapping[int, float]] = {}
_Key = tuple[int, int, int, int]
"""Stage, stage attempt, partition, task attempt."""


class _Reading(NamedTuple):
    rows: int
    size: int
    permille: int


class StageEstimate(NamedTuple):
    """How far a stage is."""

    fraction: float
    rows_read: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class CompletionEstimate:
    """How far a job is."""

    fraction: float
    stages: tuple[StageEstimate, ...]
    eta_ms: tuple[int, int] | None = None
    fell: str = ""
    """Why it was further once; empty if it was not."""


@dataclass(slots=True)
class _Job:
    readings: dict[_Key, _Reading] = field(default_factory=dict)
    stages: dict[int, tuple[int, float]] = field(default_factory=dict)
    """The attempt of each stage, and its largest fraction that was reported."""
    top: float = 0.0
    fell: str = ""
    replans: int = 0
    """How many new plans had been taken when it was at the top."""


class LiveProgress:
    """What executors have reported about running attempts of the jobs that this scheduler drives."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[JobId, _Job] = OrderedDict()

    def record(self, reported: Iterable[pb.AttemptProgress]) -> None:
        """Remember how far attempts are; what was reported last counts, but never less than before."""
        for each in reported:
            key = task_key(each.task)
            job = self._job(key.job_id)
            place = _place(key)
            before = job.readings.get(place, _Reading(0, 0, 0))
            if place in job.readings or len(job.readings) < _MAX_ATTEMPTS:
                job.readings[place] = _Reading(
                    max(before.rows, each.rows_read),
                    max(before.size, each.bytes_read),
                    max(before.permille, each.permille),
                )

    def forget(self, job_id: JobId) -> None:
        """Drop what is known of a job that has ended."""
        self._jobs.pop(job_id, None)

    def estimate(
        self, graph: ExecutionGraph, now_ms: int, steps: Mapping[int, float] = _NO_STEPS
    ) -> CompletionEstimate | None:
        """Return how far a job is that has not ended; None before there is anything to tell.

        *steps*: how far the jobs are that run steps of a script, by stage.
        """
        job = self._job(JobId(graph.job_id))
        if graph.plan is None:
            return self._estimate_whole(graph, job, now_ms)
        parts = [self._stage(graph, stage, job, steps.get(stage.spec.stage_id, 0.0)) for stage in graph.stages]
        job.readings = {key: job.readings[key] for key in job.readings if _runs(graph, key)}
        counted = [(s.spec.partitions, p) for s, p in zip(graph.stages, parts, strict=True) if s.spec.work in _COUNTED]
        tasks = sum(partitions for partitions, _ in counted)
        if not tasks:
            return None
        done = sum(part.fraction * partitions for partitions, part in counted) / tasks
        growing = next((stage.spec for stage in graph.stages if stage.spec.is_growing), None)
        if done >= job.top:
            job.top, job.fell, job.replans = done, "", _taken(graph)
        elif growing is not None and not job.fell:
            job.fell = f"stage {growing.stage_id} ({growing.name}) has got more tasks: its source is still being listed"
        elif not job.fell:
            job.fell = _why_more_tasks(graph, job.replans)
        begun = [s.started_ms for s in graph.stages[1:] if isinstance(s, RunningStage | SuccessfulStage)]
        left = [*_by_pace(done, now_ms - min(begun, default=now_ms)), *_by_tasks(graph, parts)]
        return CompletionEstimate(done, tuple(parts), None if growing is not None else _range(done, left), job.fell)

    def _estimate_whole(self, graph: ExecutionGraph, job: _Job, now_ms: int) -> CompletionEstimate | None:
        """Return how far a query is that runs where it is planned: as far as its executor says."""
        planning = graph.stages[0]
        if not isinstance(planning, RunningStage) or not planning.running:
            return None
        task = planning.running[0]
        reading = job.readings.get((0, planning.attempt, 0, task.attempt))
        if reading is None:
            return None
        done = reading.permille / 1000
        part = StageEstimate(done, reading.rows, reading.size)
        return CompletionEstimate(
            done, (part,), _range(done, list(_by_pace(done, now_ms - task.launched_ms))), job.fell
        )

    def _stage(self, graph: ExecutionGraph, stage: Stage, job: _Job, step: float) -> StageEstimate:
        stage_id, partitions = stage.spec.stage_id, stage.spec.partitions
        if stage.spec.is_growing and not partitions:
            return StageEstimate(0.0, 0, 0)
        if isinstance(stage, SuccessfulStage) or not partitions:
            job.stages[stage_id] = (stage.attempt, 1.0)
            return StageEstimate(1.0, 0, 0)
        rows = size = 0
        done = float(len(stage.ledger.outputs))
        if isinstance(stage, RunningStage):
            expected = _bytes_a_task(graph, stage)
            for partition, task in stage.running.items():
                reading = job.readings.get((stage_id, stage.attempt, partition, task.attempt))
                if reading is not None:
                    rows, size = rows + reading.rows, size + reading.size
                    part = reading.permille / 1000 or (reading.size / expected if expected else 0.0)
                    done += min(_MAX_OF_A_TASK, part)
            if stage.spec.work is StageWork.STEP:
                done += min(_MAX_OF_A_TASK, step)
        fraction = done / partitions
        if stage.spec.is_growing:
            fraction = min(fraction, _MAX_OF_A_GROWING_STAGE)
        attempt, most = job.stages.get(stage_id, (stage.attempt, 0.0))
        if attempt == stage.attempt:
            fraction = max(fraction, most)
        elif most:
            job.fell = (
                f"stage {stage_id} ({stage.spec.name}) runs again, attempt {stage.attempt}: rows that it had made, or "
                "that it read, are lost"
            )
        job.stages[stage_id] = (stage.attempt, fraction)
        return StageEstimate(fraction, rows, size)

    def _job(self, job_id: JobId) -> _Job:
        found = self._jobs.get(job_id)
        if found is None:
            found = self._jobs[job_id] = _Job()
            if len(self._jobs) > _MAX_JOBS:
                self._jobs.popitem(last=False)
        else:
            self._jobs.move_to_end(job_id)
        return found


def _taken(graph: ExecutionGraph) -> int:
    return sum(replan.is_taken for replan in graph.replans)


def _why_more_tasks(graph: ExecutionGraph, known: int) -> str:
    """Return why there are more tasks than before, of which *known* new plans were a part."""
    if _taken(graph) > known:
        last = next(replan for replan in reversed(graph.replans) if replan.is_taken)
        return f"the rest was planned again by stage {last.replan_id}, and has other tasks: {last.why}"
    for stage in graph.stages:
        layout, tasks = stage.spec.layout, stage.spec.partitions
        if layout is not None and tasks > layout.planned_partitions:
            stage_id, planned = stage.spec.stage_id, layout.planned_partitions
            return f"stage {stage_id} ({stage.spec.name}) shares {planned} buckets among {tasks} tasks, by their sizes"
    return ""


def _place(key: TaskKey) -> _Key:
    return key.stage_id, key.stage_attempt, key.partition, key.task_attempt


def _runs(graph: ExecutionGraph, key: _Key) -> bool:
    stage_id, stage_attempt, partition, _ = key
    stage = graph.stages[stage_id] if stage_id < len(graph.stages) else None
    return isinstance(stage, RunningStage) and stage.attempt == stage_attempt and partition in stage.running


def _bytes_a_task(graph: ExecutionGraph, stage: Stage) -> float:
    """Return the bytes that a task reads on average: what other stages made for all of the stage's, if it is known."""
    if not stage.spec.inputs or any(source.read == "all" for source in stage.spec.inputs):
        return 0.0
    producers = [graph.stages[source.stage_id] for source in stage.spec.inputs]
    if not all(isinstance(producer, SuccessfulStage) for producer in producers):
        return 0.0
    return sum(producer.ledger.metrics.bytes_out for producer in producers) / stage.spec.partitions


def _by_pace(done: float, elapsed_ms: int) -> list[float]:
    """Return how long the rest takes if all goes on as it went."""
    return [elapsed_ms * (1 - done) / done] if done and elapsed_ms > 0 else []


def _by_tasks(graph: ExecutionGraph, parts: list[StageEstimate]) -> list[float]:
    """Return how long the rest takes if its tasks take as long as those before them, and as many run at once as now."""
    all_ms = all_done = 0
    rest: list[tuple[float, float | None]] = []
    running = 0
    for stage, part in zip(graph.stages[1:], parts[1:], strict=True):
        if stage.spec.work is not StageWork.QUERY:
            continue
        ledger = stage.ledger
        done = len(ledger.outputs)
        all_ms, all_done = all_ms + ledger.metrics.run_ms, all_done + done
        running += len(stage.running) if isinstance(stage, RunningStage) else 0
        rest.append((stage.spec.partitions * (1 - part.fraction), ledger.metrics.run_ms / done if done else None))
    if not (all_done and running):
        return []
    mean_ms = all_ms / all_done
    return [sum(tasks * (mean_ms if own_ms is None else own_ms) for tasks, own_ms in rest) / running]


def _range(done: float, left_ms: list[float]) -> tuple[int, int] | None:
    if done < _SHOWN_FROM or not left_ms:
        return None
    return round(_EARLIER * min(left_ms)), max(1, round(_LATER * max(left_ms)))
