"""Graphs and events as JSON that an admin can read; every state survives the round trip.

A record begins with ``schema_version`` as ``major.minor``. A reader refuses another major version, and ignores fields
that a newer minor version added. ``needs`` follows if the record uses features that a release before did not have: a
reader that lacks one refuses the record, since it would misread it. `NEEDS` says which record needs which feature.
Nothing is started that needs a feature which some scheduler lacks (`onager.scheduler.cluster.members`).
"""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

from immutables import Map
from pydantic import TypeAdapter, ValidationError

from onager.errors import SchemaVersionError, StateCorruptError
from onager.execution_graph.encoding import encoder
from onager.execution_graph.events import Event
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.maps import SPARSE
from onager.execution_graph.stages import Stage, TaskOutput
from onager.features import check_features

SCHEMA_MAJOR = 11
"""The major version that this module reads and writes. Lower ones were those of Onager 0.1."""
_MINOR = 0
_GRAPH = "an execution graph"
_PORTION = 500
_PORTION_BYTES = 64 * 1024
"""The bytes that take a few milliseconds."""
_OUTPUTS = b'"outputs":{'
"""The only place where a record begins an object of this name: quotes within strings are escaped."""
_OUTPUTS_BEGIN = re.compile(rb'"outputs":\{(?=")')
_NEXT_OUTPUT = re.compile(rb'\},"\d+":\{"nonce":')
"""Where one entry of such an object ends and the next begins, as `encode_graph` writes them; it occurs nowhere else."""
_VERSION = re.compile(rb'\{"schema_version":"(\d{1,9})\.(\d{1,9})",(?:"needs":"([a-z0-9,-]{1,999})",)?')


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """What one append to a job's log commits: all of it or nothing."""

    batch_id: str
    """Drawn by the writer: tells whether a write of unknown outcome was this one."""
    events: tuple[Event, ...]
    writer: Annotated[str, SPARSE] = ""
    """The scheduler that committed it."""


NEEDS: Mapping[str, Callable[[ExecutionGraph | EventBatch], bool]] = {}
"""For each feature of `onager.features` that changes what records mean: whether a record uses it."""


def encode_graph(graph: ExecutionGraph) -> bytes:
    """Return *graph* as JSON; equal graphs give equal bytes."""
    return _encode(encoder(ExecutionGraph)(graph), graph)


def decode_graph(data: bytes) -> ExecutionGraph:
    """Return the graph that `encode_graph` wrote.

    Raises `SchemaVersionError` for another major version or a feature that this release lacks, and `StateCorruptError`
    for anything that is not a graph.
    """
    graph: ExecutionGraph = _decode(_graphs(), data, _GRAPH)
    return graph


def encoding_graph(graph: ExecutionGraph) -> Iterator[bytes]:
    """Yield what `encode_graph` returns, in portions: many tasks take a while, and other work may be waiting."""
    by_stage = [s.ledger.outputs for s in graph.stages if s.ledger.outputs]
    left: list[list[int]] = []
    stages: list[Stage] = []
    for stage in graph.stages:
        outputs = stage.ledger.outputs
        if outputs:
            *others, last = sorted(outputs)
            left.append(others)
            stage = _with_outputs(stage, Map({last: outputs[last]}))  # noqa: PLW2901
        stages.append(stage)
    before, *after = encode_graph(replace(graph, stages=tuple(stages))).split(_OUTPUTS)
    yield before
    write = encoder(TaskOutput)
    for outputs, partitions, rest in zip(by_stage, left, after, strict=True):
        yield _OUTPUTS
        for start in range(0, len(partitions), _PORTION):
            some = partitions[start : start + _PORTION]
            yield "".join([f'"{p}":{write(outputs[p])},' for p in some]).encode()
        yield rest


def decoding_graph(data: bytes) -> Generator[None, None, ExecutionGraph]:
    """Return what `decode_graph` does, in portions: yield to let other work run."""
    skeleton = bytearray()
    portions: list[list[bytes]] = []
    kept = 0
    starts = [found.end() for found in _OUTPUTS_BEGIN.finditer(data)]
    for start, end in zip(starts, [*starts, len(data)][1:], strict=True):
        skeleton += data[kept:start]
        kept, some = start, list[bytes]()
        # The last entries stay in the text: only a parser can tell where this stage's entries end.
        while (found := _NEXT_OUTPUT.search(data, kept + _PORTION_BYTES, end)) is not None:
            some.append(data[kept : found.start() + 1])
            kept = found.start() + 2
        portions.append(some)
    graph = decode_graph(bytes(skeleton + data[kept:]))
    minor = _check_version(data, _GRAPH)
    waiting = iter(portions)
    stages: list[Stage] = []
    for stage in graph.stages:
        some = next(waiting, []) if stage.ledger.outputs else []
        outputs = stage.ledger.outputs.mutate()
        for portion in some:
            yield
            outputs.update(_validated(_outputs(), b"{%b}" % portion, _GRAPH, minor))
        stages.append(_with_outputs(stage, outputs.finish()) if some else stage)
    return replace(graph, stages=tuple(stages))


def _with_outputs(stage: Stage, outputs: "Map[int, TaskOutput]") -> Stage:
    return replace(stage, ledger=replace(stage.ledger, outputs=outputs))


def encode_batch(batch: EventBatch) -> bytes:
    """Return *batch* as JSON."""
    return _encode(encoder(EventBatch)(batch), batch)


def encode_event(event: Event) -> str:
    """Return one event as JSON, as a batch has it."""
    return encoder(Event)(event)


def decode_batch(data: bytes) -> EventBatch:
    """Return the batch that `encode_batch` wrote; errors as in `decode_graph`."""
    batch: EventBatch = _decode(_batches(), data, "a batch of events")
    return batch


def _encode(body: str, record: ExecutionGraph | EventBatch) -> bytes:
    needs = ",".join([feature for feature, uses in NEEDS.items() if uses(record)])
    named = f'"needs":"{needs}",' if needs else ""
    return f'{{"schema_version":"{SCHEMA_MAJOR}.{_MINOR}",{named}{body[1:]}'.encode()


def _decode(adapter: TypeAdapter[Any], data: bytes, what: str) -> Any:
    return _validated(adapter, data, what, _check_version(data, what))


def _validated(adapter: TypeAdapter[Any], data: bytes, what: str, minor: int) -> Any:
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        if minor > _MINOR:
            # It need not be damaged: the release that wrote it may read it.
            raise SchemaVersionError(what, f"{SCHEMA_MAJOR}.{minor}", f"{SCHEMA_MAJOR}.{_MINOR}") from error
        found = error.errors(include_url=False, include_input=False)[:3]
        raise StateCorruptError(f"{what} cannot be read: {found}") from error


def _check_version(data: bytes, what: str) -> int:
    """Return the minor version of a record that can be read here; errors as in `decode_graph`."""
    found = _VERSION.match(data)
    if found is None:
        raise StateCorruptError(f"{what} cannot be read: it does not begin with a schema version")
    major, minor = int(found[1]), int(found[2])
    if major != SCHEMA_MAJOR:
        raise SchemaVersionError(what, f"{major}.{minor}", f"{SCHEMA_MAJOR}.{_MINOR}")
    check_features(found[3].decode().split(",") if found[3] else (), what)
    return minor


@cache
def _graphs() -> TypeAdapter[Any]:
    return TypeAdapter(ExecutionGraph)


@cache
def _outputs() -> TypeAdapter[Any]:
    return TypeAdapter(dict[int, TaskOutput])


@cache
def _batches() -> TypeAdapter[Any]:
    return TypeAdapter(EventBatch)
