"""Task sets that run, and the reports of their tasks."""

from dataclasses import dataclass, field
from typing import Any

from onager.executor.spark.running.binder import BoundPlan, FusedPlans, StageKey
from onager.executor.spark.running.metrics import metrics_of
from onager.executor.spark.stage_plan import MadeBy
from onager.executor.work import OnReport
from onager.ids import Nonce, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id


@dataclass(slots=True)
class Run:
    """One task set that runs in Spark; guarded by the runner's lock."""

    name: str
    stage: StageKey
    task_set: pb.TaskSet
    on_report: OnReport
    started_ms: int
    made_by: MadeBy | None
    """The versions that made the stage's plan."""
    fused: FusedPlans
    portion: bytes = b""
    """What its tasks read, in a growing stage."""
    open: dict[int, tuple[TaskKey, Nonce]] = field(default_factory=dict)
    """The tasks that are wanted and have not been reported, by partition."""
    stopping: dict[int, tuple[TaskKey, str]] = field(default_factory=dict)
    """Those that were cancelled, and why; they are reported once they have ended."""
    submitted: bool = False
    """Whether its stage is bound, and some of its tasks are about to begin."""
    begun: bool = False
    """Whether the kernel has it."""
    has_ended: bool = False
    bound_plan: BoundPlan | None = None
    """What its tasks' metrics belong to; None: they report none."""
    places: frozenset[str] = frozenset()
    """The shared directories in which its tasks read files."""
    bind_ms: int = 0
    """How long it waited until its stage was bound."""
    codegen_ms: int = 0
    """The part of it in which code was generated."""

    @property
    def is_streamed(self) -> bool:
        """Whether its output is streamed, not written to files."""
        return self.task_set.streaming and self.task_set.output.kind == "exchange"

    @property
    def partitions(self) -> list[int]:
        """All of its tasks."""
        return [task.partition for task in self.task_set.tasks]


def run_metrics(run: Run, event: dict[str, Any]) -> pb.TaskMetrics:
    """Return what a task of *run* cost, by the kernel's *event*."""
    metrics = metrics_of(event)
    metrics.bind_ms, metrics.codegen_ms = run.bind_ms, run.codegen_ms
    return metrics


def named_attempts(task_set: pb.TaskSet) -> str:
    """Return the tasks' attempts as the kernel, and Python workers (`worker_daemon`), find theirs for what they log."""
    tasks = ",".join(f"{task.partition}:{task.task_attempt}" for task in task_set.tasks)
    return f"{task_set.job_id}/{task_set.stage_id}.{task_set.stage_attempt}|{tasks}"


def report_of(key: TaskKey, started_ms: int, ended_ms: int, failure: pb.Failure | None) -> pb.TaskReport:
    """Return a task's report: of its *failure*, or without an outcome yet."""
    return pb.TaskReport(task=task_id(key), started_ms=started_ms, ended_ms=ended_ms, failure=failure)
