"""Publishes a dataset: staged files become the target, completely or not at all, whichever process dies in between.

The manifest says everything that will be done, so carrying it out can be repeated, resumed by another process, and done
by two at once. A dataset that is new or overwrites another is assembled in the staging directory, `_SUCCESS` included,
and becomes the target by one rename of a directory; the old one is moved into the staging directory first. Appended
files enter the target under hidden names, and get their own names when all are there. At the end the staging directory
is renamed, and only then removed, so that no late process can move anything into it any more; that of appended files
stays as long as the job may fail.

Tasks have synced their files to disk. Publishing syncs what names them before anything old is removed and before it
reports success, so a loss of power leaves a dataset whole or absent, too.
"""

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from onager.datasets import SINK_FORMATS
from onager.errors import SinkError, TargetExistsError
from onager.exchange_layout import SUCCESS, has_scheme, is_checkpoint, local_path, staging_directory
from onager.executor.exchange import description
from onager.executor.exchange.datasets import check_replaced
from onager.executor.exchange.directory import remove_tree
from onager.executor.exchange.durable import sync_directories, with_parents, write_durably
from onager.executor.exchange.partitions import HeldPartitions, replaced_files, written_places
from onager.executor.exchange.table_folders import REPLACED
from onager.executor.exchange.taking_back import NOTE, OLD_DATASET, hidden_place, kept_beside
from onager.ids import Nonce, new_nonce
from onager.manifests import Manifest, Move, check_name
from onager.place_files import holds_something
from onager.private_paths import NO_PATHS, PrivatePaths, steps_back
from onager.protocol import onager_pb2 as pb

_FORMATS = {"txt": "text"} | {name: name for name in SINK_FORMATS}
"""What files are, by the ends of their names."""
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
"""The errors of renaming a directory to a name that is taken."""


