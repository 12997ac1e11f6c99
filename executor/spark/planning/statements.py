"""The statements of a SQL script: where each stands, what it would do, and what is refused.

Statements are classified by their parsed plans, never by their text.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from onager.errors import OnagerError, PlanningError, SideEffectError
from onager.exchange_layout import location_path
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.queries import Parsed, statements_of
from onager.executor.spark.planning.parameters import Parser
from onager.executor.spark.planning.statement_classes import (
    CHANGING,
    CHANGING_ROWS,
    DATA_MODIFYING,
    HARMLESS,
    IGNORED,
    LATER,
    SHOWING,
    TRUNCATING,
    WRITING,
)
from onager.job_settings import PREFIX
from onager.protocol import onager_pb2 as pb

_ADVICE = (
    "before the last statement only SET, RESET, USE, variables, statements about databases, tables, views and "
    "functions, and INSERT OVERWRITE DIRECTORY … USING are allowed; the last one must be a query, SHOW, DESCRIBE or "
    "EXPLAIN, or one of these"
)
_NOT_DONE = "is a statement that Onager does not carry out"
_DATA_ADVICE = (
    "rows of a table are not changed where they are; write them anew with INSERT OVERWRITE, or into another table with "
    "CREATE TABLE … AS"
)
_LATER_ADVICE = (
    "drop the table and make it anew in one script (DROP TABLE …; CREATE TABLE … AS SELECT …), or give a DataFrame to "
    "writeTo(…).createOrReplace()"
)
_LOAD_ADVICE = "read the files in a query, and write its rows with INSERT INTO"
_NO_CATALOG_ADVICE = (
    "these executors have the tables of a Hive metastore, which are read and not changed: before the last statement "
    "only SET, RESET, USE, temporary views, temporary functions, variables and INSERT OVERWRITE DIRECTORY … USING are "
    "allowed; the last one must be a query, SHOW, DESCRIBE or EXPLAIN, or that"
)
_RESOURCES_ADVICE = (
    "a function's jars and files are not kept: give the jar to all executors "
    "(--spark-conf spark.driver.extraClassPath=…), and leave out USING"
)
_ADDING = frozenset({"AddJarsCommand", "AddFilesCommand", "AddArchivesCommand"})
_ADDING_ADVICE = (
    "all jobs would share it: give a jar to all executors (--spark-conf spark.driver.extraClassPath=…), and read a "
    "file by its path"
)
_ANALYZE_ADVICE = (
    "EXPLAIN ANALYZE takes a query, as the last statement of a script; for anything else run the job without it, "
    "and look at its plan with onager job ID --analyze"
)
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a script, and where it starts."""

    number: int
    line: int
    column: int
    """The number of characters before it in its line."""
    text: str
    is_procedure: bool
    """Whether it starts with BEGIN; its end is then in a later statement."""
    analyzed_from: int = 0
    """Where in the text the query of EXPLAIN ANALYZE begins; 0 for any other statement."""

    def __str__(self) -> str:
        first = " ".join(self.text[: 4 * _SHOWN_CHARACTERS].split())
        short = first if len(first) <= _SHOWN_CHARACTERS else f"{first[: _SHOWN_CHARACTERS - 1]}…"
        return f"statement {self.number} (line {self.line}): {short}"

    @property
    def placed_text(self) -> str:
        """The text after enough white space that Spark's error positions refer to the whole script.

        EXPLAIN ANALYZE, which Spark does not know, becomes white space.
        """
        blank = re.sub(r"[^\n]", " ", self.text[: self.analyzed_from])
        return "\n" * (self.line - 1) + " " * self.column + blank + self.text[self.analyzed_from :]


def split(jvm: Jvm, text: str) -> list[Statement]:
    """Split a script at its semicolons with Spark's lexer, which knows quotes and comments; drop empty statements."""
    statements = []
    for number, described in enumerate(statements_of(jvm, text), start=1):
        begin, end = described.pop("begin"), described.pop("end")
        statements.append(Statement(number=number, text=text[begin:end].rstrip(), **described))
    return statements


