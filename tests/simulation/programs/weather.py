"""What happens to programs in a storm: at any time, and at the moments that matter."""

import random  # noqa: TID251 seeded
from typing import TYPE_CHECKING

from tests.simulation.programs.hosts import SimulatedProgramHost

if TYPE_CHECKING:
    from tests.simulation.programs.process import ProgramProcess
    from tests.simulation.world import World

_AT_CALL = 0.06
"""How many calls something happens at, until `_MOST` have met it."""
_MOST = 8


class ProgramWeather:
    """The faults of hosts and processes of programs."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = random.Random(f"weather of programs {world.seed}")
        self._count = 0

    @property
    def _is_storm(self) -> bool:
        return self._world.weather.is_storm and not self._world.weather.is_quiet

    def passing(self) -> float:
        """Return how many commands Spark refuses for now."""
        return 0.05 if self._is_storm else 0.0

    def something_happens(self) -> None:
        """Strike a host, or a process."""
        if not self._is_storm:
            return
        rng = self._rng
        host = rng.choice(self._world.hosts)
        match rng.randrange(8):
            case 0:
                self._kill_host(host)
            case 1:
                self._pause(host, rng.uniform(2, 10))
            case 2:
                host.drain()
            case 3 | 4 if host.programs:
                self._kill(rng.choice(host.programs))
            case 5 if host.programs:
                process = rng.choice(host.programs).process
                process.is_paused = True
                self._world.later(rng.uniform(0.5, 8), setattr, process, "is_paused", False)
            case _:
                pass

    def call_begins(self, process: "ProgramProcess") -> None:
        """Strike while a call is under way, or as its answer comes."""
        rng = self._rng
        if not self._is_storm or self._count >= _MOST or rng.random() > _AT_CALL:
            return
        self._count += 1
        self._world.later(rng.choice((0.002, 0.01, 0.5)) * rng.random(), self._strike, process)

    def answered(self, process: "ProgramProcess") -> None:
        """Strike when an attempt knows an answer: its process dies at once, and perhaps those who have given it."""
        if not self._is_storm or self._count >= _MOST or self._rng.random() > _AT_CALL:
            return
        self._count += 1
        self._world.later(0, self._kill, process)
        if self._rng.random() < 0.5:
            for scheduler in self._world.schedulers:
                if scheduler.address == process.scheduler_address:
                    scheduler.kill()
                    self._world.later(self._rng.uniform(0.05, 2), self._world.weather.start, scheduler)

    def _strike(self, process: "ProgramProcess") -> None:
        if not self._is_storm:
            return
        host = next((host for host in self._world.hosts if process in host.programs), None)
        if host is None:
            return
        if self._rng.random() < 0.4:
            self._kill(process)
            return
        # The call stays where it is, and so does its process: both go on beside a later attempt.
        self._pause(host, self._rng.uniform(4, 12))
        scheduler = self._rng.choice(self._world.schedulers)
        self._world.weather.pause(scheduler, self._rng.uniform(3, 10))

    def end(self) -> None:
        """Have all hosts run, or stay away for good; one does run."""
        for host in self._world.hosts:
            host.pause(is_paused=False)
            is_alone = all(other.process is None for other in self._world.hosts if other is not host)
            if host.process is None and (is_alone or self._rng.random() < 0.6):
                host.start()
            elif host.process is None:
                self._world.trace(f"{host.name} does not come back")
                host.wants_to_live = False

    # ---------------------------------------------------------------- what happens

    def _kill(self, process: "ProgramProcess") -> None:
        if self._is_storm and process.is_alive:
            self._world.trace(f"{process.name} is killed")
            self._world.ledger.killed[process.program_id] += 1
            process.kill()

    def _kill_host(self, host: SimulatedProgramHost) -> None:
        for process in host.programs:
            self._world.ledger.killed[process.program_id] += 1
        host.kill()
        self._world.later(self._rng.uniform(0.1, 6), self._start, host)

    def _start(self, host: SimulatedProgramHost) -> None:
        if host.process is None and not self._world.is_over and host.wants_to_live:
            host.start()

    def _pause(self, host: SimulatedProgramHost, for_s: float) -> None:
        if host.process is not None and not host.process.is_paused:
            self._world.trace(f"{host.name} is paused for {for_s:.3f} s")
            host.pause(is_paused=True)
            self._world.later(for_s, self._resume, host, host.process)

    def _resume(self, host: SimulatedProgramHost, process: object) -> None:
        if host.process is process:
            self._world.trace(f"{host.name} goes on")
            host.pause(is_paused=False)
