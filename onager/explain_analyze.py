"""EXPLAIN ANALYZE: a query whose result, for its reader, is its plan with metrics.

The planner marks the schema of such a result; the rows are made all the same, since making them is what is measured.
A reader that sees the mark asks for the final plan in place of the rows.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN: Final = "plan"
"""The only column of what is shown."""
_MARK: Final = b"onager.explain_analyze"


def marked_analyzed(schema: bytes) -> bytes:
    """Return the Arrow IPC schema message *schema* with the mark."""
    import pyarrow as pa

    found = pa.ipc.read_schema(pa.py_buffer(schema))
    marked: bytes = found.with_metadata({**(found.metadata or {}), _MARK: b"1"}).serialize().to_pybytes()
    return marked


def is_analyzed(schema: "pa.Schema") -> bool:
    """Return whether the result with *schema* is that of EXPLAIN ANALYZE."""
    return _MARK in (schema.metadata or {})
