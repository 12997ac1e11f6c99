"""The files of an attempt of a program: the same in each attempt, in a folder of its own."""

import asyncio
import errno
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from google.protobuf.json_format import MessageToJson

from onager.errors import UserCodeError
from onager.exchange_layout import connect_artifact, local_path, sent_file
from onager.executor.archives import unpack
from onager.private_process import without_own_variables
from onager.protocol import onager_pb2 as pb

_PYTHON: Final = "PYSPARK_PYTHON"
_START: Final = """
import sys
sys.path[0] = {own!r}
sys.path[1:1] = {imported!r}
try:
    from onager.programs.__main__ import main
except (ImportError, SyntaxError) as error:
    needs = "it needs Python 3.11 or newer, and pyspark[connect]=={pyspark}"
    sys.exit("%s, Python %d.%d, cannot run a program: %s; %s" % ({python!r}, *sys.version_info[:2], error, needs))
main()
"""
"""What runs a program in its own Python, which may be any."""
_SPARKS: Final = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "MASTER", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where an attempt runs."""

    path: Path

    @property
    def work(self) -> Path:
        """Return the working directory."""
        return self.path / "work"

    @property
    def socket(self) -> str:
        """Return where the program reaches a scheduler; the path of a socket has at most 107 bytes."""
        return str(self.path / "s")


@asynccontextmanager
async def folder_of(program: pb.ProgramSpec, parent: Path) -> AsyncIterator[Folder]:
    """Make the folder of an attempt in *parent*, with the program's files, and remove it at the end."""
    made = Folder(Path(tempfile.mkdtemp(dir=parent)))
    try:
        await asyncio.to_thread(_fill, made.work, program)
        yield made
    finally:
        await asyncio.to_thread(shutil.rmtree, made.path, ignore_errors=True)


def _fill(work: Path, program: pb.ProgramSpec) -> None:
    work.mkdir()
    if program.HasField("script"):
        _given(work).write_text(MessageToJson(program.script, always_print_fields_with_no_presence=True))
    (work / program.file_name).write_bytes(program.source)
    for file in program.files:
        if not file.digest:
            _put(work, file)


def put_sent(folder: Folder, program: pb.ProgramSpec, exchange_dir: str, name: str) -> None:
    """Put the files that were sent before the program into its *folder*.

    The first attempt keeps them in the program's folder *name* of the exchange directory, where they stay as long as
    its record. `UserCodeError` for one that is gone.
    """
    exchange = Path(local_path(exchange_dir))
    for file in program.files:
        if file.digest:
            kept = exchange / sent_file(name, file.digest)
            if not kept.exists():
                _keep(exchange / connect_artifact(file.digest), kept, file.name)
            _put(folder.work, file, kept)


def _keep(sent: Path, kept: Path, name: str) -> None:
    kept.parent.mkdir(mode=0o777, parents=True, exist_ok=True)
    made = kept.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            made.hardlink_to(sent)
        except FileNotFoundError:
            raise
        except OSError:  # some file systems have no links
            shutil.copyfile(sent, made)
        made.replace(kept)
    except FileNotFoundError as error:
        raise UserCodeError(
            f"the file {name} of the program is not there any more: it waited for more than a day before the program "
            "began; hand the program in again"
        ) from error
    finally:
        made.unlink(missing_ok=True)


def parent_of(executor_id: str, exchange_dir: str) -> Path:
    """Return the folder for those of the attempts of an executor, without what an earlier life of it has left.

    Executors of two clusters on one machine may have the same id, but not the same exchange directory.
    """
    of = f"{os.getuid()} {executor_id} {os.path.realpath(local_path(exchange_dir))}"
    name = hashlib.sha256(of.encode()).hexdigest()[:12]
    parent = Path(tempfile.gettempdir()) / f"onager-{name}"
    parent.mkdir(mode=0o700, exist_ok=True)
    if parent.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "another user has the folder for programs", str(parent))
    for left in parent.iterdir():
        shutil.rmtree(left, ignore_errors=True)
    return parent


def _put(work: Path, file: pb.ProgramFile, kept: Path | None = None) -> None:
    """Put a file into the folder *work*; its content is in it, or in the file *kept*."""
    if file.use != "archive":
        if kept is None:
            (work / file.name).write_bytes(file.content)
        else:
            shutil.copyfile(kept, work / file.name)
        return
    (work / file.alias).mkdir()
    if kept is not None:
        unpack(kept, file.name, work / file.alias)
        return
    archive = work.parent / file.name
    archive.write_bytes(file.content)
    try:
        unpack(archive, file.name, work / file.alias)
    finally:
        archive.unlink()


def needs_own_python(program: pb.ProgramSpec) -> bool:
    """Return whether the program's environment says which Python runs it, or how."""
    return any(name.startswith("PYTHON") or name == _PYTHON for name in program.environment)


def imported(program: pb.ProgramSpec, work: Path) -> list[str]:
    """Return the zips whose modules the program can import."""
    names = [file.name for file in program.files if file.use == "python"]
    return [str(work / name) for name in names if not name.endswith(".py")]


def run_by(program: pb.ProgramSpec, work: Path) -> tuple[str, list[str]]:
    """Return the file that Python runs, and its arguments: a script of SQL is an argument of ours."""
    path = str(work / program.file_name)
    if not program.file_name.lower().endswith(".sql"):
        return path, list(program.arguments)
    found = find_spec("onager.programs.scripting.__main__")
    arguments = ["--given", str(_given(work))] if program.HasField("script") else program.arguments
    return (found.origin or "") if found is not None else "", [path, *arguments]


def _given(work: Path) -> Path:
    """Return the file with what a script that was given as a query has besides its text."""
    return work.parent / "given.json"


def command(program: pb.ProgramSpec, work: Path, terms: int) -> list[str]:
    """Return the command of a process with the program's own Python, which reads its terms from a descriptor.

    `UserCodeError` if that Python is not there.
    """
    python = sys.executable
    if given := program.environment.get(_PYTHON, ""):
        python = str(work / given) if "/" in given else shutil.which(given) or ""
        if not os.access(python, os.X_OK):
            raise UserCodeError(f"{_PYTHON}={given}: the program's Python is not there, or cannot be executed")
    found = find_spec("onager.programs")
    own = str(Path(found.origin or "").parents[2]) if found is not None else ""
    start = _START.format(own=own, imported=imported(program, work), python=given or python, pyspark=version("pyspark"))
    path, arguments = run_by(program, work)
    return [python, "-c", start, str(terms), path, *arguments]


def environment(program: pb.ProgramSpec) -> dict[str, str]:
    """Return the environment of the process: the executor's, without what is Onager's or names another Spark."""
    inherited = {k: v for k, v in without_own_variables(os.environ).items() if k not in _SPARKS}
    return {**inherited, **program.environment, "PYTHONHASHSEED": "0"}
