"""SQL scripts: statements that set up the job's session, and a last statement, the job's query.

A script with several effects is a program (`script_steps`): it writes datasets, and changes the catalog, one after the
other.

A job can be planned more than once, and on any executor, so no statement may change anything but the job's session and
its private copy of the catalog.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onager.errors import PlanningError, SideEffectError
from onager.executor.spark.jvm import Jvm, kind
from onager.executor.spark.kernel import jvm_session
from onager.executor.spark.planning.catalog import PlanningCatalog
from onager.executor.spark.planning.parameters import Parser, parser_with
from onager.executor.spark.planning.script_steps import ScriptStep, ScriptSteps, check_statements
from onager.executor.spark.planning.statement_classes import IGNORED, SHOWING
from onager.executor.spark.planning.statements import (
    Statement,
    changes_catalog,
    check_harmless,
    check_no_analysis,
    check_not_last,
    check_reads_only,
    gives_rows,
    is_command,
    is_effect,
    last_query,
    parse,
    placed,
    split,
    temporary_view,
)
from onager.protocol import onager_pb2 as pb


@dataclass(frozen=True, slots=True)
class PlannedScript:
    """The query of a script, and the sink if the script names one."""

    frame: DataFrame
    sink: pb.Sink | None
    is_analyzed: bool = False
    """Whether it was asked for with EXPLAIN ANALYZE."""
    is_done: bool = False
    """Whether it has changed the catalog, and gives no rows."""


def plan_script(
    session: SparkSession,
    text: str,
    catalog: PlanningCatalog | None = None,
    *,
    only: Collection[int] = (),
    parameters: Sequence[pb.SqlParameter] = (),
    may_step: bool = False,
) -> PlannedScript | ScriptSteps:
    """Run the statements of *text* in *session* in order, and return the last one as a query that has not run.

    Of the statements, *only* those with these numbers count, if any are given. A script with an effect before its last
    statement becomes steps, if it *may_step*; then its statements from the first effect on do not run here, but for
    settings, which the parser reads. *parameters* are bound to their places in all statements.

    Each statement is parsed after those before it have run, since Spark's parser reads settings and variables.
    Statements about databases, tables, views and functions change *catalog*, that of the session. Raises
    `SideEffectError` for a statement that would change anything else, before it runs. Spark's errors are raised
    unchanged, with a note that gives the statement's position in the script.
    """
    jvm = Jvm.of(session)
    statements = split(jvm, text)
    if not statements:
        raise PlanningError("the script has no statement: give a query")
    if only:
        statements = _those(statements, only)
    parser = parser_with(session, jvm, parameters, statements=len(statements))
    *before, last = statements
    changing: list[int] = []
    for statement in before:
        check_not_last(statement)
        with placed(statement):
            plan = parse(parser, statement)
        if may_step and is_effect(plan):
            return _steps(session, jvm, parser, statements, changing, statement, has_catalog=catalog is not None)
        if catalog is not None and changes_catalog(session, jvm, statement, plan):
            _changed(session, jvm, statement, plan, catalog)
            changing.append(statement.number)
            continue
        check_harmless(session, jvm, statement, plan, has_catalog=catalog is not None)
        if kind(plan).removesuffix("$") not in IGNORED:
            with placed(statement):
                _rows(session, jvm, plan)
    with placed(last, is_alone=not before):
        plan = parse(parser, last)
    if catalog is not None and not last.analyzed_from and changes_catalog(session, jvm, last, plan):
        frame = _changed(session, jvm, last, plan, catalog, is_alone=not before)
        return PlannedScript(DataFrame(frame, session), None, is_done=True)
    query, sink = last_query(jvm, last, plan, has_catalog=catalog is not None)
    if sink is not None or is_command(jvm, plan):
        check_no_analysis(last)
    with placed(last, is_alone=not before):
        return PlannedScript(DataFrame(_rows(session, jvm, query), session), sink, bool(last.analyzed_from))


def _those(statements: Sequence[Statement], numbers: Collection[int]) -> list[Statement]:
    found = [statement for statement in statements if statement.number in numbers]
    if len(found) != len(set(numbers)):
        raise PlanningError(f"the script has {len(statements)} statements, and of others than these some are to be run")
    return found


def _steps(
    session: SparkSession,
    jvm: Jvm,
    parser: Parser,
    statements: Sequence[Statement],
    changing: Sequence[int],
    first: Statement,
    *,
    has_catalog: bool,
) -> ScriptSteps:
    """Return the steps of a script whose *first* effect on files is not in its last statement.

    Those before it have run here; the numbers *changing* among them change the catalog. Such a statement belongs to the
    step that comes after it, which makes its changes; those of the session are run again in each step. Whatever would
    be refused later is refused now, before anything has an effect.
    """
    check_statements(len(statements))
    at = statements.index(first)
    replayed = [statement.number for statement in statements[:at] if statement.number not in changing]
    own = list(changing)
    made: set[str] = set()
    steps: list[ScriptStep] = []

    def add_step(statement: Statement, *, is_query: bool = False) -> None:
        before = (number for number in replayed if number < statement.number)
        steps.append(
            ScriptStep(
                name=f"statement {statement.number}, line {statement.line}",
                text=statement.text,
                statements=tuple(sorted({*before, *own, statement.number})),
                is_query=is_query,
            )
        )
        own.clear()

    for statement in statements[at:]:
        is_last = statement is statements[-1]
        if not is_last:
            check_not_last(statement)
        with placed(statement):
            plan = parse(parser, statement)
        if is_effect(plan):
            check_no_analysis(statement)
            last_query(jvm, statement, plan, has_catalog=has_catalog)
            add_step(statement)
        elif has_catalog and not statement.analyzed_from and changes_catalog(session, jvm, statement, plan, made):
            own.append(statement.number)
        elif is_last and gives_rows(jvm, plan):
            last_query(jvm, statement, plan, has_catalog=has_catalog)
            add_step(statement, is_query=True)
        else:
            check_harmless(session, jvm, statement, plan, made, has_catalog=has_catalog)
            replayed.append(statement.number)
            if name := temporary_view(jvm, plan):
                made.add(name)
            if kind(plan) in {"SetCommand", "ResetCommand"}:
                with placed(statement):
                    _rows(session, jvm, plan)
    if own:
        add_step(next(statement for statement in statements if statement.number == own[-1]))
    return ScriptSteps(steps)


def _changed(
    session: SparkSession,
    jvm: Jvm,
    statement: Statement,
    plan: Any,
    catalog: PlanningCatalog,
    *,
    is_alone: bool = False,
) -> Any:
    """Run a statement that changes the catalog, and return its Dataset."""
    with placed(statement, is_alone=is_alone):
        if other := catalog.other_catalog(plan):
            raise SideEffectError(
                str(statement), f"it is about the catalog {other}, which is not Onager's; change it with its own tools"
            )
        with catalog.changing():
            return _rows(session, jvm, plan)


def refuse_commands(session: SparkSession, text: str) -> None:
    """Raise `SideEffectError` if *text*, which a job's function gives to ``spark.sql``, would change something."""
    jvm = Jvm.of(session)
    parser = parser_with(session, jvm)
    for statement in split(jvm, text):
        check_no_analysis(statement)
        plan = parse(parser, statement)
        if is_command(jvm, plan) and kind(plan) not in SHOWING:
            check_harmless(session, jvm, statement, plan)
        check_reads_only(jvm, statement, plan)


def _rows(session: SparkSession, jvm: Jvm, plan: Any) -> Any:
    return jvm.java_class("org.apache.spark.sql.classic.Dataset").ofRows(jvm_session(session), plan)
