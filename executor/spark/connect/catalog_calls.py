"""Calls of spark.catalog as statements of SQL, which do the same."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from onager.executor.spark.connect.sessions import ConnectSession
from onager.executor.spark.planning.names import quoted_text
from onager.protocol.spark_connect import ExecutePlanRequest, Relation


def statement_of(request: Any, session: ConnectSession) -> str:
    """Return the statement that does what an ExecutePlanRequest asks of the catalog; "" if there is none."""
    catalog = Relation.FromString(request.plan.root).catalog
    called = catalog.WhichOneof("cat_type")
    make = _STATEMENTS.get(called)
    return "" if make is None else make(getattr(catalog, called), session)


def statement_request(text: str) -> Any:
    """Return the ExecutePlanRequest of a statement."""
    relation = Relation()
    relation.sql.query = text
    request = ExecutePlanRequest()
    request.plan.command.sql_command.input = relation.SerializeToString()
    return request


def _create_table(call: Any, session: ConnectSession) -> str:
    source = call.source or str(session.spark.conf.get("spark.sql.sources.default"))
    columns = session.connect.ddl(call.schema.SerializeToString()) if call.HasField("schema") else ""
    text = f"CREATE TABLE {session.table_name(call.table_name)}{f' ({columns})' if columns else ''} USING {source}"
    options = {key: value for key, value in call.options.items() if key.lower() != "path"}
    path = call.path or dict(call.options).get("path", "")
    comment = getattr(call, "description", "")
    return (
        text
        + (f" OPTIONS ({_pairs(options)})" if options else "")
        + (f" LOCATION {quoted_text(path)}" if path else "")
        + (f" COMMENT {quoted_text(comment)}" if comment else "")
    )


def _create_database(call: Any, session: ConnectSession) -> str:
    properties = dict(call.properties)
    comment, location = properties.pop("comment", ""), properties.pop("location", "")
    return (
        f"CREATE DATABASE {'IF NOT EXISTS ' if call.if_not_exists else ''}{session.table_name(call.db_name)}"
        + (f" COMMENT {quoted_text(comment)}" if comment else "")
        + (f" LOCATION {quoted_text(location)}" if location else "")
        + (f" WITH DBPROPERTIES ({_pairs(properties, '=')})" if properties else "")
    )


def _pairs(options: Mapping[str, str], between: str = "") -> str:
    return ", ".join(f"{quoted_text(key)} {between} {quoted_text(value)}" for key, value in sorted(options.items()))


def _may(call: Any) -> str:
    return "IF EXISTS " if call.if_exists else ""


_STATEMENTS: Final[Mapping[str, Callable[[Any, ConnectSession], str]]] = {
    "create_table": _create_table,
    "create_external_table": _create_table,
    "drop_table": lambda call, session: (
        f"DROP TABLE {_may(call)}{session.table_name(call.table_name)}{' PURGE' if call.purge else ''}"
    ),
    "drop_view": lambda call, session: f"DROP VIEW {_may(call)}{session.table_name(call.view_name)}",
    "create_database": _create_database,
    "drop_database": lambda call, session: (
        f"DROP DATABASE {_may(call)}{session.table_name(call.db_name)}{' CASCADE' if call.cascade else ''}"
    ),
    "truncate_table": lambda call, session: f"TRUNCATE TABLE {session.table_name(call.table_name)}",
    "recover_partitions": lambda call, session: f"MSCK REPAIR TABLE {session.table_name(call.table_name)}",
    "analyze_table": lambda call, session: (
        f"ANALYZE TABLE {session.table_name(call.table_name)} COMPUTE STATISTICS{' NOSCAN' if call.no_scan else ''}"
    ),
}
