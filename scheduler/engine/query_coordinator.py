"""Drives one job from submission to its end: decides on its graph, and carries out what is committed."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from onager.clock import Clock
from onager.execution_graph import (
    Event,
    ExecutionGraph,
    ExecutorLost,
    ExecutorSlot,
    Failure,
    HeldTask,
    JobCancelled,
    JobFailed,
    JvmDeath,
    LaunchEvent,
    OutputsTaken,
    ResolvedStage,
    RunningStage,
    StageWork,
    TaskFailed,
    apply_all,
    find_abandonment,
    find_culprit,
    find_replan,
    find_stragglers,
    has_failed_somewhere,
    is_alone,
    lay_out,
    lost_launches,
    pop_next_tasks,
    revive,
    running_count,
)
from onager.ids import JobId, script_of
from onager.protocol import onager_pb2 as pb
from onager.scheduler.engine.stage_coordinator import StageCoordinator
from onager.scheduler.engine.stage_inputs import StageInputs
from onager.scheduler.engine.streams import Streams
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from onager.scheduler.policy.reservations import Launch

Limit = Callable[[], float]
"""Returns how many tasks of a job may run, at the moment of the decision: others of its session get some meanwhile."""


def _no_limit() -> float:
    return math.inf


@dataclass(frozen=True, slots=True)
class Share:
    """How many tasks an executor may be given."""

    slot: ExecutorSlot
    tasks: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """What decisions about jobs, and their launches, take from the cluster."""

    slots: Callable[[], int]
    """Returns how many slots the executors have that take work."""
    executors: Callable[[ExecutionGraph], Collection[str]] = lambda _: frozenset()
    """Returns the executors that take work of a job."""
    streams: Streams = field(default_factory=Streams)
    """Where executors stream."""
    inputs: StageInputs | None = None
    """Stores the inputs of stages that have many; without it they go with each launch."""
    is_offered: Callable[[OutputsTaken], bool] = lambda _: True
    """Returns whether jobs still offer the outputs that an event takes, as far as is known here."""


class QueryCoordinator:
    """Drives one job: each decision is made on the job's graph and committed before it takes effect."""

    def __init__(self, job_id: JobId, writers: JobWriters, clock: Clock, cluster: Cluster) -> None:
        self.job_id = job_id
        self._cluster = cluster
        self._writers = writers
        self._clock = clock
        self._stages: dict[int, StageCoordinator] = {}

    async def revive(self) -> None:
        """Start the stages that were left resolved when a scheduler died."""
        await self._writers.record_decision(self.job_id, lambda graph: Decision(self._revived(graph)))

    async def launch_tasks(self, shares: Sequence[Share], *, limit: Limit = _no_limit) -> list[Launch]:
        """Launch up to each share's number of tasks, and return those that executors now hold.

        The job gets no more tasks than bring it to *limit* running ones.
        """

        def decide(graph: ExecutionGraph) -> Decision:
            events = self._revived(graph)
            graph = apply_all(graph, events)
            for share in shares:
                graph = self._pop(graph, share, limit(), events)
            return Decision(events, graph)

        return await self.make_launches(*await self._writers.record_decision(self.job_id, decide))

    async def record_statuses(
        self,
        events: Sequence[Event],
        share: Share,
        *,
        limit: Limit = _no_limit,
    ) -> list[Launch]:
        """Apply an executor's reports, and assign the next tasks to it in the same append.

        It gets up to *share*'s tasks, as long as the job then has no more than *limit* running.
        """

        def decide(graph: ExecutionGraph) -> Decision:
            still = [e for e in events if not isinstance(e, OutputsTaken) or self._cluster.is_offered(e)]
            graph = apply_all(graph, still)
            if not share.tasks:
                return Decision(still, graph)
            further = self._revived(graph)
            graph = self._pop(apply_all(graph, further), share, limit(), further)
            return Decision([*still, *further], graph)

        return await self.make_launches(*await self._writers.record_decision(self.job_id, decide))

    async def reconcile_tasks(self, slot: ExecutorSlot, held: Iterable[HeldTask]) -> list[Launch]:
        """Commit what follows from an executor's list: a lost launch is repeated once, and then taken back."""
        listed = frozenset(held)

        def decide(graph: ExecutionGraph) -> Decision:
            return Decision(lost_launches(graph, slot, listed, self._clock.now_ms()))

        return await self.make_launches(*await self._writers.record_decision(self.job_id, decide))

    def overdue(self, graph: ExecutionGraph, executors: Collection[str], streaming: Collection[str]) -> list[Event]:
        """Return what follows from the time alone, given the *executors* that take work, some of them *streaming*.

        Stragglers get second attempts. A job that no executor can stream runs over the durable exchange. A re-plan that
        has had its time is given up: its tasks may hold the only slots in which anything is decided.
        """
        now_ms = self._clock.now_ms()
        events: list[Event] = [*find_stragglers(graph, executors, now_ms)]
        if (abandoned := find_abandonment(graph, executors, streaming, now_ms)) is not None:
            events.append(abandoned)
        if graph.replan is not None and find_replan(graph, now_ms) is not None:
            events += self._revived(apply_all(graph, events))
        return events

    async def record_overdue(self, executors: Collection[str], streaming: Collection[str]) -> None:
        """Commit what is `overdue`."""
        await self._writers.record_decision(
            self.job_id, lambda graph: Decision(self.overdue(graph, executors, streaming))
        )

    async def lose_executor(self, lost: ExecutorLost) -> None:
        """Take back the tasks of an executor that is gone, and fail the job if one of them is the cause."""
        mine = lost
        if lost.death is not None:
            suspects = tuple(task for task in lost.death.suspects if task.job_id == self.job_id)
            mine = replace(
                lost,
                death=JvmDeath(
                    is_memory=lost.death.is_memory,
                    was_alone=lost.death.was_alone,
                    tasks=lost.death.tasks,
                    suspects=suspects,
                ),
            )

        def decide(graph: ExecutionGraph) -> Decision:
            culprit = find_culprit(graph, mine)
            return Decision([mine] if culprit is None else [culprit, mine])

        await self._writers.record_decision(self.job_id, decide)

    async def cancel_job(self, reason: str, principal: str = "") -> ExecutionGraph:
        """End the job, as *principal* asked; one that has ended stays as it is."""
        cancelled = JobCancelled(reason=reason, at_ms=self._clock.now_ms(), principal=principal)
        return (await self._writers.record_decision(self.job_id, lambda _: Decision([cancelled]))).graph

    async def fail_job(self, failure: Failure, task: TaskFailed | None = None) -> ExecutionGraph:
        """End the job with *failure*: that of a *task*, if the graph holds it."""

        def decide(graph: ExecutionGraph) -> Decision:
            if not graph.is_active:
                return Decision([])
            if task is not None and (after := apply_all(graph, (task,))) is not graph:
                return Decision([task], after)
            return Decision([JobFailed(failure=failure, at_ms=self._clock.now_ms())])

        return (await self._writers.record_decision(self.job_id, decide)).graph

    def _revived(self, graph: ExecutionGraph) -> list[Event]:
        """Return what starts every stage that can start, each laid out by what was measured, or a new plan of them."""
        now_ms = self._clock.now_ms()
        events: list[Event] = []
        if graph.adaptive is not None:
            found = find_replan(graph, now_ms)
            events += [] if found is None else [found]
            graph = apply_all(graph, events)
        if graph.adaptive is not None and _has_resolved(graph):
            laid_out = lay_out(graph, self._cluster.slots(), now_ms)
            events += laid_out
            graph = apply_all(graph, laid_out)
        started = revive(graph, now_ms)
        return events if started is None else [*events, started]

    def _pop(self, graph: ExecutionGraph, share: Share, limit: float, events: list[Event]) -> ExecutionGraph:
        """Launch tasks until the share is used up, or *limit* of the job run; add the launches to *events*.

        In a streaming job a stage whose last task is launched lets the next stage run.
        """
        left, slot = share.tasks, self._cluster.streams.known(share.slot)
        if limit < math.inf:
            left = min(left, math.floor(limit) - running_count(graph))
        executors = self._cluster.executors(graph) if has_failed_somewhere(graph) else ()
        while left > 0:
            launched = pop_next_tasks(graph, slot, left, self._clock.now_ms(), executors)
            if launched is None:
                break
            left = 0 if is_alone(graph, launched) else left - len(launched.tasks)
            slot = replace(slot, is_empty=False)
            graph = apply_all(graph, (launched,))
            started = self._revived(graph)
            events += [launched, *started]
            graph = apply_all(graph, started)
        return graph

    async def make_launches(self, graph: ExecutionGraph, events: Iterable[Event]) -> list[Launch]:
        """Return the launches that follow from committed *events*, as far as *graph* still holds them.

        Launches of other attempts of a stage were taken back by the same append, or since.
        """
        launches = []
        streams, inputs = self._cluster.streams, self._cluster.inputs
        still = [event for event in events if isinstance(event, LaunchEvent) and _is_of(graph, event)]
        await streams.learn(graph, {event.stage_id for event in still})
        for event in still:
            coordinator = self._stages.get(event.stage_id)
            if coordinator is None or coordinator.attempt != event.stage_attempt:
                coordinator = self._stages[event.stage_id] = StageCoordinator(graph, event.stage_id, streams)
                if inputs is not None and graph.stages[event.stage_id].spec.work is StageWork.QUERY:
                    coordinator.inputs_digest = await inputs.digest(self.job_id, coordinator.inputs)
            for task_set in coordinator.task_sets(graph, event):
                if task_set.work == pb.PLAN:
                    task_set.cluster_slots = self._cluster.slots()
                    task_set.may_grow = graph.streaming is None
                    task_set.may_reuse = graph.streaming is None
                    task_set.may_step = script_of(self.job_id) is None
                launches.append(Launch(event.executor_id, task_set))
        return launches


def _is_of(graph: ExecutionGraph, event: LaunchEvent) -> bool:
    stage = graph.stages[event.stage_id] if event.stage_id < len(graph.stages) else None
    return graph.is_active and isinstance(stage, RunningStage) and stage.attempt == event.stage_attempt


def _has_resolved(graph: ExecutionGraph) -> bool:
    return any(isinstance(stage, ResolvedStage) for stage in graph.stages)
