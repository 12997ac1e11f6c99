"""Machines as namespaces: each has its own network, mounts, processes and host name, and hangs on one bridge.

All of it is made inside namespaces of the run's own (`enter`), so it needs no root where users may make these, touches
nothing of the machine on which it runs, and is gone with the run.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_INSIDE: Final = "ONAGER_MACHINES_INSIDE"
_FOR_CALLS: Final = "10.77.0"
"""Between schedulers, executors and clients."""
_FOR_STORE: Final = "10.78.0"
"""Between schedulers and members of etcd."""
_NOBODY: Final = "02:00:00:00:00:01"
"""No network card has this address: what is sent there is lost in silence."""
OUTSIDE: Final = f"{_FOR_CALLS}.100"
_SET_UP: Final = """
mount --make-rprivate /
mount -t tmpfs disk {disk}
mkdir -p {disk}/share/exchange
mount --bind {share} {disk}/share
echo ready
exec sleep infinity
"""


def enter(module: str, arguments: Sequence[str]) -> None:
    """Run *module* again inside of namespaces of its own, in place of this process; return at once when it is."""
    if _INSIDE in os.environ:
        return
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [found("unshare"), *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.environ[_INSIDE] = "1"
    os.execvp(command[0], [*command, sys.executable, "-m", module, *arguments])


def found(name: str) -> str:
    """Return the path of a program of the system."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        sys.exit(f"{name} is missing: sudo apt-get install util-linux iproute2 haproxy")
    return path


def see_to_fuse() -> None:
    """End with what to install where file systems of our own cannot be made."""
    try:
        import mfusepy  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("mfusepy is missing: make setup")
    except OSError:
        sys.exit("libfuse is missing: sudo apt-get install fuse3")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        sys.exit("/dev/fuse cannot be opened: sudo modprobe fuse && sudo chmod 666 /dev/fuse")


def run(*command: str) -> None:
    """Run *command*; raise with what it printed when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


def make_hub(directory: Path, machines: Iterable[int]) -> None:
    """Make the bridge and the outside end of it, and let names of machines be found without a name server."""
    run("mount", "--make-rprivate", "/")
    names = ["127.0.0.1 localhost", *(f"{_FOR_CALLS}.{number} machine-{number}" for number in machines)]
    for path, lines in (("/etc/hosts", names), ("/etc/resolv.conf", [])):
        (directory / Path(path).name).write_text("".join(f"{line}\n" for line in lines))
        run("mount", "--bind", str(directory / Path(path).name), path)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "hub", "type", "bridge")
    for network in (_FOR_CALLS, _FOR_STORE):
        run("ip", "address", "add", f"{network}.100/24", "dev", "hub")
    run("ip", "link", "set", "hub", "up")


class Machine:
    """One machine; *share* is mounted at `share` on it, over a disk of its own."""

    def __init__(self, number: int, disk: Path, share: Path) -> None:
        self.number = number
        self.name = f"machine-{number}"
        self.address = f"{_FOR_CALLS}.{number}"
        self.store_address = f"{_FOR_STORE}.{number}"
        self.disk, self.share, self.source = disk, disk / "share", share
        script = f"hostname {self.name}\n" + _SET_UP.format(disk=disk, share=share)
        namespaces = ["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-e", "-c", script], stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{self.name} could not be made")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self._first = children[0]
        self._connect()

    def inside(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return *command* as it is run on this machine."""
        enter = [found("nsenter"), "--target", self._first, "--net", "--mount", "--uts", "--pid"]
        return [*enter, f"--wd={Path.cwd()}", *command]

    def do(self, *command: str) -> None:
        """Run *command* on this machine to its end."""
        run(*map(str, self.inside(command)))

    # -- the network

    def _connect(self) -> None:
        wire = f"wire{self.number}"
        run("ip", "link", "add", wire, "type", "veth", "peer", "name", f"card{self.number}")
        run("ip", "link", "set", wire, "master", "hub", "up")
        run("ip", "link", "set", f"card{self.number}", "netns", self._first)
        self.do("ip", "link", "set", f"card{self.number}", "name", "eth0")
        for address in (self.address, self.store_address):
            self.do("ip", "address", "add", f"{address}/24", "dev", "eth0")
        self.do("ip", "link", "set", "eth0", "up")
        self.do("ip", "link", "set", "lo", "up")

    def unplug(self) -> None:
        """Take the machine off the network: what is sent to it or by it is lost."""
        run("ip", "link", "set", f"wire{self.number}", "down")

    def plug(self) -> None:
        """Put it on the network again."""
        run("ip", "link", "set", f"wire{self.number}", "up")

    def lose_to(self, addresses: Sequence[str]) -> None:
        """Lose what this machine sends to *addresses*, in silence; what they send arrives."""
        for address in addresses:
            self.do("ip", "neigh", "replace", address, "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")

    def send_to(self, addresses: Sequence[str]) -> None:
        """Take back `lose_to`."""
        for address in addresses:
            self.do("ip", "neigh", "del", address, "dev", "eth0")

    # -- the share

    def unmount(self) -> None:
        """Unmount the share: in its place there is a directory of the machine's own disk, with an empty `exchange`."""
        self.do("umount", "--lazy", str(self.share))

    def mount(self, source: Path | None = None) -> None:
        """Mount it again, or *source* in its place."""
        self.do("mount", "--bind", str(source or self.source), str(self.share))

    def close(self) -> None:
        """End all that runs on the machine."""
        self._holder.kill()
        self._holder.wait()
