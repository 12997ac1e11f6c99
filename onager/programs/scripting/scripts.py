"""Runs a script of SQL in a session of Spark Connect."""

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import ArrayType, DayTimeIntervalType, MapType, StructField, StructType

from onager.programs.scripting.arguments import check_size
from onager.programs.scripting.calls import ConnectCalls
from onager.programs.scripting.errors import ScriptError
from onager.programs.scripting.interpreter import Answer, Ask, Interpreter
from onager.programs.scripting.scopes import Rows
from onager.programs.scripting.tree import body_of
from onager.programs.scripting.values import ArrowRows

MAX_ASKS = 99_000
"""Statements and conditions that a script may come to: a program makes at most 100,000 calls."""


class Calls(Protocol):
    """Carries out what a script asks for."""

    def parse(self, text: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tree of a script; ``{}`` if *text* is something else."""
        ...

    def answer(self, ask: Ask) -> Answer:
        """Return the answer; raises `ScriptError`."""
        ...


def run_script(spark: SparkSession, text: str, args: Mapping[str, Any] | None = None) -> DataFrame:
    """Run the script *text*, with the values *args* for its ``:names``; return what its last query gave.

    Raises the error of PySpark that ended it, with a note that names the line; `ScriptError` for one of a script.
    """
    return frame_of(spark, carry_out(ConnectCalls(spark), text, args or {}))


def frame_of(spark: SparkSession, rows: Rows | None) -> DataFrame:
    """Return what a script gave as a DataFrame: without columns if it had no query."""
    if not isinstance(rows, ArrowRows):
        return spark.createDataFrame([], "struct<>")
    return spark.createDataFrame(rows.table, _of_client(rows.schema))


def _of_client(kind: Any) -> Any:
    """Return the type *kind* as Spark takes it from a client: Arrow's intervals of days have all fields."""
    match kind:
        case DayTimeIntervalType():
            return DayTimeIntervalType()
        case ArrayType():
            return ArrayType(_of_client(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(_of_client(kind.keyType), _of_client(kind.valueType), kind.valueContainsNull)
        case StructType():
            return StructType([StructField(f.name, _of_client(f.dataType), f.nullable, f.metadata) for f in kind])
        case _:
            return kind


def carry_out(calls: Calls, text: str, args: Mapping[str, Any], *, max_asks: int = MAX_ASKS) -> Rows | None:
    """Run the script *text* by *calls*; return the rows of its last query, None if it had none.

    Errors are those of `run_script`, and `ValueError` for a script that is too long.
    """
    check_size(text)
    tree = calls.parse(text, args)
    if not tree:
        raise ScriptError("this is no script, which begins with BEGIN and ends with END: give it to `onager submit`")
    return walk(calls, tree, max_asks=max_asks)


def walk(calls: Calls, tree: Mapping[str, Any], *, max_asks: int = MAX_ASKS) -> Rows | None:
    """Run the script that was parsed as *tree*, as `carry_out` does."""
    interpreter = Interpreter(body_of(tree["body"]), is_case_sensitive=tree["is_case_sensitive"], max_asks=max_asks)
    steps = interpreter.run()
    try:
        ask = next(steps)
        while True:
            try:
                answer = calls.answer(ask)
            except ScriptError as error:
                ask = steps.throw(error)
            else:
                ask = steps.send(answer)
    except StopIteration:
        return interpreter.result
    except ScriptError as error:
        if error.__cause__ is None:
            raise
        error.__cause__.add_note(f"in line {error.line} of the script")
        raise error.__cause__ from None
