"""Operations of Spark Connect that are jobs: relations, writes, and statements that change tables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from onager.errors import PlanningError
from onager.exchange_layout import has_scheme, local_path
from onager.executor.spark.connect.catalog_calls import statement_of
from onager.executor.spark.connect.commands import STATEMENT, WRITE, refused, text_of
from onager.executor.spark.connect.sessions import ConnectSession
from onager.executor.spark.jvm import Jvm, kind
from onager.executor.spark.kernel.queries import QueryTools, shown
from onager.executor.spark.planning.catalog import PlanningCatalog
from onager.executor.spark.planning.names import quoted, quoted_text
from onager.executor.spark.planning.sizing import is_fused
from onager.executor.spark.planning.sql_script import PlannedScript, plan_script
from onager.executor.spark.planning.statement_classes import (
    CHANGING,
    DATA_MODIFYING,
    HARMLESS,
    IGNORED,
    LATER,
    MOVING,
    SHOWING,
    TRUNCATING,
    WRITING,
)
from onager.private_files import make_private_directory
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import CHECKPOINT, ExecutePlanRequest, Expression, Relation

_ROWS: Final = "__onager_rows"
"""The temporary view of what is written into a table."""
_UNSPECIFIED, _APPEND, _OVERWRITE, _ERROR, _IGNORE = range(5)
_MODES: Final = {
    **dict.fromkeys((_UNSPECIFIED, _ERROR, _IGNORE), "error"),
    _APPEND: "append",
    _OVERWRITE: "overwrite",
}
_V2_CREATE, _V2_OVERWRITE, _V2_PARTITIONS, _V2_APPEND, _V2_REPLACE, _V2_CREATE_OR_REPLACE = range(1, 7)
_INSERT_INTO: Final = 2
_EFFECTS: Final = (
    HARMLESS
    | CHANGING
    | MOVING
    | TRUNCATING
    | WRITING
    | LATER
    | IGNORED
    | DATA_MODIFYING
    | {
        *("AddArchivesCommand", "AddFilesCommand", "AddJarsCommand", "Call", "CompoundBody", "CreateFunctionCommand"),
        *("CreateSQLFunctionCommand", "CreateViewCommand", "DropFunctionCommand", "LoadData", "SetCatalogCommand"),
    }
)
"""Parsed statements that do more than show something."""
_GATHERING: Final = frozenset(
    {
        *(
            "Aggregate",
            "Deduplicate",
            "FlatMapCoGroupsInPandas",
            "FlatMapGroupsInPandas",
            "Join",
            "RebalancePartitions",
        ),
        *("Repartition", "RepartitionByExpression", "Sort", "Window", "WindowGroupLimit"),
    }
)
"""What reads, mostly, all of its input before it gives the first row."""
_DYNAMIC: Final = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True, slots=True)
class _Table:
    """How a table is made."""

    name: str
    source: str
    partitioned_by: tuple[str, ...] = ()
    clause: str = ""


def connect_query(
    plan: pb.ConnectPlan, made: ConnectSession, tables: PlanningCatalog | None, kept_at: str
) -> PlannedScript:
    """Return the query of an operation, and where its rows go; Spark's errors, `UnsupportedPlanError`.

    *kept_at*: where its job writes a checkpoint.
    """
    request = ExecutePlanRequest.FromString(plan.request)
    command = request.plan.command
    if plan.work:
        made.make_all(command.SerializeToString())
    match plan.work:
        case "":
            made.make(made.connect.reads("Relation", request.plan.root))
            return PlannedScript(_query(made, request.plan.root), None)
        case work if work == STATEMENT:
            text = statement_of(request, made) if request.plan.root else text_of(command.sql_command)[1]
            return _planned(made.spark, text, tables)
        case work if work == WRITE and command.HasField("write_operation"):
            return _write(command.write_operation, made, tables)
        case work if work == WRITE:
            return _write_v2(command.write_operation_v2, made, tables)
        case work if work == CHECKPOINT:
            return _checkpoint(command.checkpoint_command, made, kept_at)
        case _:
            raise PlanningError(f"the operation asks for {plan.work}, which a newer scheduler knows")


def _query(made: ConnectSession, relation: bytes) -> DataFrame:
    """Return the query of a relation: also of what `show` prints, which Spark's planner would run at once."""
    asked = Relation.FromString(relation)
    for name in ("show_string", "html_string"):
        if asked.HasField(name):
            show = getattr(asked, name)
            style = "html" if name == "html_string" else "vertical" if show.vertical else "plain"
            frame = _frame(made, show.input)
            is_query = _is_worth_tasks(frame, made.stored.conf)
            text = shown(frame._jdf, Jvm.of(made.spark), show.num_rows, show.truncate, style, is_query=is_query)  # noqa: SLF001
            return DataFrame(text, made.spark)
    return _frame(made, relation)


