"""Executors that run programs: real agents and attempts, whose processes are simulated.

An executor has such a process beside it. Here it lives by itself, so that it also comes and goes while its executor
stays.
"""

import asyncio
import random  # noqa: TID251 seeded
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from google.protobuf.json_format import Parse

from onager.execution_graph import FailureKind
from onager.executor.agent.agent import Agent
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.agent.registration import Identity
from onager.executor.attempt_logs import AttemptLogs
from onager.executor.programs.attempt import Attempt, Host, _Over
from onager.executor.programs.folder import Folder
from onager.executor.programs.relay import Name, Schedulers, _Relay
from onager.executor.work import Assignment, OnReport, WorkerEnd
from onager.ids import BlobDigest, Incarnation, JobId, TaskKey, program_host_id
from onager.program_output import Cut
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import ClientAccess, ClientSecurity
from onager.protocol.task_keys import task_keys
from tests.simulation.loop import Process, VirtualClock
from tests.simulation.processes import EXCHANGE_DIR, EXECUTOR, EXECUTOR_SKEW_MS, draw_skew_ms
from tests.simulation.programs.plans import main_of
from tests.simulation.programs.process import ProgramProcess

if TYPE_CHECKING:
    from tests.simulation.world import World


class _Target(str):
    """The address of a relay, which is at hand."""

    __slots__ = ("relay",)
    relay: _Relay


@asynccontextmanager
async def _relaying(schedulers: Schedulers, name: Name, path: str) -> AsyncIterator[str]:
    target = _Target(path)
    target.relay = _Relay(schedulers, name)
    yield target


@asynccontextmanager
async def _folder_of(program: pb.ProgramSpec, parent: Path) -> AsyncIterator[Folder]:
    yield Folder(parent / program.file_name)


@contextmanager
def hosts_patched() -> Iterator[None]:
    """Have attempts use no disk, and no socket."""
    with ExitStack() as stack:
        for name, replacement in (
            ("relaying", _relaying),
            ("folder_of", _folder_of),
            ("check_exchange_dir", lambda _: None),
        ):
            stack.enter_context(mock.patch(f"onager.executor.programs.attempt.{name}", replacement))
        yield


@dataclass(eq=False)
class SimulatedAttempt(Attempt):
    """An attempt, whose process is simulated, and prints nothing."""

    place: "SimulatedProgramHost | None" = None

    async def _process(
        self, folder: Folder, kept: Path, cuts: Sequence[Cut], terms: Mapping[str, Any]
    ) -> tuple[int, Any]:
        del folder, kept, cuts
        assert self.place is not None
        (target,) = terms["addresses"]
        process = self.place.begin(target.relay, terms, self.spec.program)
        try:
            code = await self._ended(process)
        finally:
            if process in self.place.programs:
                self.place.programs.remove(process)
        if process.refused:
            raise _Over(FailureKind.USER_ERROR, f"the program cannot go on: {process.refused}")
        if process.is_lost:
            raise _Over(FailureKind.TASK_KILLED, "another attempt of the program counts")
        failed = process.failed
        call = None if failed is None else pb.FailedCall(**failed._asdict())
        return code, SimpleNamespace(failed=call, raised=None)  # what `Printed` tells of the process


class SimulatedProgramWorker:
    """Runs the programs that an agent takes, on the loop of all: as `onager.executor.programs.worker` does."""

    stream_address = ""

    def __init__(self, place: "SimulatedProgramHost", host: Host) -> None:
        self._place = place
        self._host = host
        self._attempts: dict[TaskKey, SimulatedAttempt] = {}

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        spec = Parse(assignment.blobs[BlobDigest(assignment.task_set.spec_digest)], pb.JobSpec())
        for key in task_keys(assignment.task_set):
            self._place.world.observer.began(self._place.life, key)
            attempt = self._attempts[key] = SimulatedAttempt(self._host, key, spec, place=self._place)
            asyncio.get_running_loop().create_task(self._run(key, attempt, on_report))

    async def _run(self, key: TaskKey, attempt: SimulatedAttempt, on_report: OnReport) -> None:
        report = await attempt.run()
        del self._attempts[key]
        self._place.world.observer.ended(self._place.life, key, report)
        on_report(report)

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        for key in sorted(tasks):
            if (attempt := self._attempts.get(key)) is not None:
                attempt.cancel()

    def kept_jobs(self) -> set[JobId]:
        return set()

    def streamed_jobs(self) -> set[JobId]:
        return set()

    def clean_up(self, request: pb.CleanUp) -> None:
        """Schedulers ask the executors of tasks."""

    def connect(self, _call: Any, _catalog: Any) -> pb.ConnectReply:
        raise AssertionError("a scheduler asks a host of programs for Spark")

    def exchange_contents(self) -> None:
        return None

    def check_exchange(self) -> None:
        """There is always space here."""

    def sample_load(self) -> pb.ExecutorLoad:
        return pb.ExecutorLoad()

    def progress(self) -> list[pb.AttemptProgress]:
        return []

    def is_alive(self) -> bool:
        return True

    def end(self) -> WorkerEnd | None:
        return None

    def enforce_deadlines(self) -> str:
        return ""

    def kill(self) -> None:
        self.cancel(list(self._attempts))

    def close(self) -> None:
        pass


