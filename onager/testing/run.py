"""Runs a query distributed: all tasks of all stages at once, in this process."""

import base64
import contextlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import DataFrame

from onager.errors import OnagerError
from onager.executor.spark import plan_codec
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel import Pipeline
from onager.executor.spark.stage_plan import (
    ExchangeInput,
    LeafInput,
    ResultOutput,
    SortedOutput,
    StagePlan,
    buckets_of,
    expression_of,
)
from onager.testing.config import MIB, HarnessConfig
from onager.testing.kernel import jvm_with_kernel
from onager.testing.stages import Stage, StageGraph, create_stages

POLL_MS = 200
STOP_MS = 30_000
MIN_TASK_MEMORY = 32 * MIB
_runs = itertools.count(1)

Row = tuple[Any, ...]


class DistributedRunError(OnagerError):
    """A query failed in its distributed run; the text says which task, and why."""

    def __init__(self, message: str, *, error_class: str = "", stage_id: int = 0, details: str = "") -> None:
        super().__init__(message)
        self.error_class = error_class
        """Spark's error class, or that of the exception."""
        self.stage_id = stage_id
        """The stage whose task failed first; 0 if no task did."""
        self.details = details
        """The stack trace."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """The result of one task."""

    stage_id: int
    partition: int
    rows_read: int
    """Rows that it read from files, as Spark counts them."""
    rows: int
    """Rows that it produced: for other stages, or as a part of the result."""
    bytes: int


@dataclass(frozen=True, slots=True)
class DistributedRun:
    """The result of a distributed run of a query, and how it went."""

    table: pa.Table
    graph: StageGraph
    tasks: tuple[TaskRun, ...]
    """By stage and partition."""
    partitions: tuple[pa.Table, ...] = field(repr=False)
    """The result, by task of the last stage."""
    grants: int
    """Frames beyond a channel's capacity, granted since tasks would have waited for each other in a circle."""
    spilled_bytes: int
    """Bytes of frames that did not fit in memory."""

    @property
    def rows(self) -> list[Row]:
        """Return the rows of the result."""
        return rows_of(self.table)

    def tasks_of(self, stage_id: int) -> list[TaskRun]:
        """Return the tasks of a stage, by partition."""
        return [task for task in self.tasks if task.stage_id == stage_id]


class Plant(Protocol):
    """Plants a fault: given access to the JVM, returns an ``onager.testing.Interposer``."""

    def __call__(self, jvm: Jvm) -> Any:
        """Return the JVM object that stands between tasks and what they read and write."""
        ...


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table whose columns may share names, or that has none."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def run_distributed(
    frame: DataFrame, config: HarnessConfig | None = None, *, plant: Plant | None = None
) -> DistributedRun:
    """Cut the query of *frame*, run all tasks of all stages at once, and return the result.

    Every task decodes its own plan in a session of its own, on a thread of this process's JVM; rows go from stage to
    stage through bounded channels. The session of *frame* is unchanged afterwards. *plant* is for testing the harness
    itself. Raises `DistributedRunError` with the first failure, and what `create_stages` raises.
    """
    config = config or HarnessConfig()
    return run_graph(frame, create_stages(frame, config), config, plant)


