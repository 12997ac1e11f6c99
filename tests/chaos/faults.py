"""Injects faults into a cluster and heals them, and restarts parts that end by themselves, as a supervisor would."""

import asyncio
import contextlib
import os
import random  # noqa: TID251 seeded
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos.cluster import ChaosCluster, send
from tests.chaos.schedule import Fault, FaultKind

_LOOK_S: Final = 0.5
_RESTART_S: Final = 1.0
_BALLAST: Final = "ballast"
_LEADER_WAIT_S: Final = 10.0

Done = tuple[str, Callable[[], Coroutine[Any, Any, None]]]
"""The target of a fault, and the function that heals it."""


@dataclass(slots=True)
class Injected:
    """A fault that struck, with times of the monotonic clock in seconds."""

    fault: Fault
    what: str
    """What was really hurt."""
    from_s: float
    until_s: float | None = None

    def overlaps(self, from_s: float, until_s: float) -> bool:
        """Return whether it was there at any time between the two."""
        return self.from_s <= until_s and (self.until_s is None or self.until_s >= from_s)


@dataclass(slots=True)
class EndedByItself:
    """A part whose process ended though nobody had killed it."""

    name: str
    code: int | None
    at_s: float
    last_words: str
    was_serving: bool


class Injector:
    """Executes the schedule, and records the faults."""

    def __init__(self, cluster: ChaosCluster, seed: int, disk: Path | None, say: Callable[[str], None]) -> None:
        self.injected: list[Injected] = []
        self.deaths: list[EndedByItself] = []
        self._cluster = cluster
        self._rng = random.Random(f"{seed} faults")
        self._disk = disk
        self._say = say
        self._down: set[str] = set()
        """Parts that are to be dead for now."""

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Let *faults* strike, each at its time from now; return when the last is undone."""
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, began_s + fault.at_s - time.monotonic()))
                group.create_task(self._suffer(fault))

    async def supervise(self) -> None:
        """Start again what ends by itself, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for part in self._cluster.local.parts.values():
                if part.name in self._down or part.is_running:
                    continue
                code = None if part.process is None else part.process.returncode
                printed = part.output()
                serving = "listening on" in printed or '"registered"' in printed
                last = " / ".join(printed.splitlines()[-2:])[-600:]
                self.deaths.append(EndedByItself(part.name, code, time.monotonic(), last, serving))
                self._say(f"{part.name} ended by itself with code {code}: {last}")
                self._down.add(part.name)
                await asyncio.sleep(_RESTART_S)
                self._start(part.name)

    @contextlib.contextmanager
    def left_alone(self, *names: str) -> Any:
        """Exclude parts from `supervise` while they are restarted deliberately."""
        self._down.update(names)
        try:
            yield
        finally:
            self._down.difference_update(names)

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {**asdict(i.fault), "kind": i.fault.kind.value, "what": i.what, "from_s": i.from_s, "until_s": i.until_s}
            for i in self.injected
        ]

    # -- one fault

    async def _suffer(self, fault: Fault) -> None:
        done = await self._inject(fault)
        if done is None:
            self._say(f"{fault.kind.value}: {fault.target}: there was none to be had")
            return
        what, undo = done
        record = Injected(fault, what, time.monotonic())
        self.injected.append(record)
        for_s = f" for {fault.lasts_s:.1f} s" if fault.lasts_s else ""
        self._say(f"{fault.kind.value}: {what}{for_s}")
        try:
            await asyncio.sleep(fault.lasts_s)
        finally:
            await undo()
            record.until_s = time.monotonic()

    async def _inject(self, fault: Fault) -> Done | None:  # noqa: PLR0911 - one for each kind
        if fault.target == "etcd":
            return await self._hurt_etcd(fault.kind)
        match fault.kind:
            case FaultKind.KILL_SCHEDULER | FaultKind.KILL_EXECUTOR:
                return self._kill(fault.target)
            case FaultKind.KILL_ALL_SCHEDULERS:
                return self._kill(*(part.name for part in self._cluster.local.named("scheduler")))
            case FaultKind.KILL_JVM | FaultKind.KILL_PYTHON_WORKER | FaultKind.PAUSE_JVM:
                return self._hurt_below(fault)
            case FaultKind.PAUSE_SCHEDULER | FaultKind.PAUSE_EXECUTOR:
                return self._pause(fault.target)
            case FaultKind.FILL_DISK:
                return self._fill_disk()
            case _:
                return self._hurt_link(fault)

    def _kill(self, *names: str) -> Done:
        self._down.update(names)
        for name in names:
            self._cluster.part(name).kill()

        async def undo() -> None:
            for name in names:
                self._start(name)

        return ", ".join(names), undo

    def _hurt_below(self, fault: Fault) -> Done | None:
        """Kill or pause the executor's JVM, or kill a Python worker of that."""
        found = self._cluster.python_workers(fault.target)
        if fault.kind is not FaultKind.KILL_PYTHON_WORKER:
            found = [jvm] if (jvm := self._cluster.jvm(fault.target)) else []
        if not found:
            return None
        number = signal.SIGSTOP if fault.kind is FaultKind.PAUSE_JVM else signal.SIGKILL

        async def undo() -> None:
            if number == signal.SIGSTOP:
                send(found[0], signal.SIGCONT)

        return (f"{fault.target} (process {found[0].pid})", undo) if send(found[0], number) else None

    def _pause(self, name: str) -> Done:
        self._cluster.send_to_all(name, signal.SIGSTOP)

        async def undo() -> None:
            self._cluster.send_to_all(name, signal.SIGCONT)

        return name, undo

    async def _hurt_etcd(self, kind: FaultKind) -> Done | None:
        leader = await self._await_leader()
        members = [part.name for part in self._cluster.local.named("etcd")]
        followers = [member for member in members if member != leader]
        if leader is None:
            return None
        match kind:
            case FaultKind.KILL_ETCD_LEADER:
                return self._kill(leader)
            case FaultKind.KILL_ETCD_FOLLOWER:
                return self._kill(self._rng.choice(followers))
            case FaultKind.KILL_ETCD_MAJORITY:
                return self._kill(*self._rng.sample(members, 2))
            case FaultKind.PAUSE_ETCD_LEADER:
                return self._pause(leader)
            case _:
                return self._pause(self._rng.choice(followers))

    async def _await_leader(self) -> str | None:
        end_s = time.monotonic() + _LEADER_WAIT_S
        while (leader := await self._cluster.leader()) is None and time.monotonic() < end_s:  # noqa: ASYNC110 no event
            await asyncio.sleep(0.2)
        return leader

    def _hurt_link(self, fault: Fault) -> Done:
        proxies = self._cluster.links[fault.target]
        whither = {"client": " to HAProxy", "executor": " to HAProxy", "scheduler": " to etcd"}
        whose = fault.target + whither.get(fault.target.partition("-")[0], "")
        if len(proxies) > 1 and self._rng.random() < 0.5:
            # A scheduler's way to one member alone.
            proxies = [self._rng.choice(proxies)]
            whose = f"{fault.target} to one member of etcd"
        ways = self._rng.choice([("up",), ("down",), ("up", "down")])
        delay_s = self._rng.uniform(0.02, 0.25)
        for proxy in proxies:
            match fault.kind:
                case FaultKind.CUT:
                    proxy.cut()
                case FaultKind.REFUSE:
                    proxy.refuse()
                    proxy.cut()
                case FaultKind.DROP_ANSWER:
                    proxy.drop_next_answer()
                case FaultKind.HOLD:
                    for way in ways:
                        getattr(proxy, way).hold()
                case _:
                    for way in ways:
                        getattr(proxy, way).delay_s = delay_s

        async def undo() -> None:
            for proxy in proxies:
                await proxy.heal()

        detail = {FaultKind.HOLD: f", {' and '.join(ways)}", FaultKind.DELAY: f", {' and '.join(ways)} {delay_s:.2f} s"}
        return f"{whose}{detail.get(fault.kind, '')}", undo

    def _fill_disk(self) -> Done:
        assert self._disk is not None
        ballast = self._disk / _BALLAST
        written = 0
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for chunk in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        written += os.write(file.fileno(), bytes(chunk))

        async def undo() -> None:
            ballast.unlink()

        return f"{self._disk.name} with {written >> 20} MiB", undo

    def _start(self, name: str) -> None:
        part = self._cluster.part(name)
        if not part.is_running:
            part.start()
        self._down.discard(name)
