"""SQL scripts: statements that set up the job's session, and a last statement, the job's query.

A script with several effects is a program (`script_steps`): one that writes datasets, one after the other.

A job can be planned more than once, and on any executor, so no statement may change anything but the job's session.
Statements are classified by their parsed plans, never by their text.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from onager.errors import OnagerError, PlanningError, SideEffectError
from onager.executor.spark.jvm import Jvm, kind
from onager.executor.spark.kernel import QueryTools, jvm_session
from onager.executor.spark.planning.parameters import Parser, parser_with
from onager.executor.spark.planning.script_steps import ScriptStep, ScriptSteps, check_statements
from onager.job_settings import PREFIX
from onager.protocol import onager_pb2 as pb

HARMLESS = frozenset(
    {
        "SetCommand",
        "ResetCommand",
        "SetNamespaceCommand",
        "SetCatalogAndNamespace",
        "CreateTempViewUsing",
        "CreateVariable",
        "SetVariable",
        "DropVariable",
        "RefreshTable",
        "RefreshResource",
    }
)
"""Commands that change only the job's own session."""

SHOWING = frozenset(
    {
        "DescribeColumn",
        "DescribeFunction",
        "DescribeNamespace",
        "DescribeProcedureCommand",
        "DescribeQueryCommand",
        "DescribeRelation",
        "DescribeRelationJsonCommand",
        "DescribeTablePartition",
        "ExplainCommand",
        "ListArchivesCommand",
        "ListFilesCommand",
        "ListJarsCommand",
        "ShowCatalogsCommand",
        "ShowCollationsCommand",
        "ShowColumns",
        "ShowCreateTable",
        "ShowCurrentNamespaceCommand",
        "ShowFunctions",
        "ShowNamespacesCommand",
        "ShowPartitions",
        "ShowProceduresCommand",
        "ShowTablePartition",
        "ShowTableProperties",
        "ShowTables",
        "ShowTablesExtended",
        "ShowViews",
    }
)
"""Commands that only read, and return rows like a query."""

IGNORED = frozenset({"CacheTable", "UncacheTable", "ClearCacheCommand"})
"""Commands that only affect speed. They are ignored, since all jobs of a process share Spark's cache."""

DATA_MODIFYING = frozenset(
    {
        "InsertIntoStatement",
        "InsertIntoDir",
        "UpdateTable",
        "DeleteFromTable",
        "MergeIntoTable",
        "OverwriteByExpression",
        "UnresolvedInsert",
        "UnresolvedExecuteImmediate",
    }
)
"""Plans that change data but are not commands to Spark; EXECUTE IMMEDIATE may run any statement."""
LOOKED_UP = (
    HARMLESS
    | SHOWING
    | IGNORED
    | DATA_MODIFYING
    | {
        *("CreateViewCommand", "CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand", "DropView"),
        *("CacheTableAsSelect", "UnresolvedIdentifier", "UnresolvedWith"),
    }
)
"""The classes of Spark that this module recognises by name."""
ADVICE = (
    "before the last statement only SET, RESET, USE, temporary views, temporary functions, variables and "
    "INSERT OVERWRITE DIRECTORY … USING are allowed; the last one must be a query, SHOW, DESCRIBE or EXPLAIN, or that"
)
ANALYZE_ADVICE = (
    "EXPLAIN ANALYZE takes a query, as the last statement of a script; for anything else run the job without it, "
    "and look at its plan with onager job ID --analyze"
)
SHOWN_CHARACTERS = 80


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
        first = " ".join(self.text[: 4 * SHOWN_CHARACTERS].split())
        short = first if len(first) <= SHOWN_CHARACTERS else f"{first[: SHOWN_CHARACTERS - 1]}…"
        return f"statement {self.number} (line {self.line}): {short}"

    @property
    def placed_text(self) -> str:
        """The text after enough white space that Spark's error positions refer to the whole script.

        EXPLAIN ANALYZE, which Spark does not know, becomes white space.
        """
        blank = re.sub(r"[^\n]", " ", self.text[: self.analyzed_from])
        return "\n" * (self.line - 1) + " " * self.column + blank + self.text[self.analyzed_from :]


@dataclass(frozen=True, slots=True)
class PlannedScript:
    """The query of a script, and the sink if the script names one."""

    frame: DataFrame
    sink: pb.Sink | None
    is_analyzed: bool = False
    """Whether it was asked for with EXPLAIN ANALYZE."""


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


