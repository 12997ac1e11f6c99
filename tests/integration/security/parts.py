"""Schedulers as processes that want certificates and tokens, and files that hold those."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from onager.client.connection import Connection
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import ClientSecurity
from tests.support.processes.children import end
from tests.support.processes.forked import ROOT, fork, run_forked
from tests.support.waiting import HANGS_S, until

__all__ = ["ROOT", "Scheduler", "ask", "cli", "environment", "new_token", "scheduler"]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ONAGER_")}


class Scheduler:
    """A scheduler process on a port that it chose."""

    def __init__(self, directory: Path, *flags: str | Path, listen: str = "127.0.0.1:0") -> None:
        self.log = directory / f"scheduler-{secrets.token_hex(4)}.log"
        arguments = ["scheduler", "--backend", "memory:", "--listen", listen]
        arguments += ["--exchange-dir", str(directory / "exchange"), *map(str, flags)]
        with self.log.open("ab") as log:
            given = environment() | {"ONAGER_SCHEDULER_LOG_FORMAT": "json"}
            self.process = fork(arguments, given, stdout=log.fileno(), stderr=log.fileno())

    @property
    def text(self) -> str:
        return self.log.read_text()

    def address(self) -> str:
        return self.said("listening on ").split()[0]

    def said(self, what: str, within_s: float = HANGS_S) -> str:
        """Return what stands behind *what* in the log once it is there."""

        def is_said() -> bool:
            assert self.process.poll() is None or what in self.text, self.text
            return what in self.text

        until(is_said, lambda: f"{what} in {self.text}", within_s=within_s)
        return self.text.split(what, 1)[1]


@contextmanager
def scheduler(directory: Path, *flags: str | Path, listen: str = "127.0.0.1:0") -> Iterator[Scheduler]:
    started = Scheduler(directory, *flags, listen=listen)
    try:
        yield started
    finally:
        end(started.process)


def cli(*arguments: str | Path, timeout_s: float = HANGS_S, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_forked([*map(str, arguments)], environment() | variables, timeout_s)


def new_token(path: Path) -> str:
    token = secrets.token_hex(32)
    path.write_text(f"{token}\n")
    return token


def ask(address: str, **security: Path | bool) -> None:
    """Make a call and open a stream, or raise what the client raises."""
    connection = Connection(address, ClientSecurity(**security), connect_timeout_s=0.0, retry_timeout_s=0.0)
    with closing(connection):
        connection.call("ListJobs", pb.ListJobsRequest())
        first = next(connection.stream(lambda stub, _: stub.CheckState(pb.CheckStateRequest(), timeout=HANGS_S)))
        assert first.begins