def _is_worth_tasks(frame: DataFrame, conf: Mapping[str, str]) -> bool:
    """Return whether even the first rows of *frame* need much of what it reads, and that is much."""
    tools, execution = QueryTools(Jvm.of(frame.sparkSession)), frame._jdf.queryExecution()  # noqa: SLF001
    if is_fused(conf, tools.input_bytes(execution.analyzed(), is_optimized=False)):
        return False
    optimized = execution.optimizedPlan()
    is_small = is_fused(conf, tools.input_bytes(optimized, is_optimized=True))
    return not is_small and bool(tools.first_of(optimized, _GATHERING))


def _frame(made: ConnectSession, relation: bytes) -> DataFrame:
    session, connect = made.spark, made.connect
    tools, plan = QueryTools(Jvm.of(session)), connect.plan(relation)
    # Spark carries commands out as soon as it has a dataset of them, and a job is planned as often as need be.
    effect = tools.first_of(plan, _EFFECTS)
    if effect or (tools.is_command(plan) and kind(plan) not in SHOWING):
        raise refused(f"a relation with a command in it ({effect or kind(plan)})", "give the statement to spark.sql")
    return DataFrame(connect.dataset(plan), session)


def _planned(session: SparkSession, text: str, tables: PlanningCatalog | None) -> PlannedScript:
    planned = plan_script(session, text, tables)
    if not isinstance(planned, PlannedScript):
        raise PlanningError("a statement is a single one")  # it may not become steps
    return planned


# ---------------------------------------------------------------- writes


def _checkpoint(command: Any, made: ConnectSession, kept_at: str) -> PlannedScript:
    frame = _frame(made, command.relation)
    if not frame.columns:
        raise refused("a checkpoint without columns", "select one")
    made.connect.check_kept(frame.schema.json())
    access = made.spark.sparkContext.getConf().get("spark.onager.exchangeAccess", "owner")
    make_private_directory(Path(local_path(kept_at)).parent, str(access))
    return PlannedScript(frame, pb.Sink(path=kept_at, format="parquet", mode="overwrite"), is_kept=True)


def _write(write: Any, made: ConnectSession, tables: PlanningCatalog | None) -> PlannedScript:
    session = made.spark
    if write.with_schema_evolution:
        raise refused("writes that change a table's schema", "use ALTER TABLE")
    source = write.source or str(session.conf.get("spark.sql.sources.default"))
    frame = _frame(made, write.input)
    if not write.HasField("table"):
        path = write.path or dict(write.options).get("path", "")
        if not path:
            raise refused(f"a write in the format {source} that has no path", "give save() a path")
        if write.HasField("bucket_by") or write.sort_column_names:
            raise refused("a dataset with buckets", "write a table (saveAsTable)")
        if write.mode == _IGNORE and not has_scheme(path) and os.path.lexists(local_path(path)):
            return PlannedScript(session.range(0), None)
        sink = pb.Sink(
            path=path,
            format=source.lower(),
            mode=_MODES[write.mode],
            options={key: value for key, value in write.options.items() if key != "path"},
            partition_by=list(write.partitioning_columns),
        )
        return PlannedScript(frame, sink)
    name = made.table_name(write.table.table_name)
    if write.table.save_method == _INSERT_INTO:
        verb = "INSERT OVERWRITE" if write.mode == _OVERWRITE else "INSERT INTO"
        return _into(session, frame, tables, f"{verb} {name} SELECT * FROM {_ROWS}")
    if write.clustering_columns:
        raise refused("clustered tables (clusterBy)", "use bucketBy or partitionBy")
    clause = _options(write.options)
    if write.HasField("bucket_by"):
        by = f"CLUSTERED BY ({_columns(write.bucket_by.bucket_column_names)})"
        order = f" SORTED BY ({_columns(write.sort_column_names)})" if write.sort_column_names else ""
        clause += f" {by}{order} INTO {write.bucket_by.num_buckets} BUCKETS"
    table = _Table(name, source, tuple(write.partitioning_columns), clause)
    is_there = session.catalog.tableExists(write.table.table_name)
    if write.mode == _APPEND and is_there:
        return _into(session, frame, tables, f"INSERT INTO {name} BY NAME SELECT * FROM {_ROWS}")
    may_be = "IF NOT EXISTS " if write.mode == _IGNORE else ""
    before = f"DROP TABLE {name}; " if write.mode == _OVERWRITE and is_there else ""
    return _into(session, frame, tables, before + _create(table, may_be))


