"""The machine of the measurement."""

import os
import platform
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.etcd_server import etcd_program

_SYNCS = 200
_IN_MEMORY = ("tmpfs", "ramfs")


def describe(directory: Path) -> dict[str, Any]:
    """Return processor, disk and versions; *directory* is where the stores will be.

    `ValueError` when that is memory: the durability that is measured would cost nothing.
    """
    kind = _file_system(directory)
    if kind in _IN_MEMORY:
        raise ValueError(f"{directory} is a {kind}, which is no disk; give another directory (--dir)")
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "kernel": platform.release(),
        "file_system": kind,
        "fdatasync_ms": round(_sync_ms(directory), 3),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in ("onager", "plyvel", "aetcd", "grpcio", "protobuf")},
        "etcd": _etcd_version(),
    }


def _file_system(directory: Path) -> str:
    path = directory.resolve()
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[parent] for parent in (path, *path.parents) if parent in mounts), "unknown")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _sync_ms(directory: Path) -> float:
    """Return the median time of appending 256 bytes durably."""
    times_s = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            begun_s = time.perf_counter()
            os.write(file.fileno(), bytes(256))
            os.fdatasync(file.fileno())
            times_s.append(time.perf_counter() - begun_s)
    return 1000 * sorted(times_s)[_SYNCS // 2]


def _etcd_version() -> str:
    program = etcd_program()
    if program is None:
        return "none"
    ran = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()[0].rpartition(" ")[2]
