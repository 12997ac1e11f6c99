"""SQL scripts: statements that set up the job's session one by one, and a last one, the query that is the job.

Planning can happen more than once for one job, and anywhere, so no statement may change anything but the job's own
session. Statements are parsed with Spark's parser and told by what they parse to, never by their text.
"""

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from onager.errors import OnagerError, PlanningError, SideEffectError
from onager.executor.spark.jvm import Jvm, kind
from onager.executor.spark.kernel import QueryTools, jvm_session
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
"""Commands that change the job's own session alone."""

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
"""Commands that only read, and give rows as a query does."""

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
        "UnresolvedInsert",
        "UnresolvedExecuteImmediate",
    }
)
"""What changes data where Spark does not call it a command; EXECUTE IMMEDIATE runs whatever its text says."""
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
"""The classes of Spark that this module tells by their names."""
ADVICE = (
    "before the last statement only SET, RESET, USE, temporary views, temporary functions and variables are allowed; "
    "the last one is a query, SHOW, DESCRIBE or EXPLAIN, or INSERT OVERWRITE DIRECTORY … USING"
)
SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a script, and where it starts."""

    number: int
    line: int
    column: int
    """The characters before it in its line."""
    text: str
    is_procedure: bool
    """Whether it starts with BEGIN; its end is somewhere in the statements after it."""

    def __str__(self) -> str:
        first = " ".join(self.text[: 4 * SHOWN_CHARACTERS].split())
        short = first if len(first) <= SHOWN_CHARACTERS else f"{first[: SHOWN_CHARACTERS - 1]}…"
        return f"statement {self.number} (line {self.line}): {short}"

    @property
    def placed_text(self) -> str:
        """The text behind as much white space as makes Spark tell lines and positions of the whole script."""
        return "\n" * (self.line - 1) + " " * self.column + self.text


@dataclass(frozen=True, slots=True)
class PlannedScript:
    """The query that a script comes down to, and where its result goes if it says so."""

    frame: DataFrame
    sink: pb.Sink | None


def split(jvm: Jvm, text: str) -> list[Statement]:
    """Split a script at its semicolons; Spark's own lexer minds quotes and comments. Empty statements are left out."""
    statements: list[Statement] = []
    for described in QueryTools(jvm).statements(text):
        begin, end, line, column, kind_of = described.split()
        piece = text[int(begin) : int(end)].rstrip()
        statements.append(Statement(len(statements) + 1, int(line), int(column), piece, kind_of == "procedure"))
    return statements


def plan_script(session: SparkSession, text: str) -> PlannedScript:
    """Run the statements of *text* in *session* one after another, and return the last one as a query, not yet run.

    Each is parsed when those before it have taken effect, since Spark's parser, too, reads settings and variables.
    Raises `SideEffectError` for one that would change anything but the session, before it has run; what Spark says of a
    wrong statement is raised as it is, with a note of the statement's place in the script.
    """
    jvm = Jvm.of(session)
    statements = split(jvm, text)
    if not statements:
        raise PlanningError("the script has no statement: give a query")
    parser = jvm_session(session).sessionState().sqlParser()
    *before, last = statements
    for statement in before:
        with _placed(statement):
            plan = _parse(parser, statement)
        _check_harmless(session, jvm, statement, plan)
        if kind(plan).removesuffix("$") not in IGNORED:
            with _placed(statement):
                _rows(session, jvm, plan)
    with _placed(last, is_alone=not before):
        plan = _parse(parser, last)
    query, sink = _last(jvm, last, plan)
    with _placed(last, is_alone=not before):
        return PlannedScript(DataFrame(_rows(session, jvm, query), session), sink)


def refuse_commands(session: SparkSession, text: str) -> None:
    """Raise `SideEffectError` if one statement, given to ``spark.sql`` by a job's function, would change something."""
    jvm = Jvm.of(session)
    parser = jvm_session(session).sessionState().sqlParser()
    for statement in split(jvm, text):
        plan = _parse(parser, statement)
        if _is_command(jvm, plan) and kind(plan) not in SHOWING:
            _check_harmless(session, jvm, statement, plan)
        _check_reads_only(jvm, statement, plan)


def _rows(session: SparkSession, jvm: Jvm, plan: Any) -> Any:
    return jvm.java_class("org.apache.spark.sql.classic.Dataset").ofRows(jvm_session(session), plan)


def _parse(parser: Any, statement: Statement) -> Any:
    if statement.is_procedure:
        raise SideEffectError(
            f"a procedure (BEGIN … END), {statement}", "write it as a Python function, or as plain statements"
        )
    try:
        return parser.parsePlan(statement.placed_text)
    except Py4JJavaError as e:
        if "StackOverflowError" in str(e):
            raise PlanningError(f"{statement} is nested too deeply for Spark's parser: split it up") from e
        raise


class _placed:  # noqa: N801  (a context manager reads as a word)
    """Adds a statement's place in its script to what Spark raises."""

    def __init__(self, statement: Statement, *, is_alone: bool = False) -> None:
        self._statement = statement
        self._is_alone = is_alone

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and not isinstance(error, OnagerError) and not self._is_alone:
            error.add_note(f"in {self._statement}")


def _is_command(jvm: Jvm, plan: Any) -> bool:
    return QueryTools(jvm).is_command(plan) or kind(plan) in DATA_MODIFYING


def _is_temporary_view(session: SparkSession, name: str) -> bool:
    return bool(name) and bool(jvm_session(session).sessionState().catalog().getTempView(name).isDefined())


def _check_harmless(session: SparkSession, jvm: Jvm, statement: Statement, plan: Any) -> None:
    """Raise unless *plan* changes nothing but the session.

    `SideEffectError` for what changes something else, `PlanningError` for a query, whose rows nobody would see.
    """
    plan = QueryTools(jvm).named(plan)
    name = kind(plan).removesuffix("$")
    if name in HARMLESS | IGNORED:
        if name == "CreateTempViewUsing" and getattr(plan, "global")():
            raise SideEffectError(str(statement), "a global view is every job's; make a TEMPORARY one")
        if name == "SetCommand":
            _check_setting(statement, plan)
        return
    if name == "CreateViewCommand" and kind(plan.viewType()).removesuffix("$") == "LocalTempView":
        _check_reads_only(jvm, statement, plan.plan())
        return
    if name in {"CreateFunctionCommand", "CreateSQLFunctionCommand", "DropFunctionCommand"} and plan.isTemp():
        return
    if name == "DropView" and _is_temporary_view(session, _dropped_name(jvm, plan)):
        return
    if name in SHOWING or not _is_command(jvm, plan):
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


def _check_setting(statement: Statement, plan: Any) -> None:
    """Raise `PlanningError` for a setting of Onager's own: those are read from the job, before any script."""
    key, value = _assigned(plan)
    if key.startswith(PREFIX) and value:
        raise PlanningError(f"{statement} would have no effect: give {key} with the job (--conf {key}=…)")


def _assigned(plan: Any) -> tuple[str, bool]:
    """Return the key that a SetCommand names, or "", and whether it gives it a value."""
    if not plan.kv().isDefined():
        return "", False
    pair = plan.kv().get()
    return str(pair._1()), bool(pair._2().isDefined())  # noqa: SLF001  (the names of a Scala tuple)


def _dropped_name(jvm: Jvm, drop: Any) -> str:
    """Return the name that a DROP VIEW names, or "" when it is not a plain one."""
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
    """Raise if a statement that changes data hides in *plan*, such as one of several inserts of one FROM."""
    if QueryTools(jvm).first_of(plan, DATA_MODIFYING):
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
