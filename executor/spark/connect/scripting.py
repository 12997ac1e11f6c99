"""Statements of scripts of SQL (BEGIN … END): where the script is comes with each of their requests.

An extension of the request's user context says it, as JSON: ``frames`` (the script, and handlers that run, with what
was declared in their blocks), and what is asked (``ask``) of a text that is no statement by itself.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from onager.errors import InvalidRequestError
from onager.executor.spark.connect.sessions import ConnectSession
from onager.executor.spark.kernel.scripts import JavaScripts
from onager.protocol.spark_connect import ExecutePlanResponse, Relation

TYPE_URL: Final = "type.googleapis.com/onager.ScriptStatement"
"""The type of the extension."""
PARSE: Final = "parse"
CHANGE: Final = "change"
OPEN: Final = "open"
IMMEDIATE: Final = "immediate"
_ASKS: Final = ("", PARSE, CHANGE, OPEN, IMMEDIATE)


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """What the extension of a request says."""

    ask: str
    frames: list[Any]


def script_statement(request: Any) -> ScriptStatement | None:
    """Return what the statement of a script says of its place; None for any other request."""
    for extension in request.user_context.extensions:
        if extension.type_url == TYPE_URL:
            try:
                said = json.loads(extension.value)
                statement = ScriptStatement(str(said["ask"]), list(said["frames"]))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidRequestError(f"the place of a statement in its script cannot be read: {error}") from error
            if statement.ask not in _ASKS:
                raise InvalidRequestError(f"{statement.ask!r} is asked of a script, which is of a newer version")
            return statement
    return None


def asked_of(request: Any) -> str:
    """Return what is asked of the text of a request; "": it is a statement by itself."""
    statement = script_statement(request)
    return "" if statement is None else statement.ask


@contextmanager
def in_script(request: Any, spark: SparkSession) -> Iterator[ScriptStatement | None]:
    """Have *spark* be where the script of a request is, within the context; yield what the request says of that."""
    statement = script_statement(request)
    with JavaScripts(spark).within(statement.frames) if statement and statement.frames else nullcontext():
        yield statement


def _row_of(values: Iterable[bytes]) -> bytes:
    """Return the relation of one row whose columns are encoded expressions."""
    row = Relation()
    row.project.input = Relation(sql={"query": "SELECT 1"}).SerializeToString()
    row.project.expressions.extend(values)
    return bytes(row.SerializeToString())


def answered(ask: str, relation: bytes, text: str, session: ConnectSession) -> bytes:
    """Return the response to what is asked of *text*, that of a *relation*: JSON of `ScriptTree` and `ScriptScope`."""
    scripts = JavaScripts(session.spark)
    match ask:
        case _ if ask == PARSE:
            given = Relation.FromString(relation).sql.named_arguments
            answer = scripts.parse(text, list(given), session.connect.plan(_row_of(given.values())) if given else None)
        case _ if ask == CHANGE:
            answer = scripts.change(text)
        case _ if ask == OPEN:
            answer = scripts.open(text)
        case _:
            answer = scripts.immediate(text)
    extension = Relation()
    extension.extension.type_url = TYPE_URL
    extension.extension.value = zlib.compress(answer.encode())  # a tree is many times as long as its script
    response = ExecutePlanResponse()
    response.sql_command_result.relation = extension.SerializeToString()
    return bytes(response.SerializeToString())
