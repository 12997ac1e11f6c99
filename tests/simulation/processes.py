"""What runs in a simulated cluster: schedulers and executors, each a real one over a simulated network and store."""

import asyncio
import random  # noqa: TID251 seeded
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onager.errors import OnagerError
from onager.executor.agent.agent import Agent
from onager.executor.agent.endings import Ending
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.agent.push import ExecutorService
from onager.executor.agent.registration import Identity
from onager.executor.settings import ExecutorSettings
from onager.ids import Incarnation
from onager.scheduler import main
from onager.scheduler.app import SchedulerApp
from onager.scheduler.connect.handler import SparkConnectHandler
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.faulty import FaultPlan, FaultyBackend
from onager.state_backend.memory import MemoryBackend
from tests.simulation import reuse, versions
from tests.simulation.loop import Process, VirtualClock
from tests.simulation.network import OF_PROGRAM, Network
from tests.simulation.worker import SimulatedWorker, TaskRates

if TYPE_CHECKING:
    from tests.simulation.world import World

EXCHANGE_DIR = "/exchange"
SCHEDULER_SKEW_MS = 10_000
"""Schedulers that are up together agree on a time; they may all be down at once, and then the first back sets it."""
EXECUTOR_SKEW_MS = 2 * 3_600_000


_SCHEDULER = SchedulerSettings(exchange_dir=EXCHANGE_DIR, machine="simulated", audit_max_notes=0)
EXECUTOR = ExecutorSettings(exchange_dir=EXCHANGE_DIR, host="simulated", machine="simulated")
"""Made once, outside of any simulation: making them takes longer than some simulations."""


def draw_skew_ms(rng: random.Random, most_ms: int) -> int:
    """Draw by how much a wall clock is wrong: half of them by less than a second, and the others by up to *most_ms*."""
    return rng.randint(-500, 500) if rng.random() < 0.5 else rng.randint(-most_ms, most_ms)


class SimulatedBackend(FaultyBackend):
    """A scheduler's client of the store; what is under way there arrives whatever becomes of the scheduler."""

    def __init__(self, world: "World", inner: MemoryBackend, plan: FaultPlan, delay_s: Callable[[], float]) -> None:
        super().__init__(inner, plan, VirtualClock(world.loop), delay_s=delay_s)
        self._world = world

    def _send_late(self, call: Callable[[], Any]) -> None:
        context, caller = self._world.loop.world.context.copy(), OF_PROGRAM.get()
        context.run(OF_PROGRAM.set, caller)
        context.run(super()._send_late, call)


