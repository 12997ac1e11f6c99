"""Graphs and events as JSON that an admin can read; every state survives the round trip.

A record carries ``schema_version`` as ``major.minor``: a reader refuses a newer major version, and ignores fields that
a newer minor version added.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from execution_graph.encoding import encoder
from execution_graph.events import Event
from execution_graph.graph import ExecutionGraph
from onager.errors import SchemaVersionError, StateCorruptError

SCHEMA_MAJOR = 1
SCHEMA_MINOR = 0
_VERSION = re.compile(rb'\{"schema_version":"(\d{1,9})\.\d{1,9}",')


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """What one append to a job's log commits: all of it or nothing."""

    batch_id: str
    """Drawn by the writer: settles whether a write of unknown outcome was this one."""
    events: tuple[Event, ...]


def encode_graph(graph: ExecutionGraph) -> bytes:
    """Return *graph* as JSON; equal graphs give equal bytes."""
    return _encode(encoder(ExecutionGraph)(graph))


def decode_graph(data: bytes) -> ExecutionGraph:
    """Return the graph that `encode_graph` wrote.

    Raises `SchemaVersionError` for a newer major version and `StateCorruptError` for anything that is not a graph.
    """
    graph: ExecutionGraph = _decode(_graphs(), data, "an execution graph")
    return graph


def encode_batch(batch: EventBatch) -> bytes:
    """Return *batch* as JSON."""
    return _encode(encoder(EventBatch)(batch))


def decode_batch(data: bytes) -> EventBatch:
    """Return the batch that `encode_batch` wrote; errors as in `decode_graph`."""
    batch: EventBatch = _decode(_batches(), data, "a batch of events")
    return batch


def _encode(body: str) -> bytes:
    return f'{{"schema_version":"{SCHEMA_MAJOR}.{SCHEMA_MINOR}",{body[1:]}'.encode()


def _decode(adapter: TypeAdapter[Any], data: bytes, what: str) -> Any:
    _check_version(data, what)
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:3]
        raise StateCorruptError(f"{what} cannot be read: {found}") from error


def _check_version(data: bytes, what: str) -> None:
    found = _VERSION.match(data)
    if found is None:
        raise StateCorruptError(f"{what} cannot be read: it does not begin with a schema version")
    major = int(found[1])
    if major > SCHEMA_MAJOR:
        raise SchemaVersionError(what, major, SCHEMA_MAJOR)


@cache
def _graphs() -> TypeAdapter[Any]:
    return TypeAdapter(ExecutionGraph)


@cache
def _batches() -> TypeAdapter[Any]:
    return TypeAdapter(EventBatch)