def _write_v2(write: Any, made: ConnectSession, tables: PlanningCatalog | None) -> PlannedScript:
    session = made.spark
    if write.mode == _V2_OVERWRITE or write.with_schema_evolution or write.clustering_columns:
        raise refused("overwrite(condition), clusterBy and schema evolution of writeTo", "use overwritePartitions()")
    frame = _frame(made, write.input)
    name = made.table_name(write.table_name)
    if write.mode == _V2_APPEND:
        return _into(session, frame, tables, f"INSERT INTO {name} BY NAME SELECT * FROM {_ROWS}")
    if write.mode == _V2_PARTITIONS:
        session.conf.set(_DYNAMIC, "dynamic")
        return _into(session, frame, tables, f"INSERT OVERWRITE {name} BY NAME SELECT * FROM {_ROWS}")
    source = write.provider or str(session.conf.get("spark.sql.sources.default"))
    columns = tuple(_column(expression) for expression in write.partitioning_columns)
    properties = ", ".join(
        f"{quoted_text(key)} = {quoted_text(value)}" for key, value in sorted(write.table_properties.items())
    )
    clause = _options(write.options) + (f" TBLPROPERTIES ({properties})" if properties else "")
    is_there = session.catalog.tableExists(write.table_name)
    replaces = write.mode == _V2_REPLACE or (write.mode == _V2_CREATE_OR_REPLACE and is_there)
    before = f"DROP TABLE {name}; " if replaces else ""
    return _into(session, frame, tables, before + _create(_Table(name, source, columns, clause), ""))


def _into(session: SparkSession, frame: DataFrame, tables: PlanningCatalog | None, text: str) -> PlannedScript:
    if tables is None:
        raise refused("tables of the executor's own catalog", "write a dataset (save)")
    frame.createOrReplaceTempView(_ROWS)
    return _planned(session, text, tables)


def _create(table: _Table, may_be: str) -> str:
    by = f" PARTITIONED BY ({_columns(table.partitioned_by)})" if table.partitioned_by else ""
    return f"CREATE TABLE {may_be}{table.name} USING {table.source}{by}{table.clause} AS SELECT * FROM {_ROWS}"


def _column(expression: bytes) -> str:
    found = Expression.FromString(expression)
    if found.WhichOneof("expr_type") != "unresolved_attribute":
        raise refused("partitions by an expression", "partition by a column")
    return str(found.unresolved_attribute.unparsed_identifier).strip("`")


def _columns(names: Any) -> str:
    return ", ".join(quoted(name) for name in names)


def _options(options: Any) -> str:
    location = dict(options).get("path", "")
    others = ", ".join(
        f"{quoted_text(key)} {quoted_text(value)}" for key, value in sorted(options.items()) if key != "path"
    )
    return (f" OPTIONS ({others})" if others else "") + (f" LOCATION {quoted_text(location)}" if location else "")


__all__ = ["connect_query"]
