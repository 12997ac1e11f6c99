"""Makes job specifications from what the user gives.

Paths of views and sinks become absolute here, because executors have other working directories; URIs (``s3a://…``) stay
unchanged.
"""

import json
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import cloudpickle

from onager.datasets import SINK_FORMATS, VIEW_FORMATS
from onager.errors import InvalidRequestError, InvalidSettingError, RequestTooLargeError
from onager.job_settings import DEADLINE
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_JOB_SPEC_BYTES

SINK_MODES: Final = ("error", "overwrite", "append")
DEFAULT_FUNCTION: Final = "main"
"""The function of a Python file that runs by default."""

_MAX_DIGITS: Final = 38
"""Of a decimal of Spark's."""
_SUFFIXES: Final = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "orc": "orc",
    "txt": "text",
}


@dataclass(frozen=True, slots=True)
class View:
    """A dataset that the query refers to by a name."""

    path: str
    format: str = ""
    """parquet, csv, json, orc or text; empty: from the dataset's description, or the extension of its path or files."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Spark's reader options.

    A dataset that a job wrote has a description with its options; for any other CSV dataset, ``header`` and
    ``inferSchema`` default to true.
    """


def absolute(path: str | os.PathLike[str]) -> str:
    """Return *path* as an absolute path, or unchanged if it is a URI."""
    text = os.fspath(path)
    if "://" in text or text.startswith("file:"):
        return text
    found = Path(text).expanduser().absolute()
    return os.path.realpath(found) if ".." in found.parts else str(found)


