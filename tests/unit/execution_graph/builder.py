"""A job to play with: builds stages in a word or two, drives `apply`, and checks the invariants after every event."""

from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    Event,
    ExecutionGraph,
    ExecutorLost,
    ExecutorSlot,
    Failure,
    FailureKind,
    Feed,
    FeedEnded,
    FeedEvent,
    FetchFailure,
    HeldTask,
    JobPlanned,
    OutputLayout,
    PartitionsAdded,
    PlanSummary,
    Portion,
    RetryLimits,
    RunningStage,
    SinkSpec,
    SpeculationPolicy,
    Stage,
    StageInput,
    StageSpec,
    StageWork,
    Streaming,
    TaskFailed,
    TaskMetrics,
    TaskOutput,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
    apply,
    decode_graph,
    find_stragglers,
    pop_next_tasks,
    revive,
    submit,
    violations,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.stages import RunningTask, TaskLedger

METRICS = TaskMetrics(run_ms=5, rows_out=10, bytes_out=100, peak_memory_bytes=7)
SINK = SinkSpec(path="/out", format="parquet", mode="error")


def stage(
    stage_id: int,
    partitions: int = 2,
    *,
    reads: tuple[int, ...] = (),
    work: StageWork = StageWork.QUERY,
    is_deterministic: bool = True,
    plan_digest: str | None = "digest",
    kind: Literal["exchange", "result", "sink", "control"] = "exchange",
    fed_by: int = 0,
) -> StageSpec:
    """Return a stage that reads every bucket of *reads* and writes an exchange, or what *kind* says.

    With *fed_by* it grows: planning has found its *partitions*, and that stage finds more.
    """
    return StageSpec(
        stage_id=stage_id,
        name=f"stage {stage_id}",
        work=work,
        plan_digest=plan_digest if work in (StageWork.QUERY, StageWork.FEED) else None,
        partitions=partitions,
        inputs=tuple(StageInput(i, "bucket") for i in reads),
        output=OutputLayout(kind, 2 if kind == "exchange" else 1),
        is_deterministic=is_deterministic,
        feed=Feed(stage_id=fed_by, portions=(Portion(digest="planned", partitions=partitions),), planned=1)
        if fed_by
        else None,
    )


def feed(stage_id: int) -> StageSpec:
    """Return a stage that finds partitions for another."""
    return stage(stage_id, 1, work=StageWork.FEED, kind="control")


def summary(result_stage_id: int, *, sink: SinkSpec | None = None, is_fused: bool = False) -> PlanSummary:
    return PlanSummary(
        arrow_schema="",
        schema_json="{}",
        explain_digest=None,
        sink=sink,
        result_stage_id=result_stage_id,
        is_fused=is_fused,
    )


def output(nonce: str, *, is_shared: bool = True) -> TaskOutput:
    """Return an output as an executor reports it; `apply` fills in whose it is."""
    return TaskOutput(nonce=nonce, task_attempt=0, executor_id="?", is_shared=is_shared, rows=10, bytes=100)


def failure(kind: FailureKind, *, fetch: FetchFailure | None = None, message: str = "it broke") -> Failure:
    return Failure(kind=kind, message=message, fetch=fetch)


