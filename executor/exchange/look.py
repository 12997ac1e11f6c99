"""Scans the exchange directory: how many bytes, and of which jobs and writers."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

from onager.exchange_layout import PROBE, has_scheme, job_of, local_path, writer_of
from onager.ids import is_job_id

_PROBE_AGE_MS = 600_000


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


def look_through(exchange_dir: str, now_ms: int) -> Contents | None:
    """Return the contents of the exchange directory at *exchange_dir*, None for one behind a URI.

    Files that disappear meanwhile are skipped. Probes that a killed process left, old at *now_ms*, are removed.
    """
    if has_scheme(exchange_dir):
        return None
    root = local_path(exchange_dir)
    disk = shutil.disk_usage(root)
    jobs: dict[str, JobFiles] = {}
    for entry in _entries(root):
        job_id = job_of(entry.name)
        if entry.name.startswith(PROBE):
            _remove_old(entry, now_ms)
        elif is_job_id(job_id) and entry.is_dir(follow_symlinks=False):
            _count(entry, jobs.setdefault(job_id, JobFiles()))
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


def _remove_old(probe: "os.DirEntry[str]", now_ms: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if now_ms - probe.stat(follow_symlinks=False).st_mtime * 1000 > _PROBE_AGE_MS:
            os.unlink(probe.path)  # noqa: PTH108 - the entry has its path as text
