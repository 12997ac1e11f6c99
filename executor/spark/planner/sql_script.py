"""SQL scripts: split, looked at before anything runs, and turned into the one query that is the job.

Planning can happen more than once for one job, and anywhere, so no statement may change anything but the job's own
session. Statements are parsed with Spark's parser and told by what they parse to, never by their text.
"""

import re
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from executor.spark.jvm import Jvm, kind
from executor.spark.planner.job_session import jvm_session
from onager.errors import PlanningError, SideEffectError
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
"""Commands that change the job's own session alone."""

IGNORED = frozenset({"CacheTable", "UncacheTable", "ClearCacheCommand"})
"""Commands that only ask for speed. Spark's cache is one for all jobs of a process, so they are left out."""

DATA_MODIFYING = frozenset(
    {
        "InsertIntoStatement",
        "InsertIntoDir",
        "UpdateTable",
        "DeleteFromTable",
        "MergeIntoTable",
        "OverwriteByExpression",
        "UnresolvedExecuteImmediate",
    }
)
"""What changes data where Spark does not call it a command; EXECUTE IMMEDIATE runs whatever its text says."""
ADVICE = (
    "before the last statement only SET, RESET, USE, temporary views, temporary functions and variables are allowed; "
    "the last one is a query, or INSERT OVERWRITE DIRECTORY … USING"
)
SHOWN_CHARACTERS = 80
_LEADING = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a script, and where it starts."""

    number: int
    line: int
    text: str

    def __str__(self) -> str:
        lead = _LEADING.match(self.text)
        first = " ".join(self.text[lead.end() if lead else 0 :][: 4 * SHOWN_CHARACTERS].split())
        short = first if len(first) <= SHOWN_CHARACTERS else f"{first[: SHOWN_CHARACTERS - 1]}…"
        return f"statement {self.number} (line {self.line}): {short}"


@dataclass(frozen=True, slots=True)
class PlannedScript:
    """The query that a script comes down to, and where its result goes if it says so."""

    frame: DataFrame
    sink: pb.Sink | None


def split(jvm: Jvm, text: str) -> list[Statement]:
    """Split a script at its semicolons as Spark's own shell does; comments and quotes are minded, empty pieces gone."""
    pieces = jvm.items(jvm.java_class("org.apache.spark.sql.catalyst.util.StringUtils").splitSemiColon(text, True))
    statements: list[Statement] = []
    position = line_position = 0
    line = 1
    for piece in pieces:
        start = text.index(piece, position)
        position = start + len(piece)
        lead = _LEADING.match(piece)
        begin = start + (lead.end() if lead else 0)
        if begin >= position:
            continue
        line += text.count("\n", line_position, begin)
        line_position = begin
        statements.append(Statement(len(statements) + 1, line, piece))
    return statements


def plan_script(session: SparkSession, text: str) -> PlannedScript:
    """Run the harmless statements of *text* in *session*, and return its last one as a query.

    Raises `SideEffectError` before anything has run if a statement would change something; what Spark says of a
    wrong statement is raised as it is, with a note of the statement's place in the script.
    """
    jvm = Jvm.of(session)
    statements = split(jvm, text)
    if not statements:
        raise PlanningError("the script has no statement: give a query")
    _refuse_procedures(session, text)
    parser = jvm_session(session).sessionState().sqlParser()
    parsed = []
    for statement in statements:
        with _placed(statement, len(statements)):
            parsed.append(_parse(parser, statement))
    temporary_views = _temporary_views(session)
    for statement, plan in zip(statements[:-1], parsed[:-1], strict=True):
        _check_harmless(jvm, statement, plan, temporary_views)
    query, sink = _last(jvm, statements[-1], parsed[-1])
    for statement, plan in zip(statements[:-1], parsed[:-1], strict=True):
        if kind(plan).removesuffix("$") not in IGNORED:
            with _placed(statement, len(statements)):
                _rows(session, jvm, plan)
    with _placed(statements[-1], len(statements)):
        return PlannedScript(DataFrame(_rows(session, jvm, query), session), sink)


def refuse_commands(session: SparkSession, text: str) -> None:
    """Raise `SideEffectError` if one statement, given to ``spark.sql`` by a job's function, would change something."""
    jvm = Jvm.of(session)
    parser = jvm_session(session).sessionState().sqlParser()
    temporary_views = _temporary_views(session)
    for statement in split(jvm, text):
        plan = _parse(parser, statement)
        if _is_command(jvm, plan):
            _check_harmless(jvm, statement, plan, temporary_views)
        _check_reads_only(jvm, statement, plan)


