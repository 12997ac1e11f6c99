"""Checks repeatedly that work proceeds without delay and in fair turns while nothing prevents it.

What is measured is dead time: a task that waits while a slot is free, one that the graph believes in the hands of an
executor that has never learned of it, a report that nobody takes, a job that gets nothing while others get more and
more.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from immutables import Map
from msgspec.structs import replace

from onager.execution_graph import (
    ExecutionGraph,
    ExecutorSlot,
    ResolvedStage,
    RunningStage,
    Stage,
    SuccessfulStage,
    available_tasks,
    has_runnable_work,
    paused_tasks,
    pop_next_tasks,
    running_count,
)
from onager.execution_graph.replan_rules import LIMIT_MS, held_stages, limit_ms
from onager.executor.agent.agent import Agent
from onager.executor.agent.attempts import AttemptState
from onager.executor.agent.reporting import AGAIN_LIMIT_S
from onager.ids import TaskKey
from tests.simulation.executions import SeenJob
from tests.simulation.versions import needs_feature

if TYPE_CHECKING:
    from tests.simulation.world import World

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much dead time there may be, in seconds."""

    waiting_s: float
    """A task waits while a slot is free."""
    launch_s: float
    """An executor is believed to run what it has never learned of."""
    report_s: float
    """A task has ended, and no scheduler takes its report."""
    view_s: float
    """Something is stored, and a scheduler does not know it."""

    @property
    def refused_s(self) -> float:
        """How long a report may wait that a scheduler has left to others: it is sent again after a while."""
        return self.report_s + AGAIN_LIMIT_S


CALM = Bounds(waiting_s=0.3, launch_s=0.3, report_s=0.3, view_s=0.3)
DEATH = Bounds(waiting_s=1.0, launch_s=1.0, report_s=1.0, view_s=1.0)
"""One scheduler dies, leaves, comes, or starts again."""
HANG = Bounds(waiting_s=3.0, launch_s=3.0, report_s=3.0, view_s=3.0)
"""One scheduler hangs: that is seen by the heartbeats that it leaves unanswered."""


