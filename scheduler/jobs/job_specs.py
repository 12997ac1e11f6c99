"""Job specifications: how they are checked and stored."""

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import json_format

from onager.datasets import SINK_FORMATS, VIEW_FORMATS
from onager.errors import (
    InvalidRequestError,
    InvalidSettingError,
    RequestTooLargeError,
    StateCorruptError,
    VersionMismatchError,
)
from onager.ids import BlobDigest, is_digest, may_be_drawn
from onager.job_settings import (
    PREFIX,
    SESSION,
    SESSION_MAX_TASKS,
    TRACEPARENT,
    WEIGHT,
    check_known,
    deadline_ms_of,
    reuse_of,
    whole_number,
)
from onager.private_paths import PrivatePaths, steps_back
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_JOB_SPEC_BYTES, PROTOCOL_VERSION
from onager.redaction import shown_json
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_adaptive import adaptive_of
from onager.scheduler.jobs.job_exchange import streaming_of
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.jobs.job_speculation import speculation_of

_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MAX_NAME_CHARS: Final = 256
_MAX_WEIGHT: Final = 1000.0
_MAX_TASKS: Final = 1_000_000
_SHOWN_CHARS: Final = 256 * 1024
_SINK_MODES: Final = ("error", "overwrite", "append")


def check_submission(request: pb.SubmitJobRequest) -> None:
    """Raise an error for an invalid submission, in the caller's words."""
    if request.protocol_version not in (0, PROTOCOL_VERSION):
        raise VersionMismatchError(
            f"the client speaks version {request.protocol_version} of the protocol, and this scheduler version "
            f"{PROTOCOL_VERSION}: install the same Onager on both sides"
        )
    if not may_be_drawn(request.job_id):
        raise InvalidRequestError(
            f"{request.job_id[:80]!r} is not a job id: 1 to 63 of a-z, 0-9 and '-', not starting with '-'"
        )
    spec = request.spec
    if (size := spec.ByteSize()) > MAX_JOB_SPEC_BYTES:
        raise RequestTooLargeError(
            "the job specification", size, MAX_JOB_SPEC_BYTES, "read large data from files instead of the query's text"
        )
    check_spec(spec)
    for label in (*spec.labels.keys(), *spec.labels.values()):
        if not label.isprintable():
            raise InvalidRequestError(f"a label is printable text, not {label[:80]!r}")


def check_spec(spec: pb.JobSpec) -> None:
    """Raise an error for a specification that makes no sense, in its user's words."""
    _check_kind(spec)
    if len(spec.name) > _MAX_NAME_CHARS or not spec.name.isprintable():
        raise InvalidRequestError(f"a job's name has at most {_MAX_NAME_CHARS} printable characters")
    _check_conf(spec)
    _check_views(spec)
    if spec.HasField("sink"):
        _check_sink(spec.sink)


class Submission(NamedTuple):
    """A checked job: its share of the slots, and its specification as stored, with its digest."""

    terms: JobTerms
    content: bytes
    digest: BlobDigest


def checked(request: pb.SubmitJobRequest, session_max_tasks: int) -> Submission:
    """Return what to store of a submission, or raise if it is invalid; a large one takes a while."""
    check_submission(request)
    terms = terms_of(request.spec, request.client_id, session_max_tasks)
    content = encode_spec(request.spec)
    return Submission(terms, content, digest_of(content))


def weight_of(spec: pb.JobSpec) -> float:
    """Return the job's share of the slots; `InvalidSettingError` when it is not a number above 0."""
    text = spec.conf.get(WEIGHT, "1")
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= _MAX_WEIGHT:
        raise InvalidSettingError(WEIGHT, text, f"give a number above 0 and up to {_MAX_WEIGHT:g}")
    return weight


