"""Runs the stages of one job on executors of this process: what a scheduler does for a job to which nothing happens."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import pyarrow as pa
import pyarrow.ipc

from onager.errors import OnagerError
from onager.exchange_layout import join, result_file
from onager.execution_graph.failures import FailureKind
from onager.executor.spark import plan_codec
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.stage_plan import ExchangeInput, ResultOutput, StagePlan
from onager.ids import StageId
from onager.protocol import onager_pb2 as pb
from onager.testing.layout import Laid
from onager.testing.replans import Measured, Replans

_CAUSE_S = 3.0
"""How long after a reader has failed the failure of what it reads may come."""

Task = tuple[int, int]
"""Stage and partition."""


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
class _Stage:
    stage_id: int
    plans: tuple[StagePlan, ...]
    """By executor: each has decoded it."""
    digest: str

    @property
    def plan(self) -> StagePlan:
        return self.plans[0]

    @property
    def as_planned(self) -> Laid:
        reads = {source.stage_id for source in self.plan.inputs if isinstance(source, ExchangeInput)}
        return Laid(self.plan.partitions, tuple(sorted(reads)))


class JobRun:
    """One job: tasks are launched in the order of stages and partitions, dealt out to *runners* in turn.

    Over files a stage begins when those that it reads are done. Over streams at most as many tasks are launched at a
    time as can run at once. Since a task comes after all that it reads from, each has its slot then, whatever the
    others wait for; and a writer never waits for a reader for ever.
    """

    def __init__(
        self,
        runners: Sequence[StageRunner],
        job_id: str,
        stages: Mapping[int, bytes],
        laid: Mapping[int, Laid] | None = None,
        *,
        streaming_slots: int = 0,
        sink: pb.Sink | None = None,
        replans: Replans | None = None,
    ) -> None:
        """Run *stages*, encoded plans by id, producers before consumers; *streaming_slots*: 0 for files.

        *laid*: the stages that run, as they are laid out; None: as they were planned. *sink*: None for a result. With
        *replans*, stages run one after the other, and after each these may plan the rest again.
        """
        self.reports: dict[Task, pb.TaskReport] = {}
        """Of tasks that have succeeded."""
        self._runners, self._job_id, self._slots = runners, job_id, streaming_slots
        self._stages = {stage_id: _decoded(stage_id, encoded, len(runners)) for stage_id, encoded in stages.items()}
        self._laid = laid or {each.stage_id: each.as_planned for each in self._stages.values()}
        self._sink = sink
        self._replans = replans
        self._waiting = [(stage_id, p) for stage_id, each in self._laid.items() for p in range(each.tasks)]
        self._running: set[Task] = set()
        self._came: SimpleQueue[pb.TaskReport] = SimpleQueue()

    def run(self, timeout_s: float) -> None:
        """Run all tasks to their end; `DistributedRunError` with the first failure, or after *timeout_s*."""
        deadline = time.monotonic() + timeout_s
        self._launch()
        while self._running:
            report = self._next(deadline)
            if report is None:
                raise DistributedRunError(
                    f"the query was not done after {timeout_s:g} s (HarnessConfig.timeout_s): {self._unfinished()}"
                )
            if report.HasField("failure"):
                raise _error(self._cause(report))
            self._launch()

    def partitions(self, directory: str) -> list[pa.Table]:
        """Return the result by partition, of which larger ones are files in the exchange *directory*."""
        last = list(self._stages.values())[-1]
        return [
            result_table(directory, self._job_id, last.stage_id, p, self.reports[last.stage_id, p].success)
            for p in range(self._laid[last.stage_id].tasks)
        ]

    # ------------------------------------------------------------ launching

    def _launch(self) -> None:
        if self._replans is not None:
            if self._running:
                return
            self._plan_again(self._replans)
        ready = self._waiting[: self._slots - len(self._running)] if self._slots else self._resolved()
        if not ready:
            return
        self._waiting = [task for task in self._waiting if task not in set(ready)]
        self._running |= set(ready)
        for stage_id in dict.fromkeys(stage_id for stage_id, _ in ready):
            partitions = [p for stage, p in ready if stage == stage_id]
            for at in sorted({self._place(stage_id, p) for p in partitions}):
                stage = self._stages[stage_id]
                mine = [p for p in partitions if self._place(stage_id, p) == at]
                fused = {StageId(i): self._stages[i].plans[at] for i in self._laid[stage_id].fused}
                self._runners[at].run(self._task_set(stage, mine), stage.plans[at], self._came.put, fused)

    def _resolved(self) -> list[Task]:
        """Return the tasks of stages whose producers are done."""
        left = Counter(stage_id for stage_id, _ in [*self._waiting, *self._running])
        ready = [task for task in self._waiting if not any(left[read] for read in self._laid[task[0]].inputs)]
        return ready if self._replans is None else [task for task in ready if task[0] == ready[0][0]]

    def _plan_again(self, replans: Replans) -> None:
        left = {stage_id for stage_id, _ in self._waiting}
        done = {stage_id: self._measured(stage_id) for stage_id in self._laid if stage_id not in left}
        new = replans.next_stages(done) if left and done else None
        if new is None:
            return
        made = {stage_id: _decoded(stage_id, encoded, len(self._runners)) for stage_id, encoded in new.items()}
        self._stages |= made
        self._laid = {i: self._laid[i] for i in done} | {each.stage_id: each.as_planned for each in made.values()}
        self._waiting = [(stage_id, p) for stage_id in made for p in range(self._laid[stage_id].tasks)]

    def _measured(self, stage_id: int) -> Measured:
        done = [self.reports[stage_id, p].success for p in range(self._laid[stage_id].tasks)]
        size = sum(max(each.metrics.plain_bytes_out, each.output.bytes) for each in done)
        return Measured(sum(each.output.rows for each in done), size)

    def _place(self, stage_id: int, partition: int) -> int:
        # Stages of one task are not all with the first executor.
        return (stage_id + partition) % len(self._runners)

    def _task_set(self, stage: _Stage, partitions: Sequence[int]) -> pb.TaskSet:
        laid = self._laid[stage.stage_id]
        made = pb.TaskSet(
            job_id=self._job_id,
            stage_id=stage.stage_id,
            work=pb.Work.QUERY,
            plan_digest=stage.digest,
            partitions=laid.tasks,
            streaming=self._slots > 0,
            tasks=[pb.TaskAttempt(partition=p) for p in partitions],
            fused=[pb.FusedStage(stage_id=i, plan_digest=self._stages[i].digest) for i in laid.fused],
            reads=laid.reads,
            sink=self._sink,
        )
        is_result = isinstance(stage.plan.output, ResultOutput)
        made.output.kind = "exchange" if not is_result else "result" if self._sink is None else "sink"
        for read in laid.inputs:
            tasks = range(self._laid[read].tasks)
            if self._slots:
                addresses = [self._runners[self._place(read, p)].stream_address for p in tasks]
                made.streams.add(stage_id=read, tasks=[pb.StreamedTask(address=address) for address in addresses])
            else:
                outputs = [self.reports[read, p].success.output for p in tasks]
                made.inputs.add(stage_id=read, outputs=outputs)
        return made

    # ------------------------------------------------------------ what comes of it

    def _next(self, deadline: float) -> pb.TaskReport | None:
        """Take in the next report; None where none comes before *deadline*."""
        try:
            report = self._came.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return None
        task = (report.task.stage_id, report.task.partition)
        self._running.discard(task)
        if report.HasField("success"):
            self.reports[task] = report
        return report

    def _cause(self, failed: pb.TaskReport) -> pb.TaskReport:
        """Return the report of the failure behind that of *failed*: a reader of a stream may learn of it first.

        A task that was stopped is the cause of nothing.
        """
        deadline = time.monotonic() + _CAUSE_S
        first = failed
        while self._slots and self._may_follow_from_another(first):
            report = self._next(deadline)
            if report is None:
                break
            is_cause = report.HasField("failure") and not _was_stopped(report)
            if is_cause and (_was_stopped(first) or report.task.stage_id < first.task.stage_id):
                first = report
        return first

    def _may_follow_from_another(self, failed: pb.TaskReport) -> bool:
        if _was_stopped(failed):
            return bool(self._running)
        reads_from_running = any(stage_id < failed.task.stage_id for stage_id, _ in self._running)
        return failed.failure.kind == FailureKind.IO_ERROR and reads_from_running

    def _unfinished(self) -> str:
        running = [
            f"task {p} of stage {stage_id} (executor {self._place(stage_id, p) + 1})"
            for stage_id, p in sorted(self._running)
        ]
        waiting = f"; {len(self._waiting)} tasks had not begun" if self._waiting else ""
        return f"{', '.join(running)} had not ended{waiting}"


def _was_stopped(report: pb.TaskReport) -> bool:
    return bool(report.failure.kind == FailureKind.TASK_KILLED)


def result_table(directory: str, job_id: str, stage_id: int, partition: int, success: pb.TaskSuccess) -> pa.Table:
    """Return a partition of a job's result, which the task's report has or a file in the exchange *directory*."""
    content = success.inline_result
    if not success.output.inline:
        name = result_file(job_id, stage_id, partition, success.output.nonce)
        content = Path(join(directory, name)).read_bytes()
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def _decoded(stage_id: int, encoded: bytes, executors: int) -> _Stage:
    plans = tuple(plan_codec.decode(encoded) for _ in range(executors))
    return _Stage(stage_id, plans, plan_codec.digest(encoded))


def _error(report: pb.TaskReport) -> DistributedRunError:
    failure, task = report.failure, report.task
    return DistributedRunError(
        f"task {task.partition} of stage {task.stage_id} failed: {failure.message}",
        error_class=failure.error_class,
        stage_id=task.stage_id,
        details=failure.details,
    )
