"""Programs of PySpark that the cluster runs."""

import getpass
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from onager.client.connection import Connection
from onager.client.copying import copied
from onager.client.job import JobHandle
from onager.client.large_files import IN_JOB_BYTES, digest_of
from onager.errors import InvalidRequestError
from onager.programs.scripting.arguments import arguments_of, check_size
from onager.protocol import onager_pb2 as pb

PathLike = str | os.PathLike[str]
_ARCHIVES: Final = (".zip", ".jar", ".tar", ".tar.gz", ".tgz")
_MODULES: Final = (".py", ".zip", ".egg")
_STDERR: Final = 2
_LOOK_S: Final = 0.3
"""How often it is looked whether a mended program fits."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Something that a program printed."""

    text: bytes
    is_error: bool
    """Whether it went to standard error."""
    left_out: int
    """Bytes before it that were not kept, since it was too much."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call of a program, as it is recorded."""

    task: str
    """Which of the program's threads has made it, as a path: who started it, and as which of its tasks."""
    number: int
    kind: str
    target: str
    """What a write writes to."""
    line: str
    """Where in the program it stands: file and line."""
    at_ms: int
    attempt: int
    """The attempt that has made it."""
    done: bool
    error: str
    """Empty unless it failed."""
    job_id: str
    """The job that carries it out; empty if it needs none."""


class ProgramHandle:
    """A program that the cluster runs, made by `OnagerClient`; its id is that of its job."""

    def __init__(self, connection: Connection, job: JobHandle) -> None:
        self._connection = connection
        self.job = job

    @property
    def id(self) -> str:
        """The id."""
        return self.job.id

    def __repr__(self) -> str:
        return f"ProgramHandle({self.id!r})"

    def output(self, *, follow: bool = False) -> Iterator[Printed]:
        """Yield what the program printed, each line once, whatever attempt printed it.

        With *follow* it goes on until the program has ended.
        """
        at = pb.WatchOutputRequest(program_id=self.id, follow=follow)
        pending: list[pb.ProgramOutput] = []

        def open_stream(stub: Any, deadline_s: float) -> Iterator[pb.ProgramOutput]:
            pending.clear()
            messages: Iterator[pb.ProgramOutput] = stub.WatchOutput(at, timeout=deadline_s)
            return messages

        for message in self._connection.stream(open_stream):
            pending.append(message)  # what came without its position would come again
            if not message.position:
                continue
            for each in pending:
                yield Printed(each.content, each.stream == _STDERR, each.left_out)
            at.attempt, at.position = message.attempt, message.position
            pending.clear()

    def calls(self) -> Iterator[ProgramCall]:
        """Yield the calls that are recorded, by task and number."""
        request = pb.ListProgramCallsRequest(program_id=self.id)
        while True:
            answer: pb.ListProgramCallsResponse = self._connection.call("ListProgramCalls", request)
            for call in answer.calls:
                yield copied(ProgramCall, call)
            if not answer.next:
                return
            request.after = answer.next

    def info(self) -> pb.ProgramInfo:
        """Return how the program stands; attempt 0 as long as it has not begun."""
        info: pb.ProgramInfo = self._connection.call("GetProgram", pb.GetProgramRequest(program_id=self.id))
        return info

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program has ended by itself, and return its exit code.

        `JobFailedError` or `JobCancelledError` if it could not end by itself, or if a retry has gone on with it since,
        `TimeoutError` after *timeout* seconds.
        """
        progress = None
        for progress in self.job.watch(timeout):  # noqa: B007 - the last one counts
            pass
        info = self.info()
        if info.ended and not info.why_ended and info.job_id == self.id:
            return info.exit_code
        if progress is not None and progress.failure is not None:
            raise progress.failure
        return info.exit_code

    def retry(
        self, job_id: str | None = None, *, program: PathLike | None = None, keep: bool = False
    ) -> "ProgramHandle":
        """Go on with the program, which has failed or was cancelled, as a new job; return it once that is stored.

        What is recorded stands. The call whose error ended the program is made again, and those that were stopped with
        it; `info().retried` tells. Raises `ProgramGoesOnError` if it has not ended, or another retry goes on with it,
        and `NotFoundError` if its record is gone. A repeated call with the same *job_id* returns the same job.

        *program*: the file of a mended program that goes on instead. Its calls are matched with what is recorded, and
        the job fails before it has written anything if they do not fit the writes that are done; *keep*: these stand
        all the same. `InvalidRequestError` for a file that cannot be read, or is no program, and for *keep* without
        one.
        """
        if program is None:
            if keep:
                raise InvalidRequestError("keep is about the writes of a mended program: give that program, too")
            return ProgramHandle(self._connection, self.job.retry(job_id))
        path = Path(program)
        mended = pb.MendedProgram(file_name=path.name, source=_content(path, "the mended program"), keep=keep)
        _check_source(path, mended.source)
        return ProgramHandle(self._connection, self.job.retry_with(job_id, mended))

    def wait_until_matched(self, timeout: float | None = None) -> None:
        """Wait until a mended program has made all writes again that are done, or has ended.

        `JobFailedError` if it does not fit them, or has failed before; `TimeoutError` after *timeout* seconds.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            is_matching = self.info().matching
            progress = self.job.progress()
            if progress.failure is not None:
                raise progress.failure
            if not is_matching or progress.state.is_final:
                return
            if until_s is not None and time.monotonic() > until_s:
                raise TimeoutError(f"program {self.id} still matches its calls with the record")
            time.sleep(_LOOK_S)

    def cancel(self, reason: str = "") -> None:
        """Kill the program, and cancel what it runs."""
        self.job.cancel(reason)