class SimulatedProgramHost:
    """A place where programs run, life after life, under one id."""

    def __init__(self, world: "World", number: int, rng: random.Random, slots: int) -> None:
        self.world, self.number, self.rng, self._slots = world, number, rng, slots
        self.name = str(program_host_id(f"executor-{number}"))
        self.lives = 0
        self.process: Process | None = None
        self.agent: Agent | None = None
        self.programs: list[ProgramProcess] = []
        self.wants_to_live = True
        self.clock = VirtualClock(world.loop, draw_skew_ms(rng, EXECUTOR_SKEW_MS))

    @property
    def life(self) -> str:
        return f"programs-{self.number}_{self.lives}"

    @property
    def is_registered(self) -> bool:
        """Return whether a scheduler knows this life of it."""
        return self.agent is not None and self.agent._registration._registered.is_set()

    def start(self) -> None:
        self.lives += 1
        self.world.trace(f"{self.life} starts")
        self.process = self.world.loop.start_process(self.name)
        self.world.loop.spawn(self.process, self._main(self.process))

    async def _main(self, process: Process) -> None:
        world, clock = self.world, self.clock
        addresses = [r.address for r in world.schedulers]
        self.rng.shuffle(addresses)
        own = {"scheduler": ",".join(addresses), "slots": self._slots, "executor_id": self.name, "drain_grace_ms": 0}
        settings = EXECUTOR.model_copy(update=own)
        identity = Identity(
            incarnation=Incarnation(self.life),
            pid=0,  # it is no process
            spark_version="4.3.0",
            python_version="3.11",
            runs_programs=True,
        )
        async with SchedulerGateway(settings.scheduler_addresses, clock=clock) as gateway:
            logs = AttemptLogs()
            host = Host(
                executor_id=self.name,
                incarnation=self.life,
                exchange_dir=EXCHANGE_DIR,
                folder=Path("/programs"),
                memory_bytes=1,
                gateway=gateway,
                schedulers=Schedulers(addresses, ClientAccess(ClientSecurity(), addresses)),
                warm=None,  # type: ignore[arg-type] # its processes are simulated
                clock=clock,
                logs=logs,
            )
            self.agent = Agent(settings, identity, SimulatedProgramWorker(self, host), gateway, clock, logs=logs)
            try:
                outcome = await self.agent.run()
            except Exception as error:  # noqa: BLE001 - an agent must not end by itself
                world.observer.fail(f"{self.life} ended by itself: {error!r}")
                return
        world.trace(f"{self.life} ended: {outcome.ending.name} {outcome.message}")
        if self.process is process:
            self._forget()
            if self.wants_to_live:
                world.later(0.5 + self.rng.random(), self._start_again, self.lives)

    def _start_again(self, life: int) -> None:
        if self.process is None and self.lives == life and self.wants_to_live:
            self.start()

    def begin(self, relay: _Relay, terms: Mapping[str, Any], program: pb.ProgramSpec) -> ProgramProcess:
        """Start the process of a program."""
        process = ProgramProcess(self.world, self, relay, terms, main_of(program))
        self.programs.append(process)
        process.start()
        return process

    def kill(self) -> None:
        """End it as ``kill -9`` does, and its programs with it."""
        if self.process is not None:
            self.world.trace(f"{self.life} is killed")
            self._forget()

    def _forget(self) -> None:
        process = self.process
        assert process is not None
        for program in self.programs:
            program.kill()
        self.process, self.agent, self.programs = None, None, []
        self.world.loop.kill(process)
        self.world.network.gone(process)

    def pause(self, *, is_paused: bool) -> None:
        """Have its machine do nothing, or go on."""
        for process in (self.process, *(program.process for program in self.programs)):
            if process is not None:
                process.is_paused = is_paused

    def drain(self) -> None:
        if self.agent is not None and self.process is not None:
            self.world.trace(f"{self.life} is asked to leave")
            self.process.context.copy().run(self.agent.request_drain)
