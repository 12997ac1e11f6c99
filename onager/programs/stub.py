"""PySpark's calls of Spark Connect: each has a name, and is asked until there is an outcome."""

import contextlib
import functools
import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from onager.programs.call_digest import digest_of
from onager.programs.channels import ERROR, Way
from onager.programs.output import Output
from onager.programs.tasks import CURRENT, ROOT, current

CALL_HEADER = "onager-call"
LINE_HEADER = "onager-line-bin"
PLAN_HEADER = "onager-plan"
RECORDED = "onager-recorded"
"""Trailing metadata of an error that is the outcome of a call."""
LOST = 71
"""The exit code of an attempt that does not count any more."""
REFUSED = 70
"""The exit code of an attempt that cannot go on: another call than was recorded, or one that the cluster refuses."""
OVER_LIMIT = 72
"""The exit code of a program that has recorded as much as one may. It ends with that."""
_BROKEN = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
"""Codes of errors of the way to a scheduler: a later try finds one."""
_MOST_BYTES = 16 * 1024 * 1024
"""The largest plan that a scheduler takes."""
_AT_ONCE = threading.BoundedSemaphore(64)
"""Plans that the process has carried out or analysed at a time, as many as a session may run; further ones wait here.

A plan counts until its first rows, or its end: who reads rows may have plans carried out meanwhile.
"""
_IN_VAIN_S = 600
"""How long a call is tried again after the same error."""
_SAY_S = 30
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_UNNUMBERED = frozenset({"ArtifactStatus", "FetchErrorDetails", "GetStatus", "ReleaseExecute"})
"""Calls that change nothing, and are asked anew."""
_BESIDE = frozenset({"Config", "ReleaseSession"})
"""Calls that a program, or PySpark, makes after an error, too."""
_OWN = os.path.dirname(__file__) + os.sep
CALL = "_onager_call"
"""The attribute of an error that says which call has failed."""
_FATAL = (
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "UNIMPLEMENTED",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
)
"""Codes of errors that no later try changes."""


class Program:
    """The program of this process."""

    id = ""
    attempt = 0
    recorded = 0
    """Calls that were recorded when the attempt began."""
    made = 0
    """Calls that it has made."""
    stub: "Stub | None" = None
    """By which it calls a scheduler; None outside of ``onager run``."""
    file = ""
    """Where its own code is."""
    output: Output | None = None
    """Where what it prints goes, if that is not where the process prints."""
    line = ""
    """The place of the call that is next, of a script of SQL; else it is that of the code which calls."""
    retries = 0
    """How often it was gone on with after its end: a call that is made again is another operation."""
    failed: "FailedCall | None" = None
    """The last call that was made, if it has failed; but for settings, which PySpark asks for after an error."""


class FailedCall(NamedTuple):
    """A call of which an error is the outcome, and behind which its task has made none before that error.

    What a task does while the rows of a call come may be writes, which a retry must not do again.
    """

    task: str
    number: int
    tasks: int
    """How many tasks its task had started by then."""


def failed_call(error: BaseException) -> FailedCall | None:
    """Return the call whose error has led to *error*, which ends the program; None if none has."""
    at: BaseException | None = error
    seen: set[int] = set()
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if (found := getattr(at, CALL, None)) is not None:
            return found  # type: ignore[no-any-return]
        at = at.__cause__ or at.__context__ or next(iter(getattr(at, "exceptions", ())), None)
    return Program.failed


class Stub:
    """PySpark's stub, whose calls are named, and asked until there is an outcome."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def __getattr__(self, method: str) -> Any:
        if method == "ExecutePlan":
            return self._execute
        if method == "AddArtifacts":
            return self._upload
        return functools.partial(self._unary, method)

    def _unary(self, method: str, request: Any, *, metadata: Any = (), timeout: Any = None, **more: Any) -> Any:
        named = () if method in _UNNUMBERED else naming(method, digest_of(method, request))
        if method == "AnalyzePlan":
            _check_size(request)
        how = {"metadata": (*metadata, *named), "timeout": timeout, **more}
        with _AT_ONCE if method == "AnalyzePlan" else contextlib.nullcontext():
            return self.until_outcome(lambda stub: getattr(stub, method)(request, **how), named)

    def _upload(self, requests: Any, *, metadata: Any = (), timeout: Any = None, **more: Any) -> Any:
        """Send files; what is cached by its content is sent anew whenever it is missing."""
        with tempfile.TemporaryFile() as spool:
            sizes: list[int] = []
            kind: Any = None
            is_cached = True
            digests = []
            for request in requests:
                content = request.SerializeToString()
                kind = type(request)
                spool.write(content)
                sizes.append(len(content))
                names = [each.name for each in request.batch.artifacts]
                digests.append(digest_of("AddArtifacts", request))
                names += [request.begin_chunk.name] if request.HasField("begin_chunk") else []
                is_cached = is_cached and all(name.startswith("cache/") for name in names)
            named = (
                () if is_cached else naming("AddArtifacts", hashlib.sha256("".join(digests).encode()).hexdigest()[:32])
            )

            def again() -> Iterator[Any]:
                spool.seek(0)
                for size in sizes:
                    yield kind.FromString(spool.read(size))

            how = {"metadata": (*metadata, *named), "timeout": timeout, **more}
            return self.until_outcome(lambda stub: stub.AddArtifacts(again(), **how), named)

    def _execute(self, request: Any, *, metadata: Any = (), timeout: Any = None, **more: Any) -> Iterator[Any]:
        is_release = request.plan.command.HasField("remove_cached_remote_relation_command")
        named = () if is_release else naming("ExecutePlan", digest_of("ExecutePlan", request))
        _check_size(request)
        if named:
            again = f" of retry {Program.retries}" if Program.retries else ""
            request.operation_id = current().uuid_of(f"operation {named[0][1]}{again}")
        return _counted(self._responses(request, (*metadata, *named), named))

    def _responses(self, request: Any, metadata: Any, named: Any) -> Iterator[Any]:
        """Yield the responses, going on after the last one when the stream breaks."""
        from pyspark.sql.connect.proto import ReattachExecuteRequest

        last = ""
        request.request_options.add().reattach_options.reattachable = True
        pause = Pause()
        while True:
            stub = self._way.stub
            try:
                if not last:
                    stream = stub.ExecutePlan(request, metadata=metadata)
                else:
                    onward = ReattachExecuteRequest(
                        session_id=request.session_id,
                        user_context=request.user_context,
                        operation_id=request.operation_id,
                        client_type=request.client_type,
                        last_response_id=last,
                    )
                    stream = stub.ReattachExecute(onward, metadata=metadata)
                for response in stream:
                    pause = Pause()
                    last = response.response_id
                    yield response
                    if response.HasField("result_complete"):
                        return
                failed = None
            except Exception as error:
                _judge(error, named)
                self._way.failed(stub, error)
                failed = error
            pause.sleep(failed)

    def until_outcome(self, ask: Callable[[Any], Any], named: Any) -> Any:
        """Return what *ask* returns, called with PySpark's stub, once that is an outcome; *named*: by `naming`."""
        pause = Pause()
        while True:
            stub = self._way.stub
            try:
                return ask(stub)
            except Exception as error:
                _judge(error, named)
                self._way.failed(stub, error)
                failed = error
            pause.sleep(failed)


