"""Scans the exchange directory: how many bytes, and of which jobs and writers."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onager.exchange_layout import PROBE, job_of, local_path, writer_of
from onager.ids import is_job_id, new_nonce

_OLD_S = 600


@dataclass(slots=True)
class JobFiles:
    """The files of one job."""

    files: int = 0
    bytes: int = 0
    latest_ns: int = 0
    """When a file last appeared or disappeared, by the file system's clock."""
    writers: set[str] = field(default_factory=set)
    """The incarnations of executors that write files now, or died while they did."""


@dataclass(slots=True)
class Contents:
    """The contents of an exchange directory."""

    files: int
    bytes: int
    free_bytes: int
    total_bytes: int
    jobs: dict[str, JobFiles]


def look_through(exchange_dir: str) -> Contents:
    """Return the contents of the exchange directory at *exchange_dir*.

    Files that disappear meanwhile are skipped. Probes that a killed process left ten minutes ago are removed.
    """
    root = local_path(exchange_dir)
    disk = shutil.disk_usage(root)
    jobs: dict[str, JobFiles] = {}
    probes: list[os.DirEntry[str]] = []
    for entry in _entries(root):
        job_id = job_of(entry.name)
        if entry.name.startswith(PROBE):
            probes.append(entry)
        elif is_job_id(job_id) and entry.is_dir(follow_symlinks=False):
            _count(entry, jobs.setdefault(job_id, JobFiles()))
    if probes:
        _remove_old(probes, Path(root))
    return Contents(
        files=sum(job.files for job in jobs.values()),
        bytes=sum(job.bytes for job in jobs.values()),
        free_bytes=disk.free,
        total_bytes=disk.total,
        jobs=jobs,
    )


def _count(directory: "os.DirEntry[str]", job: JobFiles) -> None:
    with contextlib.suppress(FileNotFoundError):
        job.latest_ns = max(job.latest_ns, directory.stat(follow_symlinks=False).st_mtime_ns)
    for entry in _entries(directory.path):
        if entry.is_dir(follow_symlinks=False):
            _count(entry, job)
            continue
        with contextlib.suppress(FileNotFoundError):
            job.bytes += entry.stat(follow_symlinks=False).st_size
            job.files += 1
        writer = writer_of(entry.name)
        if writer is not None:
            job.writers.add(writer)


def _entries(directory: str) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from entries


def _remove_old(probes: Sequence["os.DirEntry[str]"], root: Path) -> None:
    """Remove those of *probes* that are old by the clock of the file system: this machine's may be another.

    Where no file can be made, which tells that time, they stay.
    """
    own = root / f"{PROBE}{new_nonce()}"
    with contextlib.suppress(OSError):
        own.touch(exist_ok=False)
        before_s = own.stat().st_mtime - _OLD_S
        for probe in probes:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if probe.stat(follow_symlinks=False).st_mtime < before_s:
                    os.unlink(probe.path)  # noqa: PTH108 - the entry has its path as text
        own.unlink()
