"""Converts between the graph's values and protocol messages, both ways."""

import base64
from operator import attrgetter
from typing import Final

from msgspec.structs import asdict

from onager.execution_graph import (
    UNCOUNTED,
    Failure,
    FailureCause,
    FailureKind,
    FetchFailure,
    HeldTask,
    JobState,
    JvmDeath,
    OutputLayout,
    SinkBuckets,
    SinkSpec,
    SinkTable,
    StageWork,
    SuspectTask,
    TaskMetrics,
    TaskOutput,
)
from onager.ids import JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_AMOUNT, MAX_CONTEXT_CHARS, MAX_MESSAGE_CHARS, MAX_TAIL_CHARS
from onager.protocol.task_keys import task_key

WORK: Final = {
    StageWork.PLAN: pb.PLAN,
    StageWork.QUERY: pb.QUERY,
    StageWork.FEED: pb.FEED,
    StageWork.PUBLISH_PLAN: pb.PUBLISH_PLAN,
    StageWork.PUBLISH: pb.PUBLISH,
    StageWork.REPLAN: pb.REPLAN,
    StageWork.STEP: pb.STEP,
    StageWork.PROGRAM: pb.PROGRAM,
}
STATE: Final = {
    JobState.QUEUED: pb.QUEUED,
    JobState.PLANNING: pb.PLANNING,
    JobState.RUNNING: pb.RUNNING,
    JobState.PUBLISHING: pb.PUBLISHING,
    JobState.SUCCESSFUL: pb.SUCCESSFUL,
    JobState.FAILED: pb.FAILED,
    JobState.CANCELLED: pb.CANCELLED,
}

_METRICS: Final = TaskMetrics.__struct_fields__
"""They have the same names in the protocol."""
_amounts: Final = attrgetter(*_METRICS)
_CAUSES: Final = frozenset(cause.value for cause in FailureCause)


def held_task(key: TaskKey) -> HeldTask:
    """Return a task's identity within its job."""
    return HeldTask(key.stage_id, key.stage_attempt, key.partition, key.task_attempt)


def task_key_of(job_id: JobId, held: HeldTask) -> TaskKey:
    """Return the identity of a task of *job_id*."""
    return TaskKey(job_id, StageId(held.stage_id), held.stage_attempt, Partition(held.partition), held.task_attempt)


def death_from(message: pb.JvmDeath) -> JvmDeath:
    """Return how a JVM ended, as its agent reported; the tasks are of any jobs."""
    running = tuple(SuspectTask(*task_key(task)) for task in message.running)
    was_alone = message.alone and len(running) == 1
    return JvmDeath(is_memory=message.memory, was_alone=was_alone, tasks=len(running), suspects=running)


def output_from(
    message: pb.TaskOutput, task_attempt: int, executor_id: str, *, has_files: bool = True, bucket_sizes: str = ""
) -> TaskOutput:
    """Return the output that an execution of *task_attempt* on *executor_id* reported; only a sink's *has_files*."""
    return TaskOutput(
        nonce=message.nonce,
        task_attempt=task_attempt,
        executor_id=executor_id,
        is_shared=message.shared,
        rows=message.rows,
        bytes=message.bytes,
        is_inline=message.inline,
        files=tuple(message.files) if has_files else (),
        payload_digest=message.payload_digest or None,
        checksum=message.checksum,
        bucket_sizes=bucket_sizes,
    )


def output_message(output: TaskOutput) -> pb.TaskOutput:
    """Return an output as sent to the tasks that read it."""
    return pb.TaskOutput(
        nonce=output.nonce,
        executor_id=output.executor_id,
        shared=output.is_shared,
        rows=output.rows,
        bytes=output.bytes,
        inline=output.is_inline,
        files=output.files,
        payload_digest=output.payload_digest or "",
    )


def metrics_from(message: pb.TaskMetrics) -> TaskMetrics:
    """Return what running a task cost, no number above `MAX_AMOUNT`. This is done for every task, hence no loop."""
    amounts = _amounts(message)
    if max(amounts) > MAX_AMOUNT:
        amounts = tuple(min(amount, MAX_AMOUNT) for amount in amounts)
    return TaskMetrics(*amounts)


