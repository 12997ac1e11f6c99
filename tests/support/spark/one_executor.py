"""An executor in this process: plans real queries, encodes and decodes their stages, and runs them one by one."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from onager.clock import SystemClock
from onager.exchange_layout import checkpoint, default_warehouse
from onager.executor.foreign import ForeignTables
from onager.executor.spark.cancellation import Cancellation
from onager.executor.spark.connect import connect_query, opened
from onager.executor.spark.functions import FunctionCalls, FunctionProcesses
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.planning import PlanTerms, plan_job
from onager.executor.spark.planning.catalog import PlanningCatalog
from onager.executor.spark.planning.sql_script import JobQuery
from onager.executor.spark.running.feed import find_more
from onager.executor.spark.running.single_stage import run_single_stage
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session
from onager.executor.spark.stage_plan import MetricsWanted
from onager.executor.work import CatalogReader
from onager.ids import BlobDigest, JobId
from onager.private_paths import SYSTEM, PrivatePaths
from onager.protocol import onager_pb2 as pb
from onager.testing.job import JobRun, result_table
from onager.testing.layout import Layout, lay_out
from onager.testing.run import rows_of
from onager.testing.stages import stage_of
from tests.support.waiting import HANGS_S

FOREIGN = "ice"
OTHER_CATALOG = {
    "spark.sql.catalog.other": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "spark.sql.catalog.other.url": "jdbc:derby:memory:none;create=true",
    "spark.sql.catalog.other.driver": "org.apache.derby.jdbc.EmbeddedDriver",
}
"""A catalog of Spark's own kind that the operator has configured."""
CUT = {"onager.fusion.maxBytes": "0", "spark.sql.shuffle.partitions": "3"}


class OneExecutor:
    """Plans jobs and runs their stages one after another, as an executor would if it got every task."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.catalog: CatalogReader | None = None
        """What jobs are planned with."""
        self.foreign: ForeignTables | None = None
        """The tables of the catalog `FOREIGN`."""
        warehouse = default_warehouse(str(directory))
        self.spark: SparkSession = start_session(
            2,
            OTHER_CATALOG,
            str(directory),
            warehouse=warehouse,
            private=PrivatePaths([*SYSTEM], tables=warehouse),
            catalogs=[FOREIGN],
            allow=["jdbc", "transform"],
        )
        self.processes = FunctionProcesses()
        self.functions = FunctionCalls(self.spark, self.processes)
        self.runner = StageRunner(
            self.spark,
            executor_id="executor-1",
            exchange_dir=str(directory),
            slots=2,
            clock=SystemClock(),
        )
        self.jobs = 0
        self.read: list[str] = []
        """The paths that the last planning, or the last task of a feed, has listed."""
        self.fused: list[tuple[DataFrame, Sequence[str], pb.Sink | None]] = []

    def run_single_stage(
        self, frame: DataFrame, column_names: Sequence[str], sink: pb.Sink | None, metrics: MetricsWanted
    ) -> pb.PlanOutcome:
        self.fused.append((frame, column_names, sink))
        self.jobs += 1
        return run_single_stage(self.runner.kernel, "executor-1", self.job_id, frame, column_names, sink, metrics)

    @property
    def job_id(self) -> JobId:
        return JobId(f"job-{self.jobs}")

    def plan(
        self,
        spec: pb.JobSpec,
        *,
        slots: int = 2,
        may_grow: bool = False,
        may_step: bool = False,
        has_fingerprints: bool = False,
    ) -> pb.PlanOutcome:
        self.read.clear()
        terms = PlanTerms(
            cluster_slots=slots,
            run_single_stage=self.run_single_stage,
            call_function=lambda job, session: self.functions.called(job, session, self.job_id, Cancellation()),
            connect_query=self._connect_query,
            may_grow=may_grow,
            catalog=self.catalog,
            foreign=self.foreign,
            may_step=may_step,
            has_fingerprints=has_fingerprints,
            on_read=self.read.extend,
        )
        return plan_job(spec, self.spark, terms)

    @contextmanager
    def _connect_query(
        self, plan: pb.ConnectPlan, session: SparkSession, tables: PlanningCatalog | None
    ) -> Iterator[JobQuery]:
        with opened(plan.session, session, str(self.directory)) as made:
            yield connect_query(plan, made, tables, str(self.directory / checkpoint(self.job_id)))

    def find_more(self, task_set: pb.TaskSet, blobs: Mapping[str, bytes]) -> pb.TaskSuccess:
        """Run a task of a feed."""
        self.read.clear()
        given = {BlobDigest(digest): content for digest, content in blobs.items()}
        return find_more(task_set, given, Jvm.of(self.spark), self.runner.binder, "executor-1", self.read.extend)

    def close(self) -> None:
        self.processes.close()
        self.runner.close()

    def plan_sql(
        self, text: str, *, views: Sequence[pb.View] = (), conf: Mapping[str, str] = CUT, slots: int = 2
    ) -> pb.PlanOutcome:
        return self.plan(pb.JobSpec(sql=pb.SqlScript(text=text), views=views, conf=conf), slots=slots)

    def plan_python(
        self, source: str, *, views: Sequence[pb.View] = (), conf: Mapping[str, str] = CUT, **fields: Any
    ) -> pb.PlanOutcome:
        function = pb.PythonFunction(
            source=source.encode(),
            function="query",
            file_name="job.py",
            arguments_json=json.dumps(fields.pop("arguments", {})),
        )
        return self.plan(pb.JobSpec(python=function, views=views, conf=conf, **fields))

    def run(self, outcome: pb.PlanOutcome, layout: Layout = "planned") -> list[tuple[Any, ...]]:
        """Run the stages of *outcome*, laid out as given, and return the rows of the result, in order.

        Those of a query that was not cut were run when it was planned; it must be the last one.
        """
        return [row for table in self.tables(outcome, layout) for row in rows_of(table)]

    def tables(self, outcome: pb.PlanOutcome, layout: Layout = "planned") -> list[pa.Table]:
        """Return the rows as `run` does, by partition."""
        if outcome.HasField("fused_output"):
            success = pb.TaskSuccess(output=outcome.fused_output, inline_result=outcome.fused_inline_result)
            return [result_table(str(self.directory), self.job_id, 1, 0, success)]
        with self.running(outcome, layout) as job:
            return job.partitions(str(self.directory))

    @contextmanager
    def running(self, outcome: pb.PlanOutcome, layout: Layout = "planned") -> Iterator[JobRun]:
        """Yield the job of *outcome*, whose stages have run, laid out as given."""
        self.jobs += 1
        blobs = {blob.digest: blob.content for blob in outcome.blobs}
        stages = {stage.stage_id: blobs[stage.plan_digest] for stage in outcome.stages}
        laid = lay_out(layout, [stage_of(stage, stages[stage.stage_id]) for stage in outcome.stages])
        sink = outcome.sink if outcome.HasField("sink") else None
        job = JobRun([self.runner], self.job_id, stages, laid, sink=sink)
        try:
            job.run(HANGS_S)
            yield job
        finally:
            self.runner.close_job(self.job_id)


def as_multiset(rows: Sequence[tuple[Any, ...]]) -> Counter[str]:
    """Return rows for comparison in any order; doubles to 9 digits, moments in UTC."""
    return Counter(repr(_comparable(row)) for row in rows)


def _comparable(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.9g}")
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case list() | tuple():
            return [_comparable(item) for item in value]
        case dict():
            return {key: _comparable(item) for key, item in value.items()}
    return value
