"""SQL scripts: statements that set up the job's session, and a last statement, the job's query.

A script with several effects becomes steps (`script_steps`): it writes datasets, and changes the catalog, one after the
other.

A job can be planned more than once, and on any executor, so no statement may change anything but the job's session and
its private copy of the catalog.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from onager.errors import PlanningError, SideEffectError
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.queries import Parsed
from onager.executor.spark.planning.caches import Caches
from onager.executor.spark.planning.catalog import PlanningCatalog
from onager.executor.spark.planning.foreign import foreign_rows
from onager.executor.spark.planning.job_session import java_session
from onager.executor.spark.planning.parameters import Parser, parser_with
from onager.executor.spark.planning.script_steps import ScriptStep, ScriptSteps, check_statements
from onager.executor.spark.planning.statement_classes import IGNORED, MOVING, SHOWING, TRUNCATING, VARIABLES
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
    writes_table,
)
from onager.protocol import onager_pb2 as pb

NO_VALUES: Final[Mapping[int, Mapping[str, str]]] = MappingProxyType({})
_READS_LATE: Final = "reads a table, a view or files after a statement that writes, and each later step needs the value"
_VALUE_ADVICE: Final = "write the query where the value is used, or set the variable before any statement writes"


@dataclass(frozen=True, slots=True)
class JobQuery:
    """What a job asks for: its query, and the sink if its script or operation names one."""

    frame: DataFrame
    sink: pb.Sink | None
    is_analyzed: bool = False
    """Whether it was asked for with EXPLAIN ANALYZE."""
    is_done: bool = False
    """Whether it has changed the catalog, and gives no rows."""
    takes_any_option: bool = False
    """Whether an option without effect is no mistake, as in Spark: a table has its own, and so does PySpark."""
    is_table: bool = False
    """Whether the sink is that of a table."""
    is_kept: bool = False
    """Whether the sink is a checkpoint: among Onager's own files, with columns that are called by their places."""
    caches: Caches | None = None
    """What its session caches."""


