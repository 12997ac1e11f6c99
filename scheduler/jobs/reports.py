"""What executors report, made into events: blobs and inline results are stored before the event that names them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from execution_graph import (
    Event,
    ExecutionGraph,
    ExecutorSlot,
    Failure,
    FailureKind,
    StageWork,
    TaskFailed,
    TaskSucceeded,
    is_held,
    is_streaming,
)
from onager.clock import Clock
from onager.errors import PlanningError
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import INLINE_RESULT_BYTES
from onager.protocol.task_keys import task_key
from scheduler import wire
from scheduler.jobs import planning
from scheduler.jobs.blobs import BlobStore, digest_of
from scheduler.jobs.results import InlineResult, ResultStore

log = structlog.get_logger(__name__)

_INLINE_SLACK_BYTES: Final = 64 * 1024


OnOutcomes = Callable[[JobId, ExecutorSlot, Sequence[Event]], None]
"""Hears what an executor reported of a job's tasks."""


class _Unusable(Exception):  # noqa: N818 - never leaves this module
    """A success that cannot be taken for one; the text says why."""


class ReportReader:
    """Reads reports of one job at a time."""

    def __init__(
        self, blobs: BlobStore, results: ResultStore, clock: Clock, on_outcomes: OnOutcomes | None = None
    ) -> None:
        """Make a reader; *on_outcomes* is told of what it has read."""
        self._on_outcomes = on_outcomes
        self._blobs = blobs
        self._results = results
        self._clock = clock

    async def read(
        self, graph: ExecutionGraph, executor: ExecutorSlot, reports: Iterable[pb.TaskReport]
    ) -> list[Event]:
        """Return the events of *reports* that can still matter to *graph*, with all that they name in the store.

        A success that cannot be used (a plan that does not fit together, content with another digest) becomes a
        failure. Raises what storing raises.
        """
        job_id = JobId(graph.job_id)
        now_ms = self._clock.now_ms()
        events: list[Event] = []
        blobs: list[bytes] = []
        results: list[InlineResult] = []
        for report in reports:
            key = task_key(report.task)
            if not is_held(graph, key, executor.executor_id):
                continue
            if not report.HasField("success"):
                events.append(_failed(key, executor, wire.failure_from(report.failure), now_ms))
                continue
            try:
                event, named, inline = _succeeded(graph, key, executor, report.success, now_ms)
            except (_Unusable, PlanningError) as error:
                log.error(  # noqa: TRY400 - what is wrong is in the report, not in our stack
                    "report_unusable", job_id=job_id, task=str(key), executor_id=executor.executor_id, why=str(error)
                )
                failure = Failure(kind=FailureKind.USER_ERROR, message=str(error))
                events.append(_failed(key, executor, failure, now_ms))
                continue
            events.append(event)
            blobs += named
            if inline is not None:
                results.append(inline)
        if blobs:
            await self._blobs.put(job_id, blobs)
        if results:
            await self._results.put(results)
        if self._on_outcomes is not None:
            self._on_outcomes(job_id, executor, [e for e in events if not _may_be_anothers(graph, e)])
        return events


def _may_be_anothers(graph: ExecutionGraph, event: Event) -> bool:
    """Return whether a task failed that reads from other executors' tasks, of which any may be the cause."""
    return isinstance(event, TaskFailed) and is_streaming(graph, graph.stages[event.stage_id])


def _failed(key: TaskKey, executor: ExecutorSlot, failure: Failure, at_ms: int) -> TaskFailed:
    return TaskFailed(
        stage_id=key.stage_id,
        stage_attempt=key.stage_attempt,
        partition=key.partition,
        task_attempt=key.task_attempt,
        executor_id=executor.executor_id,
        failure=failure,
        at_ms=at_ms,
    )


def _succeeded(
    graph: ExecutionGraph, key: TaskKey, executor: ExecutorSlot, success: pb.TaskSuccess, at_ms: int
) -> tuple[Event, Sequence[bytes], InlineResult | None]:
    if graph.stages[key.stage_id].spec.work is StageWork.PLAN:
        return _planned(key, executor, success, at_ms)
    output = success.output
    inline = _inline(key.job_id, key.partition, output, success.inline_result)
    event = TaskSucceeded(
        stage_id=key.stage_id,
        stage_attempt=key.stage_attempt,
        partition=key.partition,
        task_attempt=key.task_attempt,
        executor_id=executor.executor_id,
        output=wire.output_from(output, key.task_attempt, executor.executor_id),
        metrics=wire.metrics_from(success.metrics),
        at_ms=at_ms,
    )
    return event, _checked(success.blobs), inline


def _planned(
    key: TaskKey, executor: ExecutorSlot, success: pb.TaskSuccess, at_ms: int
) -> tuple[Event, Sequence[bytes], InlineResult | None]:
    if not success.HasField("plan"):
        raise _Unusable("the planner reported success without a plan")
    outcome = success.plan
    event = planning.planned(key, executor.executor_id, success, at_ms)
    blobs = [*_checked(outcome.blobs), planning.explanation(outcome)]
    sent = {digest_of(content) for content in blobs}
    for stage in event.stages:
        if stage.plan_digest is not None and stage.plan_digest not in sent:
            raise _Unusable(f"the planner did not send the plan of stage {stage.stage_id} ({stage.plan_digest})")
    inline = None
    if outcome.HasField("fused_output"):
        inline = _inline(key.job_id, 0, outcome.fused_output, outcome.fused_inline_result)
    return event, blobs, inline


def _inline(job_id: JobId, partition: int, output: pb.TaskOutput, content: bytes) -> InlineResult | None:
    if not output.inline:
        return None
    if not content:
        raise _Unusable(f"the result of partition {partition} should have come in its report, and did not")
    if len(content) > INLINE_RESULT_BYTES + _INLINE_SLACK_BYTES:
        raise _Unusable(f"a result of {len(content):,} bytes came in its report, which takes {INLINE_RESULT_BYTES:,}")
    return InlineResult(job_id, partition, output.nonce, content)


def _checked(blobs: Iterable[pb.Blob]) -> list[bytes]:
    for blob in blobs:
        if digest_of(blob.content) != blob.digest:
            raise _Unusable(f"blob {blob.digest} arrived with other content")
    return [blob.content for blob in blobs]