def parse(parser: Parser, statement: Statement) -> Parsed:
    """Return the plan of *statement*, with positions in its script; Spark's own exceptions for what is no SQL."""
    if statement.is_procedure:
        raise SideEffectError(
            f"a script with control flow (BEGIN … END), {statement}",
            "submit it by itself, since it is a job of its own",
        )
    try:
        return parser(statement.placed_text)
    except Py4JJavaError as e:
        if str(e.java_exception.getClass().getName()) == "java.lang.StackOverflowError":
            raise PlanningError(f"{statement} is nested too deeply for Spark's parser: split it up") from e
        raise


class placed:  # noqa: N801  (a context manager reads as a word)
    """Adds a statement's position in its script to Spark's errors, and what a user of a shell cannot know."""

    def __init__(self, statement: Statement, *, is_alone: bool = False) -> None:
        self._statement = statement
        self._is_alone = is_alone

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and not isinstance(error, OnagerError) and not self._is_alone:
            error.add_note(f"in {self._statement}")
        if isinstance(error, PySparkException) and error.getCondition() == "UNBOUND_SQL_PARAMETER":
            error.add_note("give its value with the job: --param NAME=VALUE, or client.sql(…, params={…})")


def check_not_last(statement: Statement) -> None:
    """Raise `PlanningError` if *statement*, which others follow, is EXPLAIN ANALYZE."""
    if statement.analyzed_from:
        raise PlanningError(f"{statement} is not the last one: a job has one result, that of its last statement")


def check_no_analysis(statement: Statement) -> None:
    """Raise `PlanningError` if *statement* is EXPLAIN ANALYZE, where it can be none."""
    if statement.analyzed_from:
        raise PlanningError(f"{statement}: {_ANALYZE_ADVICE}")


def is_effect(plan: Parsed, *, has_catalog: bool) -> bool:
    """Return whether a statement writes files, and can be a step of a script."""
    return plan.directory is not None or (has_catalog and writes_table(plan))


def writes_table(plan: Parsed) -> bool:
    """Return whether a statement writes rows into a table."""
    return plan.below in WRITING


def changes_catalog(statement: Statement, plan: Parsed, made: Collection[str] = ()) -> bool:
    """Return whether *plan* changes the catalog, and nothing else; `SideEffectError` if it also brings files.

    *made*: temporary views that will be there besides those of the session.
    """
    if plan.named == "CreateFunction" and plan.has_files:
        raise SideEffectError(str(statement), _RESOURCES_ADVICE)
    if _drops_temporary_view(plan, made):
        return False
    if plan.named in {"CreateView", "AlterViewAs"}:
        check_reads_only(statement, plan)
    return plan.named in CHANGING | TRUNCATING


def gives_rows(plan: Parsed) -> bool:
    """Return whether *plan* is a query, or only shows something."""
    return _shows(plan) or not is_command(plan)


def _shows(plan: Parsed) -> bool:
    return plan.kind in SHOWING or (plan.kind == "SetCommand" and not plan.has_value)


def is_command(plan: Parsed) -> bool:
    """Return whether *plan* is anything but a query."""
    return plan.is_command or plan.kind in DATA_MODIFYING


def temporary_view(plan: Parsed) -> str:
    """Return the name of the temporary view that *plan* makes, in lower case; "" if it makes none."""
    return plan.view.lower() if plan.named in {"CreateTempViewUsing", "CreateViewCommand"} else ""


def alters_temporary_view(plan: Parsed) -> bool:
    """Return whether a statement gives a temporary view of the session another name or another query."""
    return plan.kind in {"AlterViewAs", "RenameTable"} and plan.is_view()


def _drops_temporary_view(plan: Parsed, made: Collection[str]) -> bool:
    """Return whether *plan* is DROP VIEW, or DROP TABLE, of a temporary view."""
    return plan.named in {"DropTable", "DropView"} and (plan.view.lower() in made or plan.is_view())