def plan_script(
    session: SparkSession,
    text: str,
    *,
    only: Collection[int] = (),
    parameters: Sequence[pb.SqlParameter] = (),
    may_step: bool = False,
) -> PlannedScript | ScriptSteps:
    """Run the statements of *text* in *session* in order, and return the last one as a query that has not run.

    Of the statements, *only* those with these numbers count, if any are given. A script with an effect before its last
    statement becomes steps, if it *may_step*; then its statements from the first effect on do not run here, but for
    settings, which the parser reads. *parameters* are bound to their places in all statements.

    Each statement is parsed after those before it have run, since Spark's parser reads settings and variables. Raises
    `SideEffectError` for a statement that would change anything but the session, before it runs. Spark's errors are
    raised unchanged, with a note that gives the statement's position in the script.
    """
    jvm = Jvm.of(session)
    statements = split(jvm, text)
    if not statements:
        raise PlanningError("the script has no statement: give a query")
    if only:
        statements = _those(statements, only)
    parser = parser_with(session, jvm, parameters, statements=len(statements))
    *before, last = statements
    for number, statement in enumerate(before):
        _check_not_analyzed(statement)
        with _placed(statement):
            plan = _parse(parser, statement)
        if may_step and is_effect(plan):
            return _steps(session, jvm, parser, statements, number)
        _check_harmless(session, jvm, statement, plan)
        if kind(plan).removesuffix("$") not in IGNORED:
            with _placed(statement):
                _rows(session, jvm, plan)
    with _placed(last, is_alone=not before):
        plan = _parse(parser, last)
    query, sink = _last(jvm, last, plan)
    if last.analyzed_from and (sink is not None or _is_command(jvm, plan)):
        raise PlanningError(f"{last}: {ANALYZE_ADVICE}")
    with _placed(last, is_alone=not before):
        return PlannedScript(DataFrame(_rows(session, jvm, query), session), sink, bool(last.analyzed_from))


def _those(statements: Sequence[Statement], numbers: Collection[int]) -> list[Statement]:
    found = [statement for statement in statements if statement.number in numbers]
    if len(found) != len(set(numbers)):
        raise PlanningError(f"the script has {len(statements)} statements, and of others than these some are to be run")
    return found


def _check_not_analyzed(statement: Statement) -> None:
    if statement.analyzed_from:
        raise PlanningError(f"{statement} is not the last one: a job has one result, that of its last statement")


def is_effect(plan: Any) -> bool:
    """Return whether a statement changes something outside of the session, and can be a step of a program."""
    name = kind(plan)
    return name == "InsertIntoDir" or (name == "UnresolvedWith" and kind(plan.child()) == "InsertIntoDir")


def _steps(session: SparkSession, jvm: Jvm, parser: Parser, statements: Sequence[Statement], first: int) -> ScriptSteps:
    """Return the steps of a script whose first effect is that of the statement at *first*.

    Whatever would be refused later is refused now, before anything has an effect.
    """
    check_statements(len(statements))
    replayed = [statement.number for statement in statements[:first]]
    steps: list[ScriptStep] = []
    for statement in statements[first:]:
        is_last = statement is statements[-1]
        if not is_last:
            _check_not_analyzed(statement)
        with _placed(statement):
            plan = _parse(parser, statement)
        has_effect = is_effect(plan)
        if has_effect or (is_last and _gives_rows(jvm, plan)):
            _last(jvm, statement, plan)
            steps.append(
                ScriptStep(
                    name=f"statement {statement.number}, line {statement.line}",
                    text=statement.text,
                    statements=(*replayed, statement.number),
                    is_query=not has_effect,
                )
            )
            continue
        _check_harmless(session, jvm, statement, plan, is_replayed=True)
        replayed.append(statement.number)
        if kind(plan) in {"SetCommand", "ResetCommand"}:
            with _placed(statement):
                _rows(session, jvm, plan)
    return ScriptSteps(steps)


def _gives_rows(jvm: Jvm, plan: Any) -> bool:
    name = kind(plan)
    return name in SHOWING or (name == "SetCommand" and not _assigned(plan)[1]) or not _is_command(jvm, plan)


def refuse_commands(session: SparkSession, text: str) -> None:
    """Raise `SideEffectError` if *text*, which a job's function gives to ``spark.sql``, would change something."""
    jvm = Jvm.of(session)
    parser = parser_with(session, jvm)
    for statement in split(jvm, text):
        if statement.analyzed_from:
            raise PlanningError(f"{statement}: {ANALYZE_ADVICE}")
        plan = _parse(parser, statement)
        if _is_command(jvm, plan) and kind(plan) not in SHOWING:
            _check_harmless(session, jvm, statement, plan)
        _check_reads_only(jvm, statement, plan)


def _rows(session: SparkSession, jvm: Jvm, plan: Any) -> Any:
    return jvm.java_class("org.apache.spark.sql.classic.Dataset").ofRows(jvm_session(session), plan)


def _parse(parser: Parser, statement: Statement) -> Any:
    if statement.is_procedure:
        raise SideEffectError(
            f"a procedure (BEGIN … END), {statement}", "write it as a Python function, or as plain statements"
        )
    try:
        return parser(statement.placed_text)
    except Py4JJavaError as e:
        if "StackOverflowError" in str(e):
            raise PlanningError(f"{statement} is nested too deeply for Spark's parser: split it up") from e
        raise


