"""The faults of a simulated cluster, and their times, drawn from the seed."""

import random  # noqa: TID251 seeded
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from onager.execution_graph import ExecutionGraph, StageWork
from onager.executor.work import WorkerEnd
from onager.state_backend.faulty import APPLIES_TO, FaultKind
from tests.simulation.network import Rates
from tests.simulation.processes import EXECUTOR_SKEW_MS, SCHEDULER_SKEW_MS, SimulatedExecutor, SimulatedScheduler
from tests.simulation.worker import TaskRates

if TYPE_CHECKING:
    from tests.simulation.world import World

Place = SimulatedScheduler | SimulatedExecutor


class Kind(StrEnum):
    """Which faults a cluster has."""

    STORM = "storm"
    """StoreContents, again and again, and much of it at once."""
    ONE_FAULT = "one fault"
    """One scheduler is killed, hung, stopped or added, and nothing else happens: so its cost can be measured."""
    CALM = "calm"
    """Nothing goes wrong: what is slow, unfair or done twice now is so by itself."""


_LOST_WHILE_PLANNED = 0.8
"""How many re-plans lose an executor that holds what they are based on, in a storm, if there is one."""
_KINDS = (*[Kind.STORM] * 7, *[Kind.ONE_FAULT] * 2, Kind.CALM)