def terms_of(spec: pb.JobSpec, client_id: str, session_max_tasks: int) -> JobTerms:
    """Return the terms of *spec*; by default the session is the client's, limited to *session_max_tasks*.

    `InvalidSettingError` for an invalid value.
    """
    session = spec.conf.get(SESSION, client_id)
    if SESSION in spec.conf and not (session.isprintable() and 0 < len(session) <= _MAX_NAME_CHARS):
        raise InvalidSettingError(SESSION, session, f"give a name of 1 to {_MAX_NAME_CHARS} printable characters")
    text = spec.conf.get(SESSION_MAX_TASKS, str(session_max_tasks))
    most = whole_number(text, _MAX_TASKS)
    if most is None:
        raise InvalidSettingError(SESSION_MAX_TASKS, text, f"give a whole number from 0 to {_MAX_TASKS}; 0: no limit")
    deadline_ms_of(spec.conf)
    return JobTerms(
        weight=weight_of(spec),
        session=session,
        session_max_tasks=most,
        labels=dict(sorted(spec.labels.items())),
        reuse=reuse_of(spec.conf),
    )


def encode_spec(spec: pb.JobSpec) -> bytes:
    """Return *spec* as stored: protobuf's JSON, equal bytes for equal specs."""
    plain = json_format.MessageToDict(spec, preserving_proto_field_name=True)
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def decode_spec(content: bytes) -> pb.JobSpec:
    """Return the spec that `encode_spec` wrote."""
    return _parsed(content, lambda plain: plain)


def decode_spec_shown(content: bytes) -> pb.JobSpec:
    """Return the spec that `encode_spec` wrote for people: without code, files and secrets, and shortened."""
    return _parsed(content, _shown)


