"""A whole cluster under one seed: what is in it, what happens to it, and what must hold at the end."""

import asyncio
import gc
import hashlib
import random  # noqa: TID251 seeded
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import structlog

from onager.errors import OnagerError
from scheduler.tasks.distribution import TaskDistribution
from state_backend.faulty import APPLIES_TO, FaultKind
from state_backend.local import Engine
from state_backend.memory import MemoryBackend, MemoryStore
from tests.simulation.client import SimulatedClient
from tests.simulation.data import Exchange, draw_plan
from tests.simulation.loop import VirtualClock, VirtualLoop, current
from tests.simulation.network import Channel, Network, Rates
from tests.simulation.observer import Observer, Violation
from tests.simulation.oracles import Oracles
from tests.simulation.planted import PLANTED
from tests.simulation.processes import EXCHANGE_DIR, SimulatedExecutor, SimulatedReplica
from tests.simulation.worker import TaskRates, read_result

LAST_EVENTS = 60
MAX_STEPS = 3_000_000
_SETTLE_S = 150.0
_RETENTION_S = 20
_ORPHAN_AGE_S = 5
_HARMLESS_ERRORS = frozenset({"report_unusable"})


@dataclass(slots=True)
class Report:
    """What became of a simulation."""

    seed: int
    digest: str
    violation: str | None = None
    last: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    virtual_s: float = 0.0

    def told(self) -> str:
        """Return what a person needs to go after it."""
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
        self.observer = Observer(self.exchange, self.trace)
        self.network.on_answer = self.observer.answered
        self.is_over = False
        self._faults: dict[FaultKind, float] = {}
        self._fault_draw = random.Random(f"store {seed}").random
        self._task_rates = TaskRates()
        self.scheduler_settings: dict[str, Any] = {
            "exchange_dir": EXCHANGE_DIR,
            "executor_lease_ttl_ms": 3_000,
            "connection_grace_ms": 500,
            "poll_wait_max_ms": 10_000,
            "sweep_interval_ms": 2_000,
            "clean_up_repeat_ms": 5_000,
            "result_retention_s": 3_600,
            "record_retention_s": 7_200,
            "task_distribution": self._rng("distribution", 0).choice(list(TaskDistribution)),
        }
        self.replicas = [
            SimulatedReplica(self, n, self._rng("replica", n)) for n in range(self.rng.choice((1, 2, 3, 3)))
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
        self.clients: list[SimulatedClient] = []
        self._draw_way = self._rng("ways", 0).random

    def _rng(self, what: str, number: int) -> random.Random:
        return random.Random(f"{what} {number} {self.seed}")

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
        return self._task_rates

    def store_fault(self, replica: SimulatedReplica, operation: str) -> FaultKind | None:
        if replica.is_store_down and FaultKind.UNAVAILABLE in APPLIES_TO[operation]:
            return FaultKind.UNAVAILABLE
        if replica.is_store_down and operation == "watch_event":
            return FaultKind.CUT
        if not self._faults:
            return None
        number = self._fault_draw()
        for kind, rate in self._faults.items():
            if kind in APPLIES_TO[operation]:
                if number < rate:
                    self.observer.counts[f"store {kind}"] += 1
                    self.trace(f"store: {operation} of {replica.name} meets {kind}")
                    return kind
                number -= rate
        return None

    def log(self, _: Any, __: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Take in what the product logs; an error there is one here."""
        event, level = fields.get("event"), fields.get("level")
        try:
            who = current().name
        except LookupError:
            who = "?"
        if level != "debug":
            told = " ".join(f"{k}={v}" for k, v in fields.items() if k not in ("event", "level", "exc_info"))
            self.trace(f"{who} {level}: {event} {told}")
        is_error = level in ("error", "critical") or (fields.get("exc_info") and level != "debug")
        # One of ours that is told and dealt with is no defect.
        if is_error and event not in _HARMLESS_ERRORS and not isinstance(sys.exc_info()[1], OnagerError):
            self.observer.fail(f"{who} logged {event}: { {k: str(v)[:300] for k, v in fields.items()} }")
        raise structlog.DropEvent

    # ---------------------------------------------------------------- the course of events

    def run(self) -> Report:
        """Simulate from the start to an empty store."""
        violation: str | None = None
        with self._patched():
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
        for replica in self.replicas:
            replica.start()
        for executor in self.executors:
            executor.start()
        span_s = self._submit_jobs()
        self._begin_faults()
        ends_s = self.loop.time() + span_s
        while self.loop.time() < ends_s:
            await asyncio.sleep(self.rng.expovariate(1.0))
            self._something_happens()
            self._check()
        self._end_faults()
        await self._settle(lambda: all(c.is_done for c in self.clients), "clients are still waiting")
        await self._settle(Oracles(self).are_registered, "schedulers that live are not registered")
        await asyncio.sleep(1.0)
        self._check()
        Oracles(self).check_jobs()
        await self._settle(Oracles(self).are_slots_free, "slots are still held")
        await self._grow_old()

    def _submit_jobs(self) -> float:
        span_s = self.rng.uniform(3, 15)
        families = self.rng.choice((1, 3, 100))
        shapes = [draw_plan(self.rng, n) for n in range(min(families, 4))]
        for number in range(self.rng.choice((1, 2))):
            client = SimulatedClient(self, number, self._rng("client", number))
            self.clients.append(client)
            for n in range(self.rng.choice((1, 2, 3))):
                plan = self.rng.choice(shapes) if families < 100 else draw_plan(self.rng, n)
                client.begin(f"job-{number}-{n}", plan, self.rng.random() * span_s * 0.6)
        return span_s

    def _begin_faults(self) -> None:
        severity = self.rng.choice((0.0, 0.5, 1.0, 1.0, 2.0))
        draw = self.rng.random
        self.network.rates = Rates(
            lost=0.03 * severity * draw(), repeated=0.05 * severity * draw(), slow=0.1 * severity * draw()
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
        self._faults = {kind: rate * severity * draw() for kind, rate in rates.items()}
        self._task_rates = TaskRates(
            io_error=self.rng.choice((0, 0, 0.03, 0.1)),
            user_error=self.rng.choice((0, 0, 0, 0.02)),
            output_lost=self.rng.choice((0, 0, 0.05)),
            slow=self.rng.choice((0.05, 0.2, 0.6)),
        )

    def _end_faults(self) -> None:
        self.trace("faults end")
        self._faults = {}
        self.network.rates = Rates()
        self.network.cut.clear()
        self._task_rates = TaskRates(slow=0.0)
        for replica in self.replicas:
            replica.is_store_down = False
            if replica.process is None and self.rng.random() < 0.5:
                replica.start()
            elif replica.process is None:
                self.trace(f"{replica.name} does not come back")
                replica.wants_to_live = False
            elif replica.process.is_paused:
                self._resume(replica)
        if all(r.process is None for r in self.replicas):
            self.replicas[0].start()
        for executor in self.executors:
            is_alone = all(e.process is None for e in self.executors if e is not executor)
            if executor.process is None and (is_alone or self.rng.random() < 0.6):
                executor.start()
            elif executor.process is None:
                self.trace(f"{executor.name} does not come back")
                executor.wants_to_live = False
            elif executor.process.is_paused:
                self._resume(executor)

    def _something_happens(self) -> None:
        rng = self.rng
        replica, executor = rng.choice(self.replicas), rng.choice(self.executors)
        client = rng.choice(self.clients)
        match rng.randrange(15):
            case 0 | 1 | 2:
                replica.kill()
                self.later(rng.uniform(0.05, 4), self._start, replica)
            case 3:
                self._pause(replica, rng.choice((0.3, 2.0, 8.0)) * rng.random())
            case 4 | 5:
                executor.kill()
                self.later(rng.uniform(0.1, 6), self._start, executor)
            case 6 | 13:
                self._pause(executor, rng.choice((0.5, 4.0, 8.0)) * (0.2 + rng.random()))
            case 7 | 8:
                pair = self._draw_pair(client, executor, replica)
                self.trace(f"{pair} are cut off")
                self.network.cut.add(pair)
                self.later(rng.uniform(0.1, 6), self.network.cut.discard, pair)
            case 9:
                self.trace(f"{replica.name} loses the store")
                replica.is_store_down = True
                self.later(rng.uniform(0.1, 5), setattr, replica, "is_store_down", False)
            case 10:
                executor.drain()
            case 11:
                if replica.process is not None and not replica.process.is_paused:
                    self.loop.spawn(self.loop.world, self._restart(replica))
            case 12:
                if executor.worker is not None and executor.process is not None:
                    self.trace(f"the JVM of {executor.life} dies")
                    executor.worker.die()
            case _:
                pass

    def _draw_pair(
        self, client: SimulatedClient, executor: SimulatedExecutor, replica: SimulatedReplica
    ) -> tuple[str, str]:
        """Return who will not reach which address."""
        pair = (self.rng.choice((client.name, executor.name)), replica.address)
        if executor.mode == "push" and self._draw_way() < 0.3:
            pair = (replica.name, executor.address)
        return pair

    async def _restart(self, replica: SimulatedReplica) -> None:
        await replica.stop()
        self._start(replica)

    def _start(self, place: SimulatedReplica | SimulatedExecutor) -> None:
        if place.process is None and not self.is_over and getattr(place, "wants_to_live", True):
            place.start()

    def _pause(self, place: SimulatedReplica | SimulatedExecutor, for_s: float) -> None:
        if place.process is not None and not place.process.is_paused:
            self.trace(f"{place.name} is paused for {for_s:.3f} s")
            place.process.is_paused = True
            self.later(for_s, self._resume, place, place.process)

    def _resume(self, place: SimulatedReplica | SimulatedExecutor, process: Any = None) -> None:
        process = place.process if process is None else process
        if process is not None and process.is_paused:
            self.trace(f"{place.name} goes on")
            process.is_paused = False

    async def _settle(self, is_done: Callable[[], bool], what: str) -> None:
        deadline_s = self.loop.time() + _SETTLE_S
        while not is_done():
            self._check()
            if self.loop.time() > deadline_s:
                waiting = [j.job_id for j in self.observer.jobs.values() if j.final is None]
                raise Violation(f"{what} {_SETTLE_S:.0f} s after the last fault; jobs that have not ended: {waiting}")
            await asyncio.sleep(0.25)

    async def _grow_old(self) -> None:
        """Let retention pass: then nothing is left."""
        self.trace("everything grows old")
        for replica in self.replicas:
            replica.wants_to_live = False
            await replica.stop()
        last = self.replicas[0]
        last.start(
            result_retention_s=_RETENTION_S // 2,
            record_retention_s=_RETENTION_S,
            lost_executor_retention_s=5,
            heads_interval_ms=5_000,
            sweep_interval_ms=5_000,
        )
        await asyncio.sleep(_RETENTION_S + 12)
        for executor in self.executors:
            executor.wants_to_live = False
            executor.drain()
        await self._settle(lambda: all(e.process is None for e in self.executors), "executors do not leave")
        await asyncio.sleep(12 + 3 * _ORPHAN_AGE_S)
        self._check()
        await last.stop()
        # What a stopped replica could not take back ends with its lease.
        await asyncio.sleep(10)
        self.store.run(Engine.expire)
        Oracles(self).check_empty()

    # ---------------------------------------------------------------- what must hold

    def _check(self) -> None:
        self.observer.check()
        if self.loop.problems:
            raise Violation(self.loop.problems[0])
        if self.loop.steps > MAX_STEPS:
            raise Violation(f"no end after {MAX_STEPS} steps")

    # ---------------------------------------------------------------- making it deterministic

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Put the simulation's randomness, network and log in the place of the machine's."""
        draw = random.Random(f"secrets {self.seed}")
        before = structlog.get_config()
        structlog.configure(
            processors=[structlog.processors.add_log_level, self.log],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=False,
        )
        with ExitStack() as stack:
            stack.callback(lambda: structlog.configure(**before))
            for target, replacement in (
                ("secrets.token_hex", lambda n=16: draw.randbytes(n).hex()),
                ("secrets.randbelow", draw.randrange),
                ("grpc.aio.insecure_channel", lambda address, **_: Channel(self.network, address)),
                ("onager.exchange_layout.read_result", lambda path: iter(read_result(self.exchange, path))),
                ("state_backend.faulty._TICK_S", 3_600.0),  # this clock wakes who waits for it
                ("scheduler.jobs.housekeeping._ORPHAN_AGE_S", _ORPHAN_AGE_S),
                ("scheduler.jobs.job_store.SNAPSHOT_MIN_LOG_BYTES", self.rng.choice((1_000, 4_000, 64_000))),
            ):
                stack.enter_context(mock.patch(target, replacement))
            if self._planted is not None:
                stack.enter_context(PLANTED[self._planted]())
            # When garbage is collected is not for the seed to say, so it waits until the end.
            gc.disable()
            stack.callback(gc.enable)
            yield

    def _end(self) -> None:
        """Take everything down without letting it do anything any more."""
        self.store.run = _refuse  # type: ignore[method-assign]
        self.network.is_over = True
        self._tell = None
        left = self.loop.bury()
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
