"""The cluster under faults: that of `make cluster`, with a TCP proxy in every connection that may be cut."""

import asyncio
import os
import signal
import urllib.request
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import psutil

from deploy.local_cluster import LocalCluster
from deploy.parts import HOST, Part, free_ports
from tests.support.processes.tcp_proxy import TcpProxy

EXECUTORS: Final = 3
MARK: Final = "CHAOS_RUN_OF_ONAGER"
"""A variable that all processes of a run have, and what they start: to be found when they are left behind."""
SMALL_SPARK: Final = {
    "spark.driver.memory": "640m",
    # Short lives on few cores: what is compiled well is not worth its compilation.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class ChaosCluster:
    """Three members of etcd, three schedulers, HAProxy, three executors of one slot (*pushed* of them in push mode).

    All connections can be hurt.
    """

    def __init__(self, directory: Path, clients: int, pushed: int) -> None:
        self.mark = uuid.uuid4().hex
        self.links: dict[str, list[TcpProxy]] = {}
        """By whose connections they are: of a client or an executor to HAProxy, of a scheduler to each member of etcd,
        of schedulers to a scheduler, of schedulers to an executor in push mode."""
        flags = [flag for name, value in SMALL_SPARK.items() for flag in ("--spark-conf", f"{name}={value}")]
        executors = {f"executor-{n}": list(flags) for n in range(1, EXECUTORS + 1)}
        for n in range(EXECUTORS, EXECUTORS - pushed, -1):
            name, port = f"executor-{n}", free_ports(1)[0]
            listen = f"{HOST}:{port}"
            executors[name] += ["--mode", "push", "--listen", listen, "--advertise", self._way("push", name, listen)]
        self.local = LocalCluster(
            directory,
            f"{HOST}:{free_ports(1)[0]}",
            EXECUTORS,
            slots=1,
            way=self._way,
            environment={
                MARK: self.mark,
                "ONAGER_SCHEDULER_LOG_FORMAT": "json",
                "ONAGER_EXECUTOR_LOG_FORMAT": "json",
                "ONAGER_SCHEDULER_CLEAN_UP_REPEAT_MS": "10000",
            },
            executor_flags=executors,
            exchange=directory.parent / "exchange",
        )
        assert self.local.proxy, "chaos needs haproxy: sudo apt-get install haproxy"
        self.clients = {
            f"client-{n}": self._way(f"client-{n}", "haproxy", self.local.addresses) for n in range(1, clients + 1)
        }
        self._stack = AsyncExitStack()

    def run_from(self, checkout: Path, python: Path) -> None:
        """Let schedulers and executors that start from now on run the code of *checkout*."""
        for part in (*self.local.named("scheduler"), *self.local.named("executor")):
            part.command = [python, *part.command[1:]]
            part.cwd = checkout

    async def __aenter__(self) -> Self:
        try:
            for proxies in self.links.values():
                for proxy in proxies:
                    await self._stack.enter_async_context(proxy)
            await asyncio.to_thread(self.local.start)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.local.stop)
        await self._stack.aclose()

    def part(self, name: str) -> Part:
        """Return the part of that name."""
        return self.local.parts[name]

    # -- etcd

    async def leader(self) -> str | None:
        """Return the member of etcd that leads; `None` when none that answers does."""
        members = [part.name for part in self.local.named("etcd")]
        leads = await asyncio.gather(*(asyncio.to_thread(self._is_leader, member) for member in members))
        return next((member for member, is_leading in zip(members, leads, strict=True) if is_leading), None)

    def _is_leader(self, member: str) -> bool:
        try:
            with urllib.request.urlopen(f"{self.local.etcd_url(member)}/metrics", timeout=2.0) as answer:
                return b"\netcd_server_is_leader 1\n" in answer.read()
        except OSError:
            return False

    # -- what an executor consists of

    def jvm(self, executor: str) -> psutil.Process | None:
        """Return the executor's JVM."""
        return next((p for p in self._below(executor) if _is_called(p, "java")), None)

    def python_workers(self, executor: str) -> list[psutil.Process]:
        """Return the Python workers of the executor's JVM, the one that forks them last."""
        jvm = self.jvm(executor)
        if jvm is None:
            return []
        found = [p for p in children(jvm) if _is_called(p, "python")]
        return sorted(found, key=lambda p: len(children(p)))

    def send_to_all(self, executor: str, number: signal.Signals) -> None:
        """Send *number* to the executor, its JVM and its Python workers."""
        for process in self._below(executor):
            send(process, number)
        self.part(executor).send(number)

    def _below(self, executor: str) -> list[psutil.Process]:
        part = self.part(executor)
        return children(psutil.Process(part.pid)) if part.is_running else []

    # -- all processes

    def marked(self) -> dict[int, str]:
        """Return the command of every process of this run by process id, including orphans."""
        found: dict[int, str] = {}
        for process in psutil.process_iter():
            try:
                is_ours = process.pid != os.getpid() and process.environ().get(MARK) == self.mark
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())[:160]
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def left_behind(self) -> dict[int, str]:
        """Return the processes of this run that do not belong to any part that runs."""
        kept: set[int] = set()
        for part in self.local.parts.values():
            if part.is_running:
                kept |= {part.pid, *(p.pid for p in children(psutil.Process(part.pid)))}
        return {pid: command for pid, command in self.marked().items() if pid not in kept}

    # -- inside

    def _way(self, user: str, target: str, address: str) -> str:
        proxy = TcpProxy(address)
        whose = {"schedulers": f"schedulers of {target}", "push": f"schedulers of {target}"}.get(user, user)
        self.links.setdefault(whose, []).append(proxy)
        return proxy.address


def children(process: psutil.Process) -> list[psutil.Process]:
    """Return all that *process* has started, and what that has started."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_called(process: psutil.Process, name: str) -> bool:
    try:
        return process.name().startswith(name)
    except psutil.NoSuchProcess:
        return False


def send(process: psutil.Process, number: signal.Signals) -> bool:
    """Send *number*; return whether the process was there."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True
