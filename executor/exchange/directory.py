"""The exchange directory: checks that it is usable, and removal of what a job left in it."""

import contextlib
import errno
import glob
import os
from collections.abc import Collection, Iterator
from pathlib import Path

import structlog

from onager.errors import ExchangeFullError, ExchangeNotWritableError
from onager.exchange_layout import (
    PROBE,
    has_scheme,
    local_path,
    retired_name,
    stage_directory,
    staging_directory,
    writer_of,
)
from onager.ids import is_job_id, new_nonce

log = structlog.get_logger()

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_RENAMES = 10


def check_exchange_dir(path: str) -> None:
    """Raise a clear error unless files can be made in the exchange directory at *path*.

    Raises `ExchangeNotWritableError` or `ExchangeFullError`.
    """
    directory = Path(local_path(path))
    probe = directory / f"{PROBE}{new_nonce()}"
    try:
        if not directory.is_dir():
            what = "is not a directory" if directory.exists() else "is not there"
            raise ExchangeNotWritableError(
                f"exchange directory {path} {what}: mount the volume there that all schedulers and executors share. "
                "On a single machine the scheduler makes it: start that first"
            )
        probe.write_bytes(b"onager")
        probe.unlink()
    except OSError as e:
        if e.errno in _FULL:
            with contextlib.suppress(OSError):
                probe.unlink()
            raise ExchangeFullError(f"exchange directory {path} is full: free space there ({e.strerror})") from e
        raise ExchangeNotWritableError(
            f"exchange directory {path} cannot be written ({e.strerror}): check its permissions and its mount"
        ) from e


def remove_job_data(exchange_dir: str, job_id: str, keep: Collection[str] = ()) -> None:
    """Remove a job's files from a local exchange directory, except those in *keep* (below the job's directory).

    A name in *keep* that ends with a slash stands for all files of that directory.
    Harmless to repeat, also concurrently; missing files are skipped. If nothing is kept, a late writer finds no
    directory any more.
    """
    if not is_job_id(job_id):
        raise ValueError(f"{job_id!r} is no job id")
    job = Path(local_path(exchange_dir)) / job_id
    kept = {job / name for name in keep}
    whole = {job / name for name in keep if name.endswith("/")}
    if not kept:
        _retire(job)
        return
    remove_tree(job.with_name(retired_name(job_id)))
    for parent, _, names in os.walk(job, topdown=False):
        directory = Path(parent)
        for name in names:
            if directory / name not in kept and directory not in whole:
                (directory / name).unlink(missing_ok=True)
        if directory not in kept and not any(directory in path.parents for path in kept):
            _remove_empty(directory)


def _retire(job: Path) -> None:
    """Rename a job's directory, then remove it, so that nothing new appears in what is being removed.

    A process that is killed in between leaves it under the new name, and the next call removes it.
    """
    retired = job.with_name(retired_name(job.name))
    for _ in range(_RENAMES):
        remove_tree(retired)
        try:
            job.rename(retired)
        except FileNotFoundError:
            return
        except OSError as e:
            if e.errno not in _TAKEN:  # else another process has just done the same
                raise
    raise ExchangeNotWritableError(f"{job} appears again and again while it is being removed: who writes there?")


def remove_unfinished(exchange_dir: str, job_id: str, writers: Collection[str]) -> int:
    """Remove a job's unfinished files of *writers*, incarnations that are over; return how many."""
    if not is_job_id(job_id):
        raise ValueError(f"{job_id!r} is no job id")
    removed = 0
    for parent, _, names in os.walk(Path(local_path(exchange_dir)) / job_id):
        for name in names:
            if writer_of(name) in writers:
                with contextlib.suppress(FileNotFoundError):
                    (Path(parent) / name).unlink()
                    removed += 1
    return removed


def remove_output(exchange_dir: str, job_id: str, stage_id: int, partition: int, nonce: str) -> None:
    """Remove what one execution left in the exchange directory, because nothing will ever reference it."""
    directory = Path(local_path(exchange_dir)) / stage_directory(job_id, stage_id)
    for suffix in (".rows", ".arrow"):
        (directory / f"{partition}-{nonce}{suffix}").unlink(missing_ok=True)


def remove_staging(target: str, job_id: str) -> None:
    """Remove what a job staged for the dataset at *target*; harmless to repeat."""
    if has_scheme(target) or not is_job_id(job_id):
        return
    staging = Path(staging_directory(local_path(target), job_id))
    for path in (staging, *retired_stagings(staging)):
        remove_tree(path)


def retired_stagings(staging: Path) -> Iterator[Path]:
    """Yield what a staging directory was renamed to by those that were done with it."""
    return staging.parent.glob(f"{glob.escape(staging.name)}.done-*")


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it, skipping what another process removes meanwhile, or writes again."""
    for parent, _, names in os.walk(path, topdown=False):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (Path(parent) / name).unlink()
        _remove_empty(Path(parent))


def _remove_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except FileNotFoundError:
        pass
    except OSError as e:
        log.warning("directory_not_removed", path=str(directory), error=e.strerror)
