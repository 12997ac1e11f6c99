"""A whole cluster under one seed: what is in it, what happens to it, and what must hold at the end."""

import asyncio
import hashlib
import random  # noqa: TID251 seeded
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from onager.errors import OnagerError
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.rounds import HELD_S
from onager.scheduler.policy.distribution import TaskDistribution
from onager.state_backend import Keyspace
from onager.state_backend.faulty import FaultKind
from onager.state_backend.local import Engine
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.simulation import replans, reuse, scripts
from tests.simulation.catalogs import has_catalog
from tests.simulation.client import SimulatedClient
from tests.simulation.damage import Damage
from tests.simulation.data import Exchange, JobPlan, StagePlan, draw_plan, with_growth
from tests.simulation.loop import VirtualClock, VirtualLoop, current
from tests.simulation.network import KEEPALIVE_S, Network
from tests.simulation.observer import QUARANTINE_S, Observer, Violation
from tests.simulation.oracles import Oracles
from tests.simulation.pace import LOOK_S, Pace
from tests.simulation.passers import Passers
from tests.simulation.patches import patched
from tests.simulation.processes import EXCHANGE_DIR, SimulatedExecutor, SimulatedScheduler
from tests.simulation.programs import has_programs, users
from tests.simulation.programs.hosts import SimulatedProgramHost
from tests.simulation.programs.ledger import Ledger
from tests.simulation.programs.spark import SimulatedSpark
from tests.simulation.programs.weather import ProgramWeather
from tests.simulation.views import Views
from tests.simulation.weather import Kind, Weather
from tests.simulation.worker import TaskRates

LAST_EVENTS = 60
MAX_STEPS = 3_000_000
_SETTLE_S = 150.0
"""How much time may pass, besides that of tasks, until all that is asked for is done."""
_TASK_S = 0.3
"""How long a task takes at most when faults have ended: what a cluster of one slot has to do may take minutes."""
_LEAVING_S = 5.0
"""How long an executor with nothing to do takes to leave: less than a call waits for requests to it."""
_LATE = {Kind.STORM: 0.15, Kind.ONE_FAULT: 0.3, Kind.CALM: 0.0}
"""How many of the schedulers and executors come later."""
_OF_CATALOG = 8
"""Further jobs of each client in worlds where jobs change the catalog, nearly at once."""
_FUSED = 0.6
"""How many of these end with their planning, so that a conflict has them planned anew."""
_GROWING = 5
"""Of so many worlds one has jobs whose stages can grow."""
_KEPT_THERE = 0.7
"""How many jobs that are planned again keep their outputs on executors, and may lose what they are planned again by."""


@dataclass(slots=True)
class Report:
    """The outcome of a simulation."""

    seed: int
    digest: str
    violation: str | None = None
    last: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    virtual_s: float = 0.0

    def as_text(self) -> str:
        """Return what a person needs to investigate it."""
        if self.violation is None:
            return f"seed {self.seed}: sound ({self.steps} steps, {self.virtual_s:.0f} virtual seconds)"
        return "\n".join(
            [
                f"seed {self.seed}: {self.violation}",
                *(f"    {line}" for line in self.last),
                f"again: python -m tests.simulation --seed {self.seed} --trace",
            ]
        )