class GivenProgram(NamedTuple):
    """A program as it is to be submitted, and its large files by their digests, which are to be sent before."""

    spec: pb.ProgramSpec
    large: Mapping[str, Path]


def given_program(
    path: PathLike,
    args: Sequence[str],
    *,
    py_files: Sequence[PathLike] = (),
    files: Sequence[PathLike] = (),
    archives: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> GivenProgram:
    """Return the program of a file: PySpark, or a script of SQL.

    `InvalidRequestError` for a file that cannot be read, or is none of its kind.
    """
    path = Path(path)
    spec = pb.ProgramSpec(
        file_name=path.name,
        source=_content(path, "the program"),
        arguments=args,
        environment=environment,
        user=os.environ.get("SPARK_USER") or getpass.getuser(),
    )
    _check(path, spec)
    large: dict[str, Path] = {}
    for each in map(Path, py_files):
        if not each.name.endswith(_MODULES):
            raise InvalidRequestError(f"{each}: a file that Python imports ends with {', '.join(_MODULES)}")
        _add(spec, large, each, "a Python file", use="python")
    for each in map(Path, files):
        _add(spec, large, each, "a file")
    for given in archives:
        name, _, alias = given.partition("#")
        each = Path(name)
        if not each.name.endswith(_ARCHIVES):
            raise InvalidRequestError(f"{each}: an archive ends with {', '.join(_ARCHIVES)}")
        _add(spec, large, each, "an archive", use="archive", alias=alias or each.name)
    return GivenProgram(spec, large)


def _add(spec: pb.ProgramSpec, large: dict[str, Path], path: Path, what: str, **use: str) -> None:
    with _reading(path, what):
        if path.stat().st_size <= IN_JOB_BYTES:
            spec.files.add(name=path.name, content=path.read_bytes(), **use)
            return
        digest = digest_of(path)
    large[digest] = path
    spec.files.add(name=path.name, digest=digest, **use)


def _check(path: Path, spec: pb.ProgramSpec) -> None:
    _check_source(path, spec.source)
    if path.suffix.lower() == ".sql":
        try:
            arguments_of(spec.arguments)
        except ValueError as error:
            raise InvalidRequestError(f"{path}: {error}") from None


def _check_source(path: Path, source: bytes) -> None:
    if path.suffix.lower() == ".sql":
        try:
            check_size(source.decode())
        except ValueError as error:
            raise InvalidRequestError(f"{path}: {error}") from None
        return
    try:
        compile(source, path.name, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise InvalidRequestError(f"{path}, line {error.lineno}: this is no program of Python: {error.msg}") from None
    except ValueError as error:
        raise InvalidRequestError(f"{path}: this is no program of Python: {error}") from None


def _content(path: Path, what: str) -> bytes:
    with _reading(path, what):
        return path.read_bytes()


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidRequestError(f"{path} is no file: name {what}")
        yield
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}: name {what}") from None
