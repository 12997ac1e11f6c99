"""Runs the stages of a query at once on several runners, as a scheduler does that streams between executors."""

import threading
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa

from benchmarks.exchange.runner_process import RunnerProcess, busy_threads
from onager.exchange_layout import result_file
from onager.executor.spark.planning.cut_stages import CutStage
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.stage_plan import ExchangeInput, ResultOutput
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from tests.support.waiting import HANGS_S

Executor = StageRunner | RunnerProcess
Place = Callable[[int, int], int]
"""Returns which executor has a task, given by stage and partition."""
StartOther = Callable[[], RunnerProcess]


def in_turn(stage_id: int, partition: int) -> int:
    return stage_id + partition


def stream_use(executor: Executor) -> list[int]:
    """Return bytes in memory, bytes ever spilled, tasks known, requests that wait."""
    return executor.stream_use() if isinstance(executor, RunnerProcess) else list(executor.kernel.stream_use())


def busy(executor: Executor) -> list[str]:
    """Return the threads of an executor's JVM that run tasks, or make stages ready for that."""
    if isinstance(executor, RunnerProcess):
        return executor.busy_threads()
    return busy_threads(executor._spark._jvm)


class StreamingJob:
    """All tasks of a query in flight, and what was reported of them."""

    def __init__(self, executors: Sequence[Executor], job_id: str, exchange_dir: str) -> None:
        self.executors, self.job_id, self.exchange_dir = executors, job_id, exchange_dir
        self.addresses = [executor.stream_address for executor in executors]
        self.reports: dict[tuple[int, int], pb.TaskReport] = {}
        self.placed: dict[TaskKey, Executor] = {}
        self._changed = threading.Condition()

    def task_sets(self, stages: Sequence[CutStage], place: Place, stage: CutStage) -> dict[int, pb.TaskSet]:
        """Return the tasks of *stage* by executor."""
        by_id = {each.stage_id: each for each in stages}
        sets: dict[int, pb.TaskSet] = {}
        for partition in range(stage.plan.partitions):
            at = place(stage.stage_id, partition) % len(self.executors)
            if at not in sets:
                sets[at] = pb.TaskSet(
                    job_id=self.job_id,
                    stage_id=stage.stage_id,
                    work=pb.QUERY,
                    partitions=stage.plan.partitions,
                    plan_digest=sha256(stage.plan.fragment).hexdigest(),
                    streaming=True,
                )
                sets[at].output.kind = "result" if isinstance(stage.plan.output, ResultOutput) else "exchange"
                for source in {s.stage_id for s in stage.plan.inputs if isinstance(s, ExchangeInput)}:
                    stream = sets[at].streams.add(stage_id=source)
                    for p in range(by_id[source].plan.partitions):
                        stream.tasks.add(address=self.addresses[place(source, p) % len(self.executors)])
            sets[at].tasks.add(partition=partition)
        return sets

    def launch(self, stages: Sequence[CutStage], place: Place = in_turn, *, only: Sequence[int] = ()) -> None:
        """Start the tasks of all stages, or of those named in *only*."""
        for stage in stages:
            if only and stage.stage_id not in only:
                continue
            for at, task_set in self.task_sets(stages, place, stage).items():
                for task in task_set.tasks:
                    key = TaskKey(self.job_id, stage.stage_id, 0, task.partition, 0)
                    self.placed[key] = self.executors[at]
                self.executors[at].run(task_set, stage.plan, self._take)

    def _take(self, report: pb.TaskReport) -> None:
        with self._changed:
            self.reports[report.task.stage_id, report.task.partition] = report
            self._changed.notify_all()

    def wait(self, *keys: tuple[int, int], within_s: float = HANGS_S) -> list[pb.TaskReport]:
        """Wait for the reports of *keys*, by default of all tasks, in that order."""
        wanted = keys or sorted((key.stage_id, key.partition) for key in self.placed)
        with self._changed:
            came = self._changed.wait_for(lambda: all(key in self.reports for key in wanted), within_s)
            assert came, f"no report of {[key for key in wanted if key not in self.reports]}"
            return [self.reports[key] for key in wanted]

    def has_reported(self, stage_id: int, partition: int = 0) -> bool:
        return (stage_id, partition) in self.reports

    def failures(self) -> dict[tuple[int, int], pb.Failure]:
        return {key: report.failure for key, report in self.reports.items() if report.HasField("failure")}

    def result(self, stages: Sequence[CutStage], place: Place = in_turn) -> pa.Table:
        """Run all stages at once; return the result, in order."""
        self.launch(stages, place)
        return self.table(stages)

    def table(self, stages: Sequence[CutStage]) -> pa.Table:
        """Wait for the result's tasks and return it, in order."""
        last = stages[-1]
        reports = self.wait(*[(last.stage_id, p) for p in range(last.plan.partitions)])
        assert not self.failures(), self.failures()
        tables = []
        for report in reports:
            output = report.success.output
            if output.inline:
                source: Any = pa.BufferReader(report.success.inline_result)
            else:
                name = result_file(self.job_id, last.stage_id, report.task.partition, output.nonce)
                source = pa.OSFile(f"{self.exchange_dir}/{name}")
            with source, pa.ipc.open_stream(source) as reader:
                tables.append(reader.read_all())
        return pa.concat_tables(tables)

    def cancel(self, *keys: tuple[int, int]) -> None:
        """Stop tasks, by default all."""
        for key, executor in self.placed.items():
            if not keys or (key.stage_id, key.partition) in keys:
                executor.cancel([key])

    def close(self) -> None:
        """Let every executor that lives forget the job."""
        for executor in self.executors:
            if not isinstance(executor, RunnerProcess) or executor.process.poll() is None:
                executor.close_job(self.job_id)
