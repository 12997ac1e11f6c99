"""Commands of Spark Connect: what changes only its session is carried out, what changes more becomes a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from onager.errors import InvalidRequestError, UnsupportedPlanError
from onager.executor.spark.connect import caching, entries
from onager.executor.spark.connect.catalog_calls import statement_of, statement_request
from onager.executor.spark.connect.entries import GLOBAL_VIEW, VIEW
from onager.executor.spark.connect.scripting import CHANGE, PARSE, answered, asked_of, script_statement
from onager.executor.spark.connect.sessions import ConnectSession
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.access import VARIABLE
from onager.executor.spark.kernel.queries import Parsed, QueryTools
from onager.executor.spark.planning.catalog import PlanningCatalog
from onager.executor.spark.planning.job_session import java_session, own_settings
from onager.executor.spark.planning.names import quoted
from onager.executor.spark.planning.parameters import parser_with
from onager.executor.spark.planning.statement_classes import VARIABLES
from onager.executor.spark.planning.statements import (
    alters_temporary_view,
    changes_catalog,
    check_harmless,
    check_reads_only,
    gives_rows,
    is_command,
    is_effect,
    split,
    temporary_view,
)
from onager.programs.scripting.arguments import check_size
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import KEPT, SCRIPT, ExecutePlanRequest, ExecutePlanResponse, Relation
from onager.protocol.sql_commands import statement_in

STATEMENT: Final = "statement"
WRITE: Final = "write"
"""The works of jobs."""

_FUNCTION: Final = "function"
_FUNCTIONS: Final = {
    "register_function": (_FUNCTION, "function_name"),
    "register_table_function": (_FUNCTION, "function_name"),
    "register_data_source": ("data_source", "name"),
}
_WRITES: Final = frozenset({"write_operation", "write_operation_v2"})
_RELEASE: Final = "remove_cached_remote_relation_command"
_PASSING: Final = frozenset({_RELEASE, "get_resources_command", "ml_command"})
"""What makes nothing."""
_OF_FUNCTIONS: Final = frozenset({"CreateSQLFunctionCommand", "CreateFunctionCommand", "DropFunctionCommand"})


@dataclass(slots=True)
class Carried:
    """What became of a command."""

    responses: list[bytes]
    work: str = ""
    """What a job is to do; then nothing has been carried out."""
    put: Sequence[pb.ConnectEntry] = ()
    removed: Sequence[pb.ConnectEntry] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    database: str | None = None


class _Made(NamedTuple):
    kind: str
    name: str
    is_dropped: bool = False


_NOTHING: Final = _Made("", "")


def carry_out(content: bytes, session: ConnectSession, tables: PlanningCatalog | None) -> Carried:
    """Carry out an encoded ExecutePlanRequest in *session*; `UnsupportedPlanError` for what Onager does not do."""
    request = ExecutePlanRequest.FromString(content)
    if request.plan.WhichOneof("op_type") == "root":
        return _of_catalog(content, request, session, tables)
    command = request.plan.command
    name = command.WhichOneof("command_type")
    if name == "sql_command":
        return _asked(request, session) if asked_of(request) else _statement(content, request, session, tables)
    if name in _WRITES:
        return Carried([], work=WRITE)
    if name == "create_dataframe_view":
        what = GLOBAL_VIEW if command.create_dataframe_view.is_global else VIEW
        view = _Made(what, command.create_dataframe_view.name.strip("`").lower())
        reads = session.reads("Command", command.SerializeToString())
        session.make(reads if command.create_dataframe_view.replace else {*reads, f"{what} {view.name}"})
        return _leaving(view, content, command, session)
    if name in _FUNCTIONS:
        entry, called = _FUNCTIONS[name]
        return _leaving(_Made(entry, str(getattr(getattr(command, name), called)).lower()), content, command, session)
    if name not in _PASSING:
        raise refused(f"the command {name}", "it is not among those that docs/connect.md lists")
    carried = Carried(session.connect.execute(content))
    if name == _RELEASE:
        relation = command.remove_cached_remote_relation_command.relation.relation_id
        carried.put, carried.removed = entries.dropped(session.stored, KEPT, relation, command.SerializeToString())
    return carried


def _asked(request: Any, session: ConnectSession) -> Carried:
    """Answer what a script asks; it may set variables of the session, too."""
    ask, command = asked_of(request), request.plan.command
    relation, text, _ = statement_in(command.sql_command)
    if ask == CHANGE:
        session.make(session.reads("Command", command.SerializeToString()))
    elif ask != PARSE:
        session.make_all()
    responses = [answered(ask, relation, text, session)]
    return Carried(responses) if ask == PARSE else _with_variables(responses, session)


def refused(what: str, advice: str) -> UnsupportedPlanError:
    """Return the error of what Onager does not do."""
    return UnsupportedPlanError(what, advice, runs_whole=False)


def _statement(content: bytes, request: Any, session: ConnectSession, tables: PlanningCatalog | None) -> Carried:
    """Carry out a statement of SQL."""
    spark = session.spark
    jvm = Jvm.of(spark)
    relation, text, is_bound = statement_in(request.plan.command.sql_command)
    statements = split(jvm, text)
    if statements and statements[0].is_procedure:
        return _script(request, relation, text, session)
    plan = parser_with(spark, jvm)(text)
    (statement, *_) = statements
    if is_effect(plan, has_catalog=tables is not None):
        return _job_of_statement(is_bound=is_bound)
    if not is_command(plan):
        check_reads_only(statement, plan)
        response = ExecutePlanResponse()
        response.sql_command_result.relation = relation
        return Carried([response.SerializeToString()])
    session.make_all(request.plan.command.SerializeToString())
    if alters_temporary_view(plan):
        raise refused("ALTER VIEW of a temporary view", "make it anew (CREATE OR REPLACE TEMPORARY VIEW)")
    if tables is not None and changes_catalog(statement, plan):
        return _job_of_statement(is_bound=is_bound)
    check_reads_only(statement, plan)
    if gives_rows(plan):
        return Carried(session.connect.execute(content))
    check_harmless(statement, plan, has_catalog=tables is not None, may_set=True)
    return _of_variables(content, session) if plan.named in VARIABLES else _of_session(content, request, plan, session)


def _script(request: Any, relation: bytes, text: str, session: ConnectSession) -> Carried:
    """Return the work of a script, and its tree, which a program walks by itself; Spark's errors of what is none."""
    bound = Relation.FromString(relation)
    if bound.WhichOneof("rel_type") != "sql":
        raise refused("DataFrames that are bound in a script (BEGIN … END)", "make temporary views of them")
    if bound.sql.pos_arguments or bound.sql.pos_args:
        raise refused("values for ? in a script (BEGIN … END)", "give them by names, such as :day")
    if script_statement(request) is not None:
        raise refused("a script within a script", "write its statements into the outer one")
    try:
        check_size(text)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from error
    return Carried([answered(PARSE, relation, text, session)], work=SCRIPT)


