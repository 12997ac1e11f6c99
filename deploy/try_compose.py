"""``make test-compose``: docker-compose.yml with a real engine: built, started, used as the docs say, killed, stopped.

Needs docker.io and docker-compose of Debian, and root where no engine runs; debootstrap where images cannot be pulled.
"""

import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy.engine import Engine, EngineError, engine
from deploy.parts import free_ports

ROOT: Final = Path(__file__).resolve().parents[1]
_PYTHON: Final = "python:3.11-slim-bookworm"
_DEBIAN: Final = "debian:trixie-slim"
_HAPROXY: Final = "haproxy:2.8"
_MADE: Final = {
    _PYTHON: (
        "bookworm",
        (
            "RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip python3-venv",
            "RUN ln -s python3 /usr/bin/python && rm /usr/lib/python3*/EXTERNALLY-MANAGED",
        ),
    ),
    _DEBIAN: ("trixie", ()),
    _HAPROXY: (
        "bookworm",
        (
            "RUN apt-get update && apt-get install -y --no-install-recommends haproxy",
            "USER haproxy",
            'CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]',
        ),
    ),
}
"""What stands for the images of docker-compose.yml and of the Dockerfile where they cannot be pulled."""
_WAIT_S: Final = 900.0
_POLL_S: Final = 1.0
_SCHEDULERS: Final = 3
_EXECUTORS: Final = 2
_LONG: Final = (
    "SELECT id % 10 AS k, sum(crc32(sha2(repeat(cast(id AS string), 100), 512))) AS s FROM range(6000000) "
    "GROUP BY k ORDER BY k"
)
_SEARCH: Final = """
import os
for directory, below, files in os.walk("/"):
    below[:] = [name for name in below if directory != "/" or name not in ("dev", "proc", "sys")]
    for name in files:
        if name in ("ca.key", "etcd-ca.key") or directory == "/secrets" and name.endswith((".key", ".pem")):
            print(os.path.join(directory, name))
"""
"""Prints the certificates and keys of a container, and the keys of authorities wherever they are."""
_READ: Final = """
import os, pathlib
for path in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (path / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        continue  # it has ended
    if path.name != "1" and any(word.endswith(b"/onager") for word in words[:3]):
        print("read" if os.access(path / "environ", os.R_OK) else "refused")
"""
"""Says whether a process of the same user can read the environment of the process of Onager."""