def _rows(session: SparkSession, jvm: Jvm, plan: Any) -> Any:
    return jvm.java_class("org.apache.spark.sql.classic.Dataset").ofRows(jvm_session(session), plan)


def _parse(parser: Any, statement: Statement) -> Any:
    try:
        return parser.parsePlan(statement.text)
    except Py4JJavaError as e:
        if "StackOverflowError" in str(e):
            raise PlanningError(f"{statement} is nested too deeply for Spark's parser: split it up") from e
        raise


class _placed:  # noqa: N801  (a context manager reads as a word)
    """Adds a statement's place in its script to what Spark raises."""

    def __init__(self, statement: Statement, count: int) -> None:
        self._statement = statement
        self._count = count

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and self._count > 1:
            error.add_note(f"in {self._statement}")


def _refuse_procedures(session: SparkSession, text: str) -> None:
    lead = _LEADING.match(text)
    if text[lead.end() if lead else 0 :][:5].upper() == "BEGIN":
        plan = jvm_session(session).sessionState().sqlParser().parsePlan(text)
        if kind(plan) == "CompoundBody":
            raise SideEffectError("a procedure (BEGIN … END)", "write it as a Python function, or as plain statements")


def _is_command(jvm: Jvm, plan: Any) -> bool:
    return bool(jvm.java_class("onager.kernel.Queries").isCommand(plan)) or kind(plan) in DATA_MODIFYING


def _temporary_views(session: SparkSession) -> set[str]:
    views = jvm_session(session).sessionState().catalog().listLocalTempViews("*")
    return {views.apply(i).table().lower() for i in range(views.size())}


def _check_harmless(jvm: Jvm, statement: Statement, plan: Any, temporary_views: set[str]) -> None:
    """Raise unless *plan* changes nothing but the session; *temporary_views* are those that exist by then.

    `SideEffectError` for what changes something else, `PlanningError` for a query, whose rows nobody would see.
    """
    name = kind(plan).removesuffix("$")
    if name in HARMLESS | IGNORED:
        if name == "CreateTempViewUsing":
            if getattr(plan, "global")():
                raise SideEffectError(str(statement), "a global view is every job's; make a TEMPORARY one")
            temporary_views.add(plan.tableIdent().table().lower())
        return
    if name == "CreateViewCommand" and kind(plan.viewType()).removesuffix("$") == "LocalTempView":
        _check_reads_only(jvm, statement, plan.plan())
        temporary_views.add(plan.name().table().lower())
        return
    if name in {"CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand"} and plan.isTemp():
        return
    if name == "DropView" and _dropped_name(jvm, plan) in temporary_views:
        temporary_views.discard(_dropped_name(jvm, plan))
        return
    if not _is_command(jvm, plan):
        _check_reads_only(jvm, statement, plan)
        raise PlanningError(
            f"{statement} is a query, and not the last statement: a job has one result, that of its last statement; "
            "leave this one out, or submit it as a job of its own"
        )
    advice = {
        "CacheTableAsSelect": "use CREATE TEMPORARY VIEW … AS instead; a cache is not needed",
        "DropView": "only a temporary view of this job can be dropped",
        "CreateViewCommand": "a global view is every job's; make a TEMPORARY one",
    }
    raise SideEffectError(str(statement), advice.get(name, ADVICE))


def _dropped_name(jvm: Jvm, drop: Any) -> str:
    """Return the name that a DROP VIEW names, or "" when it is not a plain one."""
    parts = jvm.items(drop.child().nameParts())
    return str(parts[0]).lower() if len(parts) == 1 else ""


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
    if _is_command(jvm, plan):
        if name in HARMLESS | IGNORED or name in {"CreateViewCommand", "CreateTempViewUsing"}:
            raise PlanningError(f"{statement} is the last statement, but it gives no rows: end the script with a query")
        raise SideEffectError(str(statement), ADVICE)
    return plan, None


def _check_reads_only(jvm: Jvm, statement: Statement, plan: Any) -> None:
    """Raise if a statement that changes data hides in *plan*, such as one of several inserts of one FROM."""
    if str(jvm.java_class("onager.kernel.Queries").firstOf(plan, ",".join(sorted(DATA_MODIFYING)))):
        raise SideEffectError(str(statement), ADVICE)


def _directory_sink(jvm: Jvm, statement: Statement, insert: Any) -> pb.Sink:
    provider = insert.provider()
    if not provider.isDefined() or str(provider.get()).lower() == "hive":
        raise SideEffectError(str(statement), "say USING parquet, csv, json or orc instead of STORED AS or ROW FORMAT")
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