@dataclass
class Job:
    """A graph, the log that made it, and short ways to say what happens next.

    Executors are named ``a``, ``b``, …; each lives its first life, ``a1``, unless set otherwise. Outputs lie on shared
    storage unless `is_shared` is off.
    """

    graph: ExecutionGraph = field(default_factory=lambda: new_graph())  # noqa: PLW0108 - defined below
    log: list[Event] = field(default_factory=list)
    is_shared: bool = True
    now_ms: int = 1_000

    def feed(self, event: Event) -> bool:
        """Apply *event*, check all invariants, and return whether it changed anything."""
        before, self.graph = self.graph, apply(self.graph, event)
        self.log.append(event)
        assert violations(self.graph) == ()
        return self.graph is not before

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    # ------------------------------------------------------------ looking

    def stage(self, stage_id: int) -> Stage:
        return self.graph.stages[stage_id]

    def running(self, stage_id: int) -> RunningStage:
        found = self.graph.stages[stage_id]
        assert isinstance(found, RunningStage)
        return found

    def held(self, stage_id: int, partition: int) -> RunningTask:
        return self.running(stage_id).running[partition]

    def states(self) -> list[str]:
        """Return the states of the planned stages."""
        return [s.state for s in self.graph.stages[1:]]

    def nonce(self, stage_id: int, partition: int) -> str:
        return self.stage(stage_id).ledger.outputs[partition].nonce

    # ------------------------------------------------------------ what happens

    def start(self) -> bool:
        event = revive(self.graph, self.tick())
        return event is not None and self.feed(event)

    def launch(
        self, executor: str = "a", limit: int = 100, *, life: str = "1", list_number: int = 0
    ) -> TasksLaunched | TasksSpeculated:
        """Start what is resolved, and put the next tasks into the executor's hands."""
        self.start()
        slot = ExecutorSlot(executor, executor + life, list_number, can_stream=True)
        event = pop_next_tasks(self.graph, slot, limit, self.tick())
        assert event is not None, "nothing to launch"
        assert self.feed(event)
        return event

    def second(self, stage_id: int, partition: int) -> RunningTask:
        """Return the second attempt of a task."""
        return self.running(stage_id).speculative[partition]

    def speculate(self, executor: str = "s", *, life: str = "1", after_ms: int = 1_000) -> TasksSpeculated:
        """Find stragglers after a while, and put their second attempts into the executor's hands."""
        self.now_ms += after_ms
        for found in find_stragglers(self.graph, ["a", "b", "s"], self.tick()):
            assert self.feed(found)
        event = self.launch(executor, life=life)
        assert isinstance(event, TasksSpeculated)
        return event

    def success(self, stage_id: int, partition: int, task: RunningTask | None = None) -> TaskSucceeded:
        """Return the report that the running task has succeeded, or *task* in its place."""
        task = task or self.held(stage_id, partition)
        return TaskSucceeded(
            stage_id=stage_id,
            stage_attempt=self.stage(stage_id).attempt,
            partition=partition,
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            output=output(
                f"{stage_id}.{self.stage(stage_id).attempt}/{partition}.{task.attempt}", is_shared=self.is_shared
            ),
            metrics=METRICS,
            at_ms=self.tick(),
        )

    def found(self, stage_id: int, added: int, *, is_last: bool = False, task: RunningTask | None = None) -> FeedEvent:
        """Return the report that the running task of a feed has found *added* partitions."""
        partition = self.stage(stage_id).spec.partitions - 1
        task = task or self.held(stage_id, partition)
        nonce = f"{stage_id}/{partition}.{task.attempt}"
        return (FeedEnded if is_last else PartitionsAdded)(
            stage_id=stage_id,
            stage_attempt=self.stage(stage_id).attempt,
            partition=partition,
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            output=replace(output(nonce), payload_digest=f"portion of {nonce}"),
            added=added,
            metrics=METRICS,
            at_ms=self.tick(),
        )

    def failed(
        self,
        stage_id: int,
        partition: int,
        kind: FailureKind,
        *,
        fetch: FetchFailure | None = None,
        task: RunningTask | None = None,
    ) -> TaskFailed:
        """Return the report that the running task has failed, or *task* in its place."""
        task = task or self.held(stage_id, partition)
        return TaskFailed(
            stage_id=stage_id,
            stage_attempt=self.stage(stage_id).attempt,
            partition=partition,
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            failure=failure(kind, fetch=fetch),
            at_ms=self.tick(),
        )

    def cannot_fetch(self, stage_id: int, partition: int, source: int, source_partition: int) -> TaskFailed:
        """Return the report that the running task misses the output that is now the winning one of its producer."""
        fetch = FetchFailure(source, source_partition, self.nonce(source, source_partition))
        return self.failed(stage_id, partition, FailureKind.FETCH_FAILED, fetch=fetch)

    def succeed(self, stage_id: int, *partitions: int) -> None:
        for partition in partitions:
            assert self.feed(self.success(stage_id, partition))

    def fail(self, stage_id: int, partition: int, kind: FailureKind) -> None:
        assert self.feed(self.failed(stage_id, partition, kind))

    def fail_second(self, partition: int, kind: FailureKind, stage_id: int = 1) -> None:
        assert self.feed(self.failed(stage_id, partition, kind, task=self.second(stage_id, partition)))

    def take_back(self, stage_id: int, partition: int, reason: FailureKind) -> TasksLost:
        task = self.held(stage_id, partition)
        event = TasksLost(
            stage_id=stage_id,
            stage_attempt=self.stage(stage_id).attempt,
            executor_id=task.executor_id,
            tasks=((partition, task.attempt),),
            reason=reason,
            at_ms=self.tick(),
        )
        assert self.feed(event)
        return event

    def lose(self, executor: str, *, life: str = "1") -> bool:
        return self.feed(
            ExecutorLost(
                executor_id=executor,
                incarnation=executor + life,
                reason="no heartbeat",
                at_ms=self.tick(),
            )
        )

    def run(self, stage_id: int, executor: str = "a", *, life: str = "1") -> None:
        """Launch what is pending of the first running stage, which has to be this one, and let all of it succeed."""
        launched = self.launch(executor, life=life)
        assert launched.stage_id == stage_id
        self.succeed(stage_id, *(p for p, _ in launched.tasks))

    def finish(self, executor: str = "z") -> None:
        """Drive the job fairly to its end."""
        for _ in range(1_000):
            if not self.graph.is_active:
                return
            for running in [s for s in self.graph.stages if isinstance(s, RunningStage)]:
                for partition in sorted(running.running):
                    is_feed = running.spec.work is StageWork.FEED
                    stage_id = running.spec.stage_id
                    self.feed(self.found(stage_id, 1, is_last=True) if is_feed else self.success(stage_id, partition))
            self.start()
            slot = ExecutorSlot(executor, executor + "1", 0, can_stream=True)
            event = pop_next_tasks(self.graph, slot, 1_000, self.tick())
            if event is not None:
                self.feed(event)
        raise AssertionError("the job does not end")

    def plan(self, *stages: StageSpec, sink: SinkSpec | None = None, fused: TaskOutput | None = None) -> JobPlanned:
        """Return the report that planning has succeeded with *stages*; the last QUERY stage has the result."""
        task = self.held(0, 0)
        result = max((s.stage_id for s in stages if s.work is StageWork.QUERY), default=0)
        return JobPlanned(
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            stages=stages,
            summary=summary(result, sink=sink, is_fused=fused is not None),
            fused_output=fused,
            metrics=METRICS,
            at_ms=self.tick(),
        )