def run_graph(frame: DataFrame, graph: StageGraph, config: HarnessConfig, plant: Plant | None = None) -> DistributedRun:
    """Run the stages of *graph*, made from a query of the session of *frame*."""
    session = frame.sparkSession
    jvm = jvm_with_kernel(session)
    run = f"{os.getpid()}-{next(_runs)}"
    directory = Path(tempfile.mkdtemp(prefix="onager-testing-"))
    try:
        memory = int(jvm.java_class("java.lang.Runtime").getRuntime().maxMemory())
        spec = {
            "run": run,
            "directory": str(directory),
            "capacity_frames": config.channel_frames,
            "capacity_bytes": config.channel_bytes,
            "frame_bytes": config.frame_bytes,
            "memory_bytes": min(config.memory_bytes, memory // 4),
            "task_memory_bytes": max(MIN_TASK_MEMORY, memory // 2 // max(graph.tasks, 1)),
        }
        pipeline = Pipeline(session, spec)
        with _closed_at_the_end(pipeline):
            if plant is not None:
                pipeline.interpose(plant(jvm))
            for stage in graph.stages:
                _add(pipeline, stage)
            report = _carry_out(pipeline, config)
        return _result(graph, report, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _closed_at_the_end(pipeline: Pipeline) -> Iterator[None]:
    try:
        yield
    finally:
        left = pipeline.close(STOP_MS)
        if left:
            raise OnagerError(f"tasks did not stop within {STOP_MS // 1000} s: {', '.join(left)}")


def _add(pipeline: Pipeline, stage: Stage) -> None:
    first = plan_codec.decode(stage.encoded)
    pipeline.add_stage(_stage_spec(stage, first))
    for partition in range(first.partitions):
        plan = plan_codec.decode(stage.encoded)
        leaves = [source.description if isinstance(source, LeafInput) else None for source in plan.inputs]
        pipeline.add_task(stage.stage_id, partition, plan.fragment, leaves, expression_of(plan.output))


def _stage_spec(stage: Stage, plan: StagePlan) -> dict[str, Any]:
    samples = {"samples": plan.output.samples} if isinstance(plan.output, SortedOutput) else {}
    return samples | {
        "stage": stage.stage_id,
        "partitions": plan.partitions,
        "layout": "result" if isinstance(plan.output, ResultOutput) else "exchange",
        "directory": f"stage-{stage.stage_id}",
        "buckets": buckets_of(plan.output),
        "names": plan.column_names,
        "conf": plan.conf,
        "inputs": [_input_spec(source) if isinstance(source, ExchangeInput) else None for source in plan.inputs],
    }


def _input_spec(source: ExchangeInput) -> dict[str, Any]:
    ranges = {"ordering": base64.b64encode(source.ordering).decode()} if source.ordering else {}
    return ranges | {"stage": source.stage_id, "reads_all": source.reads_all, "partitions": source.partitions}


def _carry_out(pipeline: Pipeline, config: HarnessConfig) -> dict[str, Any]:
    """Start the tasks and wait for their end; return their results."""
    deadline = time.monotonic() + config.timeout_s
    pipeline.start()
    while not pipeline.has_ended(POLL_MS):
        if time.monotonic() > deadline:
            waits = pipeline.waits()
            raise DistributedRunError(
                f"the query was not done after {config.timeout_s:g} s (HarnessConfig.timeout_s); "
                + (f"who waits for what:\n{waits}" if waits else "no task waits for another")
            )
    report = pipeline.report()
    failure = report.get("failure")
    if failure:
        stage_id = failure.get("stage", 0)
        where = f"task {failure['partition']} of stage {stage_id} failed: " if stage_id else ""
        raise DistributedRunError(
            f"{where}{failure['message']}",
            error_class=failure.get("error_class", ""),
            stage_id=stage_id,
            details=failure.get("details", ""),
        )
    return report


def _result(graph: StageGraph, report: dict[str, Any], directory: Path) -> DistributedRun:
    last = graph.stages[-1]
    schema = pa.ipc.read_schema(pa.BufferReader(graph.schema))
    partitions = []
    for partition in range(last.tasks):
        path = directory / f"stage-{last.stage_id}" / f"{partition}-r.arrow"
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            partitions.append(reader.read_all())
    tasks = [
        TaskRun(task["stage"], task["partition"], task["rows_read"], task["rows"], task["bytes"])
        for task in sorted(report["tasks"], key=lambda task: (task["stage"], task["partition"]))
    ]
    return DistributedRun(
        table=_together(partitions, schema),
        graph=graph,
        tasks=tuple(tasks),
        partitions=tuple(partitions),
        grants=report["grants"],
        spilled_bytes=report["spilled_bytes"],
    )


def _together(partitions: list[pa.Table], schema: pa.Schema) -> pa.Table:
    if not partitions:
        return schema.empty_table()
    if not schema.names:  # concatenated, tables without columns have no rows
        return pa.table({"": pa.nulls(sum(part.num_rows for part in partitions))}).select([])
    return pa.concat_tables(partitions)
