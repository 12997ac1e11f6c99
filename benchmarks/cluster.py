"""A real cluster for one run: processes of this machine over directories that are removed with it."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import onager
from onager.errors import OnagerError
from onager.protocol.security import ClientSecurity

_START_TIMEOUT_S = 240.0
_STOP_TIMEOUT_S = 20.0
_ALL, _EXECUTOR = "scheduler", "executor"
"""The names of tokens that are no client's."""


def free_address() -> str:
    """Return an address of this machine whose port is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Cluster:
    """A scheduler and executors, or one standalone process; a context manager that stops all of it.

    The state is in *backend*, by default in a LevelDB of its own; the code is that of *checkout*, by default this one;
    *spark_conf* is that of all executors. A standalone process serves its page at *http_address*. With *clients*, all
    calls need tokens; each of these clients has one, in its `token_file`. Its files are below *directory*, by default
    that of temporary files; *environment* is added to that of its processes.
    """

    def __init__(
        self,
        executor_slots: Sequence[int] = (2,),
        *,
        is_standalone: bool = False,
        backend: str | None = None,
        checkout: Path | None = None,
        spark_conf: Mapping[str, str] | None = None,
        http_address: str | None = None,
        clients: Sequence[str] = (),
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.address = free_address()
        self._http = [] if http_address is None else ["--http-listen", http_address]
        self._backend = backend
        self._checkout = checkout
        self._executor_slots = executor_slots
        self._spark_conf = [f"--spark-conf={key}={value}" for key, value in (spark_conf or {}).items()]
        self._is_standalone = is_standalone
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._directory = Path(tempfile.mkdtemp(prefix="onager-bench-", dir=directory))
        self._environment = environment or {}
        self._clients = clients

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the scheduler and the executors, or of the standalone process, by name."""
        return {name: process.pid for name, process in self._processes}

    def token_file(self, name: str) -> Path:
        """Return the file with the token of a client."""
        return self._directory / "tokens" / name

    def client(self, name: str = "") -> onager.OnagerClient:
        """Return a client, by the token of *name* if there are tokens."""
        security = ClientSecurity(auth_token_file=self.token_file(name)) if self._clients else None
        return onager.connect(self.address, connect_timeout_s=0.0, security=security)

    def _start(self) -> None:
        state, exchange = self._directory / "state", self._directory / "exchange"
        exchange.mkdir()
        backend = self._backend or f"leveldb:{state}"
        where = ("--listen", self.address, "--exchange-dir", str(exchange), "--backend", backend)
        if self._is_standalone:
            slots = str(sum(self._executor_slots))
            self._run("standalone", "standalone", *where, "--slots", slots, *self._http, *self._spark_conf)
        else:
            self._make_tokens()
            self._run("scheduler", "scheduler", *where, *self._token_flag(_ALL))
            for number, own_slots in enumerate(self._executor_slots):
                self._run(
                    f"executor-{number}", "executor", "--scheduler", self.address, "--slots", str(own_slots),
                    "--exchange-dir", str(exchange), "--executor-id", f"bench-{number}", *self._spark_conf,
                    *self._token_flag(_EXECUTOR),
                )  # fmt: skip
        self._wait_until_ready(1 if self._is_standalone else len(self._executor_slots))

    def _make_tokens(self) -> None:
        if not self._clients:
            return
        self.token_file(_ALL).parent.mkdir(mode=0o700)
        lines = []
        for name, role in {**dict.fromkeys(self._clients, "client"), _EXECUTOR: "executor", _ALL: "scheduler"}.items():
            token = secrets.token_hex(32)
            lines.append(f"{name} {role} {token}\n")
            self.token_file(name).write_text(f"{token}\n")
        self.token_file(_ALL).write_text("".join(lines))

    def _token_flag(self, name: str) -> Sequence[str]:
        return ("--auth-token-file", str(self.token_file(name))) if self._clients else ()

    def _run(self, name: str, *arguments: str) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "onager", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._checkout,
                env={**os.environ, "ONAGER_SUPERVISOR_PID": str(os.getpid()), **self._environment},
            )
        self._processes.append((name, process))

    def _wait_until_ready(self, executors: int) -> None:
        end_s = time.monotonic() + _START_TIMEOUT_S
        with self.client(*self._clients[:1]) as client:
            while True:
                for name, process in self._processes:
                    if process.poll() is not None:
                        raise RuntimeError(f"the {name} ended with code {process.returncode}:\n{self._tail(name)}")
                try:
                    if sum(e.state == "alive" for e in client.executors()) >= executors:
                        return
                except OnagerError:
                    pass  # not up yet; the deadline below ends this
                if time.monotonic() > end_s:
                    logs = "\n".join(self._tail(name) for name, _ in self._processes)
                    raise TimeoutError(f"the cluster was not ready after {_START_TIMEOUT_S:g} s:\n{logs}")
                time.sleep(0.1)

    def _tail(self, name: str, lines: int = 30) -> str:
        text = (self._directory / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _stop(self) -> None:
        """Stop executors before the scheduler, and remove everything."""
        for _, process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
