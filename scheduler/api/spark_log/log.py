"""The events of a job in order of time, as lines."""

import json
from collections.abc import Iterator
from heapq import merge
from typing import Final, NamedTuple

from onager.execution_graph import NO_METRICS, Cancelled, ExecutionGraph, Failed, StageWork
from onager.execution_graph.intervals import Attempt, Outcome, StageRun
from onager.redaction import shown_text
from onager.scheduler.api.spark_log import shapes
from onager.scheduler.api.spark_log.plan import Known, plan_info
from onager.scheduler.api.timeline.model import MarkKind
from onager.scheduler.api.timeline.story import Story
from onager.version import __version__

_MESSAGE_CHARS: Final = 4_000


class _At(NamedTuple):
    """When an event happened; within a millisecond, what begins comes before what ends."""

    at_ms: int
    rank: int
    event: shapes.Event


def lines(story: Story, graph: ExecutionGraph, known: Known) -> Iterator[bytes]:
    """Yield a job's event log, a line at a time: of all that *story* tells, and of *graph*, the job now.

    What has not ended has no end in the log: the History Server lists such an application as incomplete.
    """
    lives = _Lives(story)
    conf = {**known.conf, "spark.app.id": graph.job_id, "onager.version": __version__}
    name = graph.name or graph.job_id
    user = known.principal or graph.client_id
    yield _line(shapes.log_start())
    yield _line(shapes.environment(conf))
    yield _line(shapes.application_start(graph.job_id, name, user, story.log.submitted_ms))
    few = sorted([*_executors(story, lives), *_jobs_and_stages(story, graph, known)], key=lambda at: at[:2])
    starts, ends = _tasks(story, lives)
    for _, _, event in merge(few, starts, ends, key=lambda at: at[:2]):
        yield _line(event)
    if story.log.is_over:
        yield _line(shapes.application_end(story.log.now_ms))


def _line(event: shapes.Event) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + b"\n"


class _Lives:
    """The lives of executors by names of their own: in Spark, an executor that was lost does not come back."""

    def __init__(self, story: Story) -> None:
        self._places = story.log.places
        self._names: dict[tuple[int, str], str] = {}
        self.first_ms: dict[str, int] = {}
        self.cores: dict[str, int] = {}
        self.hosts: dict[str, str] = {}
        counts: dict[int, int] = {}
        for attempt in story.log.attempts:
            life = attempt.lane, attempt.incarnation
            if life not in self._names:
                place = self._places[attempt.lane]
                counts[attempt.lane] = number = counts.get(attempt.lane, 0) + 1
                name = self._names[life] = place.executor_id if number == 1 else f"{place.executor_id} ({number})"
                self.cores[name], self.hosts[name] = max(1, place.rows), place.executor_id
                self.first_ms[name] = attempt.from_ms

    def of(self, attempt: Attempt) -> tuple[str, str]:
        """Return the name of the life that ran *attempt*, and its host."""
        name = self._names[attempt.lane, attempt.incarnation]
        return name, self.hosts[name]

    def named(self, executor_id: str, incarnation: str) -> str | None:
        """Return the name of a life; None if it ran nothing."""
        lanes = [number for number, place in enumerate(self._places) if place.executor_id == executor_id]
        return self._names.get((lanes[0], incarnation)) if lanes else None


def _executors(story: Story, lives: _Lives) -> Iterator[_At]:
    for name, at_ms in lives.first_ms.items():
        yield _At(at_ms, 1, shapes.executor_added(name, lives.hosts[name], lives.cores[name], at_ms))
    for moment in story.moments:
        if moment.kind is MarkKind.EXECUTOR_LOST and (lost := lives.named(moment.executor_id, moment.incarnation)):
            yield _At(moment.at_ms, 8, shapes.executor_removed(lost, moment.text, moment.at_ms))


