"""Exports jobs that have ended as OpenTelemetry traces, made of their histories (`onager.scheduler.api.spans`).

Each job is exported at least once (`onager.scheduler.engine.delivery_queue`).
"""

import asyncio
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from onager.clock import Clock
from onager.errors import JobNotFoundError, SchemaVersionError, StateCorruptError
from onager.ids import JobId
from onager.job_settings import TRACEPARENT
from onager.protocol.apart import apart
from onager.scheduler.api.timeline.reading import Timelines
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.engine.delivery_queue import DeliveryQueue, NotDeliveredError
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.jobs.job_specs import decode_spec
from onager.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = structlog.get_logger(__name__)

_SPANS_AT_ONCE: Final = 512
_GIVE_UP_S: Final = 24 * 3600
_AT_ONCE: Final = 2
"""Jobs whose histories are read at a time."""


class Tracing:
    """Exports jobs that have ended, where an endpoint is set."""

    def __init__(
        self, settings: SchedulerSettings, heads: JobHeads, precedence: Precedence, blobs: BlobStore, clock: Clock
    ) -> None:
        self._endpoint = settings.otel_endpoint or ""
        self._blobs = blobs
        self._jobs_at_once = asyncio.Semaphore(_AT_ONCE)
        whom = [self._endpoint] if self._endpoint else []
        self.deliveries = DeliveryQueue("is_trace_due", heads, precedence, clock, give_up_s=_GIVE_UP_S, whom=whom)

    async def run(self, timelines: Timelines) -> None:
        """Export for as long as the scheduler lives."""
        if not self.deliveries.is_on:
            await asyncio.Event().wait()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # What else there is to say (headers, certificates, time limits) the library takes from OTEL_EXPORTER_OTLP_….
        exporter = OTLPSpanExporter(endpoint=f"{self._endpoint.rstrip('/')}/v1/traces")
        try:
            await self.deliveries.run(partial(self._export_job, timelines, exporter))
        finally:
            exporter.shutdown()  # type: ignore[no-untyped-call]

    async def _export_job(
        self, timelines: Timelines, exporter: "SpanExporter", job_id: JobId, _head: JobHead, _whom: str
    ) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        from onager.scheduler.api.spans import spans

        async with self._jobs_at_once:
            try:
                story, job = await timelines.story(job_id)
            except (JobNotFoundError, StateCorruptError, SchemaVersionError) as error:
                log.warning("trace_not_exported", job_id=job_id, error=str(error))
                return
            spec = await self._blobs.find(job.graph.spec_digest, decode_spec)
            found = spans(story, job.graph, "" if spec is None else spec.conf.get(TRACEPARENT, ""))
            while some := await apart(_SPANS_AT_ONCE * 1024, lambda: list(islice(found, _SPANS_AT_ONCE))):
                # The exporter waits for the answer, and tries again for some seconds.
                if await asyncio.to_thread(exporter.export, some) is not SpanExportResult.SUCCESS:
                    raise NotDeliveredError("the endpoint did not take the spans")
        log.info("trace_exported", job_id=job_id, spans=len(story.log.attempts) + len(story.log.stage_runs) + 1)
