"""Executors' reports, made into events: blobs and inline results are stored before the event that names them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Final
from urllib.parse import unquote

import structlog
from msgspec.structs import replace

from onager.clock import Clock
from onager.errors import InvalidRequestError, PlanningError, UnsupportedPlanError
from onager.exchange_layout import checkpoint, is_staged_name
from onager.execution_graph import (
    LEFT_TO_OTHERS,
    Event,
    ExecutionGraph,
    ExecutorSlot,
    Failure,
    FailureCause,
    FailureKind,
    JobPlanned,
    Stage,
    StageReplanned,
    StageSpec,
    StageWork,
    TaskFailed,
    TaskSucceeded,
    is_held,
    is_streaming,
    metrics_text,
    sizes_text,
)
from onager.features import check_features
from onager.ids import JobId, TaskKey, is_life
from onager.place_files import NO_EXCHANGE, NO_PLACE, WAREHOUSE
from onager.private_paths import NO_PATHS, PrivatePaths
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import LARGE_BYTES, apart
from onager.protocol.task_keys import Reports
from onager.scheduler import wire
from onager.scheduler.catalog.changes import CatalogChanges, changes_from
from onager.scheduler.engine import planning
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.scheduler.jobs.places import check_place_apart
from onager.scheduler.jobs.results import InlineResult, ResultStore
from onager.sealed_results import DamagedResultError, check_sealed, is_checksum

log = structlog.get_logger(__name__)

OnOutcomes = Callable[[JobId, ExecutorSlot, Sequence[Event]], None]
"""Called with the events that an executor's reports about a job's tasks became."""


_Taken = tuple[Event, Sequence[bytes], InlineResult | None]
"""An event, with the blobs and the inline result that it names."""


class _Unusable(Exception):  # noqa: N818 - never leaves this module
    """A success that cannot be accepted; the text says why."""


_NOBODY_READS: Final = (
    "no executor that takes work can: submit the query again, or start an executor of the version named first"
)
_NOBODY_SEES: Final = "no executor sees it: mount it, and submit again"


class ReportReader:
    """Reads reports of one job at a time."""

    def __init__(
        self,
        blobs: BlobStore,
        results: ResultStore,
        clock: Clock,
        executors: ExecutorManager,
        on_outcomes: OnOutcomes | None = None,
        *,
        private: PrivatePaths = NO_PATHS,
    ) -> None:
        """Make a reader; *on_outcomes* (`Quarantine`) gets what it has read. No plan may write to *private* paths."""
        self._executors = executors
        self._private = private
        self._on_outcomes = on_outcomes
        self._blobs = blobs
        self._results = results
        self._clock = clock

    async def _misplaced(self, job_id: JobId, plan: pb.PlanOutcome) -> Failure | None:
        """Return the failure of a *plan* whose output, or tables, must not be where they would be, or None."""
        is_checkpoint = plan.sink.path.endswith(f"/{checkpoint(job_id)}")  # the executor says where that is
        places = [plan.sink.path] if plan.HasField("sink") and not is_checkpoint else []
        if plan.HasField("catalog"):
            places += _places(await apart(plan.catalog.ByteSize(), changes_from, plan.catalog))
        try:
            for place in dict.fromkeys(places):
                await check_place_apart(place, self._private)
        except InvalidRequestError as error:
            return Failure(kind=FailureKind.USER_ERROR, message=str(error))
        return None

    async def read_reports(self, graph: ExecutionGraph, executor: ExecutorSlot, reports: Reports) -> list[Event]:
        """Return the events of *reports* that can still matter to *graph*, with everything that they name in the store.

        A success that cannot be used (a plan that is inconsistent, content with another digest) becomes a failure.
        Raises what storing raises, and `SchemaVersionError` for a report of which this version would drop a part.
        """
        job_id = JobId(graph.job_id)
        now_ms = self._clock.now_ms()
        known = _BoundPlans()
        events: list[Event] = []
        blobs: list[bytes] = []
        results: list[InlineResult] = []
        # Executors report in the order of launches, and the bound plan came with the task that ended first.
        first = {key: report for key, report in reports.items() if report.success.blobs}
        for key, report in {**first, **reports}.items():
            if not is_held(graph, key, executor.executor_id):
                continue
            if report.needs:
                check_features(report.needs, f"what {key} reports")
            success = report.success
            # Nearly every report: nothing is awaited for it, since this is done for every task.
            if report.HasField("success") and not success.HasField("plan") and success.ByteSize() < LARGE_BYTES:
                event, named, inline = _judged(graph, key, executor, success, now_ms, known)
            else:
                event, named, inline = await self._taken(graph, key, executor, report, now_ms, known)
            events.append(event)
            blobs += named
            if inline is not None:
                results.append(inline)
        writes = [self._blobs.put(job_id, blobs)] if blobs else []
        writes += [self._results.put(results)] if results else []
        await asyncio.gather(*writes)
        if self._on_outcomes is not None:
            self._on_outcomes(job_id, executor, [e for e in events if not _may_be_anothers(graph, e)])
        return events

    async def _taken(
        self,
        graph: ExecutionGraph,
        key: TaskKey,
        executor: ExecutorSlot,
        report: pb.TaskReport,
        now_ms: int,
        known: "_BoundPlans",
    ) -> _Taken:
        """Return the event of one report, with what it names."""
        if not report.HasField("success"):
            failure = self._final(graph, key, executor, wire.failure_from(report.failure))
            return failed_task(key, executor, failure, report.failed_metrics, now_ms), (), None
        success = report.success
        try:
            if success.HasField("plan") and (misplaced := await self._misplaced(key.job_id, success.plan)) is not None:
                return failed_task(key, executor, misplaced, success.metrics, now_ms), (), None
        except PlanningError as error:
            return failed_task(key, executor, _refused(key, executor, error), success.metrics, now_ms), (), None
        return await apart(success.ByteSize(), _judged, graph, key, executor, success, now_ms, known)

    def _final(self, graph: ExecutionGraph, key: TaskKey, executor: ExecutorSlot, failure: Failure) -> Failure:
        """Return *failure*, or one that ends the job if no executor can read a plan, or see a directory.

        Plans are never made again. Without the exchange directory no executor takes work, and the job waits for one.
        It also waits while an executor may come to see another place: a disk may fail for a moment.
        """
        ledger = graph.stages[key.stage_id].ledger
        if failure.cause not in LEFT_TO_OTHERS or key.partition in ledger.failures:
            return failure
        if failure.error_class == NO_EXCHANGE:
            return failure
        of, _, place = (failure.error_class or "").partition(".")
        if of == NO_PLACE:
            return failure if self._executors.may_see(place or WAREHOUSE) else _for_good(failure, _NOBODY_SEES)
        taking_work = self._executors.taking_work(programs=graph.is_program)
        others = taking_work - {executor.executor_id, *ledger.failed_on.get(key.partition, ())}
        return failure if others or not taking_work else _for_good(failure, _NOBODY_READS)


def _for_good(failure: Failure, advice: str) -> Failure:
    return replace(failure, kind=FailureKind.USER_ERROR, cause=None, message=f"{failure.message}; {advice}")


class _BoundPlans:
    """The bound plans that are in the store, or on their way there with the reports that are read."""

    def __init__(self) -> None:
        self._sent: set[str] = set()

    def operators(self, stage: Stage, success: pb.TaskSuccess) -> tuple[str, str]:
        """Return what the operators measured, as text, and their bound plan; none if nothing could tell what it means.

        The bound plan is left out where it is the first one of the stage. The report that had it may have been of an
        attempt that lost: then the metrics count as not reported.
        """
        name, text = success.bound_plan, metrics_text(success.op_metrics)
        if not name or not text or stage.spec.work is not StageWork.QUERY:
            return "", ""
        totals = stage.ledger.operators
        if totals and totals[0].bound_plan == name:
            return text, ""
        for blob in success.blobs:
            self._sent.add(blob.digest)
        is_known = name in self._sent or any(each.bound_plan == name for each in totals)
        return (text, name) if is_known else ("", "")


def _places(changes: CatalogChanges) -> list[str]:
    """Return the paths that *changes* name, each as it may be meant: URIs have percent signs of their own."""
    return [each for place in changes.locations() for each in dict.fromkeys((place, unquote(place)))]


def _refused(key: TaskKey, executor: ExecutorSlot, error: Exception) -> Failure:
    """Return the failure that stands for a success that cannot be accepted."""
    if isinstance(error, UnsupportedPlanError):  # the query is too large for any executor
        return Failure(kind=FailureKind.USER_ERROR, message=str(error))
    log.error("report_unusable", job_id=key.job_id, task=str(key), executor_id=executor.executor_id, why=str(error))
    return Failure(kind=FailureKind.IO_ERROR, cause=FailureCause.INTERNAL_ERROR, message=str(error))


def _may_be_anothers(graph: ExecutionGraph, event: Event) -> bool:
    """Return whether the failed task reads from other executors' tasks, any of which may be the cause."""
    return isinstance(event, TaskFailed) and is_streaming(graph, graph.stages[event.stage_id])


