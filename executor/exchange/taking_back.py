"""Undoes what a job that fails after all has done to a dataset: rows it appended go, rows it moved away come back."""

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Final

import structlog

from onager.errors import SinkError, VersionMismatchError
from onager.exchange_layout import SUCCESS, has_scheme, local_path, staging_directory
from onager.executor.exchange import description
from onager.executor.exchange.directory import remove_tree, retired_stagings
from onager.executor.exchange.durable import sync_directories, sync_existing, with_parents
from onager.ids import is_job_id, new_nonce
from onager.manifests import Manifest, Move

log = structlog.get_logger(__name__)

NOTE: Final = "appended.json"
"""The manifest of an appending, in the staging directory."""
OLD_DATASET: Final = "replaced-"
"""How the name of an overwritten dataset begins, in the staging directory; the manifest's nonce follows."""
_TAKEN: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})
_TRIES: Final = 10


def hidden_place(manifest: Manifest, move: Move) -> Path:
    """Return where a file is that has entered the dataset, and is not to be seen yet."""
    place = manifest.place_of(move)
    return place.with_name(f".{place.name}.onager-{manifest.job_id}")


def kept_beside(target: Path, job_id: str) -> Path:
    """Return where the rows go that the failed job was replacing, if others have come to *target* meanwhile."""
    return target.with_name(f".{target.name}.replaced-by-{job_id}")


def take_back(target: str, job_id: str) -> None:
    """Undo what the job has done to the dataset at *target*; harmless to repeat.

    The staging directory is renamed first, so that no process that is still publishing finds more to move.
    """
    if has_scheme(target) or not is_job_id(job_id):
        return
    dataset = Path(local_path(target).rstrip("/"))
    staging = Path(staging_directory(str(dataset), job_id))
    with contextlib.suppress(FileNotFoundError):
        staging.rename(staging.with_name(f"{staging.name}.done-{new_nonce()}"))
    for retired in retired_stagings(staging):
        _remove_appended(retired, job_id)
        _bring_back(retired, dataset, job_id)


def _remove_appended(retired: Path, job_id: str) -> None:
    """Remove what the job has added to its dataset.

    Files are removed under their hidden names first, so that none can get its own name after that was looked at.
    """
    try:
        manifest = Manifest.from_bytes((retired / NOTE).read_bytes())
    except FileNotFoundError:
        return
    except (SinkError, VersionMismatchError, ValueError, KeyError, TypeError) as error:
        log.warning("appended_files_stay", note=str(retired / NOTE), error=str(error))
        return
    moves = [move for move in manifest.moves if move.name != description.NAME]  # others may have come to need it
    for move in moves:
        hidden_place(manifest, move).unlink(missing_ok=True)
        manifest.place_of(move).unlink(missing_ok=True)
    # The note goes next: after a loss of power nobody would remove them again.
    sync_existing(manifest.place_of(move).parent for move in moves)
    log.info("appended_files_removed", job_id=job_id, target=manifest.target, files=len(moves))


def _bring_back(retired: Path, dataset: Path, job_id: str) -> None:
    """Bring back the dataset that the job has moved away without putting another in its place, then remove *retired*.

    A process that is held up in a rename may still move the dataset to *retired*. So that is removed only when it is
    empty, and whatever has come there meanwhile is looked at.
    """
    for _ in range(_TRIES):
        try:
            for each in list(retired.iterdir()):
                if each.name.startswith(OLD_DATASET) and not _is_replaced(each, dataset, job_id):
                    _return_to(each, dataset, job_id)
                elif each.is_dir() and not each.is_symlink():
                    remove_tree(each)
                else:
                    each.unlink(missing_ok=True)
            retired.rmdir()
        except OSError as error:
            if not retired.is_dir():
                return  # another process has just done it
            if error.errno not in _TAKEN:
                raise


def _is_replaced(old: Path, dataset: Path, job_id: str) -> bool:
    """Return whether the job has put its own dataset in the place of *old*, which survives a loss of power then."""
    if old.parent.name.endswith(f".done-{old.name.removeprefix(OLD_DATASET)}"):
        return True  # a publisher renames the staging directory to that when all is done
    try:
        marker = json.loads((dataset / SUCCESS).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    if not isinstance(marker, dict) or marker.get("onager_job") != job_id:
        return False
    sync_directories(with_parents([dataset]))
    return True


def _return_to(old: Path, dataset: Path, job_id: str) -> None:
    place = dataset
    try:
        old.rename(place)  # replaces an empty directory
    except FileNotFoundError:
        if not os.path.lexists(dataset):
            raise
        return  # another process has just done it
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        place = kept_beside(dataset, job_id)
        old.rename(place)
    sync_directories([dataset.parent])
    log.warning("replaced_dataset_kept", job_id=job_id, target=str(dataset), kept=str(place))