class Pace:
    """Measures dead time from one look to the next."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._since_s: dict[tuple[str, object], float] = {}
        """When each thing that should not last was first seen, as long as it lasts."""
        self._pauses_since_s: dict[object, float] = {}
        """When each pause before a retry, or wait for a re-plan, was first seen."""
        self._hungry: dict[str, tuple[int, Counter[str], int]] = {}
        """How many tasks a job had been given that has nothing running, and at which executors others had, at first."""
        self.longest_s = dict.fromkeys(_REPORTED, 0.0)

    def look(self) -> None:
        """Look at everything; what has lasted too long is a violation."""
        bounds = self._bounds
        now_s = self._world.loop.time()
        views = (("view", what) for what in self._world.views.differences())
        found = [*self._waiting(), *self._launches_unseen(), *self._reports_untaken(), *views]
        self._since_s = {what: self._since_s.get(what, now_s) for what in found}
        for (kind, what), since_s in self._since_s.items():
            lasted_s = now_s - since_s
            self.longest_s[kind] = max(self.longest_s[kind], lasted_s)
            if lasted_s > getattr(bounds, f"{kind}_s"):
                self._world.observer.fail(f"{_REPORTED[kind]} for {lasted_s:.2f} s: {what}")
                self._since_s[kind, what] = float("inf")
        self._look_at_turns()

    @property
    def _bounds(self) -> Bounds:
        match self._world.weather.blow:
            case "":
                return CALM
            case "hang":
                return HANG
            case _:
                return DEATH

    @property
    def _agents(self) -> list[tuple[str, Agent]]:
        return [
            (e.life, e.agent)
            for e in self._world.executors
            if e.agent is not None and e.process is not None and not e.process.is_paused
        ]

    @property
    def _active(self) -> list[tuple[SeenJob, ExecutionGraph]]:
        jobs = self._world.observer.jobs.values()
        damaged = self._world.observer.damaged
        return [
            (j, self._by_true_time(j.graph))
            for j in jobs
            if j.graph is not None and j.graph.is_active and j.job_id not in damaged and self._is_readable(j.job_id)
        ]

    def _is_readable(self, job_id: str) -> bool:
        """Return whether a scheduler that runs can work on the job: one of the older release cannot read some."""
        job = self._world.observer.jobs.get(job_id)
        return job is None or job.graph is None or not self._is_new(job.graph) or self._is_newest_there()

    def _is_new(self, graph: ExecutionGraph) -> bool:
        """Return whether there may be schedulers that cannot read the job."""
        return self._world.is_mixed and needs_feature(graph)

    def _is_newest_there(self) -> bool:
        running = [r.process for r in self._world.schedulers if r.process is not None and not r.process.is_paused]
        return any(not process.is_old for process in running)

    def _by_true_time(self, graph: ExecutionGraph) -> ExecutionGraph:
        """Return *graph* with those pauses before retries that are not over, and waits for re-plans, going on at 0 ms.

        A scheduler whose clock is behind may take a pause, or wait, for twice as long, and no longer.
        """
        graph = self._with_replan_by_true_time(self._with_planning_by_true_time(graph))
        if not any(isinstance(s, RunningStage) and s.paused for s in graph.stages):
            return graph
        stages: list[Stage] = []
        for stage in graph.stages:
            if isinstance(stage, RunningStage):
                going_on = {}
                for partition, pause in stage.paused.items():
                    key = (graph.job_id, stage.spec.stage_id, partition, pause)
                    if self._lasts_s(key) < 2 * pause.pause_ms / 1000:
                        going_on[partition] = replace(pause, failed_ms=0)
                stages.append(replace(stage, paused=Map(going_on)))
            else:
                stages.append(stage)
        return replace(graph, stages=tuple(stages))

    def _with_planning_by_true_time(self, graph: ExecutionGraph) -> ExecutionGraph:
        planning = graph.stages[0]
        if not isinstance(planning, SuccessfulStage):
            return graph
        is_over = self._lasts_s((graph.job_id, "planned")) >= 2 * LIMIT_MS / 1000
        timed = replace(planning, ended_ms=-LIMIT_MS if is_over else 0)
        return replace(graph, stages=(timed, *graph.stages[1:]))

    def _with_replan_by_true_time(self, graph: ExecutionGraph) -> ExecutionGraph:
        replan = graph.replan
        if replan is None:
            return graph
        is_over = self._lasts_s((graph.job_id, "re-plan", replan.replan_id)) >= 2 * limit_ms(graph) / 1000
        timed = replace(replan, begun_ms=0, ended_ms=1 if is_over else 0)
        return replace(graph, replans=(*graph.replans[:-1], timed))

    def _lasts_s(self, wait: object) -> float:
        """Return how long ago *wait* was first asked for."""
        now_s = self._world.loop.time()
        return now_s - self._pauses_since_s.setdefault(wait, now_s)

    def _waiting(self) -> list[tuple[str, object]]:
        free = [
            agent
            for _, agent in self._agents
            if agent._attempts.free_slots and agent._registration._registered.is_set() and not agent._draining.is_set()
        ]
        active = [(j, graph) for j, graph in self._active if not self._is_barred(j)]
        # A launch is progress: what waits then waits for another reason.
        return [
            ("waiting", (j.job_id, j.launches)) for j, graph in active if any(self._may_get(a, graph) for a in free)
        ]

    def _may_get(self, agent: Agent, graph: ExecutionGraph) -> bool:
        """Return whether the scheduler that *agent* polls has a task of the job for it.

        One of the older release fills no slots with tasks of a job that it cannot read.
        """
        if graph.is_program:
            return False  # those who run tasks run no programs
        polled = agent._gateway._addresses[agent._gateway._current]
        old = [r.address for r in self._world.schedulers if r.process is not None and r.process.is_old]
        return _is_fit(graph, _slot(agent)) and not (self._is_new(graph) and polled in old)

    def _is_barred(self, job: SeenJob) -> bool:
        """Return whether the job's session may have no more tasks, as far as all know who count them."""
        observer = self._world.observer
        has_limit = job.header is not None and job.header.session_max_tasks > 0
        return has_limit and (not observer.is_limit_exact or observer.over_limit(job, counts_damaged=True) >= 0)

    def _launches_unseen(self) -> list[tuple[str, object]]:
        agents = dict(self._agents)
        found: list[tuple[str, object]] = []
        for job, graph in self._active:
            for stage in graph.stages:
                if not isinstance(stage, RunningStage):
                    continue
                for partition, task in stage.in_hand():
                    agent = agents.get(task.incarnation)
                    key = TaskKey(job.job_id, stage.spec.stage_id, stage.attempt, partition, task.attempt)
                    if agent is not None and key not in agent._attempts._held:
                        found.append(("launch", (task.incarnation, key)))
        return found

    def _reports_untaken(self) -> list[tuple[str, object]]:
        return [
            ("refused" if key in agent._reporter._refused else "report", (life, key))
            for life, agent in self._agents
            for key, attempt in agent._attempts._held.items()
            if attempt.state is AttemptState.FINISHED and self._is_readable(key.job_id)
        ]

    # ---------------------------------------------------------------- turns

    def _look_at_turns(self) -> None:
        """A job that has nothing running comes next, whatever it weighs: few others may be served where it could be.

        A few for each scheduler, since one that acts on several jobs keeps a slot for a few tasks of theirs.
        """
        slots = sum(e.slots for e in self._world.executors)
        jobs = self._world.observer.jobs.values()
        total = sum((j.launched_at for j in jobs), Counter[str]())
        graphs = {j.job_id: graph for j, graph in self._active}
        waiting = [(j, graph) for j, graph in self._active if _could_run_now(graph) and not running_count(graph)]
        hungry = {j.job_id: j for j, _ in waiting if not self._is_barred(j)}
        before, self._hungry = self._hungry, {}
        for job_id, job in hungry.items():
            others = total - job.launched_at
            launches, began, waited = before.get(job_id, (job.launches, others, 0))
            if launches != job.launches:
                began, waited = others, 0  # it got something between two looks
            waited = max(waited, len(hungry))  # each of those that waited with it may come first
            fit = [agent._id for _, agent in self._agents if self._may_get(agent, graphs[job_id])]
            served = sum(others[executor_id] - began[executor_id] for executor_id in fit)
            if served > 2 * slots + 8 * len(self._world.schedulers) + 2 * waited:
                self._world.observer.fail(f"{job_id} got nothing while others got {served} tasks")
                began = others
            self._hungry[job_id] = job.launches, began, waited


