"""The files of a program, in a folder of the exchange directory in which its Python finds them."""

import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from onager.errors import PlanningError
from onager.exchange_layout import CONNECT_ARTIFACTS, connect_artifact, connect_unpacked, local_path
from onager.executor.archives import unpack
from onager.executor.spark.cluster import is_cluster
from onager.executor.spark.session import WORKER_DAEMON
from onager.program_files import ARCHIVES, IMPORTED, MODULES, files_digest, program_file
from onager.protocol import onager_pb2 as pb


def artifact_path(artifact: pb.ConnectArtifact, exchange_dir: str) -> Path:
    """Return where the content of an artifact is."""
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
                _appear(target, lambda made, c=content, n=file.name: unpack(c, n, made))  # type: ignore[misc]
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