class _StoppingServer:
    """What is left of a gRPC server when it is to stop."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process

    async def stop(self, grace: float) -> None:
        await self._network.stop(self._process, grace)


class SimulatedScheduler:
    """A place where one scheduler runs, life after life."""

    def __init__(self, world: "World", number: int, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.name = f"replica-{number}"
        self.address = f"127.0.0.1:{5_000 + number}"
        self.lives = 0
        self.process: Process | None = None
        self.scheduler: SchedulerApp | None = None
        self.loops: asyncio.Task[None] | None = None
        self.store: MemoryBackend | None = None
        self.is_store_down = False
        self.wants_to_live = True
        self.is_leaving = False
        self.began_s = 0.0
        self.clock = VirtualClock(world.loop, draw_skew_ms(rng, SCHEDULER_SKEW_MS))
        self.is_old = False
        """Whether it is of the older release."""

    def start(self, **settings: Any) -> None:
        self.lives += 1
        version = ", of the older release" if self.is_old else ""
        self.world.trace(f"{self.name}#{self.lives} starts{version}")
        self.is_leaving = False
        self.began_s = self.world.loop.time()
        self.process = self.world.loop.start_process(f"{self.name}", is_old=self.is_old)
        self.world.loop.spawn(self.process, self._main(self.process, settings))

    async def _main(self, process: Process, settings: dict[str, Any]) -> None:
        world = self.world
        while True:
            self.store = MemoryBackend(world.store)
            backend = SimulatedBackend(world, self.store, self._fault, self._delay_s)
            own = {**world.scheduler_settings, **settings, "scheduler_id": self.name, "listen": self.address}
            scheduler = SchedulerApp(_SCHEDULER.model_copy(update=own), backend, self.clock)
            if world.is_reusing:
                reuse.let_space_run_short(scheduler, world._rng(f"space {self.name}", self.lives))
            if world.is_mixed:
                scheduler.schedulers.record = versions.registration(scheduler.schedulers.record, is_old=self.is_old)
            try:
                await scheduler.start()
                break
            except OnagerError as error:
                world.trace(f"{self.name} cannot start: {error}")
                await self.store.close()
                await asyncio.sleep(0.5)
        self.scheduler = scheduler
        connect = SparkConnectHandler(
            scheduler.spark_connect, scheduler.stopping, scheduler.settings.stream_share_percent
        )
        services = (scheduler.service, scheduler.gateway, scheduler.for_schedulers, connect)
        world.network.listen(self.address, process, *services)
        world.trace(f"{self.name}#{self.lives} serves")
        self.loops = asyncio.create_task(scheduler.run())
        try:
            await self.loops
        except Exception as error:  # noqa: BLE001 - whatever it is, a scheduler must not end by itself
            if process.is_alive and self.process is process and not world.is_over:
                world.observer.fail(f"{self.name} ended by itself: {error!r}")

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        process = self.process
        if process is None:
            return
        self.world.trace(f"{self.name}#{self.lives} is killed")
        self.world.loop.kill(process)
        self.world.network.gone(process)
        if self.store is not None:
            self.world.store.clients.discard(self.store)
        self.process = self.scheduler = self.store = None

    async def stop(self) -> None:
        """End it as SIGTERM does."""
        process, scheduler, store = self.process, self.scheduler, self.store
        if process is None or scheduler is None or store is None:
            self.kill()
            return
        self.world.trace(f"{self.name}#{self.lives} is stopped")
        self.is_leaving = True
        done = self.world.loop.spawn(process, self._stop(process, scheduler, store))
        await asyncio.wait([done], timeout=5)
        if done.done() and not done.cancelled() and done.exception() is not None:
            self.world.observer.fail(f"{self.name} could not be stopped: {done.exception()!r}")
        if self.process is process:
            self.kill()

    async def _stop(self, process: Process, scheduler: SchedulerApp, store: MemoryBackend) -> None:
        assert self.loops is not None
        began_s = self.world.loop.time()
        await main._drain(scheduler, _StoppingServer(self.world.network, process), self.loops)  # type: ignore[arg-type]
        await store.close()
        self.world.trace(f"{self.name}#{self.lives} left in {self.world.loop.time() - began_s:.3f} s")

    def _fault(self, operation: str) -> Any:
        return self.world.store_fault(self, operation)

    def _delay_s(self) -> float:
        is_long = self.world.weather.is_storm and self.rng.random() < 0.05
        return self.rng.random() * (0.5 if is_long else 0.01)


class SimulatedExecutor:
    """A place where one executor runs, life after life, under one id."""

    def __init__(self, world: "World", number: int, rng: random.Random, slots: int, mode: str) -> None:
        self.world, self.number, self.rng, self.slots, self.mode = world, number, rng, slots, mode
        self.address = f"127.0.0.1:{6_000 + number}"
        self.name = f"executor-{number}"
        self.can_stream = random.Random(f"streams {number} {world.seed}").random() < 0.85
        self.lives = 0
        self.process: Process | None = None
        self.agent: Agent | None = None
        self.worker: SimulatedWorker | None = None
        self.wants_to_live = True
        self.is_broken = False
        """Whether every task fails there."""
        self.clock = VirtualClock(
            world.loop, draw_skew_ms(random.Random(f"clock {number} {world.seed}"), EXECUTOR_SKEW_MS)
        )

    def _task_rates(self) -> TaskRates:
        rates = self.world.task_rates()
        return replace(rates, io_error=1.0, user_error=0.0) if self.is_broken else rates

    @property
    def life(self) -> str:
        return f"{self.name}_{self.lives}"

    @property
    def is_registered(self) -> bool:
        """Return whether a scheduler knows this life of it."""
        return self.agent is not None and self.agent._registration._registered.is_set()

    def start(self) -> None:
        self.lives += 1
        self.world.trace(f"{self.life} starts in {self.mode} mode")
        self.process = self.world.loop.start_process(self.name)
        self.world.loop.spawn(self.process, self._main(self.process))

    async def _main(self, process: Process) -> None:
        world, clock = self.world, self.clock
        addresses = [r.address for r in world.schedulers]
        self.rng.shuffle(addresses)
        settings = EXECUTOR.model_copy(
            update={
                "scheduler": ",".join(addresses),
                "slots": self.slots,
                "executor_id": self.name,
                "mode": self.mode,
            }
        )
        stream_address = f"{self.name}.{self.lives}:7000" if self.can_stream else ""
        world.exchange.stream_addresses[self.life] = stream_address
        self.worker = SimulatedWorker(
            self.life,
            world.exchange,
            self.rng,
            self._task_rates,
            clock,
            world.observer,
            stream_address,
            seed=world.seed,
            spark=world.spark,
        )
        identity = Identity(
            incarnation=Incarnation(self.life),
            pid=0,  # it is no process
            spark_version="4.3.0",
            python_version="3.11",
            stream_address=stream_address,
        )
        async with SchedulerGateway(settings.scheduler_addresses, clock=clock) as gateway:
            address = self.address if self.mode == "push" else ""
            self.agent = Agent(settings, identity, self.worker, gateway, clock, address=address)
            if address:
                world.network.listen(address, process, ExecutorService(self.agent))
            try:
                outcome = await self.agent.run()
            except Exception as error:  # noqa: BLE001 - an agent must not end by itself
                world.observer.fail(f"{self.life} ended by itself: {error!r}")
                return
        world.trace(f"{self.life} ended: {outcome.ending.name} {outcome.message}")
        if outcome.ending is Ending.REFUSED:
            world.observer.counts["refused"] += 1
        if self.process is process:
            self._forget("it left")
            if self.wants_to_live:
                world.later(0.5 + self.rng.random(), self._start_again, self.lives)

    def _start_again(self, life: int) -> None:
        if self.process is None and self.lives == life and self.wants_to_live:
            self.start()

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        if self.process is not None:
            self.world.trace(f"{self.life} is killed")
            self._forget("it was killed")

    def _forget(self, _: str) -> None:
        process = self.process
        if process is None:
            return
        self.process = self.agent = None
        self.world.exchange.lose_executor(self.life)
        self.world.loop.kill(process)
        self.world.network.gone(process)

    def drain(self) -> None:
        if self.agent is not None and self.process is not None:
            self.world.trace(f"{self.life} is asked to leave")
            self.process.context.copy().run(self.agent.request_drain)
