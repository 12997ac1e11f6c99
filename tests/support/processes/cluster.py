"""Clusters of real processes: on free ports, in a directory of their own, killed by process id, always cleaned up."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil

import onager
from onager.errors import OnagerError
from onager.protocol.plain import plain
from tests.support.processes.children import free_port
from tests.support.processes.forked import ForkedProcess, fork, run_forked
from tests.support.waiting import HANGS_S, until

ROOT = Path(__file__).resolve().parents[3]


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Process:
    """One `python -m onager …` with its output in a file."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        log: Path,
        environment: dict[str, str],
        code: str,
        small_disk: "Path | Process | None",
    ) -> None:
        """Start it; *small_disk*: a directory of 1 MiB that it sees, or another process that sees one."""
        self.name = name
        # In a mount namespace of its own, so that nothing stays mounted whatever happens.
        mount = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
        wrap: list[str] = []
        if isinstance(small_disk, Process):
            wrap = ["nsenter", "--user", "--mount", "--preserve-credentials", "--target", str(small_disk.pid)]
        elif small_disk is not None:
            wrap = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(small_disk)]
        run = ["-c", f"{code}\nfrom onager.cli import main\nmain()"] if code else ["-m", "onager"]
        whole = {**os.environ, **environment}
        self.log = log
        self.popen: subprocess.Popen[bytes] | ForkedProcess
        with log.open("ab") as out:
            if not wrap and not code:
                self.popen = fork(arguments, whole, stdout=out.fileno(), stderr=out.fileno())
                return
            self.popen = subprocess.Popen(
                [*wrap, sys.executable, *run, *arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=whole,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def kill(self) -> None:
        """Do what no process can prepare for, to this one alone."""
        self.popen.kill()
        self.popen.wait()

    def terminate(self, within_s: float = HANGS_S) -> int:
        self.popen.terminate()
        return self.popen.wait(within_s)

    def descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def jvm(self) -> psutil.Process | None:
        return next((p for p in self.descendants() if _name(p) == "java"), None)

    def program(self) -> psutil.Process | None:
        """Return the process of the program that this executor runs."""
        return next((p for p in self.descendants() if _runs_a_program(p)), None)

    def rss(self) -> int:
        return psutil.Process(self.pid).memory_info().rss

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _runs_a_program(process: psutil.Process) -> bool:
    try:
        return Path(process.cwd()).name == "work" and "python" in process.name()
    except psutil.Error:
        return False


class Cluster:
    """One scheduler on LevelDB and any number of executors."""

    def __init__(self, directory: Path, *, lease_ttl_ms: int = 2000, backend: str | None = None) -> None:
        self.directory = directory
        self.state_dir = directory / "state"
        self.exchange_dir = directory / "exchange"
        self.exchange_dir.mkdir(parents=True, exist_ok=True)
        self.backend = backend or f"leveldb:{self.state_dir}"
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            "ONAGER_SCHEDULER_EXECUTOR_LEASE_TTL_MS": str(lease_ttl_ms),
            "ONAGER_SCHEDULER_RETRY_PAUSES_S": "0.5,0.2",  # what fails for good is not waited for as long as by users
            "ONAGER_EXECUTOR_LOG_LEVEL": "debug",
            "ONAGER_EXECUTOR_PROGRAM_SLOTS": "0",
        }
        self.processes: list[Process] = []
        self.scheduler: Process | None = None
        self._is_on_small_disk = False
        self.executors: dict[str, Process] = {}
        self._client: onager.OnagerClient | None = None

    # -- processes

    def start_scheduler(self, *, on_small_disk: bool = False) -> Process:
        """Start a scheduler; *on_small_disk*, it sees an exchange directory of 1 MiB."""
        arguments = ["scheduler", "--backend", self.backend, "--listen", self.address]
        arguments += ["--exchange-dir", str(self.exchange_dir)]
        self._is_on_small_disk = on_small_disk
        self.scheduler = self.start("scheduler", arguments, small_disk=self.exchange_dir if on_small_disk else None)
        until(self._scheduler_answers, "an answer of the scheduler")
        return self.scheduler

    def _scheduler_answers(self) -> bool:
        assert self.scheduler is not None
        assert self.scheduler.popen.poll() is None, f"the scheduler ended:\n{self.scheduler.text()}"
        channel = grpc.insecure_channel(self.address)
        try:
            grpc.channel_ready_future(channel).result(timeout=1)
        except grpc.FutureTimeoutError:
            return False
        finally:
            channel.close()
        return True

    def launch_executor(
        self,
        executor_id: str,
        *,
        slots: int = 2,
        on_small_disk: bool = False,
        code: str = "",
        exchange_dir: Path | None = None,
        **environment: str,
    ) -> Process:
        """Start an executor, which runs *code* first, and do not wait for it.

        *on_small_disk*, it sees an exchange directory of 1 MiB, that of the scheduler if it does, too. *exchange_dir*:
        another one than the cluster's.
        """
        arguments = ["executor", "--scheduler", self.address, "--slots", str(slots), "--executor-id", executor_id]
        arguments += ["--exchange-dir", str(exchange_dir or self.exchange_dir), "--allow", "transform"]
        disk = self.scheduler if self._is_on_small_disk else self.exchange_dir
        small_disk = disk if on_small_disk else None
        process = self.start(executor_id, arguments, environment, code, small_disk=small_disk)
        self.executors[executor_id] = process
        return process

    def start_executor(
        self, executor_id: str, *, slots: int = 2, on_small_disk: bool = False, **environment: str
    ) -> Process:
        process = self.launch_executor(executor_id, slots=slots, on_small_disk=on_small_disk, **environment)
        self.await_executors(executor_id)
        return process

    def living_executors(self) -> dict[str, Process]:
        return {name: process for name, process in self.executors.items() if process.popen.poll() is None}

    def executor_states(self) -> dict[str, str]:
        return {e.executor_id: e.state for e in self.client.executors()}

    def the_executor(self) -> Process:
        """Return the only executor that lives, which is started where none does."""
        if not self.living_executors():
            return self.start_executor(f"e-{len(self.executors) + 1}")
        (living,) = self.living_executors().values()
        return living

    def await_executors(self, *executor_ids: str) -> None:
        def all_alive() -> bool:
            for executor_id in executor_ids:
                process = self.executors[executor_id]
                assert process.popen.poll() is None, f"{executor_id} ended:\n{process.text()}"
            return {e for e in executor_ids if self.info(e) is not None} == set(executor_ids)

        until(all_alive, f"{executor_ids} alive")

    def info(self, executor_id: str):
        """Return the executor's listing if it is alive in its present life, else None."""
        pid = self.executors[executor_id].pid
        try:
            listed = self.client.executors()
        except OnagerError:
            return None
        return next((e for e in listed if e.executor_id == executor_id and e.state == "alive" and e.pid == pid), None)

    def start(
        self,
        name: str,
        arguments: list[str],
        environment: dict[str, str] | None = None,
        code: str = "",
        small_disk: Path | Process | None = None,
    ) -> Process:
        """Start `onager` with *arguments*, after running the Python *code* in the same process."""
        log = self.directory / f"{name}.log"
        process = Process(name, arguments, log, {**self.environment, **(environment or {})}, code, small_disk)
        self.processes.append(process)
        return process

    # -- use

    @property
    def client(self) -> onager.OnagerClient:
        if self._client is None:
            self._client = onager.connect(self.address)
        return self._client

    def cli(self, *arguments: str, timeout_s: float = HANGS_S, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_forked(arguments, {**os.environ, "ONAGER_SCHEDULER": self.address, **environment}, timeout_s)

    def tasks(self, job_id: str) -> dict[tuple[int, int], dict]:
        """Return what `onager job ID -o json` says of every task, by (stage, partition), without a process for it."""
        stages = plain(self.client.job(job_id).detail().progress)["stages"]
        return {(stage["stage_id"], task["partition"]): task for stage in stages for task in stage["tasks"]}

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        for process in reversed(self.processes):
            if process.popen.poll() is None:
                below = process.descendants()
                process.kill()
                for child in below:
                    with _gone():
                        os.kill(child.pid, signal.SIGKILL)

    def logs(self) -> str:
        texts = [f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}" for log in self.directory.glob("*.log")]
        return "\n".join(texts)


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return