def failed_task(
    key: TaskKey, executor: ExecutorSlot, failure: Failure, metrics: pb.TaskMetrics, at_ms: int
) -> TaskFailed:
    """Return the event of a task that failed, or that counts as failed."""
    return TaskFailed(
        stage_id=key.stage_id,
        stage_attempt=key.stage_attempt,
        partition=key.partition,
        task_attempt=key.task_attempt,
        executor_id=executor.executor_id,
        failure=failure,
        metrics=wire.metrics_from(metrics),
        at_ms=at_ms,
    )


def _judged(
    graph: ExecutionGraph,
    key: TaskKey,
    executor: ExecutorSlot,
    success: pb.TaskSuccess,
    at_ms: int,
    known: _BoundPlans,
) -> _Taken:
    """Return the event of a success, or of the failure for which it counts, with what it names."""
    try:
        return _succeeded(graph, key, executor, success, at_ms, known)
    except (_Unusable, PlanningError) as error:
        return failed_task(key, executor, _refused(key, executor, error), success.metrics, at_ms), (), None


def _succeeded(
    graph: ExecutionGraph,
    key: TaskKey,
    executor: ExecutorSlot,
    success: pb.TaskSuccess,
    at_ms: int,
    known: _BoundPlans,
) -> _Taken:
    stage = graph.stages[key.stage_id]
    if stage.spec.work in (StageWork.PLAN, StageWork.REPLAN):
        return _planned(graph, key, executor, success, at_ms)
    output = success.output
    has_files = stage.spec.output.kind not in ("exchange", "result")
    _check_names(output, has_files=has_files)
    blobs = _checked(success.blobs) if output.payload_digest or success.bound_plan else ()
    if output.payload_digest and output.payload_digest not in {blob.digest for blob in success.blobs}:
        raise _Unusable(f"the task did not send what it left ({output.payload_digest[:200]!r})")
    if stage.spec.work is StageWork.FEED:
        return planning.fed(graph, key, executor.executor_id, success, at_ms), blobs, None
    inline = _inline(key.job_id, key.partition, output, success.inline_result)
    sizes = _bucket_sizes(graph, stage.spec, success.bucket_sizes)
    op_metrics, bound_plan = known.operators(stage, success)
    event = TaskSucceeded(
        stage_id=key.stage_id,
        stage_attempt=key.stage_attempt,
        partition=key.partition,
        task_attempt=key.task_attempt,
        executor_id=executor.executor_id,
        output=wire.output_from(
            output, key.task_attempt, executor.executor_id, has_files=has_files, bucket_sizes=sizes
        ),
        metrics=wire.metrics_from(success.metrics),
        op_metrics=op_metrics,
        bound_plan=bound_plan,
        at_ms=at_ms,
    )
    return event, blobs, inline


