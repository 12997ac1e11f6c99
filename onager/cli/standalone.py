"""``onager standalone``: a scheduler and an executor as child processes, restarted when they die."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, NamedTuple

import onager
from onager.cli.exits import ExitCode
from onager.cli.services import SUPERVISOR_VARIABLE
from onager.cli.standalone_tokens import StandaloneTokens
from onager.client.client import default_addresses
from onager.client.connection import parse_addresses
from onager.errors import InvalidSettingError, OnagerError
from onager.exchange_layout import check_local, default_warehouse
from onager.private_files import make_private_directory
from onager.private_paths import secret_places
from onager.protocol.ports import can_listen
from onager.protocol.security import ClientSecurity
from onager.protocol.security.clients import is_set
from onager.protocol.security.places import is_loopback
from onager.state_backend.urls import LEVELDB, state_directory

_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0
_SOUND_LIFE_S: Final = 30.0
_READY_POLL_S: Final = 0.1
_STOP_GRACE_S: Final = 15.0
_DRAIN_GRACE_MS: Final = 10_000
"""How long running tasks may continue after Ctrl-C; less than `_STOP_GRACE_S`."""
_LISTENING: Final = "listening on "
"""What a scheduler prints before its address, once it listens there."""
_PAGE: Final = "page at "
"""What it prints before the address of its page, and before it listens."""
_PAGE_LISTEN: Final = "127.0.0.1:50080"
_FAILED_START_GRACE_S: Final = 1.0
_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared with, not listened on
_EXECUTORS_TOKEN: Final = "ONAGER_EXECUTOR_AUTH_TOKEN_FILE"  # noqa: S105 - the name of a variable
_SECRETS: Final = ("AUTH_TOKEN_FILE", "OUTGOING_AUTH_TOKEN_FILE", "TLS_KEY", "OUTGOING_TLS_KEY", "WEBHOOK_SECRET_FILE")
_TRUSTING: Final = ("ONAGER_SCHEDULER_INSECURE", "ONAGER_INSECURE", "ONAGER_SCHEDULER_TOKENS_WITHOUT_ROLE")
_ROOTS: Final = "ONAGER_EXECUTOR_ROOTS"
_SCHEDULERS_OWN: Final = "ONAGER_ETCD_"
"""The prefix of variables with credentials of the store, which the executor, where users' code runs, must not see."""


class Layout(NamedTuple):
    """Where a standalone cluster keeps its state and its files."""

    backend: str
    """The scheduler's ``--backend``."""
    state_dir: Path | None
    """The directory of the state; `None` if another program stores it."""
    exchange_dir: Path


def layout(backend: str | None, state_dir: str | None, exchange_dir: str | None) -> Layout:
    """Return the directories: those given, else ``state`` and ``exchange`` below the user's data directory.

    That is ``$XDG_DATA_HOME/onager``, by default ``~/.local/share/onager``. With a given state directory ``NAME``, the
    exchange directory is ``NAME-exchange`` beside it. The *backend* ``leveldb:DIR`` means the same as *state_dir*;
    raises `InvalidSettingError` when both are given.
    """
    if backend is not None and state_dir is not None:
        raise InvalidSettingError(
            "--state-dir", state_dir, "--backend already says where the state is; give only one of them"
        )
    if backend is not None and (named := state_directory(backend)) is not None:
        state_dir, backend = str(named), None
    base = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "onager"
    state = Path(state_dir).expanduser().absolute() if state_dir else base / "state"
    if exchange_dir:
        check_local("--exchange-dir", exchange_dir)
        exchange = Path(exchange_dir).expanduser().absolute()
    else:
        exchange = state.with_name(f"{state.name}-exchange") if state_dir else base / "exchange"
    if backend is not None:
        return Layout(backend, None, exchange)
    return Layout(f"{LEVELDB}{state}", state, exchange)


@dataclass(slots=True)
class _Child:
    """A child process, and when to restart it."""

    name: str
    arguments: Sequence[str]
    environment: dict[str, str]
    on_line: Callable[[str], None] | None = None
    """Called, on a thread, with each line of the process's standard output."""
    hidden_prefix: str | None = None
    """The process does not inherit variables with this prefix."""
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    start_again_s: float = 0.0
    wait_s: float = _FIRST_WAIT_S

    def start(self) -> None:
        self.started_s = time.monotonic()
        inherited = {
            name: value
            for name, value in os.environ.items()
            if self.hidden_prefix is None or not name.startswith(self.hidden_prefix)
        }
        # -P: files in the user's directory are not modules.
        # Its own session: Ctrl-C reaches only the supervisor, which stops the children in order.
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and package
            [sys.executable, "-P", "-m", "onager", *self.arguments],
            env={**inherited, **self.environment, SUPERVISOR_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.on_line else None,
            start_new_session=True,
        )
        if self.on_line and self.process.stdout:
            threading.Thread(target=_read_lines, args=(self.process.stdout, self.on_line), daemon=True).start()

    def died(self) -> int | None:
        """Return the exit code if the process has ended since the last call, and schedule its restart."""
        code = None if self.process is None else self.process.poll()
        if code is not None:
            now_s = time.monotonic()
            if now_s - self.started_s > _SOUND_LIFE_S:
                self.wait_s = _FIRST_WAIT_S
            self.start_again_s = now_s + self.wait_s
            self.wait_s = min(2 * self.wait_s, _LONGEST_WAIT_S)
            self.process = None
        return code


