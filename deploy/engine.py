"""A Docker engine for ``make test-compose``: the one that runs here, or one that is started, with images made here.

What is started keeps all its data in a directory of its own, and changes neither the firewall nor the routes of this
machine. Images that cannot be pulled are made with debootstrap; they have this machine's certificates, and its
settings of apt and pip, so that what is built on them finds the registries that this machine uses.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

_START_S: Final = 60.0
_POLL_S: Final = 0.2
_PROGRAMS: Final = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "docker-compose": "docker-compose",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "ip": "iproute2",
    "tar": "tar",
    "umount": "mount",
}
"""The packages of Debian that have the programs."""
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_OF_THIS_MACHINE: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/local/share/ca-certificates",
    "/etc/pip.conf",
    "/etc/apt/apt.conf.d",
)
"""What images that are made here take from it."""


class EngineError(Exception):
    """There is no engine, and none can be started; or it refuses something."""


def program(name: str) -> str:
    """Return the path of a program, or raise `EngineError` with the way to install it."""
    # An engine's own programs come first: a `docker` in /usr/local may be something else.
    found = next(
        (f"{place}/{name}" for place in ("/usr/bin", "/usr/sbin") if os.access(f"{place}/{name}", os.X_OK)), None
    )
    found = found or shutil.which(name, path=_PATH)
    if found is None:
        raise EngineError(f"{name} is needed, and it is not installed: sudo apt-get install {_PROGRAMS[name]}")
    return found


class Engine:
    """Runs commands of Docker against one engine."""

    def __init__(self, host: str | None, compose_of: Mapping[str, str]) -> None:
        self.environment = {**os.environ, **({"DOCKER_HOST": host} if host else {}), **compose_of}

    def run(self, *command: str, text: str | None = None, cwd: Path | None = None, within_s: float = 1800.0) -> str:
        """Run a command and return its standard output; `EngineError` with what it said if it fails."""
        done = subprocess.run(
            [program(command[0]), *command[1:]],
            input=text,
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            raise EngineError(f"{' '.join(command)} ended with code {done.returncode}:\n{said}")
        return done.stdout

    def answers(self) -> bool:
        """Return whether the engine answers."""
        with contextlib.suppress(EngineError, subprocess.TimeoutExpired):
            return bool(self.run("docker", "info", "--format", "{{.ServerVersion}}", within_s=20.0).strip())
        return False

    def has(self, image: str) -> bool:
        """Return whether the engine has an image, or can pull it."""
        for command in (("docker", "image", "inspect", image), ("docker", "pull", "--quiet", image)):
            with contextlib.suppress(EngineError, subprocess.TimeoutExpired):
                self.run(*command, within_s=600.0)
                return True
        return False

    def make_debian(self, image: str, suite: str, then: Sequence[str]) -> None:
        """Make *image* of a minimal Debian that finds registries as this machine does, and *then* of a Dockerfile."""
        with tempfile.TemporaryDirectory(prefix="onager-image-") as directory:
            root = Path(directory) / "root"
            subprocess.run(
                [program("debootstrap"), "--variant=minbase", "--include=ca-certificates", suite, str(root)],
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PATH": _PATH},
            )
            for path in map(Path, _OF_THIS_MACHINE):
                target = root / path.relative_to("/")
                if path.is_dir():
                    shutil.copytree(path, target, dirs_exist_ok=True)
                elif path.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.unlink(missing_ok=True)
                    shutil.copy(path, target)
            tar = subprocess.Popen([program("tar"), "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
            subprocess.run(
                [program("docker"), "import", "-", f"{image}-debian"],
                stdin=tar.stdout,
                env=self.environment,
                check=True,
            )
            if tar.wait():
                raise EngineError(f"{image} could not be packed")
        lines = [
            f"FROM {image}-debian",
            "ENV LANG=C.UTF-8 PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin",
            *then,
        ]
        self.run("docker", "build", "--network", "host", "--tag", image, "-", text="\n".join(lines))


@contextlib.contextmanager
def engine(directory: Path, compose_of: Mapping[str, str]) -> Iterator[Engine]:
    """Yield the engine that runs on this machine, else one that is started, and is ended afterwards.

    *directory* keeps its images, which take a while to make.
    """
    found = Engine(None, compose_of)
    if found.answers():
        yield found
        return
    if os.geteuid() != 0:
        raise EngineError("no Docker engine answers, and starting one needs root: sudo make test-compose")
    directory.mkdir(parents=True, exist_ok=True)
    # A socket's path has at most 108 characters.
    with tempfile.TemporaryDirectory(prefix="onager-engine-") as run, (directory / "dockerd.log").open("ab") as log:
        program("iptables")  # dockerd does not start without it
        host = f"unix://{run}/docker.sock"
        process = subprocess.Popen(
            [
                *(
                    program("dockerd"),
                    "--host",
                    host,
                    "--data-root",
                    str(directory / "data"),
                    "--exec-root",
                    f"{run}/exec",
                ),
                *("--pidfile", f"{run}/pid", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": _PATH},
            start_new_session=True,
        )
        try:
            started = Engine(host, compose_of)
            end_s = time.monotonic() + _START_S
            while not started.answers():
                if process.poll() is not None or time.monotonic() > end_s:
                    raise EngineError(f"dockerd did not start: see {log.name}")
                time.sleep(_POLL_S)
            yield started
        finally:
            process.terminate()
            process.wait()
            # What it leaves: its bridge, and the mount of a network of containers.
            for command in (("ip", "link", "delete", "docker0"), ("umount", "--lazy", f"{run}/exec/netns/default")):
                subprocess.run([program(command[0]), *command[1:]], check=False, capture_output=True)