def plan_script(
    session: SparkSession,
    text: str,
    catalog: PlanningCatalog | None = None,
    *,
    only: Collection[int] = (),
    settled: Mapping[int, Mapping[str, str]] = NO_VALUES,
    parameters: Sequence[pb.SqlParameter] = (),
    may_step: bool = False,
) -> JobQuery | ScriptSteps:
    """Run the statements of *text* in *session* in order, and return the last one as a query that has not run.

    Of the statements, *only* those with these numbers count, if any are given. A script with an effect before its last
    statement becomes steps, if it *may_step*; then its statements from the first effect on do not run here, but for
    settings, which the parser reads, and for what gives variables their values. *settled*: the variables after those
    statements that gave values in the planning of the script. *parameters* are bound to their places in all statements.

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
    found = _Steps(session, parser)
    for statement in before:
        if statement.number in settled:
            java_session(session).set_variables(settled[statement.number])
            continue
        check_not_last(statement)
        with placed(statement):
            plan = parse(parser, statement)
        if may_step and is_effect(plan, has_catalog=catalog is not None):
            return found.of(statements, statement, has_catalog=catalog is not None)
        if catalog is not None and changes_catalog(statement, plan):
            _changed(session, statement, plan, catalog)
            found.changing[statement.number] = plan.kind in MOVING
            continue
        check_harmless(statement, plan, has_catalog=catalog is not None)
        found.replayed.append(statement.number)
        if plan.named not in IGNORED:
            found.run(statement, plan)
    with placed(last, is_alone=not before):
        plan = parse(parser, last)
    if may_step and any(found.changing.values()) and writes_table(plan):
        return found.of(statements, last, has_catalog=True)
    return _planned(session, last, plan, catalog, is_alone=not before)


def _planned(
    session: SparkSession, last: Statement, plan: Parsed, catalog: PlanningCatalog | None, *, is_alone: bool
) -> JobQuery:
    """Return what the *last* statement, parsed as *plan*, asks for."""
    if catalog is not None and not last.analyzed_from and changes_catalog(last, plan):
        frame = _changed(session, last, plan, catalog, is_alone=is_alone)
        return JobQuery(DataFrame(frame, session), None, is_done=True)
    if catalog is not None and writes_table(plan):
        check_no_analysis(last)
        with placed(last, is_alone=is_alone):
            return plan_write(session, plan.plan(), catalog)
    sink = last_query(last, plan, has_catalog=catalog is not None)
    if sink is not None or is_command(plan):
        check_no_analysis(last)
    with placed(last, is_alone=is_alone):
        return JobQuery(DataFrame(plan.rows(), session), sink, bool(last.analyzed_from))


def _those(statements: Sequence[Statement], numbers: Collection[int]) -> list[Statement]:
    found = [statement for statement in statements if statement.number in numbers]
    if len(found) != len(set(numbers)):
        raise PlanningError(f"the script has {len(statements)} statements, and of others than these some are to be run")
    return found


class _Steps:
    """The steps of a script, as far as it has been read."""

    def __init__(self, session: SparkSession, parser: Parser) -> None:
        self._session = session
        self._parser = parser
        self._steps: list[ScriptStep] = []
        self._settled: dict[int, Mapping[str, str]] = {}
        """By the numbers of statements that gave variables their values: all variables after it."""
        self.replayed: list[int] = []
        """The numbers of statements that change only the session."""
        self.changing: dict[int, bool] = {}
        """Those that change the catalog since the last step, and whether rows may lie elsewhere since."""

    def run(self, statement: Statement, plan: Parsed) -> None:
        """Run a statement that changes only the session."""
        with placed(statement):
            plan.rows()
        if plan.named in VARIABLES:
            self._settled[statement.number] = java_session(self._session).variables()

    def of(self, statements: Sequence[Statement], first: Statement, *, has_catalog: bool) -> ScriptSteps:
        """Return the steps of a script from its *first* effect on files.

        Those before it have run here. Those that change the catalog belong to the step that comes after them, which
        makes their changes, but for those after which rows may lie elsewhere, before a table is written. Those of the
        session are run again in each step, unless they gave a variable its value. Whatever would be refused later is
        refused now, before anything has an effect.
        """
        check_statements(len(statements))
        made: set[str] = set()
        for statement in statements[statements.index(first) :]:
            is_last = statement is statements[-1]
            if not is_last:
                check_not_last(statement)
            with placed(statement):
                plan = parse(self._parser, statement)
            if is_effect(plan, has_catalog=has_catalog):
                _check_effect(statement, plan)
                if any(self.changing.values()) and writes_table(plan):
                    self._add_changes(statements)
                self._add(statement)
            elif has_catalog and not statement.analyzed_from and changes_catalog(statement, plan, made):
                self.changing[statement.number] = plan.kind in MOVING
            elif is_last and gives_rows(plan):
                last_query(statement, plan, has_catalog=has_catalog)
                self._add(statement, is_query=True)
            else:
                check_harmless(statement, plan, made, has_catalog=has_catalog)
                self._replay(statement, plan)
                if name := temporary_view(plan):
                    made.add(name)
        self._add_changes(statements)
        return ScriptSteps(self._steps)

    def _replay(self, statement: Statement, plan: Parsed) -> None:
        self.replayed.append(statement.number)
        if plan.named == "SetVariable":
            with placed(statement):
                if plan.reads_rows():
                    raise SideEffectError(str(statement), _VALUE_ADVICE, _READS_LATE)
        if plan.kind in {"SetCommand", "ResetCommand"} or plan.named in VARIABLES:
            self.run(statement, plan)

    def _add(self, statement: Statement, *, is_query: bool = False) -> None:
        """Add a step with *statement*, and what has changed the catalog before it."""
        before = [number for number in self.replayed if number < statement.number]
        self._steps.append(
            ScriptStep(
                name=f"statement {statement.number}, line {statement.line}",
                text=statement.text,
                statements=tuple(sorted({*before, *self.changing, statement.number})),
                is_query=is_query,
                settled={number: self._settled[number] for number in before if number in self._settled},
            )
        )
        self.changing.clear()

    def _add_changes(self, statements: Sequence[Statement]) -> None:
        """Add a step with what has changed the catalog, if anything has."""
        if self.changing:
            self._add(next(each for each in statements if each.number == max(self.changing)))


def _check_effect(statement: Statement, plan: Parsed) -> None:
    check_no_analysis(statement)
    if not writes_table(plan):  # what that writes to is perhaps made by a step before
        last_query(statement, plan, has_catalog=True)


def _changed(
    session: SparkSession,
    statement: Statement,
    plan: Parsed,
    catalog: PlanningCatalog,
    *,
    is_alone: bool = False,
) -> Any:
    """Run a statement that changes the catalog, and return its Dataset."""
    with placed(statement, is_alone=is_alone):
        if other := catalog.other_catalog(plan.plan()):
            raise SideEffectError(
                str(statement), f"it is about the catalog {other}, which is not Onager's; change it with its own tools"
            )
        with catalog.changing():
            if plan.kind in TRUNCATING:
                catalog.truncate(plan.plan())
                return jvm_session(session).emptyDataFrame()
            return plan.rows()


def plan_write(session: SparkSession, command: Any, catalog: PlanningCatalog) -> JobQuery:
    """Change *catalog* as *command* does, which writes a table, and return its query."""
    with catalog.changing():
        write = catalog.table_write(command)
    if write is None:
        return JobQuery(DataFrame(jvm_session(session).emptyDataFrame(), session), None, is_done=True)
    datasets = Jvm.of(session).java_class("org.apache.spark.sql.classic.Dataset")
    frame = DataFrame(datasets.ofRows(jvm_session(session), write.query), session).toDF(*write.names)
    if write.foreign is not None:
        return JobQuery(*foreign_rows(frame, write.foreign), takes_any_option=True, is_table=True)
    return JobQuery(frame, write.sink, takes_any_option=True, is_table=True)


def refuse_commands(session: SparkSession, text: str) -> None:
    """Raise `SideEffectError` if *text*, which a job's function gives to ``spark.sql``, would change something."""
    jvm = Jvm.of(session)
    parser = parser_with(session, jvm)
    for statement in split(jvm, text):
        check_no_analysis(statement)
        plan = parse(parser, statement)
        if is_command(plan) and plan.kind not in SHOWING:
            check_harmless(statement, plan)
        check_reads_only(statement, plan)
