"""Drives one job from submission to its end: decides with its graph, and carries out what the committed graph owes."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from execution_graph import (
    Event,
    ExecutionGraph,
    ExecutorLost,
    ExecutorSlot,
    HeldTask,
    JobCancelled,
    LaunchesRepeated,
    LaunchEvent,
    RunningStage,
    apply_all,
    find_stragglers,
    has_failed_somewhere,
    lost_launches,
    pop_next_tasks,
    revive,
    running_count,
)
from onager.clock import Clock
from onager.ids import JobId
from scheduler.jobs.job_writers import Decision, JobWriters
from scheduler.tasks.reservations import Launch
from scheduler.tasks.stage_coordinator import StageCoordinator


@dataclass(frozen=True, slots=True)
class Share:
    """How many tasks an executor may be given."""

    slot: ExecutorSlot
    tasks: int


@dataclass(slots=True)
class _Decided:
    """The events of a decider's last answer, which is the committed one."""

    launches: list[LaunchEvent] = field(default_factory=list)


class QueryCoordinator:
    """One job. Whatever it does is decided on the job's graph and committed before anybody is told."""

    def __init__(
        self, job_id: JobId, writers: JobWriters, clock: Clock, executors: Callable[[], Collection[str]] = frozenset
    ) -> None:
        """Make the coordinator of a job; *executors* tells which take work."""
        self.job_id = job_id
        self._executors = executors
        self._writers = writers
        self._clock = clock
        self._stages: dict[int, StageCoordinator] = {}

    async def revive(self) -> None:
        """Set stages running that were left resolved, by a replica that died between."""
        await self._writers.record(self.job_id, lambda graph: Decision(self._revived(graph)))

    async def launch(self, shares: Sequence[Share], cluster_slots: int, *, room: float = math.inf) -> list[Launch]:
        """Hand out up to each share's number of tasks, and return those that now are in the executors' hands.

        The job is given no more than makes *room* running ones.
        """
        decided = _Decided()

        def decide(graph: ExecutionGraph) -> Decision:
            decided.launches = []
            events = self._revived(graph)
            graph = apply_all(graph, events)
            for share in shares:
                graph = self._pop(graph, share, room, decided)
            return Decision([*events, *decided.launches], graph)

        graph = await self._writers.record(self.job_id, decide)
        return self._launches(graph, decided, cluster_slots)

    async def report(
        self,
        events: Sequence[Event],
        share: Share,
        cluster_slots: int,
        *,
        limit: float = math.inf,
    ) -> list[Launch]:
        """Apply what an executor reported, and hand it the next tasks in the same append.

        It is given up to *share*'s tasks, for as long as the job then has no more than *limit* running.
        """
        decided = _Decided()

        def decide(graph: ExecutionGraph) -> Decision:
            decided.launches = []
            graph = apply_all(graph, events)
            if not share.tasks:
                return Decision(events, graph)
            started = self._revived(graph)
            graph = apply_all(graph, started)
            graph = self._pop(graph, share, limit, decided)
            return Decision([*events, *started, *decided.launches], graph)

        graph = await self._writers.record(self.job_id, decide)
        return self._launches(graph, decided, cluster_slots)

    async def reconcile(self, slot: ExecutorSlot, held: Iterable[HeldTask], cluster_slots: int) -> list[Launch]:
        """Draw what follows from an executor's list: lost launches are repeated once, and then taken back."""
        listed = frozenset(held)
        decided = _Decided()

        def decide(graph: ExecutionGraph) -> Decision:
            events = lost_launches(graph, slot, listed, self._clock.now_ms())
            decided.launches = [e for e in events if isinstance(e, LaunchesRepeated)]
            return Decision(events)

        graph = await self._writers.record(self.job_id, decide)
        return self._launches(graph, decided, cluster_slots)

    async def speculate(self, executors: Collection[str]) -> None:
        """Let second attempts of stragglers wait for a slot, where one of *executors*, that take work, can run them."""
        await self._writers.record(
            self.job_id, lambda graph: Decision(find_stragglers(graph, executors, self._clock.now_ms()))
        )

    async def lose_executor(self, lost: ExecutorLost) -> None:
        """Take back what was in the hands of an executor that is gone."""
        await self._writers.record(self.job_id, lambda _: Decision([lost]))

    async def cancel(self, reason: str) -> ExecutionGraph:
        """End the job; one that has ended stays as it is."""
        return await self._writers.record(
            self.job_id, lambda _: Decision([JobCancelled(reason=reason, at_ms=self._clock.now_ms())])
        )

    def _revived(self, graph: ExecutionGraph) -> list[Event]:
        started = revive(graph, self._clock.now_ms())
        return [] if started is None else [started]

    def _pop(self, graph: ExecutionGraph, share: Share, limit: float, decided: _Decided) -> ExecutionGraph:
        """Hand out tasks until the share is used up, or *limit* of the job run."""
        left = share.tasks
        if limit < math.inf:
            left = min(left, math.floor(limit) - running_count(graph))
        executors = self._executors() if has_failed_somewhere(graph) else ()
        while left > 0:
            launched = pop_next_tasks(graph, share.slot, left, self._clock.now_ms(), executors)
            if launched is None:
                break
            decided.launches.append(launched)
            left -= len(launched.tasks)
            graph = apply_all(graph, (launched,))
        return graph

    def _launches(self, graph: ExecutionGraph, decided: _Decided, cluster_slots: int) -> list[Launch]:
        launches = []
        for event in decided.launches:
            stage = graph.stages[event.stage_id]
            if not graph.is_active or not isinstance(stage, RunningStage) or stage.attempt != event.stage_attempt:
                continue  # taken back by what was committed in the same append
            coordinator = self._stages.get(event.stage_id)
            if coordinator is None or coordinator.attempt != event.stage_attempt:
                coordinator = self._stages[event.stage_id] = StageCoordinator(graph, event.stage_id)
            launches.append(Launch(event.executor_id, coordinator.task_set(event, cluster_slots)))
        return launches
