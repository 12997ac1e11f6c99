"""An etcd cluster of real processes, which can be killed, paused and restarted."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

import psutil

from tests.support.etcd.programs import clean_environment, program
from tests.support.processes import children
from tests.support.waiting import HANGS_S, until

_MEMORY_DISK: Final = Path("/dev/shm")
_MEMORY_DISK_BYTES: Final = 2 << 30
"""What must be free there: three members preallocate 128 MiB of log each."""

RUNNING: list["EtcdCluster"] = []
"""The clusters of this test run, for their logs."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of the members, and what our own tools show to them."""

    cacert: Path
    cert: Path
    key: Path
    client_cert_auth: bool = False
    """Whether clients must show a certificate of the same authority."""
    client_cert: Path | None = None
    client_key: Path | None = None
    """What `etcdctl` shows; the members' own by default."""


@dataclass
class Member:
    name: str
    directory: Path
    client_port: int
    peer_port: int
    metrics_port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    is_paused: bool = False
    marked_bytes: int = 0
    """How long its log was when `mark_log` was called."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask(self, path: str) -> str | None:
        """Return what the member answers on its metrics port, or `None` when it does not."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=2.0)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def is_healthy(self) -> bool:
        """Whether it has a leader and can commit; a member with an alarm is not healthy either."""
        answer = self.ask("/health")
        return answer is not None and answer.startswith("{") and str(json.loads(answer)["health"]) == "true"

    def last_words(self, lines: int, from_bytes: int = 0) -> str:
        text = self.log.read_bytes()[from_bytes:].decode(errors="replace").splitlines()
        telling = [line for line in text if not line.startswith('{"level":"info"') and "/health error" not in line]
        return "\n".join([f"--- {self.name} {self.address}", *telling[-lines:]])

    def mark_log(self) -> None:
        self.marked_bytes = self.log.stat().st_size if self.log.exists() else 0

    def is_leader(self) -> bool:
        return "\netcd_server_is_leader 1\n" in (self.ask("/metrics") or "")