def _of_session(content: bytes, request: Any, plan: Parsed, session: ConnectSession) -> Carried:
    """Carry out a statement that changes nothing but its session."""
    jvm = Jvm.of(session.spark)
    named = QueryTools(jvm).named(plan.plan())
    if plan.named in caching.STATEMENTS:
        put, removed = caching.of_statement(jvm, plan.named, named, session)
        return Carried([_EMPTY], put=put, removed=removed)
    return _carried(content, request, session, _made(plan, named))


def _of_variables(content: bytes, session: ConnectSession) -> Carried:
    """Carry out DECLARE, SET VAR or DROP VARIABLE; the values stay that it gave."""
    return _with_variables(session.connect.execute(content), session)


def _with_variables(responses: list[bytes], session: ConnectSession) -> Carried:
    """Return *responses*, with the variables that the session has now."""
    values = {name: alike.encode() for name, alike in java_session(session.spark).variables().items()}
    put, removed = entries.set_to(session.stored, values)
    return Carried(responses, put=put, removed=removed)


def _job_of_statement(*, is_bound: bool) -> Carried:
    if is_bound:
        raise refused("values and DataFrames that are bound in a statement that changes tables", "write them into it")
    return Carried([_EMPTY], work=STATEMENT)


def _made(parsed: Parsed, plan: Any) -> _Made:
    """Return what a parsed statement makes in its session, or drops, but for a view."""
    if view := temporary_view(parsed):
        return _Made(VIEW, view)
    name = parsed.named
    if name in _OF_FUNCTIONS:
        function = plan.name() if name == "CreateSQLFunctionCommand" else plan.identifier()
        return _Made(_FUNCTION, str(function.funcName()).lower(), is_dropped=name.startswith("Drop"))
    return _NOTHING


