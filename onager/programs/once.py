"""What a program can have recorded besides its calls of Spark: ``onager.once``; and what it can know of itself.

A function's outcome is recorded as the outcome of a call with a number: of ``Config``, with a key that says so. It is
asked for first, and recorded under the same name.
"""

import base64
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from onager.programs.stub import CALL, FailedCall, Program, naming
from onager.programs.tasks import current

KEY = "onager.once:"
"""The beginning of the key; the function's name follows."""
MAX_BYTES = 1024 * 1024
"""Of an outcome, pickled."""
_NAME_CHARS = 256
T = TypeVar("T")


class RunningProgram:
    """The program of this process."""

    @property
    def id(self) -> str:
        """The id; a retry goes on with that of the first job."""
        return Program.id

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return Program.attempt

    @property
    def is_replaying(self) -> bool:
        """Whether it has made fewer calls than were recorded when the attempt began."""
        return Program.made < Program.recorded

    def __repr__(self) -> str:
        return f"RunningProgram(id={self.id!r}, attempt={self.attempt}, is_replaying={self.is_replaying})"


def running() -> RunningProgram | None:
    """Return the program of this process; None for one that ``onager run`` has not started."""
    return RunningProgram() if Program.id else None


def once(function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function, or raise its error, as it was recorded; it is called until one is.

    So the function is called at least once, and again only if the program's process dies before the outcome is
    recorded. A later attempt of the program gets what was recorded. The result has at most 1 MiB, pickled; another one
    raises `ValueError`, and one that cannot be pickled `TypeError`. An error that cannot be pickled is raised as
    `RuntimeError`. Outside of ``onager run``, the function is just called.
    """
    stub = Program.stub
    if stub is None:
        return function(*arguments)
    task = current()
    started, child = task.tasks, task.new()  # its calls of Spark are those of a task of its own
    name = str(getattr(function, "__qualname__", type(function).__qualname__))[:_NAME_CHARS]
    named = naming("once")
    path, _, number = named[0][1].partition("/")
    call = FailedCall(path, int(number), started)
    found = stub.until_outcome(lambda way: way.Config(_find(name), metadata=named), named)
    cause: BaseException | None = None
    if not found.pairs:
        outcome, cause = _outcome(child.run, function, arguments)
        found = stub.until_outcome(lambda way: way.Config(_record(name, outcome), metadata=named), named)
    is_error, value = pickle.loads(base64.b64decode(found.pairs[0].value))  # noqa: S301 - what this program has pickled
    if not is_error:
        return value  # type: ignore[no-any-return]
    Program.failed = call
    setattr(value, CALL, call)
    raise value from cause


def _outcome(run: Callable[..., Any], function: Any, arguments: Any) -> tuple[bytes, BaseException | None]:
    """Call the function; return what came of it, as it is recorded, and the error if it is one."""
    try:
        result = run(function, *arguments)
    except Exception as error:
        return _pickled_error(error), error
    try:
        content = pickle.dumps((False, result))
        pickle.loads(content)  # noqa: S301 - the same
    except Exception as error:
        return _pickled_error(TypeError(f"the result of a function of onager.once cannot be pickled: {error}")), None
    if len(content) > MAX_BYTES:
        why = f"the result of a function of onager.once has {len(content):,} bytes, pickled, and may have {MAX_BYTES:,}"
        return _pickled_error(ValueError(f"{why}: write it to a file or a table, and return its name")), None
    return content, None


def _pickled_error(error: Exception) -> bytes:
    vars(error).pop(CALL, None)
    for each in (error, _Bare(error)):
        try:
            content = pickle.dumps((True, each))
            _, made = pickle.loads(content)  # noqa: S301 - the same
        except Exception:  # noqa: S112 - pickle raises all kinds
            continue
        if (type(made), str(made)) == (type(error), str(error)) and len(content) <= MAX_BYTES:
            return content
    return pickle.dumps((True, RuntimeError(f"{type(error).__qualname__}: {error}"[: MAX_BYTES // 8])))


class _Bare:
    """Pickles an error whose class takes other arguments than those that it keeps."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        return _made, (type(self._error), self._error.args, vars(self._error))


def _made(kind: type[Exception], arguments: tuple[Any, ...], fields: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *arguments)
    vars(error).update(fields)
    return error


def _find(name: str) -> Any:
    from pyspark.sql.connect.proto import ConfigRequest

    request = ConfigRequest()
    request.operation.get_option.keys.append(KEY + name)
    return request


def _record(name: str, outcome: bytes) -> Any:
    from pyspark.sql.connect.proto import ConfigRequest

    request = ConfigRequest()
    request.operation.set.pairs.add(key=KEY + name, value=base64.b64encode(outcome).decode())
    return request