def check_harmless(
    statement: Statement,
    plan: Parsed,
    made: Collection[str] = (),
    *,
    has_catalog: bool = False,
    may_set: bool = False,
) -> None:
    """Raise unless *plan* changes only the session; *made*: temporary views that will be there besides those of it.

    `SideEffectError` if it changes anything else, `PlanningError` for a query, whose rows would be lost, and, unless a
    statement *may_set* them, for settings of Onager, which a job has from the beginning.
    """
    name = plan.named
    if name in HARMLESS | IGNORED:
        if name == "CreateTempViewUsing" and not plan.is_local:
            raise SideEffectError(str(statement), "all jobs share a global view; make a TEMPORARY one")
        if plan.assigned.startswith(PREFIX) and plan.has_value and not may_set:
            key = plan.assigned
            raise PlanningError(f"{statement} would have no effect: give {key} with the job (--conf {key}=…)")
        return
    if name == "CreateViewCommand" and plan.is_local:
        check_reads_only(statement, plan)
        return
    if name in {"CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand"} and plan.is_local:
        if plan.has_files:
            raise SideEffectError(str(statement), _RESOURCES_ADVICE)
        return
    if _drops_temporary_view(plan, made):
        return
    if name in SHOWING or not is_command(plan):
        check_reads_only(statement, plan)
        raise PlanningError(
            f"{statement} is a query, but not the last statement: a job has one result, that of its last statement; "
            "leave this one out, or submit it as a separate job"
        )
    advice = {
        "CacheTableAsSelect": "use CREATE TEMPORARY VIEW … AS instead; a cache is not needed",
        "DropView": "only a temporary view of this job can be dropped",
        "CreateViewCommand": "all jobs share a global view; make a TEMPORARY one",
    }
    if name in advice:
        raise SideEffectError(str(statement), advice[name])
    raise _refusal(statement, name, has_catalog=has_catalog)


def _refusal(statement: Statement, name: str, *, has_catalog: bool) -> SideEffectError:
    """Return the error for a statement of the class *name*, which changes more than the session."""
    if name in _ADDING:
        return SideEffectError(str(statement), _ADDING_ADVICE)
    if not has_catalog:
        return SideEffectError(str(statement), _NO_CATALOG_ADVICE)
    if name in CHANGING_ROWS:
        return SideEffectError(str(statement), _DATA_ADVICE, _NOT_DONE)
    if name in LATER:
        return SideEffectError(str(statement), _LATER_ADVICE, _NOT_DONE)
    if name == "LoadData":
        return SideEffectError(str(statement), _LOAD_ADVICE, _NOT_DONE)
    return SideEffectError(str(statement), _ADVICE)


def last_query(statement: Statement, plan: Parsed, *, has_catalog: bool) -> pb.Sink | None:
    """Check the last statement, of which `Parsed.rows` is the query; return its sink, INSERT OVERWRITE DIRECTORY's."""
    if not has_catalog and writes_table(plan):
        raise SideEffectError(str(statement), _NO_CATALOG_ADVICE)
    _check_modifies_nothing(statement, plan.query_modifies)
    if plan.directory is not None:
        return _directory_sink(statement, plan.directory)
    if not gives_rows(plan):
        if plan.kind in HARMLESS | IGNORED or plan.kind in {"CreateViewCommand", "CreateTempViewUsing"}:
            raise PlanningError(f"{statement} is the last statement, but it gives no rows: end the script with a query")
        raise _refusal(statement, plan.kind, has_catalog=has_catalog)
    return None


def check_reads_only(statement: Statement, plan: Parsed) -> None:
    """Raise `SideEffectError` if *plan* contains a statement that changes data, such as part of a multi-insert."""
    _check_modifies_nothing(statement, plan.modifies)


def _check_modifies_nothing(statement: Statement, modifies: str) -> None:
    if modifies:
        raise _refusal(statement, modifies, has_catalog=True)


def _directory_sink(statement: Statement, directory: Mapping[str, Any]) -> pb.Sink:
    file_format = directory["format"].lower()
    if file_format in {"", "hive"}:
        raise SideEffectError(
            str(statement), "use USING parquet, csv, json, orc, text or xml instead of STORED AS or ROW FORMAT"
        )
    if not directory["location"]:
        raise PlanningError(f"{statement} names no directory")
    return pb.Sink(
        path=location_path(directory["location"]), format=file_format, mode="overwrite", options=directory["options"]
    )