def _counted(responses: Iterator[Any]) -> Iterator[Any]:
    with contextlib.ExitStack() as counted:
        counted.enter_context(_AT_ONCE)
        for response in responses:
            if not response.HasField("execution_progress"):
                counted.close()
            yield response


class Pause:
    """The pauses between tries of a call; says what it waits for, and gives the attempt up if that is in vain."""

    def __init__(self) -> None:
        self._tries = 0
        self._began_s = self._said_s = time.monotonic()
        self._why = ""

    def sleep(self, error: Any = None) -> None:
        """Wait before the next try, after *error*."""
        now_s = time.monotonic()
        why = "" if error is None or error.code().name in _BROKEN else str(error.details())
        if why != self._why:
            self._why, self._began_s = why, now_s
        if why and now_s - self._began_s > _IN_VAIN_S:
            say(f"for {_IN_VAIN_S} s the cluster has said: {why}; this attempt ends")
            os.kill(os.getpid(), signal.SIGKILL)
        if error is not None and now_s - self._said_s > _SAY_S:
            self._said_s = now_s
            say(f"waiting, since the cluster says: {error.details()}")
        time.sleep(_PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)])
        self._tries += 1


def _judge(error: Exception, named: Any) -> None:
    """Return if a later try may do; raise an outcome; end the process if the program cannot go on.

    *named*: the metadata that name the call.
    """
    import grpc

    if not isinstance(error, grpc.RpcError):
        raise error
    failed: Any = error
    trailing = dict(failed.trailing_metadata() or ())
    if RECORDED in trailing:
        task = CURRENT.get(None)
        if named and task is not None and named[0][1] == f"{task.path}/{task.calls}":
            Program.failed = FailedCall(task.path, task.calls, task.tasks)
            setattr(failed, CALL, Program.failed)
        raise error
    name = ""
    if ERROR in trailing:
        name = str(json.loads(trailing[ERROR]).get("class", ""))
    if name == "AttemptSupersededError":
        say(f"another attempt of the program counts: {failed.details()}")
        if Program.output is not None:
            Program.output.lost()
        os._exit(LOST)
    if name == "ProgramLimitError":
        say(f"the program ends: {failed.details()}")
        os._exit(OVER_LIMIT)
    if failed.code().name in _FATAL:
        say(f"the program cannot go on: {failed.details()}")
        if Program.output is not None:
            Program.output.refused(failed.details())
        os._exit(REFUSED)


def say(text: str) -> None:
    """Tell the program's user."""
    sys.stdout.flush()
    print(f"onager: {text}", file=sys.stderr, flush=True)


def _check_size(request: Any) -> None:
    """Raise for a plan that no scheduler takes: it would be asked for ever, since nothing is recorded of it."""
    if (size := request.ByteSize()) > _MOST_BYTES:
        from pyspark.errors.exceptions.connect import SparkConnectGrpcException

        raise SparkConnectGrpcException(
            f"the plan has {size:,} bytes, and at most {_MOST_BYTES:,} are taken: put data into files, and take less "
            "into functions"
        )


def naming(method: str, plan: str = "") -> tuple[tuple[str, Any], ...]:
    """Return the metadata that name the next call of the task, of the *method*; *plan*: by `digest_of`."""
    task = current()
    name = task.call()
    Program.made += 1
    if method not in _BESIDE:
        Program.failed = None
    if Program.output is not None and task.path == ROOT:
        Program.output.reached(task.calls)
    return (CALL_HEADER, name), (LINE_HEADER, _line().encode()), (PLAN_HEADER, plan)


def _line() -> str:
    """Return the file and the line of the program that calls PySpark."""
    if Program.line:
        return Program.line
    frame: Any = sys._getframe(1)
    found = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name == Program.file:
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        if not found and "pyspark" not in name and not name.startswith(_OWN) and "/lib/python" not in name:
            found = f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return found
