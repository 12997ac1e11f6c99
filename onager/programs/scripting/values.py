"""Rows that queries gave to a script, in Arrow."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from onager.programs.scripting.scopes import Value


class ArrowRows:
    """Rows that are held in memory."""

    def __init__(self, table: pa.Table, schema: Any) -> None:
        """*schema*: Spark's types of the columns of *table*, a StructType."""
        self.table = table
        self.schema = schema
        self.type: str = schema.json()

    def __len__(self) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)

    def width(self) -> int:
        """Return how many columns they have."""
        return len(self.schema.fields)

    def variables(self, at: int, names: Sequence[str] = ()) -> list[Value]:
        """Return the columns of a row as variables; beyond the last row their values are NULL."""
        found = []
        for number, field in enumerate(self.schema.fields):
            column = pa.Table.from_arrays(
                [self.table.column(number).slice(at, 1)], schema=pa.schema([self.table.schema.field(number)])
            )
            kind = {"name": "value", "type": field.dataType.jsonValue(), "nullable": True, "metadata": field.metadata}
            found.append(
                {
                    "name": names[number] if names else field.name,
                    "type": json.dumps({"type": "struct", "fields": [kind]}),
                    "rows": _stream(column),
                    "default_sql": "null",
                }
            )
        return found

    def stream(self, at: int) -> str:
        """Return a row as a stream of Arrow, in Base64; beyond the last one, a stream without rows."""
        return _stream(self.table.slice(at, 1))

    def boolean(self) -> bool | None:
        """Return whether the first row's only value is true; None if that is no truth value."""
        if [field.dataType.typeName() for field in self.schema.fields] != ["boolean"]:
            return None
        return self.table.column(0)[0].as_py() is True


def _stream(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()
