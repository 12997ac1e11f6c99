"""Runs a query distributed: on executors of its own in this process, over row files or over streams."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import DataFrame

from onager.testing.config import HarnessConfig
from onager.testing.executors import Executor, Executors, executors
from onager.testing.job import DistributedRunError, JobRun
from onager.testing.kernel import jvm_with_kernel
from onager.testing.replans import Replans
from onager.testing.stages import StageGraph, create_stages

__all__ = ["DistributedRun", "DistributedRunError", "Plant", "TaskRun", "rows_of", "run_distributed", "run_graph"]

Row = tuple[Any, ...]
Plant = Callable[[Executor], None]
"""Plants a fault in an executor, given each of them before anything runs: for testing the harness itself."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """The result of one task."""

    stage_id: int
    partition: int
    rows_read: int
    """Rows that it read from files and other sources, as Spark counts them."""
    bytes_read: int
    """Bytes that it read of other stages."""
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
    spilled_bytes: int
    """Bytes of frames of streams for which there was no room in memory."""
    replans: tuple[str, ...] = ()
    """What came of each re-plan, for people. The graph has the stages of all plans; those that the last plan did
    without have no tasks."""

    @property
    def rows(self) -> list[Row]:
        """Return the rows of the result."""
        return rows_of(self.table)

    def tasks_of(self, stage_id: int) -> list[TaskRun]:
        """Return the tasks of a stage, by partition."""
        return [task for task in self.tasks if task.stage_id == stage_id]


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table whose columns may share names, or that has none."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def run_distributed(
    frame: DataFrame, config: HarnessConfig | None = None, *, plant: Plant | None = None
) -> DistributedRun:
    """Cut the query of *frame*, run the tasks of its stages on several executors, and return the result.

    The executors are in this process, and do what those of a cluster do: each decodes and binds the stages' plans, runs
    its tasks in the slots of Spark, and passes rows on through files or streams. The session of *frame* is unchanged
    afterwards. *plant* is for testing the harness itself. Raises `DistributedRunError` with the first failure, and what
    `create_stages` raises.
    """
    config = config or HarnessConfig()
    return run_graph(frame, create_stages(frame, config), config, plant)


def run_graph(frame: DataFrame, graph: StageGraph, config: HarnessConfig, plant: Plant | None = None) -> DistributedRun:
    """Run the stages of *graph*, made from a query of the session of *frame*."""
    jvm_with_kernel(frame.sparkSession)
    with executors(frame.sparkSession, config) as made:
        for executor in made.runners:
            if plant is not None:
                plant(executor)
        stages = {stage.stage_id: stage.encoded for stage in graph.stages}
        is_streamed = config.exchange == "streams"
        laid = graph.laid_out(config.layout)
        replans = Replans(frame.sparkSession, graph, config.replans) if graph.frame else None
        slots = made.slots if is_streamed else 0
        job = JobRun(made.runners, made.job_id, stages, laid, streaming_slots=slots, replans=replans)
        job.run(config.timeout_s)
        if replans is None:
            return _result(graph, made, job, is_streamed=is_streamed)
        return replace(_result(replans.graph, made, job, is_streamed=False), replans=tuple(replans.descriptions))


def _result(graph: StageGraph, made: Executors, job: JobRun, *, is_streamed: bool) -> DistributedRun:
    partitions = job.partitions(made.directory)
    schema = pa.ipc.read_schema(pa.BufferReader(graph.schema))
    rows_read: dict[tuple[int, int], int] = {}
    for executor in made.runners:
        rows_read |= executor.rows_read
    tasks = []
    for task, report in sorted(job.reports.items()):
        metrics = report.success.metrics
        tasks.append(TaskRun(*task, rows_read[task], metrics.bytes_in, metrics.rows_out, metrics.bytes_out))
    return DistributedRun(
        table=_together(partitions, schema),
        graph=graph,
        tasks=tuple(tasks),
        partitions=tuple(partitions),
        spilled_bytes=sum(executor.kernel.stream_use()[1] for executor in made.runners) if is_streamed else 0,
    )


def _together(partitions: list[pa.Table], schema: pa.Schema) -> pa.Table:
    if not partitions:
        return schema.empty_table()
    if not schema.names:  # concatenated, tables without columns have no rows
        return pa.table({"": pa.nulls(sum(part.num_rows for part in partitions))}).select([])
    return pa.concat_tables(partitions)