def new_graph(
    limits: RetryLimits | None = None,
    speculation: SpeculationPolicy | None = None,
    streaming: Streaming | None = None,
    adaptive: AdaptivePolicy | None = None,
) -> ExecutionGraph:
    return submit(
        job_id="job-1",
        name="a job",
        client_id="client",
        spec_digest="spec",
        at_ms=1_000,
        limits=limits,
        speculation=speculation,
        streaming=streaming,
        adaptive=adaptive,
    )


def planned(
    *stages: StageSpec,
    is_shared: bool = True,
    limits: RetryLimits | None = None,
    speculation: SpeculationPolicy | None = None,
    streaming: Streaming | None = None,
    adaptive: AdaptivePolicy | None = None,
) -> Job:
    """Return a job whose planning, on executor ``planner``, found *stages*."""
    job = Job(graph=new_graph(limits, speculation, streaming, adaptive), is_shared=is_shared)
    job.launch("planner")
    has_sink = any(s.work is StageWork.PUBLISH for s in stages)
    assert job.feed(job.plan(*stages, sink=SINK if has_sink else None))
    return job


def chain(count: int = 3, partitions: int = 2) -> tuple[StageSpec, ...]:
    """Return stages 1 to *count*, each reading the one before."""
    return tuple(stage(i, partitions, reads=(i - 1,) if i > 1 else ()) for i in range(1, count + 1))


def with_sink(*stages: StageSpec) -> tuple[StageSpec, ...]:
    """Return *stages* followed by those that publish the last one's files."""
    last = stages[-1].stage_id
    return (
        *stages,
        stage(last + 1, 1, reads=(last,), work=StageWork.PUBLISH_PLAN),
        stage(last + 2, 1, reads=(last + 1,), work=StageWork.PUBLISH),
    )


def stored_ledger(ledger: TaskLedger) -> tuple[TaskLedger, bytes]:
    """Return *ledger* as it is after it was written with a graph and read, and the graph as written."""
    graph = planned(stage(1)).graph
    data = encode_graph(replace(graph, stages=(graph.stages[0], replace(graph.stages[1], ledger=ledger))))
    return decode_graph(data).stages[1].ledger, data


def wanted_tasks(graph: ExecutionGraph, executor_id: str, incarnation: str) -> frozenset[HeldTask]:
    """Return the tasks that the graph assigns to this life of the executor; none once the job has ended."""
    stages = [s for s in graph.stages if isinstance(s, RunningStage)] if graph.is_active else []
    return frozenset(
        HeldTask(s.spec.stage_id, s.attempt, p, t.attempt)
        for s in stages
        for p, t in s.in_hand()
        if (t.executor_id, t.incarnation) == (executor_id, incarnation)
    )