def _bucket_sizes(graph: ExecutionGraph, spec: StageSpec, sizes: bytes) -> str:
    """Return the sizes of an output's buckets, if somebody may decide something by them."""
    if graph.adaptive is None or spec.output.kind != "exchange":
        return ""
    return sizes_text(sizes, spec.output.buckets, spec.partitions)


def _planned(
    graph: ExecutionGraph, key: TaskKey, executor: ExecutorSlot, success: pb.TaskSuccess, at_ms: int
) -> _Taken:
    if not success.HasField("plan"):
        raise _Unusable("the planner reported success without a plan")
    outcome = success.plan
    if outcome.HasField("fused_output"):
        _check_names(outcome.fused_output)
    explanation = planning.explanation(outcome)
    changes = planning.catalog_changes(outcome)
    event: JobPlanned | StageReplanned
    if graph.stages[key.stage_id].spec.work is StageWork.PLAN:
        digest = digest_of(changes) if changes else ""
        event = planning.planned(key, executor.executor_id, success, digest_of(explanation), at_ms, digest)
    else:
        if changes:
            raise _Unusable("the planner changes the catalog in a new plan of the rest of a query")
        event = planning.replanned(graph, key, executor.executor_id, success, digest_of(explanation), at_ms)
        if not event.stages:
            return event, (), None
    blobs = [*_checked(outcome.blobs), explanation, *([changes] if changes else [])]
    sent = {digest_of(content) for content in blobs}
    for stage in event.stages:
        named = [] if stage.feed is None else [portion.digest for portion in stage.feed.portions]
        named += [] if stage.plan_digest is None else [stage.plan_digest]
        if missing := [digest for digest in named if digest not in sent]:
            raise _Unusable(f"the planner did not send the plan of stage {stage.stage_id} ({missing[0]})")
    inline = None
    if outcome.HasField("fused_output"):
        inline = _inline(key.job_id, 0, outcome.fused_output, outcome.fused_inline_result)
    return event, blobs, inline


def _check_names(output: pb.TaskOutput, *, has_files: bool = False) -> None:
    """Refuse names that would lead elsewhere as parts of paths."""
    if not is_life(output.nonce):
        raise _Unusable(f"{output.nonce[:200]!r} cannot name an execution: 1 to 64 of a-z A-Z 0-9 _ -")
    for name in output.files if has_files else ():
        if not is_staged_name(name):
            raise _Unusable(f"{name[:200]!r} cannot be the name of a staged file")
    if output.checksum and not is_checksum(output.checksum):
        raise _Unusable(f"{output.checksum[:200]!r} is not a checksum of a result that this scheduler knows")


def _inline(job_id: JobId, partition: int, output: pb.TaskOutput, content: bytes) -> InlineResult | None:
    if not output.inline:
        return None
    if not content:
        raise _Unusable(f"the result of partition {partition} should have come in its report, and did not")
    if output.checksum:
        try:
            check_sealed(BytesIO(content), output.checksum)
        except DamagedResultError as error:
            raise _Unusable(f"the result of partition {partition} arrived damaged: {error}") from error
    return InlineResult(job_id, partition, output.nonce, content)


def _checked(blobs: Iterable[pb.Blob]) -> list[bytes]:
    for blob in blobs:
        if digest_of(blob.content) != blob.digest:
            raise _Unusable(f"blob {blob.digest} arrived with other content")
    return [blob.content for blob in blobs]
