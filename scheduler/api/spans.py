"""The spans of a job: of the job itself, of its stages' attempts and of its tasks' attempts.

All ids follow from those of the job. So there is one trace, whichever schedulers drove the job or export it, and
repeated exports have the same spans.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from onager.execution_graph import ExecutionGraph
from onager.execution_graph.intervals import Outcome
from onager.scheduler.api.timeline.model import MarkKind
from onager.scheduler.api.timeline.story import Story
from onager.scheduler.jobs.job_specs import traceparent_of
from onager.version import __version__

_NS: Final = 1_000_000


def trace_id(job_id: str) -> int:
    """Return the id of a job's trace."""
    return int.from_bytes(hashlib.sha256(f"onager trace {job_id}".encode()).digest()[:16], "big") or 1


def span_id(job_id: str, *path: int) -> int:
    """Return the id of a span: of the job, of a stage's attempt (by two numbers), or of a task's attempt (by four)."""
    text = "/".join(map(str, (job_id, *path)))
    return int.from_bytes(hashlib.sha256(f"onager span {text}".encode()).digest()[:8], "big") or 1


def spans(story: Story, graph: ExecutionGraph, traceparent: str = "") -> Iterator[ReadableSpan]:
    """Yield the spans of a job that has ended; *traceparent* is the caller's, to which the trace is linked."""
    maker = _Maker(graph.job_id)
    log = story.log
    events = [
        Event(moment.kind.value, {"text": moment.text, "count": moment.count}, moment.at_ms * _NS)
        for moment in story.moments
        if moment.kind is not MarkKind.SUBMITTED
    ]
    failure = "" if graph.state.value == "successful" else story.moments[-1].text
    attributes: dict[str, str | int | bool] = {
        "onager.state": graph.state.value,
        "onager.job.name": graph.name,
        "onager.client": graph.client_id,
    }
    times = log.submitted_ms, log.now_ms
    yield maker.span(f"job {graph.name}"[:200], (), None, times, attributes, failure, events, _links(traceparent))
    for run in log.stage_runs:
        stage = run.spec.stage_id, run.attempt
        attributes = {
            "onager.stage": run.spec.stage_id,
            "onager.stage.attempt": run.attempt,
            "onager.outcome": run.outcome.value,
            "onager.work": run.spec.work.value,
        }
        why = "" if run.outcome is Outcome.SUCCESSFUL else run.outcome.value
        times = run.from_ms, log.now_ms if run.to_ms is None else run.to_ms
        yield maker.span(f"stage {run.spec.stage_id}: {run.spec.name}", stage, (), times, attributes, why)
    for attempt in log.attempts:
        attributes = {
            "onager.stage": attempt.stage_id,
            "onager.stage.attempt": attempt.stage_attempt,
            "onager.partition": attempt.partition,
            "onager.attempt": attempt.number,
            "onager.executor": log.places[attempt.lane].executor_id,
            "onager.outcome": attempt.outcome.value,
            "onager.speculative": attempt.is_second,
        }
        if attempt.metrics is not None:
            for name in ("queued_ms", "run_ms", "fetch_ms", "commit_ms", "rows_out", "bytes_out", "bytes_in"):
                attributes[f"onager.{name}"] = getattr(attempt.metrics, name)
        is_sound = attempt.outcome in (Outcome.SUCCESSFUL, Outcome.KILLED, Outcome.STOPPED)
        why = "" if is_sound else f"{attempt.kind}: {attempt.message}"
        times = attempt.from_ms, log.now_ms if attempt.to_ms is None else attempt.to_ms
        path = attempt.stage_id, attempt.stage_attempt, attempt.partition, attempt.number
        title = f"task {attempt.partition} of stage {attempt.stage_id}"
        yield maker.span(title, path, path[:2], times, attributes, why)


class _Maker:
    """Makes the spans of one job."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._trace_id = trace_id(job_id)
        self._resource = Resource.create({"service.name": "onager", "service.version": __version__})
        self._scope = InstrumentationScope("onager", __version__)

    def span(
        self,
        name: str,
        path: tuple[int, ...],
        parent: tuple[int, ...] | None,
        times_ms: tuple[int, int],
        attributes: Mapping[str, str | int | bool],
        failure: str,
        events: Sequence[Event] = (),
        links: Sequence[Link] = (),
    ) -> ReadableSpan:
        """Return a span; *parent* is the path of another one. One with a *failure* has the status of an error."""
        from_ms, to_ms = times_ms
        return ReadableSpan(
            name=name,
            context=self._context(path),
            parent=None if parent is None else self._context(parent),
            resource=self._resource,
            attributes={"onager.job": self._job_id, **attributes},
            status=Status(StatusCode.ERROR, failure) if failure else Status(StatusCode.OK),
            start_time=from_ms * _NS,
            end_time=max(from_ms, to_ms) * _NS,
            instrumentation_scope=self._scope,
            events=events,
            links=links,
        )

    def _context(self, path: tuple[int, ...]) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(self._trace_id, span_id(self._job_id, *path), is_remote=False, trace_flags=flags)


def _links(traceparent: str) -> list[Link]:
    """Return the link to the span of a W3C traceparent; none if it is none."""
    found = traceparent_of(traceparent)
    if found is None:
        return []
    trace, span, flags = found
    return [Link(SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags)))]
