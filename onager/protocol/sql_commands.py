"""Statements of SQL as clients of Spark Connect send them."""

from typing import Any, NamedTuple

from onager.protocol.spark_connect import Relation


class SqlStatement(NamedTuple):
    """A statement of SQL."""

    relation: bytes
    """It as a relation, encoded."""
    text: str
    is_bound: bool
    """Whether values or DataFrames are bound to places in it."""


def statement_in(command: Any) -> SqlStatement:
    """Return the statement in a SqlCommand, of an older client, too."""
    if not command.input:
        relation = Relation()
        for name in ("args", "pos_args", "named_arguments", "pos_arguments"):
            getattr(relation.sql, name).MergeFrom(getattr(command, name))
        relation.sql.query = command.sql
        return SqlStatement(relation.SerializeToString(), command.sql, _is_bound(relation.sql))
    relation = Relation.FromString(command.input)
    if relation.WhichOneof("rel_type") == "with_relations":
        inner = Relation.FromString(relation.with_relations.root)
        return SqlStatement(command.input, inner.sql.query, is_bound=True)
    return SqlStatement(command.input, relation.sql.query, _is_bound(relation.sql))


def _is_bound(sql: Any) -> bool:
    return bool(sql.args or sql.pos_args or sql.named_arguments or sql.pos_arguments)
