"""``make cluster``: a highly available cluster as processes of this machine, the topology of ``docker-compose.yml``.

Three members of etcd, three schedulers, HAProxy in front of them (where it is installed), and two executors. Logs and
process ids are in ``var/cluster``; what is killed stays dead, for one to see that the rest goes on. Ctrl-C ends all.
"""

import argparse
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MEMBERS: Final = (1, 2, 3)
_HOST: Final = "127.0.0.1"
_PR_SET_PDEATHSIG: Final = 1
_START_TIMEOUT_S: Final = 180.0
_STOP_TIMEOUT_S: Final = 15.0
_DRAIN_GRACE_MS: Final = 5_000
_POLL_S: Final = 0.1
_TAIL_LINES: Final = 15
_ETCD_ADVICE: Final = "etcd is neither on PATH nor in .venv/etcd: run make setup-dev, or install it (apt: etcd-server)"


class StartError(Exception):
    """The cluster cannot be started; the text says why."""


@dataclass(slots=True)
class Part:
    """One process of the cluster."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    is_dead: bool = False


class LocalCluster:
    """All processes, in the order in which they were started."""

    def __init__(self, directory: Path, listen: str, executors: int, slots: int, *, has_tls: bool) -> None:
        self.directory = directory
        self.proxy = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        self._listen = listen
        self._executors = executors
        self._slots = slots
        self._has_tls = has_tls
        ports = _free_ports(4 * len(MEMBERS))
        self._etcd_ports, self._peer_ports, self._ports, self._health_ports = (ports[i::4] for i in range(4))
        self.parts: list[Part] = []
        self.is_stopping = False

    @property
    def addresses(self) -> str:
        """Where to submit jobs."""
        return self._listen if self.proxy else ",".join(f"{_HOST}:{port}" for port in self._ports)

    @property
    def environment(self) -> dict[str, str]:
        """What clients and executors have to know."""
        secrets = self.directory / "secrets"
        safe = {"ONAGER_TLS_CA": f"{secrets}/ca.pem", "ONAGER_AUTH_TOKEN_FILE": f"{secrets}/token"}
        return {"ONAGER_SCHEDULER": self.addresses, **(safe if self._has_tls else {})}

    def start(self) -> None:
        """Start everything, and return when executors are there to work; `StartError` says what did not start."""
        if self.proxy and not _is_free(self._listen):
            raise StartError(f"{self._listen} is taken: is another cluster running? (--listen names another address)")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        if self._has_tls:
            names = ("localhost", _HOST)
            subprocess.run([ROOT / "deploy" / "make-secrets", self.directory / "secrets", *names], check=True)
        self._start_etcd()
        self._start_schedulers()
        if self.proxy:
            self._start_proxy()
        for n in range(1, self._executors + 1):
            self._run_onager(
                f"executor-{n}", "executor", "--scheduler", self.addresses, "--slots", str(self._slots),
                "--executor-id", f"executor-{n}", "--exchange-dir", str(self.directory / "exchange"),
            )  # fmt: skip
        lines = [f"export {name}={value}\n" for name, value in self.environment.items()]
        (self.directory / "env").write_text("".join(lines))
        self._until(self._has_executors, "the executors")

    def stop(self) -> None:
        """End all processes: executors, proxy, schedulers, etcd."""
        for kind in ("executor", "haproxy", "scheduler", "etcd"):
            some = [part for part in self.parts if part.name.startswith(kind)]
            for part in some:
                if part.process.poll() is None:
                    # etcd would take seconds to hand its leadership over.
                    part.process.send_signal(signal.SIGKILL if kind == "etcd" else signal.SIGTERM)
                    part.process.send_signal(signal.SIGCONT)  # it may be stopped
            for part in some:
                try:
                    part.process.wait(_STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    os.killpg(part.process.pid, signal.SIGKILL)
                    part.process.wait()
                (self.directory / f"{part.name}.pid").unlink(missing_ok=True)

    def newly_dead(self) -> list[Part]:
        """Return the parts that have ended since the last look."""
        found = [part for part in self.parts if not part.is_dead and part.process.poll() is not None]
        for part in found:
            part.is_dead = True
        return found

    # -- parts

    def _start_etcd(self) -> None:
        etcd = shutil.which("etcd") or shutil.which("etcd", path=str(ROOT / ".venv" / "etcd" / "usr" / "bin"))
        if etcd is None:
            raise StartError(_ETCD_ADVICE)
        peers = [f"http://{_HOST}:{port}" for port in self._peer_ports]
        together = ",".join(f"etcd-{n}={peer}" for n, peer in zip(MEMBERS, peers, strict=True))
        for n, peer, port in zip(MEMBERS, peers, self._etcd_ports, strict=True):
            client = f"http://{_HOST}:{port}"
            self._run(
                f"etcd-{n}", etcd, "--name", f"etcd-{n}", "--data-dir", str(self.directory / f"etcd-{n}"),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", together,
            )  # fmt: skip
        for port in self._etcd_ports:
            self._until(partial(_answers, f"http://{_HOST}:{port}/health"), "etcd")

    def _start_schedulers(self) -> None:
        backend = "etcd://" + ",".join(f"{_HOST}:{port}" for port in self._etcd_ports)
        secrets = self.directory / "secrets"
        safe = ["--tls-cert", f"{secrets}/server.pem", "--tls-key", f"{secrets}/server.key"]
        safe += ["--auth-token-file", f"{secrets}/token"]
        for n, port, health in zip(MEMBERS, self._ports, self._health_ports, strict=True):
            self._run_onager(
                f"scheduler-{n}", "scheduler", "--backend", backend, "--listen", f"{_HOST}:{port}",
                "--health-listen", f"{_HOST}:{health}", "--exchange-dir", str(self.directory / "exchange"),
                *(safe if self._has_tls else ()), ONAGER_SCHEDULER_SCHEDULER_ID=f"scheduler-{n}",
            )  # fmt: skip
        for n in MEMBERS:
            self._until(partial(_is_listening, self.directory / f"scheduler-{n}.log"), f"scheduler-{n}")

    def _start_proxy(self) -> None:
        assert self.proxy is not None
        where = {"ONAGER_LISTEN": self._listen}
        for n, port, health in zip(MEMBERS, self._ports, self._health_ports, strict=True):
            where |= {f"ONAGER_SCHEDULER_{n}": f"{_HOST}:{port}", f"ONAGER_HEALTH_{n}": str(health)}
        self._run("haproxy", self.proxy, "-db", "-f", str(ROOT / "deploy" / "haproxy.cfg"), **where)
        self._until(lambda: not _is_free(self._listen), "haproxy")

    def _has_executors(self) -> bool:
        # Late: from here on there are threads, and nothing is started any more.
        os.environ.update(self.environment)
        import onager

        try:
            with onager.connect(connect_timeout_s=1.0) as client:
                return sum(e.state == "alive" for e in client.executors()) >= self._executors
        except onager.OnagerError:
            return False

    # -- processes

    def _run_onager(self, name: str, *arguments: str, **environment: str) -> None:
        environment |= {
            "ONAGER_SUPERVISOR_PID": str(os.getpid()),
            "ONAGER_EXECUTOR_DRAIN_GRACE_MS": str(_DRAIN_GRACE_MS),
            **self.environment,
        }
        self._run(name, sys.executable, "-m", "onager", *arguments, **environment)

    def _run(self, name: str, *command: str, **environment: str) -> None:
        log = self.directory / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **environment},
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - there are no threads yet
            )
        self.parts.append(Part(name, process, log))
        (self.directory / f"{name}.pid").write_text(f"{process.pid}\n")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + _START_TIMEOUT_S
        while not condition():
            if self.is_stopping:
                raise StartError("stopped while it was starting")
            for part in self.newly_dead():
                raise StartError(f"{part.name} ended with code {part.process.returncode}:\n{_tail(part.log)}")
            if time.monotonic() > end_s:
                raise StartError(f"no sign of {what} after {_START_TIMEOUT_S:g} s; the logs are in {self.directory}")
            time.sleep(_POLL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a cluster and keep it until Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "var" / "cluster", help="logs, pids, all data; emptied"
    )
    parser.add_argument("--listen", default=f"{_HOST}:50050", metavar="H:P", help="address of HAProxy")
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--slots", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="of each executor")
    parser.add_argument("--tls", action="store_true", help="with certificates and a token")
    options = parser.parse_args(arguments)
    cluster = LocalCluster(
        options.directory.absolute(), options.listen, options.executors, options.slots, has_tls=options.tls
    )

    def stop(*_: object) -> None:
        cluster.is_stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        print("starting etcd, schedulers and executors …", flush=True)
        cluster.start()
        _say_ready(cluster)
        while not cluster.is_stopping:
            for part in cluster.newly_dead():
                print(f"{part.name} is dead (code {part.process.returncode}); the others go on", flush=True)
            time.sleep(_POLL_S)
        print("stopping …", flush=True)
    except StartError as error:
        print(f"make cluster: {error}", file=sys.stderr)
        return 1
    finally:
        cluster.stop()
    return 0


def _say_ready(cluster: LocalCluster) -> None:
    for part in cluster.parts:
        print(f"  {part.name:<12} pid {part.process.pid}")
    if cluster.proxy is None:
        print("haproxy is not installed (apt: haproxy): clients and executors know all schedulers instead.")
    print(
        f"onager is ready at {cluster.addresses}\n"
        f"  logs      {cluster.directory}\n"
        f"  try       . {cluster.directory}/env\n"
        f'            onager submit -e "SELECT 1 AS one"\n'
        "Ctrl-C ends it.",
        flush=True,
    )


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:  # noqa: S310 - an address of ours
            return b'"true"' in answer.read()
    except OSError:
        return False


def _is_listening(log: Path) -> bool:
    return "listening on " in log.read_text(errors="replace")


def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((_HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


if __name__ == "__main__":
    sys.exit(main())