class EtcdCluster:
    """*members* processes on free ports; a context manager that starts them and leaves nothing behind.

    Data lies on a disk in memory where there is one, unless *on_disk*. *flags* go to every member.
    Blocking: in a test with tasks of its own, call what waits by `asyncio.to_thread`.
    """

    started = 0
    """How many there were in this test run."""

    def __init__(
        self, members: int = 1, *, tls: TlsFiles | None = None, flags: Sequence[str] = (), on_disk: bool = False
    ) -> None:
        self.size = members
        self.tls = tls
        self.flags = list(flags)
        self.members: list[Member] = []
        self._on_disk = on_disk
        self._root_password: str | None = None
        self._directory: Path | None = None
        # A fault may still be under way in a thread whose waiter was cancelled, when the cure is asked for.
        self._turn = threading.RLock()

    # -- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all members and wait until each answers; ports that were taken meanwhile are replaced."""
        for attempt in range(3):
            self._directory = _make_directory(on_disk=self._on_disk)
            ports = children.free_ports(3 * self.size)
            self.members = [
                Member(f"m{n}", self._directory / f"m{n}", *ports[3 * n : 3 * n + 3]) for n in range(self.size)
            ]
            RUNNING.append(self)
            EtcdCluster.started += 1
            try:
                for member in self.members:
                    member.directory.mkdir()
                    self._launch(member)
                self.wait_healthy()
            except BaseException:
                is_port_taken = "address already in use" in self.logs()
                self.stop()
                if not is_port_taken or attempt == 2:
                    raise
            else:
                return

    def stop(self) -> None:
        """End all members and remove their data; twice is no error."""
        for member in self.members:
            if member.process is not None:
                children.end(member.process)
        if self in RUNNING:
            RUNNING.remove(self)
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    def wait_healthy(self, members: Iterable[int] | None = None, within_s: float = HANGS_S) -> None:
        """Return when *members* (default: all that run) have a leader and answer."""
        wanted = self._awake() if members is None else [self.members[n] for n in members]
        for member in wanted:
            self._until(member.is_healthy, f"health of etcd's member {member.name}", within_s, member)

    # -- where it is

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.address for member in self.members)

    def url(self, namespace: str = "onager", *, endpoints: Iterable[str] = (), **parameters: str) -> str:
        """Return the URL for `open_backend`, without TLS files and user unless they are among *parameters*."""
        hosts = ",".join(endpoints or self.endpoints)
        query = urlencode({"compact_history": "off", **parameters}, safe="/:")
        return f"etcd://{hosts}/{namespace}?{query}"

    def asked_first(self, member: int) -> tuple[str, ...]:
        """Return the endpoints in an order in which clients of this process ask *member* first, then those behind."""
        order = self.endpoints[member:] + self.endpoints[:member]
        start = os.getpid() % self.size
        return order[-start:] + order[:-start] if start else order

    def leader(self, within_s: float = HANGS_S) -> int:
        """Return which member leads, once exactly one of those that are awake does."""
        leading: list[int] = []

        def is_one_leading() -> bool:
            leading[:] = [n for n, member in enumerate(self.members) if member in self._awake() and member.is_leader()]
            return len(leading) == 1

        self._until(is_one_leading, "a leader of etcd", within_s)
        return leading[0]

    def followers(self) -> list[int]:
        """Return which members do not lead, in order."""
        leader = self.leader()
        return [n for n in range(self.size) if n != leader]

    # -- faults

    def kill(self, *members: int) -> None:
        """Kill members with signal 9."""
        with self._turn:
            for n in members:
                running = self._process(n)
                running.kill()
                running.wait()
                self.members[n].is_paused = False

    def restart(self, *members: int) -> None:
        """Start members that were killed over their data, and wait until they answer."""
        with self._turn:
            for n in members:
                assert not self.members[n].is_running, f"member {n} runs"
                self._launch(self.members[n])
            self.wait_healthy(members)

    def pause(self, *members: int) -> None:
        """Stop members by signal, connections and all."""
        with self._turn:
            for n in members:
                running = self._process(n)
                running.send_signal(signal.SIGSTOP)
                self.members[n].is_paused = True
                stopped = psutil.Process(running.pid)
                self._until(
                    lambda stopped=stopped: stopped.status() == psutil.STATUS_STOPPED, f"pause of member {n}", 10.0
                )

    def resume(self, *members: int) -> None:
        """Resume paused members."""
        with self._turn:
            for n in members:
                self._process(n).send_signal(signal.SIGCONT)
                self.members[n].is_paused = False

    def heal(self) -> None:
        """Let all members run, and wait until they answer and one of them leads."""
        with self._turn:
            self.resume(*(n for n, member in enumerate(self.members) if member.is_paused))
            self.restart(*(n for n, member in enumerate(self.members) if not member.is_running))
            self.wait_healthy()
            self.leader()

    # -- as its admin

    def etcdctl(self, *arguments: str, user: str | None = None, endpoints: Iterable[str] = (), stdin: str = "") -> str:
        """Return what the stock tool prints; fails with its errors. *user* is ``name:password``, root by default."""
        command = [str(program("etcdctl")), f"--endpoints={','.join(endpoints or self.endpoints)}"]
        command += ["--command-timeout=20s", "--dial-timeout=10s"]
        if self.tls is not None:
            cert, key = self.tls.client_cert or self.tls.cert, self.tls.client_key or self.tls.key
            command += [f"--cacert={self.tls.cacert}", f"--cert={cert}", f"--key={key}"]
        if user is None and self._root_password is not None:
            user = f"root:{self._root_password}"
        if user is not None:
            command.append(f"--user={user}")
        done = subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=clean_environment(),
            check=False,
            timeout=HANGS_S,
        )
        assert done.returncode == 0, f"etcdctl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def enable_auth(self, root_password: str) -> None:
        """Create the user root, and require authentication from now on."""
        self.etcdctl("user", "add", f"root:{root_password}")
        self.etcdctl("user", "grant-role", "root", "root")
        self.etcdctl("auth", "enable")
        self._root_password = root_password

    def disable_auth(self) -> None:
        self.etcdctl("auth", "disable")
        self._root_password = None

    def logs(self, lines: int = 40, *, since_mark: bool = False) -> str:
        """Return the last log lines of each member, without routine messages."""
        there = [member for member in self.members if member.log.exists()]
        return "\n".join(member.last_words(lines, member.marked_bytes if since_mark else 0) for member in there)

    def mark_logs(self) -> None:
        """Note how far the logs go: the next test begins."""
        for member in self.members:
            member.mark_log()

    # -- inside

    def _launch(self, member: Member) -> None:
        scheme = "http" if self.tls is None else "https"
        client, peer = f"{scheme}://{member.address}", f"http://127.0.0.1:{member.peer_port}"
        cluster = ",".join(f"{m.name}=http://127.0.0.1:{m.peer_port}" for m in self.members)
        command: list[str | Path] = [program("etcd"), "--name", member.name, "--data-dir", member.data]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", cluster, "--initial-cluster-token", str(self._directory)]
        # Plain, whatever clients need: for us to ask how it is.
        command += ["--listen-metrics-urls", f"http://127.0.0.1:{member.metrics_port}"]
        command += ["--logger", "zap", "--log-outputs", "stderr"]
        if self.tls is not None:
            command += ["--cert-file", self.tls.cert, "--key-file", self.tls.key]
            if self.tls.client_cert_auth:
                # The authority alone would make etcd 3.4 want certificates of clients, too.
                command += ["--client-cert-auth", "--trusted-ca-file", self.tls.cacert]
        member.process = children.start([*command, *self.flags], member.log, clean_environment())
        member.is_paused = False

    def _process(self, n: int) -> subprocess.Popen[bytes]:
        running = self.members[n].process
        assert running is not None
        assert running.poll() is None, f"member {n} does not run"
        return running

    def _awake(self) -> list[Member]:
        return [member for member in self.members if member.is_running and not member.is_paused]

    def _until(self, condition: Callable[[], bool], what: str, within_s: float, needed: Member | None = None) -> None:
        def is_so() -> bool:
            assert needed is None or needed.is_running, f"{what} is not to be had:\n{self.logs()}"
            return condition()

        until(is_so, lambda: f"{what}\n{self.logs()}", within_s=within_s)


def _make_directory(*, on_disk: bool) -> Path:
    is_in_memory = (
        not on_disk and os.access(_MEMORY_DISK, os.W_OK) and shutil.disk_usage(_MEMORY_DISK).free > _MEMORY_DISK_BYTES
    )
    parent = _MEMORY_DISK if is_in_memory else Path(tempfile.gettempdir())
    prefix = "onager-etcd-"
    for left in parent.glob(f"{prefix}*"):
        # Left by a test run that was killed.
        if not psutil.pid_exists(int(left.name.split("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