class Weather:
    """The faults of one simulation."""

    def __init__(self, world: "World", seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"weather {seed}")
        self.kind = self._rng.choice(_KINDS)
        self._store_rates: dict[FaultKind, float] = {}
        self._draw = random.Random(f"store {seed}").random
        self._losses = random.Random(f"losses {seed}")
        self.task_rates = TaskRates()
        self.is_quiet = False
        """Whether no more faults come."""
        self.blow = ""
        """The one fault of a `Kind.ONE_FAULT`."""

    @property
    def is_storm(self) -> bool:
        """Return whether everything goes wrong."""
        return self.kind is Kind.STORM

    # ---------------------------------------------------------------- the course of things

    def begin(self) -> None:
        """Let things go wrong."""
        rng = self._rng
        self.task_rates = TaskRates(slow=0.2 if self._world.is_mixed else rng.choice((0.05, 0.2, 0.6)))
        if rng.random() < 0.4:
            self._store_rates = {FaultKind.SLOW_REQUEST: 0.3, FaultKind.SLOW_ANSWER: 0.3}
        if self.kind is not Kind.STORM:
            return
        severity = rng.choice((0.0, 0.5, 1.0, 1.0, 2.0))
        draw = rng.random
        self._world.network.rates = Rates(
            lost=0.03 * severity * draw(),
            repeated=0.05 * severity * draw(),
            slow=0.1 * severity * draw(),
            odd=rng.choice((0, 0, 0.05)),
        )
        rates = {
            FaultKind.UNAVAILABLE: 0.02,
            FaultKind.SLOW_REQUEST: 0.2,
            FaultKind.SLOW_ANSWER: 0.1,
            FaultKind.UNKNOWN_UNWRITTEN: 0.02,
            FaultKind.UNKNOWN_WRITTEN: 0.03,
            FaultKind.UNKNOWN_LATE: 0.03,
            FaultKind.LEASE_LOST: 0.005,
            FaultKind.COMPACTED: 0.01,
            FaultKind.CUT: 0.01,
        }
        self._store_rates = {kind: rate * severity * draw() for kind, rate in rates.items()}
        self.task_rates.io_error = rng.choice((0, 0, 0.03, 0.1))
        self.task_rates.user_error = rng.choice((0, 0, 0, 0.02))
        self.task_rates.output_lost = rng.choice((0, 0, 0.05))

    def garble(self, request: Any) -> None:
        """Add the report of a task that there is not: one past the end of its stage, or of its job."""
        report = self._rng.choice(request.reports)
        job = self._world.observer.jobs.get(report.task.job_id)
        if job is None or job.graph is None or report.task.stage_id >= len(job.graph.stages):
            return
        odd = request.reports.add()
        odd.CopyFrom(report)
        if self._rng.random() < 0.7 or job.graph.plan is None:
            # Far past it where stages grow: the next partition may come with this very request.
            grows = any(stage.spec.work is StageWork.FEED for stage in job.graph.stages)
            odd.task.partition = job.graph.stages[report.task.stage_id].spec.partitions + 1_000 * grows
        else:
            # Far past it where the rest is planned again: that stage may come with this very request, too.
            odd.task.stage_id = len(job.graph.stages) + 1_000 * bool(job.graph.plan.frame_digest)
        self._world.trace(f"a report of {odd.task.job_id}/{odd.task.stage_id}/{odd.task.partition} comes along")

    def pause_s(self) -> float:
        """Return how long it is until something happens again."""
        return self._rng.expovariate(1.0)

    def something_happens(self) -> None:
        """Let one more thing happen, where the weather is such."""
        match self.kind:
            case Kind.STORM:
                self._strike()
            case Kind.ONE_FAULT if not self.blow:
                self._strike_once()
            case _:
                pass

    def end(self) -> None:
        """Heal what can be healed, and inject no more faults."""
        world, rng = self._world, self._rng
        world.trace("faults end")
        self.is_quiet = True
        self._store_rates = {}
        world.network.rates = Rates()
        world.network.cut.clear()
        self.task_rates = TaskRates(slow=0.0)
        for scheduler in world.schedulers:
            scheduler.is_store_down = False
            if scheduler.is_old:
                self._upgrade(scheduler)
            if scheduler.process is None and rng.random() < 0.5:
                scheduler.start()
            elif scheduler.process is None:
                world.trace(f"{scheduler.name} does not come back")
                scheduler.wants_to_live = False
            elif scheduler.process.is_paused:
                self._resume(scheduler)
        if all(r.process is None for r in world.schedulers):
            world.schedulers[0].start()
        for executor in world.executors:
            executor.is_broken = False
            is_alone = all(e.process is None for e in world.executors if e is not executor)
            if executor.process is None and (is_alone or rng.random() < 0.6):
                executor.start()
            elif executor.process is None:
                world.trace(f"{executor.name} does not come back")
                executor.wants_to_live = False
            elif executor.process.is_paused:
                self._resume(executor)

    # ---------------------------------------------------------------- what happens

    def _strike(self) -> None:
        world, rng = self._world, self._rng
        scheduler, executor = rng.choice(world.schedulers), rng.choice(world.executors)
        match rng.randrange(18):
            case 0 | 1 | 2:
                scheduler.kill()
                world.later(rng.uniform(0.05, 4), self.start, scheduler)
            case 3:
                self.pause(scheduler, rng.choice((0.3, 2.0, 8.0, 20.0)) * rng.random())
            case 4 | 5:
                executor.kill()
                world.later(rng.uniform(0.1, 6), self.start, executor)
            case 6 | 13:
                self.pause(executor, rng.choice((0.5, 4.0, 8.0)) * (0.2 + rng.random()))
            case 7 | 8:
                self._cut(*self._draw_pair(executor, scheduler))
            case 10:
                executor.drain()
            case 11:
                self._restart(scheduler)
            case 12 if executor.worker is not None and executor.process is not None:
                is_memory = random.Random(f"memory {executor.life} {world.seed}").random() < 0.5
                world.trace(f"the JVM of {executor.life} dies{' for lack of memory' if is_memory else ''}")
                if random.Random(f"stuck {executor.life} {world.seed}").random() < 0.2:
                    executor.worker.get_stuck()
                else:
                    executor.worker.die(WorkerEnd("as the weather has it", is_memory=is_memory))
            case 14:
                world.trace(f"everything fails on {executor.name}")
                executor.is_broken = True
                world.later(rng.uniform(1, 8), setattr, executor, "is_broken", False)
            case number:
                self._strike_behind(number, scheduler, executor)

    def replan_begins(self, graph: ExecutionGraph, life: str) -> None:
        """Lose, at times, an executor with what *graph* is planned again by, while that happens in *life* of another.

        By chance alone that would happen in one world of thousands.
        """
        if self.kind is not Kind.STORM or self.is_quiet or graph.replan is None:
            return
        outputs = [o for i, _ in graph.replan.basis for o in graph.stages[i].ledger.outputs.values()]
        lives = {o.incarnation for o in outputs if not o.is_durable} - {life}
        holders = [e for e in self._world.executors if e.process is not None and e.life in lives]
        if holders and self._losses.random() < _LOST_WHILE_PLANNED:
            self._world.later(0, self._lose, self._losses.choice(holders))

    def _lose(self, executor: SimulatedExecutor) -> None:
        if not self.is_quiet:
            executor.kill()
            self._world.later(self._losses.uniform(0.1, 1), self.start, executor)

    def _strike_behind(self, number: int, scheduler: SimulatedScheduler, executor: SimulatedExecutor) -> None:
        """Strike at what stands behind the processes: the store, clocks, the version of their program."""
        world, rng = self._world, self._rng
        match number:
            case 9:
                world.trace(f"{scheduler.name} loses the store")
                scheduler.is_store_down = True
                world.later(rng.uniform(0.1, 5), setattr, scheduler, "is_store_down", False)
            case 15:
                away_s = rng.uniform(1, 9)
                world.trace(f"the store is away for {away_s:.3f} s")
                for one in world.schedulers:
                    one.is_store_down = True
                    world.later(away_s, setattr, one, "is_store_down", False)
            case 16:
                place = rng.choice((scheduler, executor))
                most_ms = SCHEDULER_SKEW_MS if place is scheduler else EXECUTOR_SKEW_MS
                place.clock.skew_ms = rng.randint(-most_ms, most_ms)
                world.trace(f"the clock of {place.name} is set, and now wrong by {place.clock.skew_ms} ms")
            case 17 if scheduler.is_old or world.is_mixed:
                self._upgrade(scheduler, is_old=not scheduler.is_old and rng.random() < 0.5)
            case _:
                pass

    def _upgrade(self, scheduler: SimulatedScheduler, *, is_old: bool = False) -> None:
        """Restart a scheduler with another release."""
        self._world.trace(f"{scheduler.name} is to be of the {'older release' if is_old else 'newest'}")
        scheduler.is_old = is_old
        self._restart(scheduler)

    def _strike_once(self) -> None:
        world, rng = self._world, self._rng
        lively = [r for r in world.schedulers if r.process is not None]
        if not all(r.scheduler is not None for r in lively) or not world.is_busy:
            return
        late = [r for r in world.schedulers if r.lives == 0]
        self.blow = "join" if late else rng.choice(("kill", "kill", "hang", "stop")) if len(lively) > 1 else "restart"
        scheduler = rng.choice(late or lively)
        match self.blow:
            case "join":
                scheduler.start()
            case "kill":
                scheduler.kill()
            case "hang":
                self.pause(scheduler, rng.uniform(2, 30))
            case "stop":
                world.loop.spawn(world.loop.world, scheduler.stop())
            case _:
                self._restart(scheduler)

    def _draw_pair(self, executor: SimulatedExecutor, scheduler: SimulatedScheduler) -> tuple[str, str]:
        """Return who will not reach which address."""
        if executor.mode == "push" and self._rng.random() < 0.3:
            return scheduler.name, executor.address
        if self._rng.random() < 0.25:
            return scheduler.name, self._rng.choice(self._world.schedulers).address
        return self._rng.choice((self._rng.choice(self._world.clients).name, executor.name)), scheduler.address

    def _cut(self, name: str, address: str) -> None:
        pair = (name, address)
        self._world.trace(f"{pair} are cut off")
        self._world.network.cut.add(pair)
        self._world.later(self._rng.uniform(0.1, 6), self._world.network.cut.discard, pair)

    def _restart(self, scheduler: SimulatedScheduler) -> None:
        async def restart() -> None:
            await scheduler.stop()
            self.start(scheduler)

        if scheduler.process is not None:
            self._resume(scheduler)
            self._world.loop.spawn(self._world.loop.world, restart())

    def start(self, place: Place) -> None:
        """Start what does not run, unless it is to stay away."""
        if place.process is None and not self._world.is_over and place.wants_to_live:
            place.start()

    def pause(self, place: Place, for_s: float) -> None:
        """Have a process do nothing for a while."""
        if place.process is not None and not place.process.is_paused:
            self._world.trace(f"{place.name} is paused for {for_s:.3f} s")
            place.process.is_paused = True
            self._world.later(for_s, self._resume, place, place.process)

    def _resume(self, place: Place, process: Any = None) -> None:
        process = place.process if process is None else process
        if process is not None and process.is_paused:
            self._world.trace(f"{place.name} goes on")
            process.is_paused = False

    # ---------------------------------------------------------------- the store

    def store_fault(
        self, scheduler: SimulatedScheduler, operation: str, note: Callable[[str], None]
    ) -> FaultKind | None:
        """Return what an operation of *scheduler* on the store meets with, telling *note*; None for nothing."""
        if scheduler.is_store_down and FaultKind.UNAVAILABLE in APPLIES_TO[operation]:
            return FaultKind.UNAVAILABLE
        if scheduler.is_store_down and operation == "watch_event":
            return FaultKind.CUT
        if not self._store_rates:
            return None
        number = self._draw()
        for kind, rate in self._store_rates.items():
            if kind in APPLIES_TO[operation]:
                if number < rate:
                    note(str(kind))
                    return kind
                number -= rate
        return None
