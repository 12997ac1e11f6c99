"""A job's plan as it ran, as plain values."""

from dataclasses import dataclass
from typing import Self

from onager.client.connection import Connection
from onager.client.copying import copied
from onager.client.progress import JobState, StageProgress
from onager.protocol import onager_pb2 as pb

NANOSECONDS_A_MS = 1_000_000
FEW_TASKS = 20_000


@dataclass(frozen=True, slots=True)
class OperatorMetric:
    """What was measured of an operator, over all tasks that reported it."""

    name: str
    """Spark's: ``numOutputRows``, ``pipelineTime``, ``spillSize``, ``peakMemory``, …"""
    type: str
    """``sum`` (a number), ``size`` (bytes), ``timing`` (ms), ``nsTiming`` (ns), ``average`` (times ten)."""
    value: int
    """The sum over tasks; of ``peakMemory``, and of an average, that of the task with the most."""

    @property
    def ms(self) -> float:
        """The value of a ``timing`` or ``nsTiming``, in milliseconds."""
        return self.value / NANOSECONDS_A_MS if self.type == "nsTiming" else self.value


@dataclass(frozen=True, slots=True)
class PlanOperator:
    """An operator of a stage."""

    name: str
    text: str
    """As Spark shows it, with its expressions."""
    children: tuple[int, ...]
    """As positions in the stage's list of operators; subqueries come last."""
    metrics: tuple[OperatorMetric, ...]

    def metric(self, name: str) -> OperatorMetric | None:
        """Return the metric *name*, or None if nothing tells it."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    @property
    def rows(self) -> int | None:
        """How many rows it gave, over all tasks that reported; None if nothing counts them."""
        found = self.metric("numOutputRows")
        return None if found is None else found.value


@dataclass(frozen=True, slots=True)
class BoundOperators:
    """The operators of a stage as executors bound it, and how many tasks ran it so."""

    bound_plan: str
    """The plan's digest."""
    tasks: int
    operators: tuple[PlanOperator, ...]
    """The root first, each operator before its children; empty if the scheduler lacks the plan."""


@dataclass(frozen=True, slots=True)
class StageInput:
    """A stage that another one reads."""

    stage_id: int
    read: str
    """``bucket``: each task reads its share; ``all``: each reads everything (a broadcast, a subquery)."""


@dataclass(frozen=True, slots=True)
class FinalStage:
    """A stage as it ran."""

    progress: StageProgress
    """Its tasks, attempts, rows, bytes and times."""
    inputs: tuple[StageInput, ...]
    output: str
    """``exchange``, ``result``, ``sink`` (a dataset), ``control`` (planning and publishing)."""
    buckets: int
    """Into how many parts an exchange is divided."""
    estimated_rows: int | None
    """How many rows Spark expected the stage to give; None where it had no idea, as for most joins."""
    spill_bytes: int
    peak_memory_bytes: int
    """Of the task that used most."""
    median_run_ms: int
    """How long half of its tasks took at most, to 2 %; 0 until the job has ended."""
    longest_run_ms: int
    """How long the slowest task took; 0 until the job has ended."""
    reported: int
    """How many of its partitions have reported the metrics of operators. Nobody waits for the others."""
    plans: tuple[BoundOperators, ...]
    """Usually one: executors may bind a stage in different ways, for want of memory. Each partition counts once, with
    its first success."""

    @classmethod
    def from_message(cls, message: pb.FinalStage) -> Self:
        """Return the stage that *message* describes."""
        run = next((each for each in message.info.latencies if each.part == "run"), pb.Latency())
        return cls(
            progress=StageProgress.from_message(message.info),
            inputs=tuple(copied(StageInput, each) for each in message.inputs),
            output=message.output.kind,
            buckets=message.output.buckets,
            estimated_rows=message.estimated_rows if message.has_estimate else None,
            spill_bytes=message.info.metrics.spill_bytes,
            peak_memory_bytes=message.info.metrics.peak_memory_bytes,
            median_run_ms=run.p50_ms,
            longest_run_ms=run.max_ms,
            reported=message.reported,
            plans=tuple(copied(BoundOperators, plan, operators=_operators(plan)) for plan in message.plans),
        )


@dataclass(frozen=True, slots=True)
class FinalPlan:
    """A job's plan as it ran, or as far as it has run."""

    job_id: str
    state: JobState
    stages: tuple[FinalStage, ...]
    """By id; stage 0 is the planning."""


def get_final_plan(connection: Connection, job_id: str) -> FinalPlan:
    """Ask for the plan of a job, page by page."""
    stages: list[FinalStage] = []
    request = pb.GetFinalPlanRequest(job_id=job_id)
    while True:
        page: pb.FinalPlan = connection.call("GetFinalPlan", request)
        stages += map(FinalStage.from_message, page.stages)
        if not page.next:
            state = JobState(pb.JobState.Name(page.state).lower())
            return FinalPlan(page.job_id, state, tuple(stages))
        request.stage_id = page.next


def counts_few_tasks(plan: FinalPlan) -> bool:
    """Return whether a plan has so few tasks that each of them can be looked at whenever somebody looks at the plan."""
    return sum(stage.progress.partitions for stage in plan.stages) <= FEW_TASKS


def _operators(plan: pb.FinalOperators) -> tuple[PlanOperator, ...]:
    return tuple(
        copied(
            PlanOperator,
            each,
            children=tuple(each.children),
            metrics=tuple(copied(OperatorMetric, metric) for metric in each.metrics),
        )
        for each in plan.operators
    )