class World:
    """One simulation."""

    def __init__(
        self,
        seed: int,
        *,
        tell: Callable[[str], None] | None = None,
        planted: str | None = None,
        mode: str | None = None,
    ) -> None:
        self.seed = seed
        self._planted = planted
        self.rng = random.Random(f"world {seed}")
        self.loop = VirtualLoop(seed)
        self._tell = tell
        self._digest = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=LAST_EVENTS)
        self.network = Network(self.loop, seed, self.trace)
        self.store = MemoryStore(VirtualClock(self.loop))
        self.exchange = Exchange()
        self.observer = Observer(self.exchange, self.trace, self.loop.world)
        self.is_over = False
        self.weather = Weather(self, seed)
        self.pace = Pace(self)
        self.damage = Damage(self, seed)
        self.passers = Passers(self)
        self.scheduler_settings = self._draw_settings()
        self.schedulers = [
            SimulatedScheduler(self, n, self._rng("replica", n)) for n in range(self.rng.choice((1, 2, 3, 3)))
        ]
        self.executors = [
            SimulatedExecutor(
                self,
                n,
                self._rng("executor", n),
                self.rng.choice((1, 2, 2, 4)),
                self._rng("mode", n).choice(("pull", "push")) if mode is None else mode,
            )
            for n in range(self.rng.choice((1, 2, 3)))
        ]
        versions = self._rng("versions", 0)
        self.is_mixed = len(self.schedulers) > 1 and versions.random() < 0.25
        """Whether there are schedulers of two releases."""
        if self.is_mixed:
            for scheduler in versions.sample(self.schedulers, versions.randrange(1, len(self.schedulers))):
                scheduler.is_old = True
        self.is_replanned = seed % replans.WORLDS == 3
        """Whether most jobs are planned again whenever a stage is done."""
        self.is_reusing = reuse.is_reusing(seed)
        """Whether jobs take outputs of each other."""
        self.observer.on_replan = self.weather.replan_begins
        self.observer.catalog.is_on = has_catalog(seed) and not self.is_mixed
        if self.observer.catalog.is_on:
            self.damage.rest()
        self._make_programs()
        self.views = Views(self)
        self._registered_s: dict[str, float] = {}
        self.observer.is_older_there = self._is_older_there
        self.observer.on_registered = lambda name: self._registered_s.update({name: self.loop.time()})
        self.observer.is_limit_exact = len(self.schedulers) == 1 and self.weather.kind is not Kind.STORM
        self.network.on_answer, self.network.garble = self.observer.answered, self.weather.garble
        self.clients: list[SimulatedClient] = []

    def _make_programs(self) -> None:
        """Make what runs programs, in worlds that have some."""
        self.ledger = Ledger(self)
        self.program_weather = ProgramWeather(self)
        self.spark = SimulatedSpark(self.ledger, self._rng("spark", 0), self.program_weather.passing)
        self.observer.on_publish, self.observer.on_commit = self.ledger.published, self.ledger.deliver
        self.hosts: list[SimulatedProgramHost] = []
        if not has_programs(self.seed) or self.is_mixed or self.observer.catalog.is_on:
            return
        self.damage.rest()
        # What waits twice for one caller would take a request of a session and tell nobody.
        self.network.never_repeated = frozenset({"AwaitRequests"})
        for number in range(self._rng("hosts", 0).choice((1, 2, 3))):
            rng = self._rng("host", number)
            self.hosts.append(SimulatedProgramHost(self, number, rng, rng.choice((1, 2, 8))))

    def _rng(self, what: str, number: int) -> random.Random:
        return random.Random(f"{what} {number} {self.seed}")

    def _draw_settings(self) -> dict[str, Any]:
        """Return the settings of the schedulers."""
        return {
            "exchange_dir": EXCHANGE_DIR,
            "executor_lease_ttl_ms": 3_000,
            "connection_grace_ms": 500,
            "poll_wait_max_ms": 10_000,
            "sweep_interval_ms": 2_000,
            "clean_up_repeat_ms": 5_000,
            "result_retention_s": 3_600,
            "record_retention_s": 7_200,
            "task_distribution": self._rng("distribution", 0).choice(list(TaskDistribution)),
            "quarantine_failures": 2,
            "quarantine_s": QUARANTINE_S,
            "program_retention_s": 7_200,
        }

    # ---------------------------------------------------------------- what the parts ask

    def trace(self, text: str) -> None:
        line = f"{self.loop.time():.6f} {self.loop.steps} {text}"
        self._digest.update(line.encode())
        self._last.append(line)
        if self._tell is not None:
            self._tell(line)

    def later(self, delay_s: float, act: Callable[..., object], *args: Any) -> None:
        self.loop.call_at(self.loop.time() + delay_s, act, *args, context=self.loop.world.context.copy())

    def task_rates(self) -> TaskRates:
        return self.weather.task_rates

    def store_fault(self, scheduler: SimulatedScheduler, operation: str) -> FaultKind | None:
        def note(kind: str) -> None:
            self.observer.counts[f"store {kind}"] += 1
            self.trace(f"store: {operation} of {scheduler.name} meets {kind}")

        return self.weather.store_fault(scheduler, operation, note)

    @property
    def is_busy(self) -> bool:
        """Return whether a job is active."""
        return any(j.graph is not None and j.graph.is_active for j in self.observer.jobs.values())

    def _is_older_there(self) -> bool:
        """Return whether a registered scheduler is of the older release, but for one that just came.

        One whose registration has ended counts no more, though it may only have been held up. In a storm nobody can
        know.
        """
        registered = self.observer.stored[Keyspace.Schedulers]
        old = [r.name for r in self.schedulers if r.is_old and r.name in registered]
        is_known = any(self.loop.time() - self._registered_s[name] > 1.0 for name in old)
        return is_known and self.weather.kind is not Kind.STORM

    def schedulers_here(self) -> LiveSchedulers | None:
        """Return what the scheduler that runs knows of the others."""
        here = [r.scheduler for r in self.schedulers if r.process is current() and r.scheduler is not None]
        return here[0].schedulers if here else None

    # ---------------------------------------------------------------- the course of events

    def run(self) -> Report:
        """Simulate from the start to an empty store."""
        violation: str | None = None
        with patched(self, self._planted):
            try:
                self.loop.world.context.copy().run(self.loop.run_until_complete, self._course())
                self.observer.check()
            except Violation as error:
                violation = str(error)
            except Exception as error:  # noqa: BLE001 - a simulation that breaks is a finding, too
                violation = f"{type(error).__name__}: {error}"
            self.is_over = True
            last = list(self._last)
            self._end()
        if violation is not None and violation not in "".join(last):
            last.append(f"VIOLATION {violation}")
        return Report(
            self.seed,
            self._digest.hexdigest(),
            violation,
            last if violation is not None else [],
            self.observer.counts,
            self.loop.steps,
            self.loop.time(),
        )

    async def _course(self) -> None:
        self.store.clients = _Clients(self.observer)  # type: ignore[assignment]
        if self.observer.catalog.is_on:
            self.store.run(lambda engine: engine.commit(self.observer.catalog.begin(), {}))
        for place in (*self.schedulers, *self.executors):
            if place is not self.schedulers[0] and self.rng.random() < _LATE[self.weather.kind]:
                self.later(self.rng.uniform(1, 8), self.weather.start, place)
            else:
                place.start()
        for host in self.hosts:
            host.start()
        span_s = self._submit_jobs()
        self.weather.begin()
        ends_s = self.loop.time() + span_s
        pace = self.loop.spawn(self.loop.world, self._keep_pace())
        while self.loop.time() < ends_s:
            await asyncio.sleep(self.weather.pause_s())
            self.weather.something_happens()
            if self.hosts:
                self.program_weather.something_happens()
            self.damage.strike()
            self._check()
        self.weather.end()
        self.program_weather.end()
        self.passers.end()
        await self._settle(lambda: self.passers.are_gone, "who names blobs for a while does not end")
        await self._settle(lambda: all(c.is_done for c in self.clients), "clients are still waiting")
        await self._settle(self.ledger.are_calls_over, "jobs of calls of programs go on", within_s=20.0)
        await self._settle(Oracles(self).are_registered, "schedulers that live are not registered")
        await self._settle(self.views.agree, "a scheduler has not learned of what is stored", within_s=10.0)
        # A report whose answer was lost is sent again when the keepalive has given up its call.
        await self._settle(lambda: not Oracles(self).in_hand(), "somebody has something in hand", within_s=20.0)
        await asyncio.sleep(1.0)
        pace.cancel()
        self._check()
        Oracles(self).check_jobs()
        self.ledger.check()
        self._check()
        if self.weather.kind is not Kind.STORM and not self.hosts:
            Oracles(self).check_nothing_was_in_vain()
        await self._grow_old()

    async def _keep_pace(self) -> None:
        """Check the pace of work: always if nothing disturbs it, else only long after the last fault."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self.weather.kind is not Kind.STORM:
                self.pace.look()

    def _submit_jobs(self) -> float:
        span_s = self.rng.uniform(3, 15)
        families = self.rng.choice((1, 3, 100))
        scale = 1 if self.weather.kind is Kind.STORM else self.rng.choice((1, 2, 5))
        shapes = [draw_plan(self.rng, n, scale=scale) for n in range(min(families, 4))]
        self.passers.begin(shapes)
        for number in range(self.rng.choice((1, 2))):
            client = SimulatedClient(self, number, self._rng("client", number))
            self.clients.append(client)
            for n in range(self.rng.choice((1, 2, 3))):
                plan = self.rng.choice(shapes) if families < 100 else draw_plan(self.rng, n, scale=scale)
                if self.seed % _GROWING == 1:
                    plan = with_growth(plan, random.Random(f"growth {self.seed} {number} {n}"))
                if self.is_replanned and self._rng(f"kept {number}", n).random() < _KEPT_THERE:
                    plan = replace(plan, is_shared=False, is_inline=True)
                if self.is_reusing:
                    plan = reuse.reusable(plan, self._rng(f"shared {plan.family}", 0))
                    client.begin(f"again-{number}-{n}", plan, (0.5 + 0.2 * n) * span_s)
                client.begin(f"job-{number}-{n}", plan, self.rng.random() * span_s * 0.6)
            for n in range(_OF_CATALOG if self.observer.catalog.is_on else 0):
                client.begin(f"change-{number}-{n}", self._plan_of_change(shapes, number, n), 0.5 + n % 2)
            if self.hosts:
                users.begin_some(client, number, span_s)
            if self.seed % scripts.WORLDS == 2 and not self.is_mixed:
                self._begin_script(client, number, shapes, span_s)
        return span_s

    def _plan_of_change(self, shapes: list[JobPlan], client: int, number: int) -> JobPlan:
        rng = self._rng(f"change {client}", number)
        plan = rng.choice(shapes)
        is_fused = rng.random() < _FUSED
        fused = JobPlan((StagePlan(1, ()),), is_fused=True, is_shared=plan.is_shared, family=plan.family)
        return fused if is_fused else plan

    def _begin_script(self, client: SimulatedClient, number: int, shapes: list[JobPlan], span_s: float) -> None:
        rng = self._rng("program", number)
        some = shapes or [draw_plan(rng, n) for n in range(2)]
        script = scripts.draw_script(rng, some)
        scripts.begin(client, f"program-{number}", script, rng, rng.random() * span_s * 0.6)

    async def _settle(self, is_done: Callable[[], bool], what: str, *, within_s: float = _SETTLE_S) -> None:
        deadline_s, done = self.loop.time() + within_s, self.observer.tasks_done
        while not is_done():
            self._check()
            if self.loop.time() > deadline_s + _TASK_S * (self.observer.tasks_done - done):
                waiting = [j.job_id for j in self.observer.jobs.values() if j.final is None]
                hands = Oracles(self).in_hand()[:5]
                raise Violation(f"{what} {within_s:.0f} s after the last fault; not ended: {waiting}; in hand: {hands}")
            await asyncio.sleep(0.25)

    async def _grow_old(self) -> None:
        """Let retention pass, first that of results and then that of records: then nothing is left."""
        self.trace("everything grows old")
        oracles = Oracles(self)
        self.damage.strike_late()
        await self._serve_alone(result_retention_s=0)
        await self._settle(oracles.are_results_gone, "results that are past retention are still there", within_s=60)
        await self._look_back(is_record_there=True)
        of_programs = {"program_retention_s": 0, "connect_session_retention_s": 0}
        await self._serve_alone(result_retention_s=0, record_retention_s=0, audit_retention_s=0, **of_programs)
        await self._settle(oracles.are_records_gone, "records that are past retention are still there", within_s=60)
        await self._look_back(is_record_there=False)
        await self._let_executors_leave()
        await self._settle(oracles.is_only_scheduler_left, "the store does not get empty", within_s=60)
        await self.schedulers[0].stop()
        # What a stopped scheduler could not take back ends with its lease.
        await asyncio.sleep(max(10, HELD_S))
        self.store.run(Engine.expire)
        self._check()
        oracles.check_empty()

    async def _let_executors_leave(self) -> None:
        """Have some leave by a signal, and others because a scheduler asks them to."""
        for place in (*self.executors, *self.hosts):
            place.wants_to_live = False
        await asyncio.sleep(KEEPALIVE_S)  # who waits on a call that was lost in silence learns of it by then
        hosts = [host for host in self.hosts if host.process is not None]
        await self._settle(
            lambda: all(e.is_registered for e in (*self._running(), *hosts)), "executors do not register"
        )
        for host in hosts:
            host.drain()
        for executor in self._running():
            if (self.seed + executor.number) % 2:
                self.loop.spawn(self.clients[0].process, self.clients[0].drain(executor.name))
            else:
                executor.drain()
        is_gone = lambda: not self._running() and not any(host.process for host in hosts)  # noqa: E731
        await self._settle(is_gone, "executors do not leave", within_s=_LEAVING_S)

    def _running(self) -> list[SimulatedExecutor]:
        return [executor for executor in self.executors if executor.process is not None]

    async def _serve_alone(self, **retention: int) -> None:
        """Go on with one scheduler, in a new life with other times of *retention*."""
        for scheduler in self.schedulers:
            scheduler.wants_to_live = False
            await scheduler.stop()
        self.schedulers[0].is_old = False
        self.schedulers[0].start(lost_executor_retention_s=2, heads_interval_ms=2_000, **retention)

    async def _look_back(self, *, is_record_there: bool) -> None:
        looks = [self.loop.spawn(c.process, c.look_back(is_record_there=is_record_there)) for c in self.clients]
        await self._settle(lambda: all(look.done() for look in looks), "nobody tells what became of a job", within_s=60)
        for look in looks:
            if look.exception() is not None:
                raise Violation(f"looking back broke: {look.exception()!r}")

    # ---------------------------------------------------------------- what must hold

    def _check(self) -> None:
        self.observer.check()
        if self.loop.problems:
            raise Violation(self.loop.problems[0])
        if self.loop.steps > MAX_STEPS:
            raise Violation(f"no end after {MAX_STEPS} steps")

    # ---------------------------------------------------------------- the end

    def _end(self) -> None:
        """Take everything down without letting it do anything any more."""
        self.store.run = _refuse  # type: ignore[method-assign]
        self.network.is_over = True
        self._tell = None
        left = self.loop.reap_tasks()
        self.loop.close()
        assert not left, f"{left} tasks of seed {self.seed} do not end"


class _Clients(set[MemoryBackend]):
    """The clients of the store in the order of their coming, behind the observer."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer
        self._order: dict[MemoryBackend, None] = {}

    def add(self, client: MemoryBackend) -> None:
        self._order[client] = None

    def discard(self, client: MemoryBackend) -> None:
        self._order.pop(client, None)

    def __iter__(self) -> Iterator[Any]:
        return iter([self._observer, *self._order])


def _refuse(_: Any) -> Any:
    raise OnagerError("the simulation is over")


def simulate(
    seed: int, *, tell: Callable[[str], None] | None = None, planted: str | None = None, mode: str | None = None
) -> Report:
    """Run the simulation of *seed*, with the bug *planted* in the product if one is named.

    Executors are in the *mode* given, or each in one that the seed draws.
    """
    return World(seed, tell=tell, planted=planted, mode=mode).run()