def _of_catalog(content: bytes, request: Any, session: ConnectSession, tables: PlanningCatalog | None) -> Carried:
    """Carry out a call of spark.catalog."""
    if text := statement_of(request, session):
        command = statement_request(text)
        carried = _statement(command.SerializeToString(), command, session, tables)
        carried.responses = session.connect.execute(_NO_ROWS)
        return carried
    session.make_all(caches=True)
    catalog = Relation.FromString(request.plan.root).catalog
    if catalog.HasField("is_cached"):
        answer = "true" if caching.is_cached(catalog.is_cached.table_name, session) else "false"
        relation = Relation(sql={"query": f"SELECT {answer} AS value"}).SerializeToString()
        return Carried(session.connect.execute(ExecutePlanRequest(plan={"root": relation}).SerializeToString()))
    if (change := _of_cache(catalog, session)) is not None:
        return Carried(session.connect.execute(_NO_ROWS), put=change.put, removed=change.removed)
    made = _NOTHING
    if catalog.HasField("drop_global_temp_view"):
        made = _Made(GLOBAL_VIEW, catalog.drop_global_temp_view.view_name.lower(), is_dropped=True)
    return _carried(content, request, session, made)


def _of_cache(catalog: Any, session: ConnectSession) -> entries.Change | None:
    """Return the change for a call of spark.catalog that caches, or takes that back; None for any other."""
    match catalog.WhichOneof("cat_type"):
        case "cache_table":
            call = catalog.cache_table
            return caching.cached_table(
                call.table_name, session, call.storage_level if call.HasField("storage_level") else None
            )
        case "uncache_table":
            return caching.uncached_table(catalog.uncache_table.table_name, session)
        case "clear_cache":
            return caching.cleared(session)
        case _:
            return None


def _settings(spark: SparkSession) -> dict[str, str]:
    """Return a session's settings and variables by the names that programs give them."""
    return {key.removeprefix(VARIABLE): value for key, value in own_settings(spark).items()}


def _carried(content: bytes, request: Any, session: ConnectSession, made: _Made) -> Carried:
    """Carry out what changes only its session, and tell how it has changed."""
    spark = session.spark
    settings, views = _settings(spark), session.connect.temporary_views()
    catalog, database = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    carried = Carried(session.connect.execute(content))
    if spark.catalog.currentCatalog() != catalog:
        raise refused("another current catalog", "name tables with their catalog in front")
    now, left = _settings(spark), session.connect.temporary_views()
    carried.set = {key: value for key, value in now.items() if settings.get(key) != value}
    carried.unset = [key for key in settings if key not in now]
    if (current := spark.catalog.currentDatabase()) != database:
        carried.database = current
    if gone := views - left:
        (view,) = gone
        command = (
            request.plan.command.SerializeToString()
            or statement_request(f"DROP VIEW {quoted(view)}").plan.command.SerializeToString()
        )
        carried.put, carried.removed = entries.dropped(session.stored, VIEW, view.lower(), command)
    elif made != _NOTHING:
        carried.put, carried.removed = _change(made, request.plan.command, session)
    return carried


def _leaving(made: _Made, content: bytes, command: Any, session: ConnectSession) -> Carried:
    """Carry out a command that makes something."""
    responses = session.connect.execute(content)
    put, removed = _change(made, command, session)
    return Carried(responses, put=put, removed=removed)


def _change(made: _Made, command: Any, session: ConnectSession) -> entries.Change:
    encoded = command.SerializeToString()
    if made.is_dropped:
        return entries.dropped(session.stored, made.kind, made.name, encoded)
    return entries.made(session.stored, made.kind, made.name, encoded, session.reads("Command", encoded))


_NO_COLUMNS: Final = Relation(local_relation={"schema": "struct<>"}).SerializeToString()
_NO_ROWS: Final = ExecutePlanRequest(plan={"root": _NO_COLUMNS}).SerializeToString()
"""The request whose answer is that of a call that returns nothing."""
_EMPTY: Final = ExecutePlanResponse(sql_command_result={"relation": _NO_COLUMNS}).SerializeToString()
"""The response to a statement that gives no rows: a DataFrame without columns. Every client but PySpark requires it."""