class Files:
    """The file system calls that publishing makes, one method each, so that a test can stop between any two."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory; atomic."""
        source.rename(target)

    def make_directory(self, path: Path) -> None:
        """Make one directory; its parent has to be there. One that exists is kept."""
        path.mkdir(exist_ok=True)

    def write(self, path: Path, content: bytes) -> None:
        """Write a small file, whose content survives a loss of power."""
        write_durably(path, content)

    def sync(self, directories: Iterable[Path]) -> None:
        """Make the names in *directories* survive a loss of power."""
        sync_directories(directories)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all in it."""
        remove_tree(path)


def check_target(sink: pb.Sink, private: PrivatePaths = NO_PATHS) -> None:
    """Raise `SinkError` if nothing can ever be published at *sink*, `TargetExistsError` if the target must stay.

    It can never be at, in or above a *private* path, since it would mix with those files, or replace them; nor outside
    of the roots. What it replaces is empty or a dataset, unless it may replace anything.
    """
    if has_scheme(sink.path):
        raise SinkError(
            f"{sink.path}: a dataset is published by renaming its directory, and on this file system that is not known "
            "to be atomic; give a directory on a file system that all executors mount"
        )
    target = Path(local_path(sink.path))
    if not target.is_absolute():
        raise SinkError(
            f"{sink.path} is a relative path, which means another place to every executor: give the full path"
        )
    if steps_back(sink.path):
        raise SinkError(
            f"{sink.path} has '..' or '.' in it, which leads elsewhere wherever there is a link: give a path without"
        )
    if (why := private.refusal(sink.path)) is not None:
        raise SinkError(f"{sink.path} cannot be written: {why}")
    if private.roots is not None and not private.is_below_root(sink.path):
        raise SinkError(f"{sink.path} cannot be written: it is a root itself; give a directory below it")
    if target == target.parent:
        raise SinkError(f"{sink.path} cannot be replaced by a dataset: give a directory below it")
    exists = os.path.lexists(target)
    if exists and sink.mode not in {"overwrite", "append"}:
        raise TargetExistsError(sink.path)
    if exists and not target.is_dir():
        raise SinkError(f"{sink.path} is a file: a dataset is a directory, give another path")
    if exists and sink.mode == "overwrite" and not sink.replaces_anything:
        check_replaced(target, is_root=private.is_root(sink.path))


def check_appended(sink: pb.Sink) -> None:
    """Raise `SinkError` when the rows that *sink* appends could not be read together with those of its target."""
    if sink.mode == "append":
        _check_same(local_path(sink.path), sink.format, description.describe(sink))


def _check_same(target: str, file_format: str, described: description.Description | None) -> None:
    held = description.read_description(target)
    if held is None:
        return
    if held.format != file_format:
        difference = f"format ({file_format}, not {held.format})"
    else:
        difference = "" if described is None else held.difference(described)
    if difference:
        raise SinkError(f"{target} holds rows written with other {difference}: append the same, or write elsewhere")


def plan_publish(
    job_id: str,
    sink: pb.Sink,
    outputs: Sequence[pb.TaskOutput],
    nonce: Nonce,
    private: PrivatePaths = NO_PATHS,
    held: HeldPartitions | None = None,
) -> Manifest:
    """Return how to publish the staged files of the winning tasks; writes only small files beside them.

    *outputs* are those of the stage that wrote, by partition; one with very many files names their directory. Files
    without rows are left out unless all are empty. *held*: the partitions as they are now, if *sink* is a table's.
    """
    check_target(sink, private)
    target = local_path(sink.path).rstrip("/")
    names = [name for output in outputs if output.rows for name in output.files]
    if not names:
        names = [name for output in outputs for name in output.files][:1]
    staging = Path(staging_directory(target, job_id))
    files = dict.fromkeys(file for name in names for file in _files(str(staging), name))
    moves = [Move(source=file, name=file.partition("/")[2]) for file in files]
    table = None
    if held is not None:
        table = written_places(sink, moves, held, private)
    else:
        _check_layout(target, sink)
    described = description.describe(sink)
    if described is not None and (moves or is_checkpoint(target)) and not _holds_undescribed(target, sink):
        moves.insert(0, _stage(description.NAME, described.to_bytes(), staging, nonce))
    if table is not None and held is not None and (replaced := replaced_files(sink, table, held)):
        moves.append(_stage(REPLACED, replaced, staging, nonce))
    if not moves:
        staging.mkdir(parents=True, exist_ok=True)  # else a task has made it
        sync_directories(with_parents([staging]))
    return Manifest(
        job_id=job_id,
        nonce=nonce,
        target=target,
        mode=sink.mode or "error",
        staging=str(staging),
        moves=tuple(moves),
        table=table,
        foreign=sink.foreign,
    )


def _files(staging: str, name: str) -> list[str]:
    """Return the staged file *name*, or all files in it if it is a directory, below *staging*."""
    check_name(name)
    if "/" in name:
        return [name]
    found = sorted(path for path in Path(staging, name).rglob("*") if not path.name.startswith(".") and path.is_file())
    return [str(path.relative_to(staging)) for path in found]


def _check_layout(target: str, sink: pb.Sink) -> None:
    """Raise `SinkError` if rows are appended to a dataset that is partitioned by other columns."""
    if sink.mode != "append" or not Path(target).is_dir():
        return
    held = _partitioned_by(Path(target))
    if held is not None and [name.lower() for name in held] != [name.lower() for name in sink.partition_by]:
        asked, there = (", ".join(names) or "no column" for names in (sink.partition_by, held))
        raise SinkError(f"{target} is partitioned by {there}, and the rows to be appended by {asked}: append the same")


def _partitioned_by(dataset: Path) -> list[str] | None:
    """Return the columns by which *dataset* is partitioned, as its first directories tell; None: it has no files."""
    for directory, directories, files in os.walk(dataset):
        directories[:] = sorted(name for name in directories if not name.startswith((".", "_")) and "=" in name)[:1]
        if not directories:
            if not any(not name.startswith((".", "_")) for name in files):
                return None
            parts = Path(directory).relative_to(dataset).parts
            return [unquote(part.partition("=")[0]) for part in parts]
    return None


def _holds_undescribed(target: str, sink: pb.Sink) -> bool:
    """Return whether rows are appended to others without a description."""
    if sink.mode != "append" or not Path(target).is_dir():
        return False
    return holds_something(Path(target)) and description.read_description(target) is None


def _format_of(name: str) -> str:
    """Return the format that a file's name shows; "" when it shows none."""
    return next((_FORMATS[suffix[1:]] for suffix in Path(name).suffixes if suffix[1:] in _FORMATS), "")


