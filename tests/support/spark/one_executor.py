"""An executor in this process: plans real queries, encodes and decodes their stages, and runs them one by one."""

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import DataFrame, SparkSession

from onager.clock import SystemClock
from onager.exchange_layout import join, result_file
from onager.executor.spark import plan_codec
from onager.executor.spark.cancellation import Cancellation
from onager.executor.spark.functions import FunctionCalls, FunctionProcesses
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel import arrow_schema
from onager.executor.spark.planning import FusedRun, plan_job
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.running.whole import run_whole
from onager.executor.spark.session import start_session
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb

TIMEOUT_S = 100
CUT = {"onager.fusion.maxBytes": "0", "spark.sql.shuffle.partitions": "3"}


class StageFailedError(Exception):
    """A task of a stage failed."""


class OneExecutor:
    """Plans jobs and runs their stages one after another, as an executor would if it got every task."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spark: SparkSession = start_session(2, {}, str(directory))
        self.processes = FunctionProcesses()
        self.functions = FunctionCalls(self.spark, self.processes)
        self.runner = StageRunner(
            self.spark,
            executor_id="executor-1",
            exchange_dir=str(directory),
            slots=2,
            shared=True,
            clock=SystemClock(),
        )
        self.jobs = 0
        self.fused: list[tuple[DataFrame, Sequence[str], pb.Sink | None]] = []

    def arrow_schema(self, session: Any, plan: Any, column_names: Sequence[str]) -> bytes:
        return arrow_schema(session, Jvm.of(self.spark), plan, column_names)

    def run_fused(self, frame: DataFrame, column_names: Sequence[str], sink: pb.Sink | None) -> FusedRun:
        self.fused.append((frame, column_names, sink))
        self.jobs += 1
        return run_whole(self.runner.kernel, "executor-1", self.job_id, frame, column_names, sink)

    @property
    def job_id(self) -> JobId:
        return JobId(f"job-{self.jobs}")

    def plan(self, spec: pb.JobSpec, *, slots: int = 2) -> pb.PlanOutcome:
        return plan_job(
            spec,
            self.spark,
            cluster_slots=slots,
            arrow_schema=self.arrow_schema,
            run_fused=self.run_fused,
            call_function=lambda job, session: self.functions.called(job, session, self.job_id, Cancellation()),
        )

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

    def run(self, outcome: pb.PlanOutcome) -> list[tuple[Any, ...]]:
        """Run the stages of *outcome* and return the rows of the result, in order.

        Those of a query that was not cut were run when it was planned; it must be the last one.
        """
        if outcome.HasField("fused_output"):
            success = pb.TaskSuccess(output=outcome.fused_output, inline_result=outcome.fused_inline_result)
            return self._rows(self.job_id, 1, 0, success)
        self.jobs += 1
        job_id = self.job_id
        blobs = {blob.digest: blob.content for blob in outcome.blobs}
        outputs: dict[int, list[pb.TaskOutput]] = {}
        successes: list[pb.TaskSuccess] = []
        for stage in outcome.stages:
            plan = plan_codec.decode(blobs[stage.plan_digest])
            task_set = pb.TaskSet(
                job_id=job_id,
                stage_id=stage.stage_id,
                work=pb.Work.QUERY,
                plan_digest=stage.plan_digest,
                partitions=stage.partitions,
                output=stage.output,
                tasks=[pb.TaskAttempt(partition=i) for i in range(stage.partitions)],
                inputs=[
                    pb.StageInputLocations(stage_id=read.stage_id, outputs=outputs[read.stage_id])
                    for read in stage.inputs
                ],
            )
            successes = self._run_stage(task_set, plan)
            outputs[stage.stage_id] = [success.output for success in successes]
        rows = []
        for partition, success in enumerate(successes):
            rows += self._rows(job_id, outcome.stages[-1].stage_id, partition, success)
        self.runner.close_job(job_id)
        return rows

    def _run_stage(self, task_set: pb.TaskSet, plan: Any) -> list[pb.TaskSuccess]:
        reports: dict[int, pb.TaskReport] = {}
        done = threading.Event()

        def on_report(report: pb.TaskReport) -> None:
            reports[report.task.partition] = report
            if len(reports) == task_set.partitions:
                done.set()

        if task_set.partitions:
            self.runner.run(task_set, plan, on_report)
            assert done.wait(TIMEOUT_S)
        for report in reports.values():
            if report.HasField("failure"):
                raise StageFailedError(f"{report.failure.message}\n{report.failure.details}")
        return [reports[i].success for i in range(task_set.partitions)]

    def _rows(self, job_id: str, stage_id: int, partition: int, success: pb.TaskSuccess) -> list[tuple[Any, ...]]:
        if success.output.inline:
            content = success.inline_result
        else:
            name = result_file(job_id, stage_id, partition, success.output.nonce)
            content = Path(join(str(self.directory), name)).read_bytes()
        return rows_of(pa.ipc.open_stream(content).read_all())


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table whose columns may share names, or that has none."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


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
