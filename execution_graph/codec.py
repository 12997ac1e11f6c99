"""Graphs and events as JSON that an admin can read; every state survives the round trip.

A record begins with ``schema_version`` as ``major.minor``. A reader refuses another major version, and ignores fields
that a newer minor version added. ``needs`` follows if the record uses features that a release before did not have: a
reader that lacks one refuses the record, since it would misread it. `NEEDS` says which record needs which feature.
Nothing is started that needs a feature which some scheduler lacks (`onager.scheduler.cluster.live_schedulers`).

The outputs of stages are apart from the rest of the graph, in portions: a graph of many tasks takes a while to write
and to read, and other work may be waiting.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, TypeVar, get_args

import msgspec
from immutables import Map
from msgspec import Raw, Struct
from msgspec.structs import astuple, fields, replace

from onager.errors import SchemaVersionError, StateCorruptError
from onager.execution_graph.events import Event
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.record import Record
from onager.execution_graph.stages import Stage, TaskOutput
from onager.execution_graph.task_latencies import Latencies, StageLatencies
from onager.features import check_features

SCHEMA_MAJOR = 11
"""The major version that this module reads and writes. Lower ones were those of Onager 0.1."""
_MINOR = 0
_GRAPH = "an execution graph"
_PORTION = 500
"""The outputs that take about a millisecond."""
_VERSION = re.compile(rb'\{"schema_version":"(\d{1,9})\.(\d{1,9})",(?:"needs":"([a-z0-9,-]{1,999})",)?')
_Record = TypeVar("_Record", bound=Record)
_Result = TypeVar("_Result")


class EventBatch(Record, frozen=True, kw_only=True):
    """What one append to a job's log commits: all of it or nothing."""

    batch_id: str
    """Drawn by the writer: tells whether a write of unknown outcome was this one."""
    events: tuple[Event, ...]
    writer: str = ""
    """The scheduler that committed it."""


class _GraphRecord(Struct, frozen=True):
    """How a graph is stored."""

    graph: ExecutionGraph
    """Without the outputs of its stages."""
    outputs: dict[int, list[Raw]]
    """By stage, in portions: each is an object from partition to output, in ascending order."""


NEEDS: Mapping[str, Callable[[ExecutionGraph | EventBatch], bool]] = {}
"""For each feature of `onager.features` that changes what records mean: whether a record uses it."""


def encode_graph(graph: ExecutionGraph) -> bytes:
    """Return *graph* as JSON; equal graphs give equal bytes."""
    return _finished(encoding_graph(graph))


def decode_graph(data: bytes) -> ExecutionGraph:
    """Return the graph that `encode_graph` wrote.

    Raises `SchemaVersionError` for another major version or a feature that this release lacks, and `StateCorruptError`
    for anything that is not a graph.
    """
    return _finished(decoding_graph(data))


def encoding_graph(graph: ExecutionGraph) -> Generator[None, None, bytes]:
    """Return what `encode_graph` does; yield between portions to let other work run."""
    outputs: dict[int, list[Raw]] = {}
    for stage in graph.stages:
        partitions = iter(sorted(stage.ledger.outputs))
        while some := list(islice(partitions, _PORTION)):
            portion = {partition: stage.ledger.outputs[partition] for partition in some}
            outputs.setdefault(stage.spec.stage_id, []).append(Raw(_encoder.encode(portion)))
            yield
    stages = tuple(_with_outputs(_with_defaults(stage), Map()) for stage in graph.stages)
    return _encode(_GraphRecord(replace(graph, stages=stages), outputs), graph)


def decoding_graph(data: bytes) -> Generator[None, None, ExecutionGraph]:
    """Return what `decode_graph` does; yield between portions to let other work run."""
    minor = _check_version(data, _GRAPH)
    record: _GraphRecord = _decode(_graphs, data, _GRAPH, minor)
    stages = list(record.graph.stages)
    for stage_id, portions in record.outputs.items():
        if not 0 <= stage_id < len(stages):
            raise StateCorruptError(f"{_GRAPH} cannot be read: it has outputs of stage {stage_id}, which it lacks")
        outputs = Map[int, TaskOutput]().mutate()
        for portion in portions:
            outputs.update(_decode(_outputs, portion, _GRAPH, minor))
            yield
        stages[stage_id] = _with_outputs(stages[stage_id], outputs.finish())
    return replace(record.graph, stages=tuple(stages))


def encode_batch(batch: EventBatch) -> bytes:
    """Return *batch* as JSON."""
    return _encode(batch, batch)


def encode_event(event: Event) -> str:
    """Return one event as JSON, as a batch has it."""
    return _encoder.encode(event).decode()


def decode_batch(data: bytes) -> EventBatch:
    """Return the batch that `encode_batch` wrote; errors as in `decode_graph`."""
    what = "a batch of events"
    batch: EventBatch = _decode(_batches, data, what, _check_version(data, what))
    return batch


def _finished(work: Generator[None, None, _Result]) -> _Result:
    """Return the result of *work*, done at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _Result = done.value
            return result


def _with_outputs(stage: Stage, outputs: Map[int, TaskOutput]) -> Stage:
    return replace(stage, ledger=_with_defaults(replace(stage.ledger, outputs=outputs)))


def _with_defaults(record: _Record) -> _Record:
    """Return *record* with the default itself in each field that equals it: msgspec leaves out no other object."""
    defaults = {name: default for name, default in _defaults_of(type(record)) if getattr(record, name) == default}
    return replace(record, **defaults)


@cache
def _defaults_of(kind: type[Struct]) -> Sequence[tuple[str, Any]]:
    """Return the fields of a record with their defaults; msgspec evaluates all annotations to tell them."""
    return [(field.name, field.default) for field in fields(kind)]


def _encode(record: Struct, source: ExecutionGraph | EventBatch) -> bytes:
    needs = ",".join([feature for feature, uses in NEEDS.items() if uses(source)])
    named = f'"needs":"{needs}",' if needs else ""
    version = f'{{"schema_version":"{SCHEMA_MAJOR}.{_MINOR}",{named}'
    return version.encode() + _encoder.encode(record)[1:]


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes | Raw, what: str, minor: int) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if minor > _MINOR:
            # It need not be damaged: the release that wrote it may read it.
            raise SchemaVersionError(what, f"{SCHEMA_MAJOR}.{minor}", f"{SCHEMA_MAJOR}.{_MINOR}") from error
        raise StateCorruptError(f"{what} cannot be read: {error}") from error


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


def _to_json(value: Any) -> Any:
    """Return what msgspec writes in place of a value of another library or of `Latencies`."""
    return value.distributions() if isinstance(value, Latencies) else dict(sorted(value.items()))


def _from_json(kind: Any, found: Any) -> Any:
    """Return the value of type *kind* of which `_to_json` returned *found*."""
    if kind is not Latencies:
        return Map(msgspec.convert(found, dict[int, get_args(kind)[1]], str_keys=True))  # type: ignore[misc]
    latencies = msgspec.convert(found, StageLatencies, dec_hook=_from_json)
    if not all(sketch.is_sound for sketch in astuple(latencies)):
        raise ValueError("a distribution of durations has a bucket that there is not")
    return Latencies(latencies)


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
_graphs = msgspec.json.Decoder(_GraphRecord, dec_hook=_from_json)
_outputs = msgspec.json.Decoder(dict[int, TaskOutput])
_batches = msgspec.json.Decoder(EventBatch)