class Standalone:
    """The supervisor of one scheduler and one executor."""

    def __init__(
        self,
        directories: Layout,
        listen: str,
        slots: int | None,
        spark_conf: Mapping[str, str],
        *,
        catalogs: Sequence[str] = (),
        roots: Sequence[str] = (),
        allow: Sequence[str] = (),
        http_listen: str | None = None,
        has_page: bool = True,
    ) -> None:
        """Prepare both; *http_listen* is where the page is served, by default where it is always, or a free port."""
        self._page = ""
        self._may_move_page = has_page and http_listen is None
        self._listen = _with_free_port(listen)
        self._address = _reached_at(self._listen)
        self._directories = directories
        exchange = str(directories.exchange_dir)
        self._without_page = (
            *("scheduler", "--backend", directories.backend, "--listen", self._listen, "--exchange-dir", exchange),
        )
        self._scheduler = _Child(
            "scheduler",
            (*self._without_page, *(("--http-listen", _page_address(http_listen)) if has_page else ())),
            _default("ONAGER_SCHEDULER_LOG_LEVEL", "warning"),
            self._scheduler_said,
        )
        arguments = ["executor", "--scheduler", self._address, "--exchange-dir", exchange]
        arguments += ["--executor-id", f"standalone-{socket.gethostname()}"]
        arguments += [] if slots is None else ["--slots", str(slots)]
        for key, value in spark_conf.items():
            arguments += ["--spark-conf", f"{key}={value}"]
        for flag, values in {"--catalog": catalogs, "--root": roots, "--allow": allow}.items():
            for value in values:
                arguments += [flag, value]
        if not (roots or is_loopback(self._listen) or _ROOTS in os.environ):
            # The executor's scheduler is on loopback, but jobs come from elsewhere: of local files they get tables.
            arguments += ["--root", default_warehouse(exchange)]
        self._tokens = _tokens(directories.exchange_dir, self._listen)
        if self._tokens is not None:
            self._scheduler.environment |= {"ONAGER_SCHEDULER_AUTH_TOKEN_FILE": str(self._tokens.scheduler)}
        environment = {
            "ONAGER_EXECUTOR_PRIVATE_PATHS": _private_paths(directories, self._tokens),
            **({} if self._tokens is None else _default(_EXECUTORS_TOKEN, str(self._tokens.executor))),
            **_default("ONAGER_EXECUTOR_LOG_LEVEL", "warning"),
            **_default("ONAGER_EXECUTOR_DRAIN_GRACE_MS", str(_DRAIN_GRACE_MS)),
        }
        self._executor = _Child("executor", arguments, environment, hidden_prefix=_SCHEDULERS_OWN)
        self._stop = threading.Event()
        self._has_listened = threading.Event()
        self._has_been_ready = False

    def run(self) -> int:
        """Run until SIGINT or SIGTERM, and return the exit code.

        A child that cannot start at all (a port in use, a locked state directory) prints why, and the supervisor
        ends with the code for usage errors.
        """
        try:
            for directory in (self._directories.state_dir, self._directories.exchange_dir):
                if directory is not None:
                    make_private_directory(directory)
            if self._tokens is not None:
                self._tokens.check(self._listen, is_trusting=any(map(is_set, _TRUSTING)))
                self._tokens.refresh()
        except OSError as error:
            is_file = isinstance(error, FileExistsError)
            why = "is no directory: give another one" if is_file else f"cannot be created: {error.strerror}"
            print(f"onager: {error.filename} {why}", file=sys.stderr)
            return ExitCode.USAGE
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, lambda *_: self._stop.set())
        print("onager: starting a scheduler, and an executor with Spark …", file=sys.stderr, flush=True)
        try:
            return self._supervise()
        finally:
            self._stop_children()
            if self._tokens is not None:
                self._tokens.remove()

    def _supervise(self) -> int:
        security = ClientSecurity.from_environment()
        if self._tokens is not None:
            security = replace(security, auth_token_file=self._tokens.executor)  # every role may list executors
        with onager.connect(self._address, security=security, connect_timeout_s=0.0, retry_timeout_s=0.0) as client:
            while not self._stop.wait(_READY_POLL_S):
                if self._tokens is not None:
                    self._tokens.refresh()
                # The executor starts once this scheduler owns the address: a different scheduler that has it must
                # not get a second executor with the same id.
                children = (self._scheduler, self._executor) if self._has_listened.is_set() else (self._scheduler,)
                for child in children:
                    code = self._keep_running(child)
                    if code is not None:
                        return code
                if not self._has_been_ready and self._is_ready(client):
                    self._has_been_ready = True
                    self._say_ready()
        return ExitCode.DONE

    def _keep_running(self, child: _Child) -> int | None:
        """Restart a dead child; return an exit code if a restart cannot help."""
        code = child.died()
        if code == ExitCode.USAGE and not self._has_been_ready and not self._has_moved_page(child):
            return ExitCode.USAGE
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            print(f"onager: the {child.name} {how}; restarting it", file=sys.stderr, flush=True)
        if child.process is None and time.monotonic() >= child.start_again_s:
            child.start()
        return None

    def _has_moved_page(self, child: _Child) -> bool:
        """Let the scheduler serve its page elsewhere if the port that it was given has been taken meanwhile."""
        is_elsewhere = child.arguments[-1] != _PAGE_LISTEN
        if child is not self._scheduler or not self._may_move_page or is_elsewhere or can_listen(_PAGE_LISTEN):
            return False
        child.arguments = (*self._without_page, "--http-listen", _page_address(None))
        return True

    def _is_ready(self, client: onager.OnagerClient) -> bool:
        process = self._executor.process
        if process is None:
            return False
        try:
            return any(executor.state == "alive" and executor.pid == process.pid for executor in client.executors())
        except OnagerError:
            return False

    def _scheduler_said(self, line: str) -> None:
        if line.startswith(_LISTENING):
            self._has_listened.set()
        elif line.startswith(_PAGE):
            self._page = line.removeprefix(_PAGE)
        else:
            print(line, flush=True)

    def _say_ready(self) -> None:
        where = "" if self._address == default_addresses() else f" --scheduler {self._address}"
        secured = "/;use_ssl=true;token=…" if os.environ.get("ONAGER_SCHEDULER_TLS_CERT") else ""
        lines = [
            f"onager is ready at {self._address}",
            f"  state     {self._directories.state_dir or self._directories.backend}",
            f"  exchange  {self._directories.exchange_dir}",
            *([f"  page      {self._page}"] if self._page else []),
            f'  PySpark   SparkSession.builder.remote("sc://{self._address}{secured}").getOrCreate()',
            f'  shell     onager submit{where} -e "SELECT 1 AS one"',
            "Ctrl-C stops it; jobs continue when it is started again.",
        ]
        print("\n".join(lines), flush=True)

    def _stop_children(self) -> None:
        """Stop the executor first, so that it can report its last tasks; then the scheduler."""
        grace_s = _STOP_GRACE_S if self._has_been_ready else _FAILED_START_GRACE_S
        for child in (self._executor, self._scheduler):
            process = child.process
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _tokens(exchange_dir: Path, listen: str) -> StandaloneTokens | None:
    """Return the children's token files, which lie beside the exchange directory, if callers have to show tokens."""
    given = os.environ.get("ONAGER_SCHEDULER_AUTH_TOKEN_FILE") or os.environ.get("ONAGER_AUTH_TOKEN_FILE")
    port = listen.rpartition(":")[2]
    return (
        None
        if not given
        else StandaloneTokens(Path(given), exchange_dir.with_name(f"{exchange_dir.name}-{port}-tokens"))
    )