def _parsed(content: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> pb.JobSpec:
    try:
        return json_format.ParseDict(change(json.loads(content)), pb.JobSpec(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, RecursionError, AttributeError, TypeError) as error:
        raise StateCorruptError(f"a job's specification cannot be read: {error}") from error


def _shown(plain: dict[str, Any]) -> dict[str, Any]:
    for name in ("source", "pickled"):
        plain.get("python", {}).pop(name, None)
    if "connect" in plain:
        session = plain["connect"].get("session", {})
        plain["connect"] = {"session": {k: session[k] for k in ("user", "session_id", "revision") if k in session}}
    for file in (*plain.get("py_files", ()), *plain.get("program", {}).get("files", ())):
        file.pop("content", None)
    if "program" in plain:
        plain["program"].pop("source", None)
        plain["program"].get("script", {}).pop("relation", None)
        plain["program"]["environment"] = dict.fromkeys(plain["program"].get("environment", {}), "***")
    for step in plain.get("script", {}).get("steps", ()):
        _shown(step)
    for kind, name in (("sql", "text"), ("python", "arguments_json")):
        if text := plain.get(kind, {}).get(name, ""):
            plain[kind][name] = _cut(text)
    found: dict[str, Any] = shown_json(plain)
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… (cut: {len(text):,} characters)"


def _check_kind(spec: pb.JobSpec) -> None:
    match spec.WhichOneof("kind"):
        case "sql":
            if not spec.sql.text.strip().strip(";").strip():
                raise InvalidRequestError("the SQL text is empty: give a query, such as SELECT 1")
        case "python":
            if spec.python.WhichOneof("code") is None or not (spec.python.source or spec.python.pickled):
                raise InvalidRequestError("the Python function has no code: give a file's source or a pickled function")
            _check_nul("the function's file", spec.python.file_name)
            _check_arguments(spec.python.arguments_json)
        case "script":
            if spec.HasField("sink") or spec.py_files:
                raise InvalidRequestError("outputs and Python files are those of a script's steps: give them there")
        case "program":
            _check_program(spec)
        case "connect":
            pass  # of a scheduler's own making: `onager.scheduler.connect`
        case _:
            raise InvalidRequestError("the job has nothing to run: give an SQL script, a Python function or a program")


def _check_program(spec: pb.JobSpec) -> None:
    program = spec.program
    if spec.HasField("sink") or spec.py_files or spec.views:
        raise InvalidRequestError("a program has no output, views and Python files of its job: it makes its own")
    if not (program.file_name and program.source.strip()):
        raise InvalidRequestError("the program is empty: give the file of a program of PySpark")
    _check_program_files([program.file_name, *(file.alias or file.name for file in program.files)])
    for file in program.files:
        if file.use not in ("", "python", "archive"):
            raise InvalidRequestError(f"{file.use[:80]!r} is no use of a program's file: python, archive, or none")
        if file.digest and (file.content or not is_digest(file.digest)):
            raise InvalidRequestError(
                f"{file.name}: a program's file has its content, or the SHA-256 of one that was sent"
            )
    for name, value in program.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequestError(f"{name[:80]!r} cannot be a variable of the program's environment")
    if any("\0" in argument for argument in program.arguments):
        raise InvalidRequestError("an argument of the program has a NUL character in it")


def _check_program_files(names: Sequence[str]) -> None:
    for name in names:
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise InvalidRequestError(
                f"{name[:80]!r} cannot be the name of a file of a program: give one without a folder"
            )
        if names.count(name) > 1:
            raise InvalidRequestError(f"the program has two files that are called {name}")


def _check_arguments(text: str) -> None:
    try:
        arguments = json.loads(text or "{}")
    except RecursionError:
        raise InvalidRequestError("the arguments of the Python function are nested too deeply") from None
    except ValueError as error:
        # Raised also for numbers with more digits than Python reads.
        raise InvalidRequestError(f"the arguments of the Python function are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise InvalidRequestError("the arguments of the Python function must be a JSON object of keyword arguments")


def _check_conf(spec: pb.JobSpec) -> None:
    for key, value in spec.conf.items():
        if not key.startswith(("spark.", "onager.")) or any(c.isspace() for c in key):
            raise InvalidSettingError(key, value, "a conf key starts with 'spark.' or 'onager.' and has no spaces")
        if key.startswith(PREFIX):
            check_known(key, value)
    terms_of(spec, "", 0)
    streaming_of(spec)
    speculation_of(spec)
    adaptive_of(spec)
    _check_traceparent(spec)


def traceparent_of(text: str) -> tuple[int, int, int] | None:
    """Return (trace id, span id, flags) of a W3C traceparent; None for a text that is none."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return int(found[1], 16), int(found[2], 16), int(found[3], 16)


def _check_traceparent(spec: pb.JobSpec) -> None:
    text = spec.conf.get(TRACEPARENT)
    if text is not None and traceparent_of(text) is None:
        raise InvalidSettingError(TRACEPARENT, text, "give a W3C traceparent, 00-TRACE-SPAN-FLAGS in lower-case hex")


def _check_views(spec: pb.JobSpec) -> None:
    seen: set[str] = set()
    for view in spec.views:
        if not view.name or not view.path:
            raise InvalidRequestError(f"a view needs a name and a path, not {view.name!r} = {view.path!r}")
        _check_nul(f"view {view.name}", view.path)
        if view.format not in ("", *VIEW_FORMATS):
            raise InvalidRequestError(
                f"view {view.name}: {view.format!r} is not a format; use {', '.join(VIEW_FORMATS)}"
            )
        if view.name.lower() in seen:
            raise InvalidRequestError(f"view {view.name} is given twice")
        seen.add(view.name.lower())


def check_place(path: str, private: PrivatePaths) -> None:
    """Raise `InvalidRequestError` for an output at, in or above a *private* path; looks at the file system."""
    if (met := private.meets(path)) is not None:
        raise InvalidRequestError(
            f"{path} cannot be written: {met} is where Onager keeps files of its own; give a directory elsewhere"
        )


def _check_sink(sink: pb.Sink) -> None:
    if not sink.path.strip():
        raise InvalidRequestError("the output needs a path: give the directory to write")
    _check_nul("the output", sink.path)
    if steps_back(sink.path):
        raise InvalidRequestError(f"the output {sink.path} has '..' or '.' in it: give a path without")
    if sink.format not in SINK_FORMATS:
        raise InvalidRequestError(f"{sink.format!r} is not a format to write; use {', '.join(SINK_FORMATS)}")
    if sink.mode not in ("", *_SINK_MODES):
        raise InvalidRequestError(f"{sink.mode!r} is not a mode of writing; use {', '.join(_SINK_MODES)}")
    if sink.HasField("table") or sink.HasField("buckets") or sink.foreign:
        raise InvalidRequestError("the output says what only a table has: tables are written by SQL")


def _check_nul(what: str, path: str) -> None:
    if "\0" in path:
        raise InvalidRequestError(f"{what} has a NUL character in its path, {path!r}: no file can be called so")
