"""Runs queries through the cutter and the runner, stage after stage, as a scheduler would."""

import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from onager.exchange_layout import result_file
from onager.executor.spark.planning.cut_stages import CutStage, CutTerms
from onager.executor.spark.planning.cutter import Cutter
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.stage_plan import ExchangeInput, ResultOutput, StagePlan
from onager.ids import StageId
from onager.protocol import onager_pb2 as pb
from tests.support.waiting import HANGS_S

NOTHING_FUSED: Mapping[int, StagePlan] = {}
PLANNING_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.execution.removeRedundantProjects": "false",
}


def cut(
    spark: SparkSession, frame: Any, conf: dict[str, str] | None = None, *, parallel_sort_bytes: int = 1 << 40
) -> list[CutStage]:
    """Cut a data frame that was planned under PLANNING_CONF."""
    plan = frame._jdf.queryExecution().executedPlan()
    conf = PLANNING_CONF | (conf or {})
    with tempfile.TemporaryDirectory() as scratch:
        terms = CutTerms(tuple(frame.columns), parallel_sort_bytes)
        return Cutter(spark, plan, terms, conf, Path(scratch)).cut().stages


@contextmanager
def settings(spark: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    """Plan under *conf*."""
    before = {key: spark.conf.get(key) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


class JobRun:
    """Launches task sets of one job and keeps what was reported."""

    def __init__(self, runner: StageRunner, job_id: str, exchange_dir: str, sink: pb.Sink | None = None) -> None:
        self.runner, self.job_id, self.exchange_dir, self.sink = runner, job_id, exchange_dir, sink
        self.outputs: dict[int, dict[int, pb.TaskOutput]] = {}
        self.inline: dict[tuple[int, int], bytes] = {}
        self.reports: list[pb.TaskReport] = []
        self.taken_from = ""
        """The job whose outputs those of `outputs` are that are there before a stage runs; empty: none are."""
        self._ran: set[int] = set()

    def task_set(
        self,
        stage_id: int,
        plan: StagePlan,
        partitions: Iterable[int],
        attempt: int = 0,
        *,
        fused: Mapping[int, StagePlan] = NOTHING_FUSED,
        reads: Sequence[pb.TaskRead] = (),
    ) -> pb.TaskSet:
        """Return the task set of *partitions*: of a stage with *fused* in it, or of one that reads what *reads* say."""
        made = pb.TaskSet(
            job_id=self.job_id,
            stage_id=stage_id,
            work=pb.QUERY,
            partitions=1 if fused else len(reads) or plan.partitions,
            stage_attempt=attempt,
            fused=[
                pb.FusedStage(stage_id=each, plan_digest=sha256(part.fragment).hexdigest())
                for each, part in fused.items()
            ],
            reads=reads,
        )
        made.plan_digest = sha256(plan.fragment).hexdigest()
        for p in partitions:
            made.tasks.add(partition=p, task_attempt=0)
        inputs = {s.stage_id for p in (plan, *fused.values()) for s in p.inputs if isinstance(s, ExchangeInput)}
        for source in sorted(inputs - set(fused)):
            location = made.inputs.add(stage_id=source)
            location.outputs.extend(self.outputs[source][i] for i in sorted(self.outputs[source]))
            if source not in self._ran:
                location.job_id = self.taken_from
        is_result = isinstance(plan.output, ResultOutput)
        made.output.kind = "exchange" if not is_result else "sink" if self.sink else "result"
        if self.sink:
            made.sink.CopyFrom(self.sink)
        return made

    def run(
        self,
        stage_id: int,
        plan: StagePlan,
        partitions: Iterable[int] | None = None,
        attempt: int = 0,
        *,
        fused: Mapping[int, StagePlan] = NOTHING_FUSED,
        reads: Sequence[pb.TaskRead] = (),
    ) -> list[pb.TaskReport]:
        """Run tasks of a stage, laid out as given, and wait for their reports, in order of partitions."""
        every = range(1 if fused else len(reads) or plan.partitions)
        chosen = every if partitions is None else partitions
        task_set = self.task_set(stage_id, plan, chosen, attempt, fused=fused, reads=reads)
        done, reports = threading.Event(), []

        def on_report(report: pb.TaskReport) -> None:
            reports.append(report)
            if report.HasField("success"):
                self.outputs.setdefault(stage_id, {})[report.task.partition] = report.success.output
                self.inline[stage_id, report.task.partition] = report.success.inline_result
            if len(reports) == len(task_set.tasks):
                done.set()

        self._ran.add(stage_id)
        if task_set.tasks:
            self.runner.run(task_set, plan, on_report, {StageId(each): part for each, part in fused.items()})
            assert done.wait(HANGS_S), f"{len(reports)} of {len(task_set.tasks)} tasks reported"
        self.reports += reports
        return sorted(reports, key=lambda r: r.task.partition)

    def run_all(self, stages: list[CutStage]) -> list[pb.TaskReport]:
        """Run stages one after another; stops at the first that fails. Returns the last reports."""
        reports: list[pb.TaskReport] = []
        for stage in stages:
            reports = self.run(stage.stage_id, stage.plan)
            if any(r.HasField("failure") for r in reports):
                break
        return reports

    def result(self, stages: list[CutStage]) -> pa.Table:
        """Run stages and return the result as a table, in order."""
        reports = self.run_all(stages)
        failed = [r.failure for r in reports if r.HasField("failure")]
        assert not failed, failed[0]
        last = stages[-1].stage_id
        batches, schema = [], None
        for report in reports:
            output = report.success.output
            if output.inline:
                source: Any = pa.BufferReader(report.success.inline_result)
            else:
                name = result_file(self.job_id, last, report.task.partition, output.nonce)
                source = pa.OSFile(f"{self.exchange_dir}/{name}")
            with source, pa.ipc.open_stream(source) as reader:
                schema = reader.schema
                batches += list(reader)
        return pa.Table.from_batches(batches, schema=schema)
