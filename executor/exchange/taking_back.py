"""Takes back what a job appended that fails after all: files under names that no other job gives."""

import contextlib
from pathlib import Path
from typing import Final

import structlog

from onager.errors import SinkError, VersionMismatchError
from onager.exchange_layout import has_scheme, local_path, staging_directory
from onager.executor.exchange import description
from onager.executor.exchange.directory import retired_stagings
from onager.executor.exchange.durable import sync_existing
from onager.ids import is_job_id, new_nonce
from onager.manifests import Manifest, Move

log = structlog.get_logger(__name__)

NOTE: Final = "appended.json"
"""The manifest of an appending, in the staging directory."""


def hidden_place(manifest: Manifest, move: Move) -> Path:
    """Return where a file is that has entered the dataset, and is not to be seen yet."""
    place = manifest.place_of(move)
    return place.with_name(f".{place.name}.onager-{manifest.job_id}")


def take_back(target: str, job_id: str) -> None:
    """Remove what the job has added to the dataset at *target*; harmless to repeat.

    The staging directory is renamed first, so that no process that is still publishing finds more to move; and files
    are removed under their hidden names first, so that none can get its own name after that was looked at.
    """
    if has_scheme(target) or not is_job_id(job_id):
        return
    staging = Path(staging_directory(local_path(target).rstrip("/"), job_id))
    with contextlib.suppress(FileNotFoundError):
        staging.rename(staging.with_name(f"{staging.name}.done-{new_nonce()}"))
    for retired in retired_stagings(staging):
        try:
            manifest = Manifest.from_bytes((retired / NOTE).read_bytes())
        except FileNotFoundError:
            continue
        except (SinkError, VersionMismatchError, ValueError, KeyError, TypeError) as error:
            log.warning("appended_files_stay", note=str(retired / NOTE), error=str(error))
            continue
        moves = [move for move in manifest.moves if move.name != description.NAME]  # others may have come to need it
        for move in moves:
            hidden_place(manifest, move).unlink(missing_ok=True)
            manifest.place_of(move).unlink(missing_ok=True)
        # The note goes next: after a loss of power nobody would remove them again.
        sync_existing(manifest.place_of(move).parent for move in moves)
        log.info("appended_files_removed", job_id=job_id, target=target, files=len(moves))
