"""``make cluster``: a highly available cluster as processes of this machine, the topology of ``docker-compose.yml``.

Three members of etcd, three schedulers, HAProxy in front of them (where it is installed), two executors, and Prometheus
with the alert rules (where it is installed). Logs and process ids are in ``var/cluster``; what is killed stays dead,
for one to see that the rest goes on. Ctrl-C ends all.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from deploy.monitoring import programs
from deploy.parts import HOST, Part, StartError, free_ports, is_free

ROOT: Final = Path(__file__).resolve().parents[1]
MEMBERS: Final = (1, 2, 3)
_DRAIN_GRACE_MS: Final = 5_000
_POLL_S: Final = 0.1
_ETCD_ADVICE: Final = "etcd is neither on PATH nor in .venv/etcd: run make setup-dev, or install it (apt: etcd-server)"

_OURS: Final = re.compile(
    r"(etcd|scheduler|executor)-\d+(\.log|\.pid)?|haproxy\.(log|pid)|prometheus(\.log|\.pid|\.json)?|env|exchange|secrets"
)
"""What a cluster leaves in its directory."""

Way = Callable[[str, str, str], str]
"""Given who connects to whom (names of parts) and the address, where to connect instead: through what a test likes."""


def _straight(user: str, target: str, address: str) -> str:
    del user, target
    return address


class LocalCluster:
    """All processes by name, in the order in which they are started."""

    def __init__(
        self,
        directory: Path,
        listen: str,
        executors: int,
        slots: int,
        *,
        has_tls: bool = False,
        has_proxy: bool = True,
        has_metrics: bool = False,
        way: Way = _straight,
        environment: Mapping[str, str] | None = None,
        executor_flags: Mapping[str, Sequence[str]] | None = None,
        exchange: Path | None = None,
        page_listen: str | None = None,
    ) -> None:
        """Lay out the cluster; `StartError` when there is no etcd.

        Schedulers serve the page if *page_listen* says where HAProxy does, if it is there. *environment* goes to all
        schedulers and executors; *executor_flags*, by the executor's name, to its command.
        """
        self.directory = directory
        self.exchange = exchange or directory / "exchange"
        proxies = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
        self.proxy = shutil.which("haproxy", path=proxies) if has_proxy else None
        self.is_stopping = False
        self.listen = listen
        self._slots = slots
        self._has_tls = has_tls
        self._way = way
        self._environment = environment or {}
        self._executor_flags = executor_flags or {}
        self._page_listen = page_listen
        *ports, self._prometheus_port = free_ports(6 * len(MEMBERS) + 1)
        self._etcd_ports, self._peer_ports, self._ports, self._health_ports, self._page_ports, self._metrics_ports = (
            ports[i::6] for i in range(6)
        )
        self._has_metrics = has_metrics
        self._prometheus = programs.find("prometheus") if has_metrics else None
        self.parts: dict[str, Part] = {}
        self._lay_out(executors)

    # -- what there is

    @property
    def addresses(self) -> str:
        """Where to submit jobs."""
        return self.listen if self.proxy else ",".join(f"{HOST}:{port}" for port in self._ports)

    @property
    def pages(self) -> list[str]:
        """Where the page is: at HAProxy, or at each scheduler."""
        if self._page_listen is None:
            return []
        scheme = "https" if self._has_tls else "http"
        places = [self._page_listen] if self.proxy else [f"{HOST}:{port}" for port in self._page_ports]
        return [f"{scheme}://{place}/" for place in places]

    @property
    def environment(self) -> dict[str, str]:
        """What clients have to know."""
        own = self.directory / "secrets" / "client"
        safe = {"ONAGER_TLS_CA": f"{own}/ca.pem", "ONAGER_AUTH_TOKEN_FILE": f"{own}/token"}
        return {"ONAGER_SCHEDULER": self.addresses, **(safe if self._has_tls else {})}

    @property
    def metrics(self) -> list[str]:
        """Return the addresses of the schedulers' metrics; none where they keep none."""
        return [f"{HOST}:{port}" for port in self._metrics_ports] if self._has_metrics else []

    @property
    def prometheus(self) -> str | None:
        """Where Prometheus answers to browsers, if it is installed."""
        return f"http://{HOST}:{self._prometheus_port}" if self._prometheus else None

    def named(self, kind: str) -> list[Part]:
        """Return the parts of one kind: etcd, scheduler, haproxy, executor."""
        return [part for part in self.parts.values() if part.name.startswith(kind)]

    def etcd_url(self, member: str) -> str:
        """Return where a member of etcd answers to HTTP, by name."""
        return f"http://{HOST}:{self._etcd_ports[int(member.rpartition('-')[2]) - 1]}"

    def newly_dead(self) -> list[Part]:
        """Return the parts that have ended by themselves since the last look."""
        found = [p for p in self.parts.values() if p.process is not None and not p.is_dead and not p.is_running]
        for part in found:
            part.is_dead = True
        return found

    # -- all of it

    def start(self) -> None:
        """Start everything, and return when executors are there to work; `StartError` says what did not start."""
        for listen, flag in ((self.listen, "--listen"), (self._page_listen, "--page-listen")):
            if self.proxy and listen and not is_free(listen):
                raise StartError(f"{listen} is taken: is another cluster running? ({flag} names another address)")
        _check_disposable(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        if self._has_tls:
            names = ("localhost", HOST)
            subprocess.run([ROOT / "deploy" / "make-secrets", self.directory / "secrets", *names], check=True)
        for kind in ("etcd", "scheduler", "haproxy"):
            for part in self.named(kind):
                part.start()
            for part in self.named(kind):
                self.await_ready(part.name)
        for part in self.named("executor"):
            part.start()
        if self._prometheus:
            self._start_prometheus()
        lines = [f"export {name}={value}\n" for name, value in self.environment.items()]
        (self.directory / "env").write_text("".join(lines))
        self.await_executors()

    def stop(self) -> None:
        """End all processes: executors, proxy, schedulers, etcd."""
        for kind in ("prometheus", "executor", "haproxy", "scheduler", "etcd"):
            for part in self.named(kind):
                # etcd would take seconds to hand its leadership over.
                part.ask_to_end(signal.SIGKILL if kind == "etcd" else signal.SIGTERM)
            for part in self.named(kind):
                part.await_end()

    # -- one by one

    def await_ready(self, name: str) -> None:
        """Wait until a part serves that was started; `StartError` when it does not."""
        part = self.parts[name]
        if name.startswith("etcd"):
            ready: Callable[[], bool] = partial(_answers, f"{self.etcd_url(name)}/health")
        elif name.startswith("scheduler"):
            ready = lambda: "listening on " in part.output()  # noqa: E731 - one of several
        elif name.startswith("executor"):
            ready = lambda: part.pid in self._live_executors()  # noqa: E731
        elif name == "prometheus":
            ready = partial(_answers, f"{self.prometheus}/-/ready", b"Ready")
        else:
            ready = lambda: not is_free(self.listen)  # noqa: E731
        part.await_sign(ready, lambda: self.is_stopping)

    def await_executors(self) -> None:
        """Wait until all executors are there to work."""
        for part in self.named("executor"):
            self.await_ready(part.name)

    def restart(self, name: str, within_s: float = 60.0) -> int:
        """Ask a part to leave, start it anew, and wait until it serves; return the exit code with which it left."""
        part = self.parts[name]
        part.ask_to_end()
        code = part.await_end(within_s)
        part.start()
        self.await_ready(name)
        return code

    def roll(self, kinds: Iterable[str] = ("scheduler", "executor")) -> dict[str, int]:
        """Restart all parts of *kinds*, one after the other; return the exit codes with which they left, by name."""
        return {part.name: self.restart(part.name) for kind in kinds for part in self.named(kind)}

    # -- parts

    def _lay_out(self, executors: int) -> None:
        self._lay_out_etcd()
        ports = list(zip(MEMBERS, self._ports, self._health_ports, self._page_ports, strict=True))
        for n, port, health, page in ports:
            name = f"scheduler-{n}"
            members = enumerate(self._etcd_ports, 1)
            backend = "etcd://" + ",".join(self._way(name, f"etcd-{m}", f"{HOST}:{p}") for m, p in members)
            self._add_onager(
                name, "scheduler", "--backend", backend, "--listen", f"{HOST}:{port}",
                "--advertise", self._way("schedulers", name, f"{HOST}:{port}"),
                "--health-listen", f"{HOST}:{health}", "--exchange-dir", str(self.exchange),
                *(("--http-listen", f"{HOST}:{page}") if self._page_listen else ()),
                *(("--metrics-listen", self.metrics[n - 1]) if self._has_metrics else ()),
                *(self._server_secrets if self._has_tls else ()), ONAGER_SCHEDULER_SCHEDULER_ID=name,
            )  # fmt: skip
        if self.proxy:
            where = {"ONAGER_LISTEN": self.listen}
            where |= {"ONAGER_PAGE_LISTEN": self._page_listen} if self._page_listen else {}
            for n, port, health, page in ports:
                where |= {f"ONAGER_SCHEDULER_{n}": f"{HOST}:{port}", f"ONAGER_HEALTH_{n}": str(health)}
                where |= {f"ONAGER_PAGE_{n}": f"{HOST}:{page}"} if self._page_listen else {}
            self._add("haproxy", self.proxy, "-db", "-f", str(ROOT / "deploy" / "haproxy.cfg"), **where)
        for n in range(1, executors + 1):
            name = f"executor-{n}"
            ways = [self._way(name, "schedulers", address) for address in self.addresses.split(",")]
            self._add_onager(
                name, "executor", "--scheduler", ",".join(ways), "--slots", str(self._slots),
                "--executor-id", name, "--exchange-dir", str(self.exchange), "--root", "/",
                *(self._executor_secrets if self._has_tls else ()), *self._executor_flags.get(name, ()),
            )  # fmt: skip

        if self._prometheus:
            self._add(
                "prometheus", self._prometheus, f"--config.file={self.directory}/prometheus.json",
                f"--storage.tsdb.path={self.directory}/prometheus",
                f"--web.listen-address={HOST}:{self._prometheus_port}",
            )  # fmt: skip

    def _start_prometheus(self) -> None:
        scraped = {
            "onager": self.metrics,
            "etcd": [f"{HOST}:{port}" for port in self._etcd_ports],
        }
        config = {
            "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
            "rule_files": [str(ROOT / "deploy" / "prometheus" / "rules.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in scraped.items()
            ],
        }
        (self.directory / "prometheus.json").write_text(json.dumps(config, indent=1))  # which is YAML, too
        self.parts["prometheus"].start()
        self.await_ready("prometheus")

    def _lay_out_etcd(self) -> None:
        etcd = shutil.which("etcd") or shutil.which("etcd", path=str(ROOT / ".venv" / "etcd" / "usr" / "bin"))
        if etcd is None:
            raise StartError(_ETCD_ADVICE)
        members = [f"http://{HOST}:{port}" for port in self._peer_ports]
        together = ",".join(f"etcd-{n}={peer}" for n, peer in zip(MEMBERS, members, strict=True))
        for n, peer, port in zip(MEMBERS, members, self._etcd_ports, strict=True):
            client = f"http://{HOST}:{port}"
            self._add(
                f"etcd-{n}", etcd, "--name", f"etcd-{n}", "--data-dir", str(self.directory / f"etcd-{n}"),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", together,
            )  # fmt: skip

    @property
    def _server_secrets(self) -> list[str]:
        own = self.directory / "secrets" / "scheduler"
        files = ["--tls-cert", f"{own}/server.pem", "--tls-key", f"{own}/server.key"]
        return [*files, "--auth-token-file", f"{own}/token"]

    @property
    def _executor_secrets(self) -> list[str]:
        own = self.directory / "secrets" / "executor"
        return ["--tls-ca", f"{own}/ca.pem", "--auth-token-file", f"{own}/token"]

    def _live_executors(self) -> set[int]:
        """Return the process ids of the executors that are there to work."""
        os.environ.update(self.environment)
        import onager

        try:
            with onager.connect(connect_timeout_s=1.0, retry_timeout_s=1.0) as client:
                return {e.pid for e in client.executors() if e.state == "alive"}
        except onager.OnagerError:
            return set()

    def _add_onager(self, name: str, *arguments: str, **environment: str) -> None:
        environment |= {
            "ONAGER_SUPERVISOR_PID": str(os.getpid()),
            "ONAGER_EXECUTOR_DRAIN_GRACE_MS": str(_DRAIN_GRACE_MS),
            **self._environment,
        }
        self._add(name, sys.executable, "-m", "onager", *arguments, **environment)

    def _add(self, name: str, *command: str, **environment: str) -> None:
        self.parts[name] = Part(name, command, environment, self.directory, ROOT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a cluster and keep it until Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "var" / "cluster", help="logs, pids, all data; emptied"
    )
    parser.add_argument("--listen", metavar="H:P", help=f"address of HAProxy, which has to be installed ({HOST}:50050)")
    parser.add_argument("--page-listen", metavar="H:P", default=f"{HOST}:50080", help="address of the page at HAProxy")
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--slots", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="of each executor")
    parser.add_argument("--tls", action="store_true", help="with certificates and tokens")
    options = parser.parse_args(arguments)
    try:
        cluster = LocalCluster(
            options.directory.absolute(),
            options.listen or f"{HOST}:50050",
            options.executors,
            options.slots,
            has_tls=options.tls,
            page_listen=options.page_listen,
            has_metrics=True,
        )
        _check_listens(cluster, options.listen)
    except StartError as error:
        print(f"make cluster: {error}", file=sys.stderr)
        return 1

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
                print(f"{part.name} is dead (code {_code(part)}); the others go on", flush=True)
            time.sleep(_POLL_S)
        print("stopping …", flush=True)
    except StartError as error:
        print(f"make cluster: {error}", file=sys.stderr)
        return 1
    finally:
        cluster.stop()
    return 0


def _check_listens(cluster: LocalCluster, wanted: str | None) -> None:
    """Raise `StartError` when nothing would listen at the address that somebody asked for."""
    if wanted and cluster.proxy is None:
        raise StartError(
            f"nothing would listen at {wanted}: it is the address of HAProxy, which is not installed (apt: haproxy); "
            "leave --listen out, and clients and executors know all schedulers"
        )


def _say_ready(cluster: LocalCluster) -> None:
    for part in cluster.parts.values():
        print(f"  {part.name:<12} pid {part.pid}")
    if cluster.proxy is None:
        print("haproxy is not installed (apt: haproxy): clients and executors know all schedulers instead.")
    if cluster.prometheus is None:
        print("prometheus is not installed (apt: prometheus): the metrics are there, and nobody collects them.")
    metrics = " ".join(f"http://{address}/metrics" for address in cluster.metrics)
    alerts = f"  alerts    {cluster.prometheus}/alerts (Prometheus)\n" if cluster.prometheus else ""
    print(
        f"onager is ready at {cluster.addresses}\n"
        f"  page      {' '.join(cluster.pages)}\n"
        f"  logs      {cluster.directory}\n"
        f"  metrics   {metrics}\n"
        f"{alerts}"
        f"  try       . {ROOT}/.venv/bin/activate && . {cluster.directory}/env\n"
        f'            onager submit -e "SELECT 1 AS one"\n'
        "Ctrl-C ends it.",
        flush=True,
    )


def _code(part: Part) -> int | None:
    return None if part.process is None else part.process.returncode


def _check_disposable(directory: Path) -> None:
    """Raise `StartError` when *directory* holds what no cluster has left there, or a cluster that runs."""
    if not directory.exists():
        return
    if not directory.is_dir() or (strange := [p.name for p in directory.iterdir() if not _OURS.fullmatch(p.name)]):
        what = f"holds other things ({', '.join(sorted(strange)[:3])})" if directory.is_dir() else "is no directory"
        raise StartError(f"{directory} {what}, and would be emptied: name another one with --directory")
    for file in sorted(directory.glob("*.pid")):
        try:
            runs = str(directory) in " ".join(psutil.Process(int(file.read_text())).cmdline())
        except (ValueError, psutil.Error):
            continue
        if runs:
            raise StartError(
                f"another cluster runs in {directory} ({file.stem} is process {file.read_text().strip()}): stop it, or "
                "name another directory with --directory"
            )


def _answers(url: str, sign: bytes = b'"true"') -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:  # noqa: S310 - an address of ours
            return sign in answer.read()
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
