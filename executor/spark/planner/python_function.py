"""Jobs that are Python functions: loaded from their source or pickle, called once, and asked for a DataFrame."""

import contextlib
import json
import linecache
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from executor.spark.planner.guard import no_side_effects
from onager.errors import OnagerError, PlanningError, UserCodeError
from onager.protocol import onager_pb2 as pb

_lock = threading.Lock()
"""Held while a job's modules are importable: they are imported under the names that their users gave them."""


@contextlib.contextmanager
def importable(py_files: Sequence[pb.PyFile]) -> Iterator[None]:
    """Make a job's modules importable as long as the context lasts, one job at a time.

    What they define is pickled by value, so that executors need no files.
    """
    with _lock, tempfile.TemporaryDirectory(prefix="onager-modules-") as directory:
        before = set(sys.modules)
        names: set[str] = set()
        paths = [directory]
        for py_file in py_files:
            path = Path(directory) / Path(py_file.name).name
            path.write_bytes(py_file.content)
            if path.suffix in {".zip", ".egg", ".whl"}:
                paths.append(str(path))
                names |= _top_level_names(path)
            else:
                names.add(path.stem)
        hidden = {name: sys.modules.pop(name) for name in names & before}
        sys.path[:0] = paths
        for name in names:
            _pickle_by_value(name)
        try:
            yield
        finally:
            for path_entry in paths:
                sys.path.remove(path_entry)
            for name in list(sys.modules):
                if name.partition(".")[0] in names:
                    del sys.modules[name]
            sys.modules.update(hidden)
            for name in names:
                cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES.discard(name)  # noqa: SLF001  (no module to name it by)


def _top_level_names(archive: Path) -> set[str]:
    import zipfile

    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.namelist()
    except zipfile.BadZipFile as e:
        raise PlanningError(f"{archive.name} is no zip archive of Python packages: {e}") from e
    return {entry.partition("/")[0].removesuffix(".py") for entry in entries if entry.endswith(".py")}


def _pickle_by_value(name: str) -> None:
    """Register a module that was not imported yet: it may never be, and importing it runs it."""
    known = sys.modules.get(name)
    stand_in = types.ModuleType(name)
    sys.modules[name] = stand_in
    try:
        cloudpickle.register_pickle_by_value(stand_in)
    finally:
        if known is None:
            del sys.modules[name]
        else:
            sys.modules[name] = known


def call_function(session: SparkSession, function: pb.PythonFunction) -> DataFrame:
    """Call the job's function with the session and its arguments, and return the DataFrame that it returns.

    Raises `UserCodeError` with the traceback of the user's own file when it raises, `SideEffectError` when it writes,
    and what Spark says when Spark raises.
    """
    arguments = _arguments(function)
    with no_side_effects(), _module_for(function) as module:
        called = _load(function, module)
        returned = _run(function, lambda: called(session, **arguments))
    if not isinstance(returned, DataFrame):
        what = f"a {type(returned).__module__}.{type(returned).__qualname__}" if returned is not None else "nothing"
        raise PlanningError(
            f"{_name(function)} returned {what}, but a job's function returns a Spark DataFrame "
            "(of pandas data: spark.createDataFrame(…); of pandas-on-Spark: frame.to_spark())"
        )
    return returned


def _name(function: pb.PythonFunction) -> str:
    return f"{function.function or 'the function'} ({function.file_name})" if function.file_name else function.function


def _arguments(function: pb.PythonFunction) -> dict[str, Any]:
    if not function.arguments_json:
        return {}
    try:
        arguments = json.loads(function.arguments_json)
    except ValueError as e:
        raise PlanningError(f"the arguments of {_name(function)} are no JSON: {e}") from e
    if not isinstance(arguments, dict):
        raise PlanningError(f"the arguments of {_name(function)} are no JSON object: keyword arguments are wanted")
    return arguments


@contextlib.contextmanager
def _module_for(function: pb.PythonFunction) -> Iterator[types.ModuleType]:
    """Give a module for the job's source to run in; its functions are pickled by value."""
    name = f"onager_job_{threading.get_ident()}"
    module = types.ModuleType(name)
    module.__file__ = function.file_name or "<job>"
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)
    try:
        yield module
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[name]


def _load(function: pb.PythonFunction, module: types.ModuleType) -> Callable[..., Any]:
    if function.HasField("pickled"):
        loaded = _run(function, lambda: cloudpickle.loads(function.pickled))
        if not callable(loaded):
            raise PlanningError("the pickled object of the job is no function")
        return loaded  # type: ignore[no-any-return]
    file_name = str(module.__file__)
    source = function.source.decode("utf-8", errors="replace")
    linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)

    def execute() -> None:
        exec(compile(source, file_name, "exec"), module.__dict__)  # noqa: S102  (running it is the job)

    _run(function, execute)
    found = getattr(module, function.function, None)
    if not callable(found):
        defined = ", ".join(n for n, v in vars(module).items() if isinstance(v, types.FunctionType)) or "none"
        raise PlanningError(f"{file_name} defines no function {function.function!r}; it defines: {defined}")
    return found  # type: ignore[no-any-return]


def _run(function: pb.PythonFunction, action: Callable[[], Any]) -> Any:
    """Run code of the user's, and tell what it raises in the user's terms."""
    try:
        return action()
    except (OnagerError, PySparkException):
        raise
    except SystemExit as e:
        raise UserCodeError(f"{_name(function)} called sys.exit({e.code})", _user_traceback(e)) from e
    except Exception as e:
        last = "".join(traceback.format_exception_only(e)).strip()
        raise UserCodeError(f"{_name(function)} raised {last}", _user_traceback(e)) from e


def _user_traceback(error: BaseException) -> str:
    """Return the traceback without the frames of ours at its top."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__))
    kept = [frame for frame in frames if frame.filename != ours]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(kept)]
    return "".join([*lines, *traceback.format_exception_only(error)])
