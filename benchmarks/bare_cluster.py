"""A cluster without Spark: real schedulers over a real store, and executors whose tasks do nothing; all processes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import psutil
from prometheus_client.parser import text_string_to_metric_families

import onager
from benchmarks.cluster import free_address
from benchmarks.etcd_server import EtcdServer, die_with_parent
from onager.client import OnagerClient
from onager.errors import OnagerError

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0
_WRITES: Final = frozenset(("put_txn", "put", "delete", "delete_range"))


@dataclass(frozen=True, slots=True)
class Store:
    """What ``--backend`` takes, and the server behind it if it is a process of its own."""

    url: str
    pid: int | None


@contextmanager
def store(backend: str, directory: Path) -> Iterator[Store]:
    """Yield a new store of the kind *backend* (``leveldb`` or ``etcd``) below *directory*."""
    if backend == "leveldb":
        yield Store(f"leveldb:{directory / 'state'}", None)
        return
    with EtcdServer(directory / "etcd") as server:
        yield Store(server.url, server.pid)


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters since the start of the processes, summed over all live schedulers."""

    writes: int = 0
    """Transactions and single writes that were committed."""
    bytes_written: int = 0
    conflicts: int = 0
    scheduler_cpu_s: float = 0.0
    executor_cpu_s: float = 0.0
    store_cpu_s: float = 0.0

    def since(self, before: "Counters") -> "Counters":
        """Return the difference from earlier counters."""
        return Counters(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))


@dataclass(slots=True)
class Process:
    """A scheduler or an executor, by its command: it can be started again."""

    name: str
    command: list[str]
    environment: dict[str, str]
    running: subprocess.Popen[bytes] | None = None


class BareCluster:
    """Schedulers on one store, and executors that know all of them; a context manager that stops them."""

    def __init__(
        self,
        backend: str,
        *,
        schedulers: int = 1,
        executor_slots: Sequence[int] = (128, 128),
        mode: str = "pull",
        store_pid: int | None = None,
        scheduler_environment: dict[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """Prepare the cluster; logs and events go to *directory*, by default a temporary one."""
        self._is_temporary = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="onager-bench-"))
        (self._directory / "exchange").mkdir()
        self._store_pid = store_pid
        self.addresses = [free_address() for _ in range(schedulers)]
        self._metrics = [free_address() for _ in range(schedulers)]
        self.schedulers = [
            self._scheduler(n, backend, {} if scheduler_environment is None else scheduler_environment)
            for n in range(schedulers)
        ]
        self.executors = [self._executor(n, slots, mode) for n, slots in enumerate(executor_slots)]

    def __enter__(self) -> Self:
        try:
            for process in (*self.schedulers, *self.executors):
                self.start(process)
            self._wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def connect(self, **options: Any) -> OnagerClient:
        """Return a client of all schedulers."""
        return onager.connect(self.addresses, **options)

    def connect_to(self, address: str) -> OnagerClient:
        """Return a client of one scheduler that gives up soon."""
        return onager.connect(address, connect_timeout_s=0.0, retry_timeout_s=0.5)

    def start(self, process: Process) -> None:
        """Start a scheduler or an executor that does not run."""
        with (self._directory / f"{process.name}.log").open("ab") as log:
            process.running = subprocess.Popen(
                [sys.executable, *process.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **process.environment},
                preexec_fn=die_with_parent,  # noqa: PLW1509 one call of the kernel, of a library that is loaded
            )

    def kill(self, process: Process) -> None:
        """``kill -9`` a process."""
        if process.running is not None:
            os.killpg(process.running.pid, signal.SIGKILL)
            process.running.wait()

    def events(self) -> Iterator[list[str]]:
        """Yield the events of executors, each as a list of words."""
        for path in self._directory.glob("*.events"):
            for line in path.read_text().splitlines():
                yield line.split()

    def log_of(self, process: Process, lines: int = 30) -> str:
        """Return the end of a process's log."""
        text = (self._directory / f"{process.name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def counters(self) -> Counters:
        """Read metrics and processor times."""
        writes = bytes_written = conflicts = 0
        for address in self._metrics:
            for name, labels, value in _samples(address):
                if name == "onager_state_request_seconds_count" and labels["operation"] in _WRITES:
                    writes += int(value) if labels["outcome"] == "ok" else 0
                    conflicts += int(value) if labels["outcome"] == "conflict" else 0
                elif name == "onager_state_bytes_total" and labels["direction"] == "written":
                    bytes_written += int(value)
        return Counters(
            writes,
            bytes_written,
            conflicts,
            sum(_cpu_s(process.running.pid) for process in self.schedulers if process.running is not None),
            sum(_cpu_s(process.running.pid) for process in self.executors if process.running is not None),
            0.0 if self._store_pid is None else _cpu_s(self._store_pid),
        )

    def _scheduler(self, number: int, backend: str, environment: dict[str, str]) -> Process:
        return Process(
            f"scheduler-{number}",
            [
                "-m", "onager", "scheduler", "--backend", backend, "--listen", self.addresses[number],
                "--metrics-listen", self._metrics[number], "--exchange-dir", str(self._directory / "exchange"),
            ],
            {"ONAGER_SCHEDULER_SCHEDULER_ID": f"bench-{number}", **environment},
        )  # fmt: skip

    def _executor(self, number: int, slots: int, mode: str) -> Process:
        name = f"executor-{number}"
        variables = {
            "SCHEDULER": ",".join(self.addresses),
            "SLOTS": str(slots),
            "PROGRAM_SLOTS": "0",
            "EXCHANGE_DIR": str(self._directory / "exchange"),
            "EXECUTOR_ID": name,
            **({} if mode == "pull" else {"MODE": mode}),
        }
        return Process(
            name,
            ["-m", "benchmarks.bare_executor", str(self._directory / f"{name}.events")],
            {f"ONAGER_EXECUTOR_{key}": value for key, value in variables.items()},
        )

    def _wait_until_ready(self) -> None:
        end_s = time.monotonic() + _START_TIMEOUT_S
        with self.connect(connect_timeout_s=0.0) as client:
            while True:
                for process in (*self.schedulers, *self.executors):
                    code = None if process.running is None else process.running.poll()
                    if code is not None:
                        raise RuntimeError(f"{process.name} ended with code {code}:\n{self.log_of(process)}")
                try:
                    alive = sum(e.state == "alive" for e in client.executors())
                    if alive == len(self.executors) and len(client.schedulers()) == len(self.schedulers):
                        return
                except OnagerError:
                    pass  # not up yet; the deadline below ends this
                if time.monotonic() > end_s:
                    logs = "\n".join(self.log_of(process) for process in (*self.schedulers, *self.executors))
                    raise TimeoutError(f"the cluster was not ready after {_START_TIMEOUT_S:g} s:\n{logs}")
                time.sleep(0.05)

    def _stop(self) -> None:
        """Stop executors before the schedulers, and remove everything."""
        for process in (*reversed(self.executors), *self.schedulers):
            if process.running is None:
                continue
            if process.running.poll() is None:
                process.running.terminate()
            try:
                process.running.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill(process)
        if self._is_temporary:
            shutil.rmtree(self._directory, ignore_errors=True)


def rss_mb(pid: int) -> float:
    """Return how much of the machine's memory a process holds, in MB."""
    return round(float(psutil.Process(pid).memory_info().rss) / 1e6, 1)


def _samples(address: str) -> Iterator[tuple[str, dict[str, str], float]]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10.0) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