def _private_paths(directories: Layout, tokens: StandaloneTokens | None) -> str:
    """Return the executor's private paths, as JSON: the user's own, the state, and the scheduler's secrets."""
    given = os.environ.get("ONAGER_EXECUTOR_PRIVATE_PATHS", "[]")
    files = [os.environ.get(f"ONAGER_SCHEDULER_{name}") or os.environ.get(f"ONAGER_{name}") for name in _SECRETS]
    places = secret_places([Path(file) for file in files if file], [str(directories.exchange_dir)])
    own = [directories.state_dir, *places, *([] if tokens is None else [tokens.directory])]
    try:
        return json.dumps([*json.loads(given), *(str(path) for path in own if path is not None)])
    except (ValueError, TypeError):
        return given  # the executor says what is wrong with it


def _read_lines(stream: IO[bytes], on_line: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            on_line(line.decode(errors="replace").rstrip("\n"))


def _default(variable: str, value: str) -> dict[str, str]:
    """Return an environment that sets *variable*, unless it is set already."""
    return {} if variable in os.environ else {variable: value}


def _reached_at(listen: str) -> str:
    """Return the address under which this machine reaches a scheduler that listens at *listen*."""
    host, _, port = listen.rpartition(":")
    return f"{_LOOPBACK_OF.get(host, host)}:{port}"


def _page_address(given: str | None) -> str:
    """Return where to serve the page: as *given*, else at a port that is always the same, if it is free now."""
    if given is None:
        host, _, _ = _PAGE_LISTEN.rpartition(":")
        given = _PAGE_LISTEN if can_listen(_PAGE_LISTEN) else f"{host}:0"
    return _with_free_port(given)


def _with_free_port(listen: str) -> str:
    """Return *listen* with port 0 replaced by a free port."""
    host, _, port = listen.rpartition(":")
    if port != "0":
        return parse_addresses(listen)[0]
    with socket.socket() as probe:
        probe.bind((host or "127.0.0.1", 0))
        return f"{host or '127.0.0.1'}:{probe.getsockname()[1]}"
