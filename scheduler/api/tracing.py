"""A job as an OpenTelemetry trace: spans of the job, of its stages' attempts and of its tasks' attempts.

They are derived from the job's history when it has ended (`onager.scheduler.engine.owed`: at least once). All ids
follow from those of the job, so whichever schedulers drove the job or export it, there is one trace, and repeats are
the same spans.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import structlog

from onager.clock import Clock
from onager.errors import JobNotFoundError, SchemaVersionError, StateCorruptError
from onager.execution_graph import ExecutionGraph
from onager.ids import JobId
from onager.job_settings import TRACEPARENT
from onager.protocol.apart import apart
from onager.scheduler.api.timeline import MarkKind, Outcome, Story, Timelines
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.engine.owed import NotDeliveredError, Owed
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.jobs.job_specs import decode_spec, traceparent_of
from onager.scheduler.settings import SchedulerSettings
from onager.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext, Status

log = structlog.get_logger(__name__)

_SPANS_AT_ONCE: Final = 512
_GIVE_UP_S: Final = 24 * 3600
_AT_ONCE: Final = 2
"""Jobs whose histories are read at a time."""
_NS: Final = 1_000_000


class Tracing:
    """Exports jobs that have ended, where an endpoint is set."""

    def __init__(
        self, settings: SchedulerSettings, heads: JobHeads, precedence: Precedence, blobs: BlobStore, clock: Clock
    ) -> None:
        self._endpoint = settings.otel_endpoint or ""
        self._scheduler_id = settings.scheduler_id
        self._blobs = blobs
        self._jobs_at_once = asyncio.Semaphore(_AT_ONCE)
        whom = [self._endpoint] if self._endpoint else []
        self.owed = Owed("is_trace_owed", heads, precedence, clock, give_up_s=_GIVE_UP_S, whom=whom)

    async def run(self, timelines: Timelines) -> None:
        """Export for as long as the scheduler lives."""
        if not self.owed.is_on:
            await asyncio.Event().wait()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # What else there is to say (headers, certificates, time limits) the library takes from OTEL_EXPORTER_OTLP_….
        exporter = OTLPSpanExporter(endpoint=f"{self._endpoint.rstrip('/')}/v1/traces")
        try:
            await self.owed.run(partial(self._export_job, timelines, exporter))
        finally:
            exporter.shutdown()  # type: ignore[no-untyped-call]

    async def _export_job(
        self, timelines: Timelines, exporter: "SpanExporter", job_id: JobId, _head: JobHead, _whom: str
    ) -> None:
        async with self._jobs_at_once:
            try:
                story, job = await timelines.story(job_id)
            except (JobNotFoundError, StateCorruptError, SchemaVersionError) as error:
                log.warning("trace_not_exported", job_id=job_id, error=str(error))
                return
            found = spans(story, job.graph, await self._traceparent(job.graph))
            while some := await apart(_SPANS_AT_ONCE * 1024, _some, found):
                await _export(exporter, some)
        log.info("trace_exported", job_id=job_id, spans=len(story.log.attempts) + len(story.log.stage_runs) + 1)

    async def _traceparent(self, graph: ExecutionGraph) -> str:
        spec = await self._blobs.find(graph.spec_digest, decode_spec)
        return "" if spec is None else spec.conf.get(TRACEPARENT, "")


async def _export(exporter: "SpanExporter", found: "list[ReadableSpan]") -> None:
    from opentelemetry.sdk.trace.export import SpanExportResult

    # The exporter waits for the answer, and tries again for some seconds.
    if await asyncio.to_thread(exporter.export, found) is not SpanExportResult.SUCCESS:
        raise NotDeliveredError("the endpoint did not take the spans")


def _some(found: "Iterator[ReadableSpan]") -> "list[ReadableSpan]":
    return list(islice(found, _SPANS_AT_ONCE))


def trace_id(job_id: str) -> int:
    """Return the id of a job's trace."""
    return int.from_bytes(hashlib.sha256(f"onager trace {job_id}".encode()).digest()[:16], "big") or 1


def span_id(job_id: str, *path: int) -> int:
    """Return the id of a span: of the job, of a stage's attempt (by two numbers), or of a task's attempt (by four)."""
    text = "/".join(map(str, (job_id, *path)))
    return int.from_bytes(hashlib.sha256(f"onager span {text}".encode()).digest()[:8], "big") or 1


