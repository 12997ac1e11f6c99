"""Operations of Spark Connect that are jobs: relations, writes, and statements that change tables."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from onager.errors import PlanningError
from onager.exchange_layout import has_scheme, local_path
from onager.executor.spark.connect import entries
from onager.executor.spark.connect.catalog_calls import statement_of
from onager.executor.spark.connect.commands import STATEMENT, WRITE, refused
from onager.executor.spark.connect.scripting import in_script
from onager.executor.spark.connect.sessions import ConnectSession
from onager.executor.spark.jvm import Jvm, class_name
from onager.executor.spark.kernel.queries import QueryTools, shown
from onager.executor.spark.planning.catalog import PlanningCatalog
from onager.executor.spark.planning.sizing import is_single_stage
from onager.executor.spark.planning.sql_script import JobQuery, plan_script, plan_write
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
from onager.protocol.spark_connect import CHECKPOINT, ExecutePlanRequest, Relation
from onager.protocol.sql_commands import statement_in

_UNSPECIFIED, _APPEND, _OVERWRITE, _ERROR, _IGNORE = range(5)
_MODES: Final = {
    **dict.fromkeys((_UNSPECIFIED, _ERROR, _IGNORE), "error"),
    _APPEND: "append",
    _OVERWRITE: "overwrite",
}
_V2_PARTITIONS: Final = 3
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


def connect_query(plan: pb.ConnectPlan, made: ConnectSession, tables: PlanningCatalog | None, kept_at: str) -> JobQuery:
    """Return the query of an operation, and where its rows go; Spark's errors, `UnsupportedPlanError`.

    *kept_at*: where its job writes a checkpoint.
    """
    request = ExecutePlanRequest.FromString(plan.request)
    with in_script(request, made.spark):
        return _job_query(request, plan.work, made, tables, kept_at)


def _job_query(request: Any, work: str, made: ConnectSession, tables: PlanningCatalog | None, kept_at: str) -> JobQuery:
    command = request.plan.command
    if work:
        made.make_all(command.SerializeToString(), caches=True)
    else:
        made.make({*made.reads("Relation", request.plan.root), *entries.caches(made.stored)})
    query = _query_of(request, work, made, tables, kept_at)
    return query if tables is None else replace(query, caches=made.caches)


def _query_of(request: Any, work: str, made: ConnectSession, tables: PlanningCatalog | None, kept_at: str) -> JobQuery:
    command = request.plan.command
    match work:
        case "":
            return JobQuery(_query(made, request.plan.root), None)
        case _ if work == STATEMENT:
            text = statement_of(request, made) if request.plan.root else statement_in(command.sql_command).text
            return _planned(made.spark, text, tables)
        case _ if work == WRITE and command.HasField("write_operation"):
            return _write(command, made, tables)
        case _ if work == WRITE:
            return _write_v2(command, made, tables)
        case _ if work == CHECKPOINT:
            return _checkpoint(command.checkpoint_command, made, kept_at)
        case _:
            raise PlanningError(f"the operation asks for {work}, which a newer scheduler knows")


def _query(made: ConnectSession, relation: bytes) -> DataFrame:
    """Return the query of a relation: also of what `show` prints, which Spark's planner would run at once."""
    asked = Relation.FromString(relation)
    for name in ("show_string", "html_string"):
        if asked.HasField(name):
            show = getattr(asked, name)
            style = "html" if name == "html_string" else "vertical" if show.vertical else "plain"
            frame = _frame(made, show.input)
            is_query = bool(made.caches.read_by(frame._jdf)) or _is_worth_tasks(frame, made.stored.conf)  # noqa: SLF001
            text = shown(frame._jdf, Jvm.of(made.spark), show.num_rows, show.truncate, style, is_query=is_query)  # noqa: SLF001
            return DataFrame(text, made.spark)
    frame = _frame(made, relation)
    made.connect.check_result(frame._jdf)  # noqa: SLF001
    return frame


def _is_worth_tasks(frame: DataFrame, conf: Mapping[str, str]) -> bool:
    """Return whether even the first rows of *frame* need much of what it reads, and that is much."""
    tools, execution = QueryTools(Jvm.of(frame.sparkSession)), frame._jdf.queryExecution()  # noqa: SLF001
    if is_single_stage(conf, tools.input_bytes(execution.analyzed(), is_optimized=False)):
        return False
    optimized = execution.optimizedPlan()
    is_small = is_single_stage(conf, tools.input_bytes(optimized, is_optimized=True))
    return not is_small and bool(tools.first_of(optimized, _GATHERING))


