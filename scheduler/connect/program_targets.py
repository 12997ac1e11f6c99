"""What a call of a program is, does and writes to: by this a replayed call is held against the recorded one.

Plans are not compared: they hold ids, seeds, paths and timestamps that may differ from one attempt to the next.
"""

import json
import re
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from google.protobuf.message import DecodeError

from onager.protocol.spark_connect import Relation
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.plans import checked

ONCE: Final = "onager.once:"
"""The beginning of the key of `Config` by which the outcome of a function is asked for, or set; its name follows."""
_ONEOFS: Final = {"AnalyzePlan": "analyze", "Interrupt": "interrupt"}
_COMMENT: Final = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_NAME: Final = r"(?:`[^`]*`|[\w$-]+)(?:\s*\.\s*(?:`[^`]*`|[\w$-]+))*"
_WRITES: Final = re.compile(
    rf"""\s*(?P<verb>
        insert\s+(?:into|overwrite)(?:\s+table)? | merge\s+into | delete\s+from | update | truncate\s+table
        | (?:create(?:\s+or\s+replace)?|replace|drop|alter)
          (?:\s+(?:external|temporary|temp|global))*\s+(?:table|view|database|schema|function)
    )(?:\s+if\s+(?:not\s+)?exists)?\s+(?P<name>{_NAME})""",
    re.IGNORECASE | re.VERBOSE,
)
_DIRECTORY: Final = re.compile(
    r"\s*insert\s+overwrite\s+(?:local\s+)?directory\s+(?P<name>'[^']*'|\"[^\"]*\")", re.IGNORECASE
)
_READING: Final = re.compile(r"[\s(]*(select|show|describe|desc|explain|values|table|list)\b", re.IGNORECASE)
_PERHAPS_READING: Final = re.compile(r"[\s(]*(with|from|declare|set\s+(var|variable))\b", re.IGNORECASE)
_WRITING: Final = re.compile(r"\b(insert|merge|update|delete)\b", re.IGNORECASE)
_TEXTS: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", re.DOTALL)
_SETTING: Final = re.compile(
    r"""\s*(?:set|reset|use|cache|uncache|clear\s+cache|refresh|add|(?:create(?:\s+or\s+replace)?|drop)
    (?:\s+global)?\s+temp(?:orary)?)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_READING_KINDS: Final = ("relation", "checkpoint_command", "get_resources_command", "ml_command")
_SETTING_COMMANDS: Final = (
    "create_dataframe_view",
    "register_function",
    "register_table_function",
    "register_data_source",
    "remove_cached_remote_relation_command",
)
_SETTING_CATALOG: Final = (
    "set_current_database",
    "set_current_catalog",
    "drop_temp_view",
    "drop_global_temp_view",
    "cache_table",
    "uncache_table",
    "clear_cache",
    "refresh_table",
    "refresh_by_path",
)
_WRITING_CATALOG: Final = ("create_", "drop_", "recover_", "truncate_", "analyze_")
_OF_SCRIPT: Final = "type.googleapis.com/onager.ScriptStatement"
_PARSE: Final = "parse"
"""Asks for the tree of a script: that is made again, since a mended script is another text."""
_QUOTES: Final = re.compile(r"[`\s]")
_TARGET_CHARS: Final = 512
_STATEMENT_CHARS: Final = 240


class Effect(StrEnum):
    """What a call does."""

    READ = "read"
    SETTING = "setting"
    """It changes its session, and nothing else."""
    WRITE = "write"
    """It changes something outside of its session; or it is not known that it does not."""


def once_of(request: Any) -> str:
    """Return the key of the function whose outcome a request asks for, or sets; "" for any other request."""
    if request.DESCRIPTOR.name != "ConfigRequest":
        return ""
    operation = request.operation
    keys = [*operation.get_option.keys, *(pair.key for pair in operation.set.pairs)]
    return str(keys[0]) if len(keys) == 1 and keys[0].startswith(ONCE) else ""


def kind_of(method: str, request: Any) -> str:
    """Return what kind of call a request of *method* is."""
    if once_of(request):
        return "once"
    if method == "ExecutePlan":
        try:
            return f"{method} {checked(request)}"
        except ConnectError:
            return f"{method} refused"
    if method == "Config":
        return f"{method} {request.operation.WhichOneof('op_type') or ''}"
    oneof = _ONEOFS.get(method)
    return method if oneof is None else f"{method} {request.WhichOneof(oneof) or ''}".strip()


def target_of(request: Any) -> str:
    """Return what a request writes to, makes or calls; "" for one that does not, or of which that is not known."""
    if key := once_of(request):
        return key.removeprefix(ONCE)[:_TARGET_CHARS]
    if request.DESCRIPTOR.name != "ExecutePlanRequest" or request.plan.WhichOneof("op_type") != "command":
        return ""
    command = request.plan.command
    match command.WhichOneof("command_type"):
        case "write_operation":
            write = command.write_operation
            name = write.path or write.table.table_name
        case "write_operation_v2":
            name = command.write_operation_v2.table_name
        case "create_dataframe_view":
            name = command.create_dataframe_view.name
        case "register_function":
            name = command.register_function.function_name
        case "sql_command":
            name = _of_statement(_text(command.sql_command))
        case _:
            name = ""
    return str(name)[:_TARGET_CHARS]


def effect_of(method: str, request: Any) -> Effect:
    """Return what a request of *method* does."""
    match method:
        case "Config":
            if once_of(request):
                return Effect.WRITE
            return Effect.SETTING if request.operation.WhichOneof("op_type") in ("set", "unset") else Effect.READ
        case "AddArtifacts":
            return Effect.SETTING
        case "AnalyzePlan":
            return Effect.SETTING if request.WhichOneof("analyze") in ("persist", "unpersist") else Effect.READ
        case "ExecutePlan":
            return _effect_of_plan(request)
        case _:
            return Effect.READ


def _effect_of_plan(request: Any) -> Effect:
    try:
        kind = checked(request)
    except ConnectError:
        return Effect.READ  # it is refused
    if kind == "catalog":
        return _effect_of_catalog(str(Relation.FromString(request.plan.root).catalog.WhichOneof("cat_type")))
    if kind == "sql_command":
        if asked := _script_asks(request):
            return Effect.SETTING if asked == _PARSE else Effect.READ
        return effect_of_statement(_text(request.plan.command.sql_command))
    if kind in _READING_KINDS:
        return Effect.READ
    return Effect.SETTING if kind in _SETTING_COMMANDS else Effect.WRITE


def _script_asks(request: Any) -> str:
    """Return what a script of SQL asks of the text in a request; "" for a statement."""
    for extension in request.user_context.extensions:
        if extension.type_url == _OF_SCRIPT:
            with suppress(ValueError, AttributeError):
                return str(json.loads(extension.value).get("ask", ""))
    return ""


def _effect_of_catalog(asked: str) -> Effect:
    if asked in _SETTING_CATALOG:
        return Effect.SETTING
    return Effect.WRITE if asked.startswith(_WRITING_CATALOG) else Effect.READ


def effect_of_statement(text: str) -> Effect:
    """Return what a statement of SQL does; the value of a variable is something that is read."""
    plain = _TEXTS.sub("''", _COMMENT.sub(" ", text))
    if _READING.match(plain) or (_PERHAPS_READING.match(plain) and not _WRITING.search(plain)):
        return Effect.READ
    return Effect.SETTING if _SETTING.match(plain) else Effect.WRITE


def statement_of(request: Any) -> str:
    """Return the beginning of the statement of SQL that a request is; "" for any other request."""
    if request.DESCRIPTOR.name != "ExecutePlanRequest" or request.plan.WhichOneof("op_type") != "command":
        return ""
    if request.plan.command.WhichOneof("command_type") != "sql_command":
        return ""
    text = " ".join(_text(request.plan.command.sql_command).split())
    return text if len(text) <= _STATEMENT_CHARS else f"{text[:_STATEMENT_CHARS]}…"


def _text(command: Any) -> str:
    if not command.input:
        return str(command.sql)
    try:
        relation = Relation.FromString(command.input)
        if relation.WhichOneof("rel_type") == "with_relations":
            relation = Relation.FromString(relation.with_relations.root)
    except DecodeError:
        return ""
    return str(relation.sql.query)


def _of_statement(text: str) -> str:
    plain = _COMMENT.sub(" ", text)
    found = _DIRECTORY.match(plain)
    if found is not None:
        return f"directory {found['name'][1:-1]}"
    found = _WRITES.match(plain)
    if found is None:
        return ""
    verb = " ".join(found["verb"].split()).lower().replace(" table", "")
    return f"{verb} {_QUOTES.sub('', found['name']).lower()}"
