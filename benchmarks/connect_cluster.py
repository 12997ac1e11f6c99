"""A highly available cluster whose processes are killed under clients of Spark Connect."""

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psutil

import onager
from deploy.local_cluster import LocalCluster
from deploy.parts import HOST, Part, StartError, free_ports
from onager.client.progress import JobState

PATIENCE_S: Final = 300.0
_SESSIONS: Final = b"show sess\n"
_ANSWER_S: Final = 5.0
_SMALL: Final = {
    "spark.driver.memory": "900m",
    # Short lives on few cores: what is compiled well is not worth its compilation.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class ConnectCluster:
    """`make cluster` with *schedulers* schedulers, and *executors* of *slots* each; a context manager that stops it."""

    def __init__(
        self,
        directory: Path,
        *,
        schedulers: int = 3,
        executors: int = 2,
        slots: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        flags = [flag for name, value in _SMALL.items() for flag in ("--spark-conf", f"{name}={value}")]
        self.local = LocalCluster(
            directory / "cluster",
            f"{HOST}:{free_ports(1)[0]}",
            executors,
            slots=slots,
            environment={"ONAGER_SCHEDULER_EXECUTOR_LEASE_TTL_MS": "3000", **(environment or {})},
            executor_flags={f"executor-{n}": flags for n in range(1, executors + 1)},
        )
        if self.local.proxy is None:
            raise StartError("HAProxy is not installed (apt: haproxy), and a client of Spark Connect knows one address")
        for part in self.local.named("scheduler")[schedulers:]:
            del self.local.parts[part.name]
        # HAProxy is asked which scheduler a client's connection goes to.
        self._admin_port = free_ports(1)[0]
        admin = directory / "haproxy-admin.cfg"
        admin.write_text(f"global\n    stats socket ipv4@{HOST}:{self._admin_port}\n")
        proxy = self.local.parts["haproxy"]
        proxy.command = [*proxy.command, "-f", str(admin)]

    def __enter__(self) -> Self:
        try:
            self.local.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.local.stop()

    @property
    def remote(self) -> str:
        """What ``SparkSession.builder.remote`` takes: HAProxy's address."""
        return f"sc://{self.local.addresses}"

    @property
    def schedulers(self) -> list[str]:
        """The names of the schedulers."""
        return [part.name for part in self.local.named("scheduler")]

    @property
    def executors(self) -> list[str]:
        """The names of the executors."""
        return [part.name for part in self.local.named("executor")]

    def client(self) -> onager.OnagerClient:
        """Return a client that waits for the schedulers through anything that is done to them."""
        return onager.connect(self.local.addresses, connect_timeout_s=PATIENCE_S, retry_timeout_s=PATIENCE_S)

    def serving(self, client_pid: int) -> list[str]:
        """Return the schedulers to which HAProxy passes the connections of process *client_pid*."""
        listens = int(self.local.listen.rpartition(":")[2])
        connections = psutil.Process(client_pid).net_connections("tcp")
        mine = {f"{HOST}:{c.laddr.port}" for c in connections if c.raddr and c.raddr.port == listens}
        with socket.create_connection((HOST, self._admin_port), _ANSWER_S) as asked:
            asked.sendall(_SESSIONS)
            answer = b"".join(iter(lambda: asked.recv(65536), b"")).decode()
        found = set()
        for line in answer.splitlines():
            words = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
            if words.get("src") in mine:
                found.add(words["srv"])
        return sorted(found & set(self.schedulers))

    def kill(self, *names: str) -> None:
        """Kill processes at once by ``kill -9``, an executor's JVM and Python workers with it."""
        below = [child for name in names for child in _children(self.local.parts[name])]
        for name in names:
            self.local.parts[name].send(signal.SIGKILL)
        for child in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        for name in names:
            self.local.parts[name].kill()

    def kill_jvm(self, executor: str) -> None:
        """Kill the JVM of an executor, which starts another one."""
        for child in _children(self.local.parts[executor]):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() == "java":
                    child.kill()

    def start(self, *names: str) -> None:
        """Start what was killed, and wait for nothing."""
        for name in names:
            self.local.parts[name].start()

    def await_ready(self) -> None:
        """Wait until every part serves that was started."""
        for part in (*self.local.named("scheduler"), *self.local.named("executor")):
            self.local.await_ready(part.name)


def _children(part: Part) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        if part.is_running:
            return list(psutil.Process(part.pid).children(recursive=True))
    return []


@dataclass(slots=True)
class Jobs:
    """What the records of jobs tell, each job once."""

    client: onager.OnagerClient
    seen: set[str] = field(default_factory=set)

    def look(self) -> list[str]:
        """Return what is wrong with the jobs that ended since the last look: tasks without exactly one success."""
        ended = [job for job in self.client.jobs(limit=1_000) if job.job_id not in self.seen and job.state.is_final]
        wrong = []
        for job in ended:
            self.seen.add(job.job_id)
            if job.state is JobState.SUCCESSFUL:
                wrong += [f"job {job.job_id}, {what}" for what in self._not_once(job.job_id)]
        return wrong

    def _not_once(self, job_id: str) -> Iterator[str]:
        for stage in self.client.job(job_id).detail().progress.stages:
            for task in stage.tasks:
                if task.successes != 1:
                    yield f"stage {stage.stage_id}, partition {task.partition}: {task.successes} successes"
