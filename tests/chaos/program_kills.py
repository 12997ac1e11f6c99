"""Kills what a program of PySpark runs on: its process, what starts that, JVMs, schedulers; or stops it for a while."""

import random  # noqa: TID251 seeded
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.chaos.cluster import children, send
from tests.chaos.victims import EXECUTOR, JVM, SCHEDULER, Victims

PROCESS: Final = "process"
ALL: Final = "all schedulers"
STOPPED: Final = "stopped"
KINDS: Final = (PROCESS, EXECUTOR, JVM, SCHEDULER, ALL, STOPPED)
_WAYS: Final = ("whole", "alone", "beside")
"""How an executor is killed: with all that it has started, alone, or what runs programs beside it."""
_OF_SCHEDULERS: Final = 0.25
"""How often a scheduler is stopped, of several."""
_SCHEDULER_S: Final = 10.0
_GONE_S: Final = 3.0
"""How long the process of a program may outlive what runs it."""


class Host(NamedTuple):
    """What runs programs beside an executor."""

    executor: str
    process: psutil.Process

    @property
    def programs(self) -> list[psutil.Process]:
        """Return the processes of its programs."""
        return [each for each in children(self.process) if _is_program(each)]


class Struck(NamedTuple):
    """What was done."""

    kind: str
    what: str
    is_alone: bool
    """Whether there is no other executor on which a program could go on."""
    at_ms: int
    done_ms: int
    """When it was done: what is killed may still do something before."""


class Killer:
    """Kills, in equal shares of all kinds, what the seed draws."""

    def __init__(self, cluster: Victims, rng: random.Random, stopped_s: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._stopped_s = stopped_s
        self._kinds: list[str] = []
        self._asleep: dict[int, threading.Timer] = {}
        """By the process ids of what runs programs, and is stopped now: what wakes it up."""
        self.trouble: list[str] = []

    def strike(self) -> Struck | None:
        """Kill something, or stop it; None if it was not there, and is drawn again."""
        if not self._kinds:
            self._kinds = self._rng.sample(KINDS, len(KINDS))
        kind = self._kinds[-1]
        awake = [host for host in self._hosts() if host.process.pid not in self._asleep]
        running = next((host for host in awake if host.programs), None)
        is_alone = len(awake) < len(self._cluster.executors)
        at_ms = now_ms()
        if kind in (PROCESS, STOPPED) and running is None:
            return None
        programs = [] if running is None else running.programs
        what = self._strike(kind, running)
        done_ms = now_ms()
        if not what:
            return None
        self._kinds.pop()
        if kind == EXECUTOR:
            _, alive = psutil.wait_procs(programs, _GONE_S)
            self.trouble += [f"process {each.pid} of a program outlived {what}" for each in alive]
        return Struck(kind, what, is_alone, at_ms, done_ms)

    def _strike(self, kind: str, running: Host | None) -> str:
        """Return what was struck; nothing if it was not there."""
        executor = running.executor if running is not None else self._rng.choice(self._cluster.executors)
        match kind:
            case "process":
                assert running is not None
                return "its process" if any(send(each, signal.SIGKILL) for each in running.programs) else ""
            case "stopped":
                assert running is not None
                return self._stop(running)
            case "executor":
                return self._kill_executor(executor, running)
            case "jvm":
                executor = self._rng.choice(self._cluster.executors)
                return executor if self._cluster.kill(JVM, executor) else ""
            case "scheduler":
                scheduler = self._rng.choice(self._cluster.schedulers)
                self._cluster.kill(SCHEDULER, scheduler)
                return scheduler
            case _:
                self._cluster.kill_schedulers()
                return "all"

    def _kill_executor(self, executor: str, running: Host | None) -> str:
        way = self._rng.choice(_WAYS) if running is not None else "whole"
        if way == "beside" and running is not None:
            send(running.process, signal.SIGKILL)
        else:
            self._cluster.kill(EXECUTOR, executor, is_alone=way == "alone")
        return f"{executor}, {way}"

    # ---------------------------------------------------------------- sleep

    def _stop(self, host: Host) -> str:
        if len(self._cluster.schedulers) > 1 and self._rng.random() < _OF_SCHEDULERS:
            name = self._rng.choice(self._cluster.schedulers)
            scheduler = self._cluster.process(name)
            send(scheduler, signal.SIGSTOP)
            timer = threading.Timer(_SCHEDULER_S, send, (scheduler, signal.SIGCONT))
            timer.daemon = True
            timer.start()
            return f"{name} for {_SCHEDULER_S:.0f} s"
        below = children(host.process) if self._rng.random() < 0.5 else []
        for each in (host.process, *below):
            send(each, signal.SIGSTOP)
        for_s = self._stopped_s
        timer = threading.Timer(for_s, self._wake, (host.process, below))
        timer.daemon = True
        self._asleep[host.process.pid] = timer
        timer.start()
        return f"{host.executor} for {for_s:.0f} s{', with the program' if below else ''}"

    def _wake(self, host: psutil.Process, below: list[psutil.Process]) -> None:
        for each in (*below, host):
            send(each, signal.SIGCONT)
        self._asleep.pop(host.pid, None)

    def _hosts(self) -> Iterator[Host]:
        for executor in self._cluster.executors:
            for each in self._below(executor):
                if _has_word(each, "onager.executor.programs"):
                    yield Host(executor, each)

    def _below(self, executor: str) -> list[psutil.Process]:
        try:
            return self._cluster.process(executor).children()
        except psutil.NoSuchProcess:
            return []


def now_ms() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


def _has_word(process: psutil.Process, word: str) -> bool:
    try:
        return word in process.cmdline()
    except psutil.Error:
        return False


def _is_program(process: psutil.Process) -> bool:
    try:
        return Path(process.cwd()).name == "work" and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False