def metrics_message(metrics: TaskMetrics) -> pb.TaskMetrics:
    """Return metrics as shown to people."""
    return pb.TaskMetrics(**{name: getattr(metrics, name) for name in _METRICS})


def failure_from(message: pb.Failure) -> Failure:
    """Return a reported failure.

    A failure of an unknown kind counts as an internal error, which may not happen elsewhere. Some causes do not count,
    whatever kind was reported with them for schedulers that do not know the cause.
    """
    cause = FailureCause(message.cause) if message.cause in _CAUSES else None
    try:
        kind = FailureKind(message.kind)
    except ValueError:
        kind, cause = FailureKind.IO_ERROR, FailureCause.INTERNAL_ERROR
    if cause in UNCOUNTED:
        kind = FailureKind.TASK_KILLED
    fetch = None
    if kind is FailureKind.FETCH_FAILED and message.HasField("fetch"):
        fetch = FetchFailure(message.fetch.input_stage_id, message.fetch.input_partition, message.fetch.nonce)
    return Failure(
        kind=kind,
        message=(message.message or f"a task failed without a message ({message.kind})")[:MAX_MESSAGE_CHARS],
        error_class=message.error_class or None,
        sql_state=message.sql_state or None,
        query_context=message.query_context[:MAX_CONTEXT_CHARS] or None,
        details=message.details[:MAX_MESSAGE_CHARS] or None,
        fetch=fetch,
        cause=cause,
        log_tail=message.log_tail[-MAX_TAIL_CHARS:] or None,
        connect_details=base64.b64encode(message.connect_details).decode() or None,
    )


def failure_message(failure: Failure) -> pb.Failure:
    """Return a failure as shown to people."""
    message = pb.Failure(
        kind=failure.shown_kind,
        message=failure.message,
        error_class=failure.error_class or "",
        sql_state=failure.sql_state or "",
        query_context=failure.query_context or "",
        details=failure.details or "",
        log_tail=failure.log_tail or "",
    )
    if failure.fetch is not None:
        message.fetch.CopyFrom(
            pb.FetchFailure(
                input_stage_id=failure.fetch.stage_id,
                input_partition=failure.fetch.partition,
                nonce=failure.fetch.nonce,
            )
        )
    return message


def layout_message(layout: OutputLayout) -> pb.OutputLayout:
    """Return how a stage lays out its output."""
    return pb.OutputLayout(kind=layout.kind, buckets=layout.buckets)


def sink_from(message: pb.Sink) -> SinkSpec:
    """Return where a result goes; `ValueError` for an unknown mode."""
    mode = message.mode or "error"
    if mode not in ("error", "overwrite", "append"):
        raise ValueError(f"{mode!r} is not a mode of writing: use error, overwrite or append")
    return SinkSpec(
        path=message.path,
        format=message.format,
        mode=mode,  # type: ignore[arg-type]
        options=tuple(sorted(message.options.items())),
        partition_by=tuple(message.partition_by),
        table=_sink_table_from(message.table) if message.HasField("table") else None,
        buckets=_sink_buckets_from(message.buckets) if message.HasField("buckets") else None,
        foreign=message.foreign,
    )


def _sink_table_from(message: pb.SinkTable) -> SinkTable:
    if message.replaces not in ("nothing", "written", "matching"):
        raise ValueError(f"{message.replaces!r} is not what rows replace in a table")
    return SinkTable(
        key=message.key,
        table_id=message.table_id,
        location=message.location,
        replaces=message.replaces,  # type: ignore[arg-type]
        within=message.within,
    )


def _sink_buckets_from(message: pb.SinkBuckets) -> SinkBuckets:
    return SinkBuckets(count=message.count, by=tuple(message.by), sort_by=tuple(message.sort_by))


def sink_message(sink: SinkSpec) -> pb.Sink:
    """Return where a result goes, as a message."""
    return pb.Sink(
        path=sink.path,
        format=sink.format,
        mode=sink.mode,
        options=dict(sink.options),
        partition_by=sink.partition_by,
        table=None if sink.table is None else pb.SinkTable(**asdict(sink.table)),
        buckets=None if sink.buckets is None else pb.SinkBuckets(**asdict(sink.buckets)),
        foreign=sink.foreign,
    )