def _frame(made: ConnectSession, relation: bytes) -> DataFrame:
    plan = made.connect.plan(relation)
    _check_query(made, plan)
    return DataFrame(made.connect.dataset(plan), made.spark)


def _check_query(made: ConnectSession, plan: Any) -> None:
    """Raise for commands in *plan*: Spark carries them out as it analyzes them, and a job may be planned again."""
    tools = QueryTools(Jvm.of(made.spark))
    effect = tools.first_of(plan, _EFFECTS)
    if effect or (tools.is_command(plan) and class_name(plan) not in SHOWING):
        raise refused(
            f"a relation with a command in it ({effect or class_name(plan)})", "give the statement to spark.sql"
        )


def _planned(session: SparkSession, text: str, tables: PlanningCatalog | None) -> JobQuery:
    planned = plan_script(session, text, tables)
    if not isinstance(planned, JobQuery):
        raise PlanningError("a statement is a single one")  # it may not become steps
    return planned


# ---------------------------------------------------------------- writes


def _checkpoint(command: Any, made: ConnectSession, kept_at: str) -> JobQuery:
    frame = _frame(made, command.relation)
    if not frame.columns:
        raise refused("a checkpoint without columns", "select one")
    made.connect.check_kept(frame.schema.json())
    access = made.spark.sparkContext.getConf().get("spark.onager.exchangeAccess", "owner")
    make_private_directory(Path(local_path(kept_at)).parent, str(access))
    return JobQuery(frame, pb.Sink(path=kept_at, format="parquet", mode="overwrite"), is_kept=True)


def _write(command: Any, made: ConnectSession, tables: PlanningCatalog | None) -> JobQuery:
    """Return what Spark's writer makes of a WriteOperation: Spark checks what is written, and into what."""
    write = command.write_operation
    _check_input(made, write.input)
    if write.HasField("table"):
        if write.clustering_columns:
            raise refused("clustered tables (clusterBy)", "use bucketBy or partitionBy")
        return _into_table(command, made, tables)
    query, file_format = made.connect.written(made.connect.writing(command.SerializeToString()))
    frame = DataFrame(made.connect.dataset(query), made.spark)
    if not file_format:
        return JobQuery(frame, None)
    path = write.path or next(value for key, value in write.options.items() if key.lower() == "path")
    if write.mode == _IGNORE and not has_scheme(path) and os.path.lexists(local_path(path)):
        return JobQuery(made.spark.range(0), None)
    for name in write.partitioning_columns:  # directories are called as the writer says
        frame = frame.withColumnRenamed(name, name)
    sink = pb.Sink(
        path=path,
        format=file_format,
        mode=_MODES[write.mode],
        options={key: value for key, value in write.options.items() if key.lower() != "path"},
        partition_by=list(write.partitioning_columns),
    )
    return JobQuery(frame, sink, takes_any_option=True)


def _write_v2(command: Any, made: ConnectSession, tables: PlanningCatalog | None) -> JobQuery:
    write = command.write_operation_v2
    if write.with_schema_evolution:
        raise refused("writes that change a table's columns (withSchemaEvolution)", "use ALTER TABLE … ADD COLUMNS")
    if write.clustering_columns:
        raise refused("clustered tables (clusterBy)", "use partitionedBy")
    _check_input(made, write.input)
    if write.mode == _V2_PARTITIONS:
        made.spark.conf.set(_DYNAMIC, "dynamic")
    return _into_table(command, made, tables)


def _check_input(made: ConnectSession, relation: bytes) -> None:
    """Raise for commands in what is written: Spark's writers carry them out."""
    _check_query(made, made.connect.plan(relation))


def _into_table(command: Any, made: ConnectSession, tables: PlanningCatalog | None) -> JobQuery:
    if tables is None:
        raise refused("tables of the executor's own catalog", "write a dataset (save)")
    return plan_write(made.spark, made.connect.writing(command.SerializeToString()), tables)


__all__ = ["connect_query"]
