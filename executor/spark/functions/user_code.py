"""Loads a job's Python function from its source or pickle, and calls it for a DataFrame."""

import json
import linecache
import sys
import traceback
import types
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import py4j
import pyspark
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from onager.errors import OnagerError, PlanningError, UserCodeError
from onager.executor.spark.jvm import jvm_error
from onager.protocol import onager_pb2 as pb

OURS = str(Path(__file__).parent)
SPARKS = (str(Path(pyspark.__file__).parent), str(Path(py4j.__file__).parent))


def make_importable(py_files: Iterable[pb.PyFile], directory: Path) -> None:
    """Write a job's modules to *directory*, and make them importable in this process.

    Their functions and classes are pickled by value, so that tasks need no files.
    """
    names: set[str] = set()
    paths = [str(directory)]
    for py_file in py_files:
        path = directory / Path(py_file.name).name
        path.write_bytes(py_file.content)
        if path.suffix in {".zip", ".egg", ".whl"}:
            paths.append(str(path))
            names |= _top_level_names(path)
        else:
            names.add(path.stem)
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]  # the job's own come first
    sys.path[:0] = paths
    for name in names:
        _pickle_by_value(name)


def _top_level_names(archive: Path) -> set[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.namelist()
    except zipfile.BadZipFile as e:
        raise PlanningError(f"{archive.name} is not a zip archive of Python packages: {e}") from e
    return {entry.partition("/")[0].removesuffix(".py") for entry in entries if entry.endswith(".py")}


def _pickle_by_value(name: str) -> None:
    """Register a module without importing it, which would run its code."""
    sys.modules[name] = stand_in = types.ModuleType(name)
    try:
        cloudpickle.register_pickle_by_value(stand_in)
    finally:
        del sys.modules[name]


def call_function(session: SparkSession, function: pb.PythonFunction) -> DataFrame:
    """Call the job's function with the session and its arguments, and return its DataFrame.

    Raises `UserCodeError`, with the traceback within the user's files, when the function raises, `SideEffectError` when
    it writes, and Spark's own errors, with a note that says where in the user's code they occurred.
    """
    arguments = _arguments(function)
    called = _load(function, _module_for(function))
    returned = _run(function, lambda: called(session, **arguments))
    if not isinstance(returned, DataFrame):
        what = f"a {type(returned).__module__}.{type(returned).__qualname__}" if returned is not None else "nothing"
        raise PlanningError(
            f"{_name(function)} returned {what}, but a job's function must return a Spark DataFrame "
            "(from pandas: spark.createDataFrame(…); from pandas-on-Spark: frame.to_spark())"
        )
    return returned


def _name(function: pb.PythonFunction) -> str:
    name = function.function or "the function"
    return f"{name} ({function.file_name})" if function.file_name else name


def _arguments(function: pb.PythonFunction) -> dict[str, Any]:
    if not function.arguments_json:
        return {}
    try:
        arguments = json.loads(function.arguments_json)
    except ValueError as e:
        raise PlanningError(f"the arguments of {_name(function)} are not valid JSON: {e}") from e
    if not isinstance(arguments, dict):
        raise PlanningError(f"the arguments of {_name(function)} must be a JSON object of keyword arguments")
    return arguments


def _module_for(function: pb.PythonFunction) -> types.ModuleType:
    """Return a new module in which the job's source runs; its functions are pickled by value."""
    module = types.ModuleType("onager_job")
    module.__file__ = function.file_name or "<job>"
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    return module


def _load(function: pb.PythonFunction, module: types.ModuleType) -> Callable[..., Any]:
    if function.HasField("pickled"):
        loaded = _run(function, lambda: cloudpickle.loads(function.pickled))
        if not callable(loaded):
            raise PlanningError("the pickled object of the job is not a function")
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
    """Run the user's code, and raise its errors as errors of the user."""
    try:
        return action()
    except OnagerError:
        raise
    except SystemExit as e:
        said = f"called sys.exit({e.code})"
        raise UserCodeError(f"{_name(function)} {said}", _traceback(e, (OURS,)), raised="SystemExit") from e
    except BaseException as e:
        if jvm_error(e) is not None:
            e.add_note("".join(["in the job's function:\n", *_frames(e, (OURS, *SPARKS))]).rstrip())
            raise
        hidden = (OURS, *SPARKS) if isinstance(e, PySparkException) else (OURS,)
        last = "".join(traceback.format_exception_only(e)).strip()
        condition = e.getCondition() if isinstance(e, PySparkException) else None
        raised = condition or type(e).__qualname__
        raise UserCodeError(f"{_name(function)} raised {last}", _traceback(e, hidden), raised=raised) from e


def _traceback(error: BaseException, hidden: Sequence[str]) -> str:
    lines = ["Traceback (most recent call last):\n", *_frames(error, hidden)]
    return "".join([*lines, *traceback.format_exception_only(error)])


def _frames(error: BaseException, hidden: Sequence[str]) -> list[str]:
    """Return the traceback's frames, except those of files below *hidden*."""
    frames = traceback.extract_tb(error.__traceback__)
    return traceback.format_list([frame for frame in frames if not frame.filename.startswith(tuple(hidden))])