class Compose:
    """docker-compose over the cluster of docker-compose.yml."""

    def __init__(self, running: Engine) -> None:
        self._engine = running

    def __call__(self, *command: str, within_s: float = 1800.0) -> str:
        """Run a command of docker-compose and return what it printed."""
        return self._engine.run("docker-compose", *command, cwd=ROOT, within_s=within_s)

    def cli(self, *command: str, role: str = "cli") -> str:
        """Run the command line in a container of its own."""
        return self("run", "--rm", role, *command, within_s=_WAIT_S)

    def refusal(self, *command: str) -> str:
        """Return the message of a command that must fail."""
        try:
            printed = self(*command, within_s=_WAIT_S)
        except EngineError as error:
            return str(error)
        raise EngineError(f"docker-compose {shlex.join(command)} must fail, and printed\n{printed}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until *condition* holds; what cannot be asked yet does not hold."""
        end_s = time.monotonic() + _WAIT_S
        while True:
            try:
                if condition():
                    return
                last = ""
            except EngineError as error:
                last = str(error)
            if time.monotonic() > end_s:
                raise EngineError(f"{what}: not within {_WAIT_S:g} s\n{last}\n{self('logs', '--tail', '30')}")
            time.sleep(_POLL_S)


def steps() -> list[list[str]]:
    """Return the commands of docker-compose that docs/deployment.md shows, in their order."""
    section = (ROOT / "docs" / "deployment.md").read_text().partition("\n## Docker\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^docker-compose (.*)$", section, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def check_secrets(compose: Compose) -> None:
    """Fail if a container has files of another role, or the key of an authority."""
    own = {
        "scheduler-1": {"ca.pem", "etcd-ca.pem", "etcd.key", "etcd.pem", "server.key", "server.pem"},
        "executor-1": {"ca.pem"},
    }
    for service, names in own.items():
        found = compose("exec", "-T", service, "python", "-c", _SEARCH).split()
        assert {path.removeprefix("/secrets/") for path in found} == names, (service, found)
        assert {*compose("exec", "-T", service, "python", "-c", _READ).split()} == {"refused"}, service
    roles = [line.split()[1] for line in compose("exec", "-T", "executor-1", "cat", "/secrets/token").splitlines()]
    assert roles == ["executor"], roles
    assert compose("exec", "-T", "etcd-1", "ls", "/secrets").split() == [
        *("etcd-ca.pem", "root.key", "root.pem", "server.key", "server.pem")
    ]


def check_roles(compose: Compose) -> None:
    """Fail if the command line may do what only an admin may, or an admin may not."""
    assert "takes admin" in compose.refusal("run", "--rm", "cli", "audit")
    compose.cli("audit", role="admin")


def check_etcd(compose: Compose) -> None:
    """Fail if etcd lets in whoever has no certificate, or its user `onager` read what is not Onager's."""
    get = ("exec", "-T", "etcd-2", "env", "-u", "ETCDCTL_CERT", "-u", "ETCDCTL_KEY", "etcdctl", "get", "--prefix", "/")
    assert compose.refusal(*get)
    assert "onager" in compose("exec", "-T", "etcd-2", "etcdctl", "user", "list").split()


def check_kills(compose: Compose) -> None:
    """Fail if a job does not outlive two schedulers and an executor."""
    result: list[str] = []

    def submit() -> None:
        result.append(compose.cli("submit", "--conf", "onager.fusion.maxBytes=0", "-o", "csv", "-e", _LONG))

    job = threading.Thread(target=submit)
    job.start()
    compose.until(lambda: "running" in compose.cli("jobs"), "a job that runs")
    compose("kill", "-s", "KILL", "scheduler-1", "scheduler-2", "executor-1")
    job.join(_WAIT_S)
    assert result, "the job did not end"
    assert [row.partition(",")[0] for row in result[0].split()] == ["k", *map(str, range(10))], result[0]
    compose("start", "scheduler-1", "scheduler-2", "executor-1")


def _data() -> Path:
    """Return where an engine that is started here keeps its images, which take minutes to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "onager" / "engine"


def main() -> int:
    """Run all of it, and say what is done; return the exit code."""
    page, port = free_ports(2)
    names = {
        "COMPOSE_PROJECT_NAME": "onager-test",
        "ONAGER_PUBLISH": f"127.0.0.1:{port}",
        "ONAGER_PUBLISH_PAGE": f"127.0.0.1:{page}",
        "COMPOSE_HTTP_TIMEOUT": "300",
    }
    began_s = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began_s:6.0f} s  {what}", flush=True)

    try:
        with engine(_data(), names) as running:
            for image, (suite, then) in _MADE.items():
                if not running.has(image):
                    say(f"making {image} of Debian's {suite}")
                    running.make_debian(image, suite, then)
            say("building the images")
            for target, image in (("etcd", "onager-etcd"), ("onager", "onager")):
                running.run("docker", "build", "--network", "host", "--target", target, "--tag", image, str(ROOT))
            compose = Compose(running)
            try:
                use(compose, say)
            finally:
                compose("down", "--volumes", "--timeout", "20")
                say("stopped")
    except EngineError as error:
        print(f"make test-compose: {error}", file=sys.stderr)
        return 1
    return 0


def use(compose: Compose, say: Callable[[str], None]) -> None:
    """Start the cluster, and do with it what the docs say, and worse."""
    compose("up", "-d")
    say("started")
    compose.until(lambda: compose.cli("executors").count("alive") == _EXECUTORS, "two executors")
    say("two executors are there")
    check_secrets(compose)
    check_roles(compose)
    check_etcd(compose)
    say("each role has its own secrets, and etcd asks for certificates")
    for step in steps():
        printed = compose(*(["up", "-d"] if step[0] == "up" else step), within_s=_WAIT_S)
        say(f"docker-compose {shlex.join(step)}\n{printed}")
        if "SELECT 1 AS one" in step:
            assert re.search(r"\b1\b", printed), printed
    compose("start", "scheduler-1", "scheduler-2")
    compose.until(
        lambda: len(re.findall("^scheduler-", compose.cli("schedulers"), re.MULTILINE)) == _SCHEDULERS,
        "three schedulers",
    )
    check_kills(compose)
    say("a job outlived two schedulers and an executor")
    compose("up", "-d")
    compose.until(lambda: compose.cli("executors").count("alive") == _EXECUTORS, "two executors again")


if __name__ == "__main__":
    sys.exit(main())
