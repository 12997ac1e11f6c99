"""The files of a program, in a folder of the exchange directory in which its Python finds them."""

import os
import secrets
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from onager.errors import PlanningError
from onager.exchange_layout import CONNECT_ARTIFACTS, connect_artifact, connect_unpacked, has_scheme, local_path
from onager.executor.spark.cluster import is_cluster
from onager.executor.spark.session import WORKER_DAEMON
from onager.program_files import ARCHIVES, IMPORTED, MODULES, files_digest, program_file
from onager.protocol import onager_pb2 as pb

MOST_UNPACKED_BYTES: Final = 4 * 1024**3
MOST_UNPACKED: Final = 100_000
"""Files of one archive."""

_DAMAGED: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    ValueError,
    NotImplementedError,  # raised by zipfile, for a compression or an encryption that it does not know
)
"""What Python raises for an archive that it cannot unpack."""


def artifact_path(artifact: pb.ConnectArtifact, exchange_dir: str) -> Path:
    """Return where the content of an artifact is."""
    if has_scheme(exchange_dir):
        raise PlanningError(
            f"the file {artifact.name} cannot be read: sessions have files only where the exchange directory is a "
            "path that all executors share"
        )
    return Path(local_path(exchange_dir)).absolute() / connect_artifact(artifact.digest)


class ProgramFiles:
    """The files for Python among a session's artifacts."""

    def __init__(self, artifacts: Sequence[pb.ConnectArtifact], exchange_dir: str) -> None:
        """Nothing is made before `make`."""
        self._exchange_dir = exchange_dir
        self._files = [(file, each) for each in artifacts if (file := program_file(each.name)) is not None]
        self.digest = files_digest((each.name, each.digest) for each in artifacts)

    def make(self, session: SparkSession) -> list[str]:
        """Make their folder, unless it is there, and return where modules are looked for, as Spark's workers take it.

        `PlanningError` for files that Python workers of *session* could not find, and for damaged archives.
        """
        self._check(session)
        contents = [artifact_path(artifact, self._exchange_dir) for _, artifact in self._files]
        folder = Path(local_path(self._exchange_dir)).absolute() / CONNECT_ARTIFACTS / self.digest
        targets = []
        for (file, artifact), content in zip(self._files, contents, strict=True):
            target = content
            if file.place == ARCHIVES:
                target = content.parents[1] / connect_unpacked(artifact.digest)
                _appear(target, lambda made, c=content, n=file.name: _unpack(c, n, made))  # type: ignore[misc]
            targets.append(target)
        links = {file.alias: target.name for (file, _), target in zip(self._files, targets, strict=True)}
        _appear(folder, lambda made: _link(made, links))
        os.utime(folder)  # what no session has is removed some time after its last use
        modules = [file.name for file, _ in self._files if file.place == MODULES]
        return [str(folder), *(f"{folder}/{name}" for name in modules if name.endswith(IMPORTED))]

    def _check(self, session: SparkSession) -> None:
        name = self._files[0][1].name
        if is_cluster(session.sparkContext.master):
            raise PlanningError(f"the file {name} cannot be used on an executor whose tasks run in a Spark cluster")
        daemon = session.sparkContext.getConf().get("spark.python.daemon.module")
        data = [artifact.name for file, artifact in self._files if file.place != MODULES]
        if data and daemon != WORKER_DAEMON:
            raise PlanningError(
                f"the file {data[0]} cannot be found by this executor's Python workers, whose Python or daemon is "
                "another one (spark.pyspark.python, spark.python.daemon.module): only modules (pyfile=True) can"
            )


def _appear(target: Path, make: Callable[[Path], None]) -> None:
    """Have *make* make the folder *target*, which appears as a whole, unless it is there."""
    if target.is_dir():
        return
    made = target.with_name(f".{secrets.token_hex(8)}.tmp")
    made.mkdir()
    try:
        make(made)
        made.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another executor was faster
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _link(folder: Path, links: dict[str, str]) -> None:
    for alias, name in links.items():
        (folder / alias).symlink_to(f"../{name}")


def _unpack(archive: Path, name: str, folder: Path) -> None:
    try:
        if name.endswith((".zip", ".jar")):
            _unzip(archive, name, folder)
        else:
            _untar(archive, name, folder)
    except _DAMAGED as error:
        raise PlanningError(f"the archive {name} cannot be unpacked: {error}") from error


def _unzip(archive: Path, name: str, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        _check_size(name, len(members), sum(member.file_size for member in members))
        for member in members:
            path = Path(opened.extract(member, folder))
            if not member.is_dir() and (mode := member.external_attr >> 16 & 0o777):
                path.chmod(mode | 0o600)


def _untar(archive: Path, name: str, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        count, size = 0, 0
        for member in opened:
            count, size = count + 1, size + member.size
            _check_size(name, count, size)
        opened.extractall(folder, filter="data")


def _check_size(name: str, count: int, size: int) -> None:
    if count > MOST_UNPACKED or size > MOST_UNPACKED_BYTES:
        raise PlanningError(
            f"the archive {name} has {count:,} files of {size:,} bytes or more, and at most {MOST_UNPACKED:,} of "
            f"{MOST_UNPACKED_BYTES:,} are unpacked: give less, or put it where all executors find it"
        )
