"""Where etcd and etcdctl are: on PATH, or where set-up unpacked them."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

_UNPACKED: Final = Path(__file__).resolve().parents[3] / ".venv" / "etcd" / "usr" / "bin"
_VERSION_ARGUMENT: Final = {"etcd": "--version", "etcdctl": "version"}
_OLDEST: Final = (3, 4, 0)
_ADVICE: Final = (
    "run `make setup-dev`, or install it: sudo apt-get install etcd-server etcd-client (Debian 12, Ubuntu 24.04 and "
    "later), brew install etcd (macOS), or put a release of github.com/etcd-io/etcd on PATH"
)

Version = tuple[int, int, int]


@functools.cache
def program(name: str) -> Path:
    """Return the program *name* (etcd or etcdctl); fail with the way to get it where there is none."""
    seen = []
    for path in filter(None, (shutil.which(name), shutil.which(name, path=str(_UNPACKED)))):
        version = _version(Path(path), _VERSION_ARGUMENT[name])
        if version >= _OLDEST:
            return Path(path)
        seen.append(f"{path} is of version {shown(version)}")
    found = "; ".join(seen) or f"it is neither on PATH nor in {_UNPACKED}"
    raise AssertionError(f"this test needs {name} {shown(_OLDEST)} or later: {found}; {_ADVICE}")


@functools.cache
def etcd_version() -> Version:
    """Return the version of the server that tests start."""
    return _version(program("etcd"), "--version")


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def clean_environment() -> dict[str, str]:
    """Return the environment without settings that etcd and etcdctl would read from it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ETCD_", "ETCDCTL_"))}


def _version(path: Path, argument: str) -> Version:
    out = subprocess.run([path, argument], capture_output=True, text=True, env=clean_environment(), check=False).stdout
    found = re.search(r"[Vv]ersion: *(\d+)\.(\d+)\.(\d+)", out)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)