def _stage(name: str, content: bytes, staging: Path, nonce: Nonce) -> Move:
    try:
        directory = staging / nonce
        directory.mkdir(parents=True, exist_ok=True)
        write_durably(directory / name, content)
        sync_directories(with_parents([directory]))
    except OSError as e:
        raise SinkError(f"{name} of the dataset cannot be written: {e.strerror or e} ({e.filename})") from e
    return Move(source=f"{nonce}/{name}", name=name)


def carry_out(manifest: Manifest, files: Files | None = None) -> None:
    """Publish the dataset; does what is left to do, whichever process began, and nothing when all is done.

    Raises `TargetExistsError` when something at the target must not be replaced, and `SinkError` when staged files are
    gone or the file system refuses.
    """
    try:
        _Publishing(manifest, files or Files()).run()
    except OSError as e:
        raise SinkError(f"publishing {manifest.target} failed: {e.strerror or e} ({e.filename})") from e


class _Publishing:
    def __init__(self, manifest: Manifest, files: Files) -> None:
        self._manifest = manifest
        self._files = files
        self._target = Path(manifest.target)
        self._staging = Path(manifest.staging)
        self._assembled = self._staging / f"assembled-{manifest.nonce}"
        self._retired = self._staging.with_name(f"{self._staging.name}.done-{manifest.nonce}")
        self._replaced = f"{OLD_DATASET}{manifest.nonce}"
        self._marker = json.dumps({"onager_job": manifest.job_id, "nonce": manifest.nonce}).encode()

    def run(self) -> None:
        is_added = self._manifest.mode == "append"
        if not self._is_published(self._target):
            if is_added:
                self._note()
            # Partitions lie where the catalog says, which need not be below the target as their names are.
            if is_added and (self._target.is_dir() or self._manifest.table is not None):
                self._append()
            else:
                self._replace()
        self._sync(self._homes() if is_added else {self._target})
        if not is_added:
            self._retire()  # else it goes with the job, which may have to take the rows back until then

    def _is_published(self, dataset: Path) -> bool:
        try:
            return (dataset / SUCCESS).read_bytes() == self._marker
        except OSError:
            return False

    # ------------------------------------------------------------ new and overwritten

    def _replace(self) -> None:
        try:
            self._assemble()
            self._clear_target()
            self._files.rename(self._assembled, self._target)
        except FileNotFoundError as e:
            if not self._is_published(self._target):  # else another process has just done it
                raise SinkError(f"staged files of {self._target} are gone: {e.filename} is not there") from e
        except OSError as e:
            if e.errno not in _TAKEN:
                raise
            self._meet_other()

    def _assemble(self) -> None:
        directories = self._directories(self._assembled)
        for directory in directories:
            self._files.make_directory(directory)
        for move in self._manifest.moves:
            self._settle(self._staging / move.source, self._assembled / move.name)
        self._mark(self._staging, self._assembled)
        self._files.sync([self._staging, *directories])

    def _directories(self, dataset: Path) -> list[Path]:
        """Return *dataset* and the directories of the columns by which it is partitioned, outer ones first."""
        return sorted(
            {dataset / parent for move in self._manifest.moves for parent in Path(move.name).parents} | {dataset}
        )

    def _settle(self, source: Path, target: Path) -> None:
        """Move a file to its place, unless it is there."""
        if not target.exists():
            try:
                self._files.rename(source, target)
            except FileNotFoundError:
                if not target.exists():
                    raise

    def _mark(self, scratch: Path, dataset: Path) -> None:
        """Write the `_SUCCESS` of *dataset*, complete, even if the dataset is moved meanwhile."""
        made = scratch / f".{SUCCESS}-{self._manifest.nonce}-{new_nonce()}"
        self._files.write(made, self._marker)
        self._files.rename(made, dataset / SUCCESS)

    def _clear_target(self) -> None:
        """Move what an overwrite replaces into the staging directory.

        A late process that takes our own dataset for the old one finds the old one at the place to move it to, or finds
        the staging directory gone: it fails and changes nothing. For that, the old one must not be empty, and the check
        whether it is ours must come last. (The rename that publishes replaces an empty directory.)
        """
        if self._manifest.mode != "overwrite":
            return
        with contextlib.suppress(FileNotFoundError):  # nothing there, or another process has just moved it
            if any(self._target.iterdir()) and not self._is_published(self._target):
                self._files.rename(self._target, self._staging / self._replaced)
                self._give_back()

    def _give_back(self) -> None:
        """Undo a move that took our own dataset away.

        A rename looks its directories up first. If it is held up just then, while another process publishes, retires
        the staging directory and empties it, it moves the new dataset to the place of the old one.
        """
        moved = self._retired / self._replaced
        if self._is_published(moved):
            self._files.rename(moved, self._target)

    def _meet_other(self) -> None:
        """Handle what stands at the target: our own dataset, published by another process, or a foreign one.

        It is no failure of the file system, which a retry might avoid.
        """
        if self._is_published(self._target):
            return
        if self._manifest.mode == "append" and self._target.is_dir():
            self._append()
            return
        if self._manifest.mode == "overwrite":
            kept = kept_beside(self._target, self._manifest.job_id)
            hint = f"; the rows before are kept in {kept}" if (self._staging / self._replaced).exists() else ""
            raise SinkError(
                f"{self._target} was written by another job while this one replaced it: run one of them again{hint}"
            ) from None
        raise TargetExistsError(str(self._target)) from None

    # ------------------------------------------------------------ appended

    def _append(self) -> None:
        self._check_description()
        self._enter_directories()
        hidden = {move: hidden_place(self._manifest, move) for move in self._manifest.moves}
        for move, entered in hidden.items():
            if not self._stands(move):
                self._enter(move, entered)
        for move, entered in hidden.items():
            self._settle(entered, self._manifest.place_of(move))
        if not (self._target / SUCCESS).exists():
            self._sync(self._homes())  # whoever finds the mark does nothing more
            self._mark(self._target, self._target)

    def _note(self) -> None:
        """Leave the manifest for whoever must take the rows back, should the job fail after all."""
        made = self._staging / f".{NOTE}-{new_nonce()}"
        with contextlib.suppress(FileNotFoundError):  # appended before, and cleaned up
            self._files.write(made, self._manifest.to_bytes())
            self._files.rename(made, self._staging / NOTE)
            self._files.sync([self._staging])

    def _homes(self) -> set[Path]:
        """Return the directories in which the files of the manifest are in the end."""
        return {self._target, *(self._manifest.place_of(move).parent for move in self._manifest.moves)}

    def _enter_directories(self) -> None:
        """Make the directories that rows are added to, outer ones first."""
        below = [self._target]
        for parent in {self._manifest.place_of(move).parent for move in self._manifest.moves}:
            roots = (self._target, *self._target.parents) if parent.is_relative_to(self._target) else ()
            below += [each for each in (parent, *parent.parents) if each not in roots and not each.exists()]
        for directory in sorted(set(below)):
            self._files.make_directory(directory)

    def _check_description(self) -> None:
        for move in self._manifest.moves:
            if move.name == description.NAME:
                with contextlib.suppress(FileNotFoundError):  # appended before
                    staged = description.Description.from_bytes(self._staged(move).read_bytes())
                    _check_same(str(self._target), staged.format, staged)
                return
        for file_format in {_format_of(move.name) for move in self._manifest.moves} - {""}:
            _check_same(str(self._target), file_format, None)

    def _enter(self, move: Move, entered: Path) -> None:
        try:
            self._settle(self._staged(move), entered)
        except FileNotFoundError:
            if not self._stands(move):  # else another process has moved it there meanwhile
                raise

    def _stands(self, move: Move) -> bool:
        return self._manifest.place_of(move).exists()

    def _staged(self, move: Move) -> Path:
        assembled = self._assembled / move.name
        return assembled if assembled.exists() else self._staging / move.source

    # ------------------------------------------------------------ the end

    def _sync(self, homes: Iterable[Path]) -> None:
        """Sync *homes* and all above them, though another process may have published: it may have died before."""
        self._files.sync(with_parents(home for home in homes if home.is_dir()))

    def _retire(self) -> None:
        """Rename the staging directory, so that no process finds it, then remove it."""
        try:
            self._files.rename(self._staging, self._retired)
        except FileNotFoundError:
            pass  # done before
        except OSError as e:
            if e.errno not in _TAKEN:
                raise
            self._files.remove_tree(self._staging)  # made again by a task that was no longer wanted
        self._files.remove_tree(self._retired)