class _placed:  # noqa: N801  (a context manager reads as a word)
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


def _is_command(jvm: Jvm, plan: Any) -> bool:
    return QueryTools(jvm).is_command(plan) or kind(plan) in DATA_MODIFYING


def _is_temporary_view(session: SparkSession, name: str) -> bool:
    return bool(name) and bool(jvm_session(session).sessionState().catalog().getTempView(name).isDefined())


def _check_harmless(
    session: SparkSession, jvm: Jvm, statement: Statement, plan: Any, *, is_replayed: bool = False
) -> None:
    """Raise unless *plan* changes only the session; *is_replayed*: statements before it have not run in this one.

    `SideEffectError` if it changes anything else, `PlanningError` for a query, whose rows would be lost.
    """
    plan = QueryTools(jvm).named(plan)
    name = kind(plan).removesuffix("$")
    if name in HARMLESS | IGNORED:
        if name == "CreateTempViewUsing" and getattr(plan, "global")():
            raise SideEffectError(str(statement), "all jobs share a global view; make a TEMPORARY one")
        if name == "SetCommand":
            _check_setting(statement, plan)
        return
    if name == "CreateViewCommand" and kind(plan.viewType()).removesuffix("$") == "LocalTempView":
        _check_reads_only(jvm, statement, plan.plan())
        return
    if name in {"CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand"} and plan.isTemp():
        return
    if name == "DropView" and (is_replayed or _is_temporary_view(session, _dropped_name(jvm, plan))):
        return
    if name in SHOWING or not _is_command(jvm, plan):
        _check_reads_only(jvm, statement, plan)
        raise PlanningError(
            f"{statement} is a query, but not the last statement: a job has one result, that of its last statement; "
            "leave this one out, or submit it as a separate job"
        )
    advice = {
        "CacheTableAsSelect": "use CREATE TEMPORARY VIEW … AS instead; a cache is not needed",
        "DropView": "only a temporary view of this job can be dropped",
        "CreateViewCommand": "all jobs share a global view; make a TEMPORARY one",
    }
    raise SideEffectError(str(statement), advice.get(name, ADVICE))


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
    """Return the name in a DROP VIEW, or "" if it is not a plain name."""
    if kind(drop.child()) != "UnresolvedIdentifier":
        return ""  # IDENTIFIER(…)
    parts = jvm.items(drop.child().nameParts())
    return str(parts[0]) if len(parts) == 1 else ""


def _last(jvm: Jvm, statement: Statement, plan: Any) -> tuple[Any, pb.Sink | None]:
    """Return the query of the last statement, and its sink if it is INSERT OVERWRITE DIRECTORY."""
    name = kind(plan)
    if name == "InsertIntoDir":
        _check_reads_only(jvm, statement, plan.child())
        return plan.child(), _directory_sink(jvm, statement, plan)
    if name == "UnresolvedWith" and kind(plan.child()) == "InsertIntoDir":
        insert = plan.child()
        query = plan.withNewChildren(jvm.seq([insert.child()]))
        _check_reads_only(jvm, statement, query)
        return query, _directory_sink(jvm, statement, insert)
    _check_reads_only(jvm, statement, plan)
    if name in SHOWING or (name == "SetCommand" and not _assigned(plan)[1]):
        return plan, None
    if _is_command(jvm, plan):
        if name in HARMLESS | IGNORED or name in {"CreateViewCommand", "CreateTempViewUsing"}:
            raise PlanningError(f"{statement} is the last statement, but it gives no rows: end the script with a query")
        raise SideEffectError(str(statement), ADVICE)
    return plan, None


def _check_reads_only(jvm: Jvm, statement: Statement, plan: Any) -> None:
    """Raise `SideEffectError` if *plan* contains a statement that changes data, such as part of a multi-insert."""
    if QueryTools(jvm).first_of(plan, DATA_MODIFYING):
        raise SideEffectError(str(statement), ADVICE)


def _directory_sink(jvm: Jvm, statement: Statement, insert: Any) -> pb.Sink:
    provider = insert.provider()
    if not provider.isDefined() or str(provider.get()).lower() == "hive":
        raise SideEffectError(str(statement), "use USING parquet, csv, json or orc instead of STORED AS or ROW FORMAT")
    storage = insert.storage()
    location = storage.locationUri()
    if not location.isDefined():
        raise PlanningError(f"{statement} names no directory")
    return pb.Sink(
        path=str(location.get().toString()),
        format=str(provider.get()).lower(),
        mode="overwrite",
        options={entry._1(): entry._2() for entry in jvm.items(storage.properties().toSeq())},  # noqa: SLF001
    )
