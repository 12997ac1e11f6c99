"""What is derived from the history of a job, as files for other programs, and for people."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Final

from onager.clock import Clock
from onager.errors import InvalidRequestError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import LARGE_BYTES, apart
from onager.scheduler.api.explained import explained
from onager.scheduler.api.operators import operators_of
from onager.scheduler.api.spark_log.log import lines
from onager.scheduler.api.spark_log.plan import Known, chosen
from onager.scheduler.api.timeline.picture import picture
from onager.scheduler.api.timeline.reading import Timelines
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.history import JobHistory
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_specs import decode_spec_shown
from onager.scheduler.jobs.job_store import JobStore

_CHUNK_BYTES: Final = 256 * 1024
_LINES_AT_ONCE: Final = 200


class JobExports:
    """Exports of jobs, whichever scheduler drives them."""

    def __init__(self, jobs: JobStore, history: JobHistory, blobs: BlobStore, clock: Clock) -> None:
        self.timelines = Timelines(jobs, history, clock)
        self._blobs = blobs

    async def export(self, job_id: JobId, asked: pb.ExportJobRequest) -> AsyncGenerator[bytes, None]:
        """Yield what is *asked* about a job in pieces of up to `_CHUNK_BYTES`.

        `InvalidRequestError` for a format that there is not. Other errors as for the job's events.
        """
        async with aclosing(self._contents(job_id, asked)) as contents:
            async for content in contents:
                for start in range(0, len(content), _CHUNK_BYTES):
                    yield content[start : start + _CHUNK_BYTES]

    async def _contents(self, job_id: JobId, asked: pb.ExportJobRequest) -> AsyncGenerator[bytes, None]:
        match asked.format:
            case "timeline":
                yield await self.timelines.as_json(job_id, asked.after, soon=asked.soon)
            case "timeline-svg":
                timeline = await self.timelines.get(job_id)
                yield (await apart(LARGE_BYTES, picture, timeline)).encode()
            case "spark-event-log":
                story, job = await self.timelines.story(job_id)
                events = lines(story, job.graph, await self._known(job))
                while some := await apart(LARGE_BYTES, lambda: b"".join(islice(events, _LINES_AT_ONCE))):
                    yield some
            case _:
                formats = "timeline, timeline-svg, spark-event-log"
                raise InvalidRequestError(f"{asked.format!r} is nothing that can be exported: use {formats}")

    async def _known(self, job: StoredJob) -> Known:
        """Return what is in the store beside the job's graph; what is missing or damaged there is left out."""
        graph = job.graph
        spec = await self._blobs.find(graph.spec_digest, decode_spec_shown) or pb.JobSpec()
        planned = await explained(graph, self._blobs)
        plans: dict[int, Sequence[pb.FinalOperator]] = {}
        for stage in graph.stages:
            if (totals := chosen(stage.ledger.operators)) is not None:
                plan = await self._blobs.find(totals.bound_plan, partial(operators_of, totals=totals))
                if plan is not None:
                    plans[stage.spec.stage_id] = plan
        return Known(
            script=spec.sql.text,
            conf=dict(spec.conf),
            plan=planned.plan,
            stage_texts=planned.stages,
            stage_plans=plans,
            principal=job.header.principal,
        )