def _slot(agent: Agent) -> ExecutorSlot:
    return ExecutorSlot(agent._id, "", 0, can_stream=bool(agent._registration._identity.stream_address))


def _is_fit(graph: ExecutionGraph, slot: ExecutorSlot) -> bool:
    """Return whether a task of the job may go there: second attempts need another executor, streams an address."""
    if graph.is_streaming and not slot.can_stream:
        return False
    return _has_stage_to_start(graph) or pop_next_tasks(graph, slot, 1, 0) is not None


def _has_stage_to_start(graph: ExecutionGraph) -> bool:
    held = held_stages(graph, 0)
    return any(isinstance(s, ResolvedStage) and s.spec.stage_id not in held for s in graph.stages)


def _could_run_now(graph: ExecutionGraph) -> bool:
    if graph.replan is not None or held_stages(graph, 0):
        return False  # something waits for a re-plan, or for what may lead to one
    is_all_paused = 0 < available_tasks(graph) == len(paused_tasks(graph, 0))
    return has_runnable_work(graph) and (not is_all_paused or _has_stage_to_start(graph))


_REPORTED = {
    "waiting": "a job's tasks wait while a slot is free",
    "launch": "an executor is believed to have a task of which it has not learned",
    "report": "a report is not taken",
    "refused": "a report that was left to others is not taken",
    "view": "a scheduler has not learned of what is stored",
}
