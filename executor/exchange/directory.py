"""The exchange directory: whether it can be used, and removing what a job left in it."""

import contextlib
import errno
import os
from collections.abc import Collection
from pathlib import Path

import pyarrow.fs
import structlog

from onager.errors import ExchangeFullError, ExchangeNotWritableError
from onager.exchange_layout import has_scheme, join, local_path, staging_directory
from onager.ids import is_job_id, new_nonce

log = structlog.get_logger()

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def check_exchange_dir(path: str) -> None:
    """Raise a clear error unless files can be made in the exchange directory at *path*.

    Raises `ExchangeNotWritableError` or `ExchangeFullError`. A directory on another file system is not looked at: its
    first use tells.
    """
    if has_scheme(path):
        return
    directory = Path(local_path(path))
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "is not there"
        raise ExchangeNotWritableError(
            f"exchange directory {path} {what}: create it, or mount the volume that holds it"
        )
    probe = directory / f".onager-probe-{new_nonce()}"
    try:
        probe.write_bytes(b"onager")
        probe.unlink()
    except OSError as e:
        if e.errno in _FULL:
            probe.unlink(missing_ok=True)
            raise ExchangeFullError(f"exchange directory {path} is full: free space there ({e.strerror})") from e
        raise ExchangeNotWritableError(
            f"exchange directory {path} cannot be written ({e.strerror}): check its permissions and its mount"
        ) from e


def remove_job_data(exchange_dir: str, job_id: str, keep: Collection[str] = ()) -> None:
    """Remove a job's files from the exchange directory, but for those named in *keep* (below the job's directory).

    Harmless to repeat; what is gone already, or goes meanwhile, is passed over.
    """
    if not is_job_id(job_id):
        raise ValueError(f"{job_id!r} is no job id")
    if has_scheme(exchange_dir):
        _remove_remote(join(exchange_dir, job_id), keep)
        return
    job = Path(local_path(exchange_dir)) / job_id
    kept = {job / name for name in keep}
    if not kept:
        remove_tree(job)
        return
    for parent, _, names in os.walk(job, topdown=False):
        directory = Path(parent)
        for name in names:
            if directory / name not in kept:
                (directory / name).unlink(missing_ok=True)
        if not any(directory in path.parents for path in kept):
            _remove_empty(directory)


def remove_staging(target: str, job_id: str) -> None:
    """Remove what a job staged for the dataset at *target*; harmless to repeat."""
    if has_scheme(target) or not is_job_id(job_id):
        return
    staging = Path(staging_directory(local_path(target), job_id))
    for path in (staging, *staging.parent.glob(f"{staging.name}.done-*")):
        remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it; what another process removes meanwhile, or writes anew, is passed over."""
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


def _remove_remote(directory: str, keep: Collection[str]) -> None:
    file_system, path = pyarrow.fs.FileSystem.from_uri(directory)
    kept = {f"{path}/{name}" for name in keep}
    selector = pyarrow.fs.FileSelector(path, recursive=True, allow_not_found=True)
    for info in file_system.get_file_info(selector):
        if info.type == pyarrow.fs.FileType.File and info.path not in kept:
            file_system.delete_file(info.path)
    if not kept and file_system.get_file_info(path).type == pyarrow.fs.FileType.Directory:
        file_system.delete_dir(path)
