"""A cluster of a user who is not root, with secrets planted in files, environments, the store and the exchange."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

import onager
from onager.executor.spark.kernel_jar import kernel_jar
from tests.integration.security.parts import ROOT, environment
from tests.support.processes.children import end, free_port, start
from tests.support.waiting import HANGS_S, until

NOBODY = 65534


@dataclass(frozen=True)
class Planted:
    """Words that nobody else writes: where one is seen, a secret has been read."""

    token: str
    environment: str
    setting: str
    store: str
    rows: str

    @classmethod
    def new(cls) -> "Planted":
        return cls(*(f"planted{secrets.token_hex(16)}" for _ in range(5)))

    def seen(self, text: str) -> list[str]:
        return [name for name, word in vars(self).items() if word in text]


@dataclass
class Jail:
    """The cluster, and what an attacker may know of it."""

    directory: Path
    planted: Planted
    address: str
    tokens: dict[str, Path]
    scheduler_pid: int = 0
    agent_pid: int = 0
    victim: str = ""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def exchange(self) -> Path:
        return self.directory / "exchange"

    def client(self, name: str) -> onager.OnagerClient:
        security = onager.ClientSecurity(auth_token_file=self.tokens[name])
        return onager.connect(self.address, security=security, connect_timeout_s=HANGS_S)

    def host(self) -> int:
        """Return the process that runs programs beside the executor."""
        below = psutil.Process(self.agent_pid).children(recursive=True)
        return next(each.pid for each in below if "onager.executor.programs" in each.cmdline())

    def names(self) -> dict[str, str]:
        """Return what stands for places and processes in the texts of ways."""
        files = sorted(path for path in (self.exchange / self.victim).rglob("*") if path.is_file())
        state = sorted(path for path in (self.directory / "state").iterdir() if path.suffix in {".log", ".ldb"})
        return {
            "token": str(self.tokens["executor"]), "tokens": str(self.tokens["executor"].parent),
            "data": str(self.data), "exchange": str(self.exchange), "result": str(files[0]), "state": str(state[-1]),
            "state_dir": str(state[-1].parent), "scheduler": str(self.scheduler_pid), "agent": str(self.agent_pid),
        }  # fmt: skip


def as_another_user(directory: Path) -> list[str]:
    """Return what runs a command as a user who is not root, and give *directory* to that user.

    Where others cannot read the sources, as in root's own clone, it runs in a namespace in which nobody is root.
    """
    if os.geteuid():
        return []
    drop = [shutil.which("setpriv") or "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    # A child, too: the first process is found while this user's rights still hold.
    both = "import subprocess, sys, onager.cli, pyspark; subprocess.run([sys.executable, '-c', ''], check=True)"
    readable = [*drop, sys.executable, "-c", both]
    if subprocess.run(readable, cwd=ROOT, env=environment(), capture_output=True, check=False).returncode:
        return [shutil.which("unshare") or "unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--"]
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return drop


@contextmanager
def jail() -> Iterator[Jail]:
    """Run a scheduler on LevelDB and an executor, both with tokens, and plant secrets all around."""
    directory = Path(tempfile.mkdtemp(prefix="onager-jail-"))
    directory.chmod(0o755)
    processes = []
    try:
        planted = Planted.new()
        made = _with_files(directory, planted)
        user = as_another_user(directory)
        own = environment() | {
            "HOME": str(directory), "XDG_CACHE_HOME": str(directory / "cache"), "TMPDIR": str(directory / "tmp"),
            "ONAGER_PLANTED": planted.environment,
        }  # fmt: skip

        def run(name: str, *arguments: str) -> int:
            log = directory.parent / f"{directory.name}.{name}.log"
            processes.append(start([*user, sys.executable, "-m", "onager", name, *arguments], log, own))
            return processes[-1].pid

        exchange = ("--exchange-dir", str(made.exchange))
        for secret in (directory / "tokens").iterdir():
            secret.chmod(0o600)
        state, tokens = f"leveldb:{directory / 'state'}", directory / "tokens"
        made.scheduler_pid = run(
            "scheduler", "--backend", state, "--listen", made.address, *exchange,
            "--auth-token-file", str(tokens / "all"),
        )  # fmt: skip
        made.agent_pid = run(
            "executor", "--scheduler", made.address, *exchange, "--slots", "2", "--root", str(made.data),
            "--auth-token-file", str(made.tokens["executor"]), "--executor-id", "e-1",
            "--spark-conf", f"spark.hadoop.planted.secret.key={planted.setting}",
        )  # fmt: skip
        with made.client("ann") as client:
            until(lambda: any(e.state == "alive" for e in client.executors()), lambda: _logs(directory))
            text = f"SELECT concat('{planted.rows}', id, uuid()) AS row FROM range(20000)"
            job = client.sql(text, labels={"planted": planted.store})
            job.wait()
            made.victim = job.id
        yield made
    finally:
        for process in reversed(processes):
            end(process)
        shutil.rmtree(directory)
        for log in directory.parent.glob(f"{directory.name}.*.log"):
            log.unlink()


def _with_files(directory: Path, planted: Planted) -> Jail:
    for name in ("data/in/sub", "exchange", "state", "tokens", "cache/onager", "tmp"):
        (directory / name).mkdir(parents=True)
    shutil.copy(kernel_jar(), directory / "cache" / "onager")
    roles = {"ann": "client", "bob": "client", "executor": "executor", "scheduler": "scheduler"}
    lines = {name: f"{name} {role} {planted.token}{name}\n" for name, role in roles.items()}
    tokens = {name: directory / "tokens" / name for name in roles}
    for name, line in lines.items():
        tokens[name].write_text(line)
    (directory / "tokens" / "all").write_text("".join(lines.values()))
    data = directory / "data"
    (data / "in" / "plain.txt").write_text("plain\n")
    (data / "in" / "sub" / "link.txt").symlink_to(tokens["executor"])
    (data / "rows.xml").write_text("<rows><row><a>1</a></row></rows>")
    entity = f'<!DOCTYPE s [<!ENTITY e SYSTEM "file://{tokens["executor"]}">]>'
    schema = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">&e;</xs:schema>'
    (data / "schema.xsd").write_text(f'<?xml version="1.0"?>{entity}{schema}')
    return Jail(directory, planted, f"127.0.0.1:{free_port()}", tokens)


def _logs(directory: Path) -> str:
    return "\n".join(log.read_text() for log in directory.parent.glob(f"{directory.name}.*.log"))


def connect_outcomes(jailed: Jail) -> dict[str, str]:
    """Return what each way of a client of Spark Connect has shown, by its name."""
    program = Path(__file__).with_name("connect_escapes.py")
    token = jailed.tokens["bob"].read_text().split()[2]
    done = subprocess.run(
        [sys.executable, str(program), jailed.address, token, json.dumps(jailed.names())],
        capture_output=True, text=True, check=False, env=environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found