def _jobs_and_stages(story: Story, graph: ExecutionGraph, known: Known) -> Iterator[_At]:
    failure = _failure(graph)
    end_ms = story.log.now_ms
    runs = story.log.stage_runs
    planning = [run for run in runs if run.spec.work is StageWork.PLAN]
    query = [run for run in runs if run.spec.work is not StageWork.PLAN]
    for run in runs:
        properties = _properties(graph, is_query=run.spec.work is not StageWork.PLAN)
        yield _At(run.from_ms, 4, shapes.stage_submitted(run, properties))
        if run.to_ms is not None:
            yield _At(run.to_ms, 7, shapes.stage_completed(run, _why_ended(run, failure)))
    if planning:
        stages = [shapes.stage_info(StageRun(planning[0].spec, 0, 0), is_submitted=False)]
        at_ms = planning[0].from_ms
        yield _At(at_ms, 3, shapes.job_start(shapes.PLANNING_JOB, stages, _properties(graph, is_query=False), at_ms))
        last = planning[-1]
        if last.to_ms is not None:
            why = "" if last.outcome is Outcome.SUCCESSFUL else failure or "stopped"
            yield _At(last.to_ms, 9, shapes.job_end(shapes.PLANNING_JOB, why, last.to_ms))
    if graph.plan is None or not query:
        return
    specs = {run.spec.stage_id: run.spec for run in query} | {s.spec.stage_id: s.spec for s in graph.stages[1:]}
    stages = [shapes.stage_info(StageRun(specs[i], 0, 0), is_submitted=False) for i in sorted(specs)]
    at_ms = min(run.from_ms for run in query)
    info = plan_info(graph, known)
    name = graph.name or graph.job_id
    yield _At(at_ms, 2, shapes.sql_start(name, known.script, known.plan, info.plan, at_ms))
    yield _At(at_ms, 3, shapes.job_start(shapes.QUERY_JOB, stages, _properties(graph, is_query=True), at_ms))
    if info.updates:
        yield _At(end_ms, 8, shapes.sql_metrics(info.updates))
    if story.log.is_over:
        yield _At(end_ms, 9, shapes.job_end(shapes.QUERY_JOB, failure, end_ms))
        yield _At(end_ms, 10, shapes.sql_end(failure, end_ms))


def _properties(graph: ExecutionGraph, *, is_query: bool) -> dict[str, str]:
    name = graph.name or graph.job_id
    if not is_query:
        return {"spark.job.description": f"planning of {name}"}
    return {"spark.job.description": name, "spark.sql.execution.id": "0", "spark.job.tags": ""}


def _failure(graph: ExecutionGraph) -> str:
    match graph.outcome:
        case Failed(failure=failure):
            return shown_text(failure.message)[:_MESSAGE_CHARS] or "failed"
        case Cancelled(text=text):
            return shown_text(f"cancelled: {text}")[:_MESSAGE_CHARS]
        case _:
            return ""


def _why_ended(run: StageRun, failure: str) -> str:
    if run.outcome is Outcome.SUCCESSFUL:
        return ""
    return failure if run.outcome is Outcome.FAILED else "the stage was rolled back, or the job ended"


def _tasks(story: Story, lives: _Lives) -> tuple[Iterator[_At], Iterator[_At]]:
    """Return the starts and the ends of attempts, each by time."""
    attempts = story.log.attempts
    specs = {run.spec.stage_id: run.spec for run in story.log.stage_runs}
    by_start = sorted(range(len(attempts)), key=lambda number: attempts[number].from_ms)
    ended = [number for number, attempt in enumerate(attempts) if attempt.to_ms is not None]
    by_end = sorted(ended, key=lambda number: attempts[number].to_ms or 0)

    def starts() -> Iterator[_At]:
        for number in by_start:
            attempt = attempts[number]
            for task, stage_id in _shown_as(number, attempt, len(attempts)):
                yield _At(attempt.from_ms, 5, shapes.task_start(task, attempt, stage_id, *lives.of(attempt)))

    def ends() -> Iterator[_At]:
        for number in by_end:
            attempt = attempts[number]
            for task, stage_id in _shown_as(number, attempt, len(attempts)):
                # What planning ran as well has the metrics; planning itself had none of its own.
                is_counted = not attempt.fused_stage or stage_id != 0
                metrics = (attempt.metrics if is_counted else None) or NO_METRICS
                event = shapes.task_end(task, attempt, stage_id, *lives.of(attempt), metrics, specs.get(stage_id))
                yield _At(attempt.to_ms or 0, 6, event)

    return starts(), ends()


def _shown_as(number: int, attempt: Attempt, count: int) -> Iterator[tuple[int, int]]:
    """Yield (task id, stage id): two where planning ran a stage as well."""
    yield number, attempt.stage_id
    if attempt.fused_stage:
        yield count + number, attempt.fused_stage