def spans(story: Story, graph: ExecutionGraph, traceparent: str = "") -> "Iterator[ReadableSpan]":
    """Yield the spans of a job that has ended; *traceparent* is the caller's, to which the trace is linked."""
    from opentelemetry.sdk.trace import Event
    from opentelemetry.trace import Link

    maker = _Maker(graph.job_id)
    events = [
        Event(moment.kind.value, {"text": moment.text, "count": moment.count}, moment.at_ms * _NS)
        for moment in story.moments
        if moment.kind is not MarkKind.SUBMITTED
    ]
    caller = maker.caller(traceparent)
    failure = "" if graph.state.value == "successful" else story.moments[-1].text
    yield maker.span(
        f"job {graph.name}"[:200],
        (),
        None,
        (story.log.submitted_ms, story.log.now_ms),
        {
            "onager.state": graph.state.value,
            "onager.job.name": graph.name,
            "onager.client": graph.client_id,
        },
        failure,
        events=events,
        links=[] if caller is None else [Link(caller)],
    )
    for run in story.log.stage_runs:
        stage = run.spec.stage_id, run.attempt
        told = {"onager.stage": stage[0], "onager.stage.attempt": stage[1], "onager.outcome": run.outcome.value}
        why = "" if run.outcome is Outcome.SUCCESSFUL else run.outcome.value
        times = run.from_ms, story.log.now_ms if run.to_ms is None else run.to_ms
        title = f"stage {run.spec.stage_id}: {run.spec.name}"
        yield maker.span(title, stage, (), times, told | {"onager.work": run.spec.work.value}, why)
    for attempt in story.log.attempts:
        metrics = attempt.metrics
        path = attempt.stage_id, attempt.stage_attempt, attempt.partition, attempt.number
        named = ("stage", "stage.attempt", "partition", "attempt")
        told = {f"onager.{name}": value for name, value in zip(named, path, strict=True)}
        told |= {
            "onager.executor": story.log.places[attempt.lane].executor_id,
            "onager.outcome": attempt.outcome.value,
            "onager.speculative": attempt.is_second,
        }
        if metrics is not None:
            for name in ("queued_ms", "run_ms", "fetch_ms", "commit_ms", "rows_out", "bytes_out", "bytes_in"):
                told[f"onager.{name}"] = getattr(metrics, name)
        is_sound = attempt.outcome in (Outcome.SUCCESSFUL, Outcome.KILLED, Outcome.STOPPED)
        why = "" if is_sound else f"{attempt.kind}: {attempt.message}"
        times = attempt.from_ms, story.log.now_ms if attempt.to_ms is None else attempt.to_ms
        yield maker.span(f"task {attempt.partition} of stage {attempt.stage_id}", path, path[:2], times, told, why)


class _Maker:
    """Makes the spans of one job."""

    def __init__(self, job_id: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

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
        **more: Any,
    ) -> "ReadableSpan":
        """Return a span; *parent* is the path of another one. One with a *failure* has the status of an error."""
        from opentelemetry.sdk.trace import ReadableSpan

        from_ms, to_ms = times_ms
        return ReadableSpan(
            name=name,
            context=self._context(path),
            parent=None if parent is None else self._context(parent),
            resource=self._resource,
            attributes={"onager.job": self._job_id, **attributes},
            status=_status(failure),
            start_time=from_ms * _NS,
            end_time=max(from_ms, to_ms) * _NS,
            instrumentation_scope=self._scope,
            **more,
        )

    def caller(self, traceparent: str) -> "SpanContext | None":
        """Return the span of a W3C traceparent; None if it is none."""
        from opentelemetry.trace import SpanContext, TraceFlags

        found = traceparent_of(traceparent)
        if found is None:
            return None
        trace, span, flags = found
        return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))

    def _context(self, path: tuple[int, ...]) -> "SpanContext":
        from opentelemetry.trace import SpanContext, TraceFlags

        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(self._trace_id, span_id(self._job_id, *path), is_remote=False, trace_flags=flags)


def _status(failure: str) -> "Status":
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.ERROR, failure) if failure else Status(StatusCode.OK)
