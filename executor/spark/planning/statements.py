"""The statements of a SQL script: where each stands, what it would do, and what is refused.

Statements are classified by their parsed plans, never by their text.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.errors import OnagerError, PlanningError, SideEffectError
from onager.exchange_layout import location_path
from onager.executor.spark.jvm import Jvm, jvm_session, kind
from onager.executor.spark.kernel.queries import QueryTools
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
    statements: list[Statement] = []
    for described in QueryTools(jvm).statements(text):
        begin, end, line, column, kind_of = described.split()
        piece = text[int(begin) : int(end)].rstrip()
        is_analyze, _, words_end = kind_of.partition(":")
        statements.append(
            Statement(
                number=len(statements) + 1,
                line=int(line),
                column=int(column),
                text=piece,
                is_procedure=kind_of == "procedure",
                analyzed_from=int(words_end) - int(begin) if is_analyze == "analyze" else 0,
            )
        )
    return statements


def parse(parser: Parser, statement: Statement) -> Any:
    """Return the plan of *statement*, with positions in its script; Spark's own exceptions for what is no SQL."""
    if statement.is_procedure:
        raise SideEffectError(
            f"a procedure (BEGIN … END), {statement}", "write it as a Python function, or as plain statements"
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


def is_effect(plan: Any, *, has_catalog: bool) -> bool:
    """Return whether a statement writes files, and can be a step of a program."""
    return _kind_below_with(plan) == "InsertIntoDir" or (has_catalog and writes_table(plan))


def writes_table(plan: Any) -> bool:
    """Return whether a statement writes rows into a table."""
    return _kind_below_with(plan) in WRITING


def _kind_below_with(plan: Any) -> str:
    name = kind(plan)
    return kind(plan.child()) if name == "UnresolvedWith" else name


def changes_catalog(
    session: SparkSession, jvm: Jvm, statement: Statement, plan: Any, made: Collection[str] = ()
) -> bool:
    """Return whether *plan* changes the catalog, and nothing else; `SideEffectError` if it also brings files.

    *made*: temporary views that will be there besides those of *session*.
    """
    plan = QueryTools(jvm).named(plan)
    name = kind(plan).removesuffix("$")
    if name == "CreateFunction" and plan.resources().size():
        raise SideEffectError(str(statement), _RESOURCES_ADVICE)
    if _drops_temporary_view(session, jvm, plan, made):
        return False
    if name in {"CreateView", "AlterViewAs"}:
        check_reads_only(jvm, statement, plan)
    return name in CHANGING | TRUNCATING


def gives_rows(jvm: Jvm, plan: Any) -> bool:
    """Return whether *plan* is a query, or only shows something."""
    name = kind(plan)
    return name in SHOWING or (name == "SetCommand" and not _assigned(plan)[1]) or not is_command(jvm, plan)


def is_command(jvm: Jvm, plan: Any) -> bool:
    """Return whether *plan* is anything but a query."""
    return QueryTools(jvm).is_command(plan) or kind(plan) in DATA_MODIFYING


def temporary_view(jvm: Jvm, plan: Any) -> str:
    """Return the name of the temporary view that *plan* makes, in lower case; "" if it makes none."""
    plan = QueryTools(jvm).named(plan)
    if kind(plan) == "CreateTempViewUsing":
        return str(plan.tableIdent().table()).lower()
    if kind(plan) == "CreateViewCommand":
        return str(plan.name().table()).lower()
    return ""


def alters_temporary_view(session: SparkSession, jvm: Jvm, plan: Any) -> bool:
    """Return whether a parsed statement gives a temporary view of *session* another name or another query."""
    if kind(plan) not in {"AlterViewAs", "RenameTable"} or kind(plan.child()).startswith("Plan"):
        return False  # or its name is IDENTIFIER(…)
    name = jvm.items(plan.child().multipartIdentifier())
    return len(name) == 1 and _is_temporary_view(session, str(name[0]), ())


def _drops_temporary_view(session: SparkSession, jvm: Jvm, plan: Any, made: Collection[str]) -> bool:
    """Return whether *plan* is DROP VIEW, or DROP TABLE, of a temporary view."""
    return kind(plan) in {"DropTable", "DropView"} and _is_temporary_view(session, _dropped_name(jvm, plan), made)


def _is_temporary_view(session: SparkSession, name: str, made: Collection[str]) -> bool:
    if not name:
        return False
    return name.lower() in made or bool(jvm_session(session).sessionState().catalog().getTempView(name).isDefined())


def check_harmless(
    session: SparkSession,
    jvm: Jvm,
    statement: Statement,
    plan: Any,
    made: Collection[str] = (),
    *,
    has_catalog: bool = False,
    may_set: bool = False,
) -> None:
    """Raise unless *plan* changes only the session; *made*: temporary views that will be there besides those of it.

    `SideEffectError` if it changes anything else, `PlanningError` for a query, whose rows would be lost, and, unless a
    statement *may_set* them, for settings of Onager, which a job has from the beginning.
    """
    plan = QueryTools(jvm).named(plan)
    name = kind(plan).removesuffix("$")
    if name in HARMLESS | IGNORED:
        if name == "CreateTempViewUsing" and getattr(plan, "global")():
            raise SideEffectError(str(statement), "all jobs share a global view; make a TEMPORARY one")
        if name == "SetCommand" and not may_set:
            _check_setting(statement, plan)
        return
    if name == "CreateViewCommand" and kind(plan.viewType()).removesuffix("$") == "LocalTempView":
        check_reads_only(jvm, statement, plan.plan())
        return
    if name in {"CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand"} and plan.isTemp():
        if name == "CreateFunctionCommand" and plan.resources().size():
            raise SideEffectError(str(statement), _RESOURCES_ADVICE)
        return
    if _drops_temporary_view(session, jvm, plan, made):
        return
    if name in SHOWING or not is_command(jvm, plan):
        check_reads_only(jvm, statement, plan)
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


def _check_setting(statement: Statement, plan: Any) -> None:
    """Raise `PlanningError` for a setting of Onager, which is read from the job before its script runs."""
    key, value = _assigned(plan)
    if key.startswith(PREFIX) and value:
        raise PlanningError(f"{statement} would have no effect: give {key} with the job (--conf {key}=…)")


def _assigned(plan: Any) -> tuple[str, bool]:
    """Return the key of a SetCommand, or "", and whether the command has a value."""
    if not plan.kv().isDefined():
        return "", False
    pair = plan.kv().get()
    return str(pair._1()), bool(pair._2().isDefined())  # noqa: SLF001  (the names of a Scala tuple)


def _dropped_name(jvm: Jvm, drop: Any) -> str:
    """Return the name in a DROP VIEW or DROP TABLE, or "" if it is not a plain name."""
    if kind(drop.child()) != "UnresolvedIdentifier":
        return ""  # IDENTIFIER(…)
    parts = jvm.items(drop.child().nameParts())
    return str(parts[0]) if len(parts) == 1 else ""


def last_query(jvm: Jvm, statement: Statement, plan: Any, *, has_catalog: bool) -> tuple[Any, pb.Sink | None]:
    """Return the query of the last statement, and its sink if it is INSERT OVERWRITE DIRECTORY."""
    name = kind(plan)
    if name == "InsertIntoDir":
        check_reads_only(jvm, statement, plan.child())
        return plan.child(), _directory_sink(jvm, statement, plan)
    if name == "UnresolvedWith" and kind(plan.child()) == "InsertIntoDir":
        insert = plan.child()
        query = plan.withNewChildren(jvm.seq([insert.child()]))
        check_reads_only(jvm, statement, query)
        return query, _directory_sink(jvm, statement, insert)
    if not has_catalog and writes_table(plan):
        raise SideEffectError(str(statement), _NO_CATALOG_ADVICE)
    check_reads_only(jvm, statement, plan)
    if name in SHOWING or (name == "SetCommand" and not _assigned(plan)[1]):
        return plan, None
    if is_command(jvm, plan):
        if name in HARMLESS | IGNORED or name in {"CreateViewCommand", "CreateTempViewUsing"}:
            raise PlanningError(f"{statement} is the last statement, but it gives no rows: end the script with a query")
        raise _refusal(statement, name, has_catalog=has_catalog)
    return plan, None


def check_reads_only(jvm: Jvm, statement: Statement, plan: Any) -> None:
    """Raise `SideEffectError` if *plan* contains a statement that changes data, such as part of a multi-insert."""
    if found := QueryTools(jvm).first_of(plan, DATA_MODIFYING):
        raise _refusal(statement, found, has_catalog=True)


def _directory_sink(jvm: Jvm, statement: Statement, insert: Any) -> pb.Sink:
    provider = insert.provider()
    if not provider.isDefined() or str(provider.get()).lower() == "hive":
        raise SideEffectError(
            str(statement), "use USING parquet, csv, json, orc, text or xml instead of STORED AS or ROW FORMAT"
        )
    storage = insert.storage()
    location = storage.locationUri()
    if not location.isDefined():
        raise PlanningError(f"{statement} names no directory")
    return pb.Sink(
        path=location_path(str(location.get().toString())),
        format=str(provider.get()).lower(),
        mode="overwrite",
        options={entry._1(): entry._2() for entry in jvm.items(storage.properties().toSeq())},  # noqa: SLF001
    )
