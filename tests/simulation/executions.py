"""What executors do and what servers answer, seen by the observer; and jobs as the store has them."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onager.execution_graph import (
    ExecutionGraph,
    FusedStage,
    RunningStage,
)
from onager.execution_graph.intervals import IntervalReader
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key
from onager.scheduler.jobs.job_log import JobHeader
from onager.state_backend import Keyspace
from tests.simulation.data import Exchange, Written
from tests.simulation.worker import RunLedger


@dataclass(slots=True)
class SeenJob:
    """A job as the store has it, followed commit by commit."""

    job_id: str
    graph: ExecutionGraph | None = None
    header: JobHeader | None = None
    keyspace: Keyspace | None = None
    seq: int = -1
    handed_out: set[tuple[int, int, int, int]] = field(default_factory=set)
    finished: set[tuple[int, int]] = field(default_factory=set)
    """(stage, partition) that had an output at some time."""
    dead: set[str] = field(default_factory=set)
    """Nonces of outputs that were there when their executor was lost."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failures that tasks were reported to have, by kind."""
    taken: set[str] = field(default_factory=set)
    """Nonces of outputs of other jobs that it has taken."""
    launches: int = 0
    """The number of launched tasks."""
    launched_at: Counter[str] = field(default_factory=Counter)
    """To which executors they were."""
    submitted: ExecutionGraph | None = None
    final: ExecutionGraph | None = None
    intervals: IntervalReader | None = None
    """Its history, read as far as its last snapshot."""
    is_removed: bool = False


class Executions(RunLedger):
    """Observes executions and answers."""

    def __init__(self, exchange: Exchange, trace: Callable[[str], None]) -> None:
        self.exchange = exchange
        self.jobs: dict[str, SeenJob] = {}
        self.began_at: dict[TaskKey, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []
        self._trace = trace
        self.lone_deaths: Counter[tuple[str, int, int, bool]] = Counter()
        """How often a JVM ended by itself while a task, by (job, stage, partition), was the only one in it; and whether
        for lack of memory."""
        self.on_replan: Callable[[ExecutionGraph, str], None] = lambda *_: None
        """Learns of which job the rest is planned again, and in which life of an executor, when that begins."""
        self.on_publish: Callable[[str], None] = lambda _: None
        """Learns of the job whose files are published, the first time."""
        self.damaged: set[str] = set()
        """Jobs with a record that has rotted: their reports may be dropped."""

    def fail(self, text: str) -> None:
        self._trace(f"VIOLATION {text}")
        self.found.append(text)

    def trace(self, text: str) -> None:
        self._trace(text)

    def began(self, life: str, key: TaskKey) -> None:
        self._trace(f"{life} runs {key}")
        self.counts["executions"] += 1
        graph = self.jobs[key.job_id].graph
        stages = () if graph is None else graph.stages
        if key.stage_id < len(stages) and isinstance(stages[key.stage_id], FusedStage):
            self.fail(f"{life} runs {key}, and its stage is fused into another")
        if graph is not None and graph.replan is not None and graph.replan.replan_id == key.stage_id:
            self.on_replan(graph, life)
        lives = self.began_at[key]
        if life in lives:
            self.fail(f"{life} runs {key} a second time")
        lives.append(life)

    def ended(self, life: str, key: TaskKey, report: pb.TaskReport) -> None:
        kind = report.failure.kind or "success"
        self._trace(f"{life} ended {key}: {kind}")
        if kind != "success":
            self.jobs[key.job_id].failures[kind] += 1

    def died(self, running: list[TaskKey], *, is_memory: bool) -> None:
        """Note that a JVM ended by itself, with the tasks *running* in it."""
        if len(running) == 1:
            (key,) = running
            self.lone_deaths[key.job_id, key.stage_id, key.partition, is_memory] += 1
        self.counts["ends of JVMs"] += 1

    def missed(self, life: str, key: TaskKey, nonce: str) -> None:
        self._trace(f"{life} misses {nonce} for {key}")
        if nonce in self.exchange.lost:
            return
        job = self.jobs[key.job_id]
        if job.graph is not None and _is_running(job.graph, key):
            why = self.exchange.cleaned.get(nonce, "nobody has ever written it")
            self.fail(f"{key} cannot read {nonce}, which nothing has lost: {why}")

    def publishes(self, life: str, key: TaskKey, nonces: list[str]) -> None:
        self._trace(f"{life} publishes {key.job_id}: {nonces}")
        if key.job_id not in self.exchange.published:
            self.on_publish(key.job_id)
        known = self.exchange.published.setdefault(key.job_id, nonces)
        if known != nonces:
            self.fail(f"{key.job_id} is published twice, from different files")

    def wrote(self, life: str, key: TaskKey, nonce: str, value: int, *, is_shared: bool) -> None:
        is_fused = key.stage_id == 1 and self.jobs[key.job_id].graph.plan is None  # type: ignore[union-attr]
        self.exchange.written[nonce] = Written(
            key.job_id, key.stage_id, key.partition, 0 if is_fused else key.task_attempt, life, value, is_shared
        )

    def answered(self, call: Any, request: Any, answer: Any) -> None:
        """Look at an answer at the moment that a server gives it."""
        if call.method == "AnswerPoll":
            self.counts["pushed"] += sum(len(task_set.tasks) for task_set in request.answer.task_sets)
        if call.method != "ReportTasks":
            return
        acknowledged = {task_key(task) for task in answer.acknowledged}
        for report in request.reports:
            key = task_key(report.task)
            job = self.jobs.get(key.job_id)
            if key not in acknowledged or job is None or job.graph is None or job.job_id in self.damaged:
                continue
            task = _running_task(job.graph, key)
            if task is not None and (task.executor_id, task.incarnation) == (request.executor_id, request.incarnation):
                self.fail(f"the report of {key} was acknowledged, and is not in the store")


def _running_task(graph: ExecutionGraph, key: TaskKey) -> Any:
    if not graph.is_active or key.stage_id >= len(graph.stages):
        return None
    stage = graph.stages[key.stage_id]
    if not isinstance(stage, RunningStage) or stage.attempt != key.stage_attempt:
        return None
    held = (t for p, t in stage.in_hand() if p == key.partition and t.attempt == key.task_attempt)
    return next(held, None)


def _is_running(graph: ExecutionGraph, key: TaskKey) -> bool:
    return _running_task(graph, key) is not None