def views_from(directory: str | os.PathLike[str]) -> dict[str, View]:
    """Return a view for each dataset in *directory*: ``name.parquet``, ``name.csv``, …, or a directory of such."""
    root = Path(directory)
    if not root.is_dir():
        raise InvalidSettingError("views-from", os.fspath(directory), "there is no such directory")
    views: dict[str, View] = {}
    for entry in sorted(root.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        kind = _format_of(entry)
        if kind is None:
            continue
        name = entry.name.removesuffix("".join(entry.suffixes[-1:])) if _known(entry) else entry.name
        if name in views:
            raise InvalidSettingError("views-from", os.fspath(directory), f"two entries would both be view {name!r}")
        views[name] = View(str(entry.absolute()), kind)
    if not views:
        raise InvalidSettingError("views-from", os.fspath(directory), f"it has no {', '.join(VIEW_FORMATS)} dataset")
    return views


def _known(path: Path) -> str | None:
    return _SUFFIXES.get(path.suffix.lstrip(".").lower())


def _format_of(path: Path) -> str | None:
    """Return the format of a file or a directory of files; None if it is not a dataset."""
    if (known := _known(path)) or not path.is_dir():
        return known
    for _, directories, files in os.walk(path):
        directories[:] = sorted(d for d in directories if not d.startswith((".", "_")))
        for file in sorted(files):
            if not file.startswith((".", "_")) and (known := _known(Path(file))):
                return known
    return None


def view_message(name: str, view: View | str | os.PathLike[str]) -> pb.View:
    """Return the message for the view *name*."""
    if not isinstance(view, View):
        view = View(os.fspath(view))
    if view.format and view.format not in VIEW_FORMATS:
        raise InvalidSettingError(f"format of view {name}", view.format, f"expected one of {', '.join(VIEW_FORMATS)}")
    return pb.View(name=name, path=absolute(view.path), format=view.format, options=dict(view.options))


def sink_message(
    output: str | os.PathLike[str], kind: str, mode: str, options: Mapping[str, str], partition_by: Sequence[str] = ()
) -> pb.Sink:
    """Return the sink that writes the result as a dataset at *output*."""
    if kind not in SINK_FORMATS:
        raise InvalidSettingError("format", kind, f"expected one of {', '.join(SINK_FORMATS)}")
    if mode not in SINK_MODES:
        raise InvalidSettingError("mode", mode, f"expected one of {', '.join(SINK_MODES)}")
    if isinstance(partition_by, str):
        raise InvalidSettingError("partition_by", partition_by, "expected a list of column names")
    return pb.Sink(
        path=absolute(output), format=kind, mode=mode, options=dict(options), partition_by=list(partition_by)
    )


def conf_text(value: object) -> str:
    """Return a conf value as Spark writes it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def python_message(
    code: str | os.PathLike[str] | Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[pb.PythonFunction, str]:
    """Return the message for a Python job, and a name for it.

    *code* is ``"job.py"``, ``"job.py:function"``, or a function itself, which is pickled and needs the same Python
    version on the executors. The arguments must be JSON values.
    """
    try:
        arguments_json = json.dumps(dict(arguments))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"the arguments of a Python job must be JSON values: {error}") from error
    if callable(code):
        name = getattr(code, "__name__", type(code).__name__)
        message = pb.PythonFunction(pickled=_pickle(code), function=name, arguments_json=arguments_json)
        return message, name
    path, function = _split_function(os.fspath(code))
    message = pb.PythonFunction(
        source=_read(path, "the job's Python file"),
        function=function,
        arguments_json=arguments_json,
        file_name=path.name,
    )
    return message, f"{path.name}:{function}"


def _split_function(text: str) -> tuple[Path, str]:
    if Path(text).is_file():
        return Path(text), DEFAULT_FUNCTION
    path, colon, function = text.rpartition(":")
    if colon and not function.isidentifier():
        raise InvalidSettingError("py", text, "expected FILE or FILE:function")
    return (Path(path), function) if colon else (Path(text), DEFAULT_FUNCTION)


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"{what} {path} cannot be read: {error.strerror or error}") from error


def _pickle(function: Callable[..., Any]) -> bytes:
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    by_value = module is not None and module.__name__ != "__main__" and _is_the_users(module)
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise InvalidRequestError(f"the function cannot be pickled: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return pickled


def _is_the_users(module: ModuleType) -> bool:
    """Return whether *module* is outside the interpreter's own directories, so that executors lack it."""
    file = getattr(module, "__file__", None)
    if file is None:
        return False
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return not any(Path(file).is_relative_to(directory) for directory in installed)


def py_file_message(path: str | os.PathLike[str]) -> pb.PyFile:
    """Return the message for a module (``NAME.py``) or a ``.zip`` of packages."""
    file = Path(path)
    if file.suffix not in {".py", ".zip"}:
        raise InvalidSettingError("py-file", os.fspath(path), "expected NAME.py or a .zip of packages")
    return pb.PyFile(name=file.name, content=_read(file, "the Python file"))


def parameter_messages(params: Mapping[str, object] | Sequence[object] | None) -> list[pb.SqlParameter]:
    """Return the messages for values of ``:name``, given by name, or of ``?``, given in order."""
    if isinstance(params, Mapping):
        return [_parameter(name, value) for name, value in params.items()]
    if isinstance(params, str | bytes):
        raise InvalidRequestError(f"parameters are given by name, or as a list, not as {params!r}")
    return [_parameter("", value) for value in params or ()]


def _parameter(name: str, value: object) -> pb.SqlParameter:
    match value:
        case None:
            kind, text = "null", ""
        case bool():
            kind, text = "boolean", conf_text(value)
        case int() if -(2**63) <= value < 2**63:
            kind, text = "bigint", str(value)
        case int():
            kind, text = "decimal(38,0)", str(value)
        case float():
            kind, text = "double", repr(value)
        case Decimal():
            kind, text = _decimal_type(name, value), format(value, "f")
        case datetime():
            kind, text = ("timestamp" if value.tzinfo else "timestamp_ntz"), value.isoformat()
        case date():
            kind, text = "date", value.isoformat()
        case str():
            kind, text = "string", value
        case _:
            raise InvalidRequestError(
                f"the parameter {name or '?'} is {type(value).__name__}: give None, a bool, int, float, str, Decimal, "
                "date or datetime"
            )
    return pb.SqlParameter(name=name, type=kind, value=text)


def _decimal_type(name: str, value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidRequestError(f"the parameter {name or '?'} is {value}, which is no decimal of Spark's")
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > _MAX_DIGITS:
        raise InvalidRequestError(f"the parameter {name or '?'} has {precision} digits, more than {_MAX_DIGITS}")
    return f"decimal({precision},{scale})"


def job_spec(
    *,
    sql: str | None = None,
    python: pb.PythonFunction | None = None,
    name: str,
    views: Mapping[str, View | str | os.PathLike[str]],
    conf: Mapping[str, object],
    py_files: Sequence[str | os.PathLike[str]] = (),
    sink: pb.Sink | None = None,
    params: Mapping[str, object] | Sequence[object] | None = None,
    labels: Mapping[str, str] | None = None,
    deadline: str | None = None,
    script: pb.ScriptSpec | None = None,
    program: pb.ProgramSpec | None = None,
) -> pb.JobSpec:
    """Return the specification of a job; raises `RequestTooLargeError` if it exceeds the schedulers' limit."""
    if deadline is not None:
        conf = {**conf, DEADLINE: deadline}
    spec = pb.JobSpec(
        name=name,
        sql=None if sql is None else pb.SqlScript(text=sql, parameters=parameter_messages(params)),
        python=python,
        script=script,
        program=program,
        labels=labels,
        views=[view_message(view_name, view) for view_name, view in views.items()],
        conf={key: conf_text(value) for key, value in conf.items()},
        py_files=[py_file_message(path) for path in py_files],
        sink=sink,
    )
    size_bytes = spec.ByteSize()
    if size_bytes > MAX_JOB_SPEC_BYTES:
        raise RequestTooLargeError(
            "the job (query text, functions, a program with its files)",
            size_bytes,
            MAX_JOB_SPEC_BYTES,
            "put data into files that the query reads, not into the query",
        )
    return spec
