"""Graphs and events as JSON that an admin can read; every state survives the round trip.

A record carries ``schema_version`` as ``major.minor``: a reader refuses a newer major version, and ignores fields that
a newer minor version added. Each record is written under the lowest version that reads it correctly, so the previous
version can still read records that use nothing new:

    1.11   all but what follows; with it came how JVMs ended and which tasks run alone, which a reader of 1.10 does
           without (1.7: what laying out stages is decided from; 1.6: how durations are distributed, ends of failed
           attempts' logs; 1.5: who wrote a batch, more metrics, what was wasted; 1.4: causes of failures; 1.3: that a
           job says why it streams no more; 1.2: pauses before retries)
    2.6    with second attempts (`speculation`): a reader that does not know them would go on as if they were not there
    3.4    of a job whose stages run together (`pipelined`): a reader that does not know that would have them wait
    4.0    with stages that were laid out by what was measured (`layout`): a reader that does not know that would launch
           other tasks
    5.0    of a job whose rest was planned again (`replanned`): a reader that does not know that would run other stages
    6.0    with growing stages (`feeds`): a reader that does not know them would end them too early
    7.0    of a job that changes the catalog, writes directories by columns, or has steps: a reader that does not know
           that would end it without its changes, write other files, or look for executors to run steps
    8.0    of a job that has taken outputs of others (`reuse`): a reader that does not know that would compute them, and
           look for what was not computed
    9.0    of a job that writes a table of another catalog
    10.0   with failures because a shared directory was not seen: a reader that does not know the cause cannot read it

Nothing is started that needs a newer version than some scheduler of the cluster reads
(`onager.scheduler.cluster.members`).
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

from immutables import Map
from pydantic import TypeAdapter, ValidationError

from onager.errors import SchemaVersionError, StateCorruptError
from onager.execution_graph.encoding import encoder
from onager.execution_graph.events import (
    Event,
    FeedEvent,
    JobFailed,
    JobPlanned,
    OutputsTaken,
    PipelineAbandoned,
    PlanSummary,
    ReplanBegun,
    ReplanGivenUp,
    StageLaidOut,
    StageReplanned,
    StepEnded,
    StragglersFound,
    TaskFailed,
    TasksSpeculated,
    TaskSucceeded,
)
from onager.execution_graph.failures import FailureCause
from onager.execution_graph.graph import ExecutionGraph, Failed
from onager.execution_graph.maps import SPARSE
from onager.execution_graph.stages import RunningStage, Stage, StageWork, SuccessfulStage, SupersededStage, TaskOutput

SCHEMA_MAJOR = 10
"""The newest major version that this module reads."""
SPECULATION_MAJOR = 2
"""The version of records that hold second attempts."""
PIPELINED_MAJOR = 3
"""The version of records of jobs whose stages run together, for as long as they do."""
ADAPTIVE_MAJOR = 4
"""The version of records with stages that were laid out by what was measured."""
REPLANNED_MAJOR = 5
"""The version of records of jobs whose rest was planned again."""
FEED_MAJOR = 6
"""The version of records with growing stages."""
TABLES_MAJOR = 7
"""The version of records of jobs that change the catalog, write directories by columns, or have steps."""
REUSE_MAJOR = 8
"""The version of records of jobs that have taken outputs of others."""
FOREIGN_MAJOR = 9
"""The version of records of jobs that write tables of other catalogs."""
PLACES_MAJOR = 10
"""The version of records that say of a task that its executor did not see a shared directory."""
_MINORS = {1: 11, 2: 10, 3: 8, 4: 4, 5: 3, 6: 3, 7: 3, 8: 1, 9: 1, 10: 0}
"""The minor version that is written and known, for each major one."""
_GRAPH = "an execution graph"
_PORTION = 500
_PORTION_BYTES = 64 * 1024
"""The bytes that take a few milliseconds."""
_OUTPUTS = b'"outputs":{'
"""The only place where a record begins an object of this name: quotes within strings are escaped."""
_OUTPUTS_BEGIN = re.compile(rb'"outputs":\{(?=")')
_NEXT_OUTPUT = re.compile(rb'\},"\d+":\{"nonce":')
"""Where one entry of such an object ends and the next begins, as `encode_graph` writes them; it occurs nowhere else."""
_VERSION = re.compile(rb'\{"schema_version":"(\d{1,9})\.(\d{1,9})",')


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """What one append to a job's log commits: all of it or nothing."""

    batch_id: str
    """Drawn by the writer: tells whether a write of unknown outcome was this one."""
    events: tuple[Event, ...]
    writer: Annotated[str, SPARSE] = ""
    """The scheduler that committed it; empty if a version before 1.5 wrote it."""


def encode_graph(graph: ExecutionGraph) -> bytes:
    """Return *graph* as JSON; equal graphs give equal bytes."""
    return _encode(encoder(ExecutionGraph)(graph), _major_of_graph(graph))


def decode_graph(data: bytes) -> ExecutionGraph:
    """Return the graph that `encode_graph` wrote.

    Raises `SchemaVersionError` for a newer major version and `StateCorruptError` for anything that is not a graph.
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
    version = _check_version(data, _GRAPH)
    waiting = iter(portions)
    stages: list[Stage] = []
    for stage in graph.stages:
        some = next(waiting, []) if stage.ledger.outputs else []
        outputs = stage.ledger.outputs.mutate()
        for portion in some:
            yield
            outputs.update(_validated(_outputs(), b"{%b}" % portion, _GRAPH, version))
        stages.append(_with_outputs(stage, outputs.finish()) if some else stage)
    return replace(graph, stages=tuple(stages))


def _with_outputs(stage: Stage, outputs: "Map[int, TaskOutput]") -> Stage:
    return replace(stage, ledger=replace(stage.ledger, outputs=outputs))


def encode_batch(batch: EventBatch) -> bytes:
    """Return *batch* as JSON."""
    return _encode(encoder(EventBatch)(batch), max([_major_of_event(event) for event in batch.events], default=1))


def encode_event(event: Event) -> str:
    """Return one event as JSON, as a batch has it."""
    return encoder(Event)(event)


def decode_batch(data: bytes) -> EventBatch:
    """Return the batch that `encode_batch` wrote; errors as in `decode_graph`."""
    batch: EventBatch = _decode(_batches(), data, "a batch of events")
    return batch


def _has_second_attempts(stage: Stage) -> bool:
    return bool(stage.ledger.speculated or (isinstance(stage, RunningStage) and stage.speculatable))


def _is_partitioned(plan: PlanSummary | None) -> bool:
    return plan is not None and plan.sink is not None and bool(plan.sink.partition_by)


def _is_foreign(plan: PlanSummary | None) -> bool:
    return plan is not None and plan.sink is not None and bool(plan.sink.foreign)


def _major_of_graph(graph: ExecutionGraph) -> int:  # noqa: PLR0911 - one for each version
    if _is_foreign(graph.plan):
        return FOREIGN_MAJOR
    if any(s.spec.taken is not None or (isinstance(s, SupersededStage) and s.planned) for s in graph.stages):
        return REUSE_MAJOR
    if _is_partitioned(graph.plan) or _is_of_catalog(graph) or graph.is_program:
        return TABLES_MAJOR
    if any(s.spec.work is StageWork.FEED for s in graph.stages):
        return FEED_MAJOR
    if graph.replans:
        return REPLANNED_MAJOR
    if any(s.spec.layout is not None for s in graph.stages):
        return ADAPTIVE_MAJOR  # a fused stage does not come without the one that it is fused into
    if graph.may_stream and (graph.is_active or any(_was_cut_short(s) for s in graph.stages)):
        return PIPELINED_MAJOR  # also before it is planned: earlier versions would continue from the plan their own way
    return SPECULATION_MAJOR if any(_has_second_attempts(s) for s in graph.stages) else 1


def _is_of_catalog(graph: ExecutionGraph) -> bool:
    if graph.plan is not None and graph.plan.catalog_digest:
        return True
    return isinstance(graph.outcome, Failed) and graph.outcome.failure.cause is FailureCause.CATALOG_CHANGED


def _was_cut_short(stage: Stage) -> bool:
    return isinstance(stage, SuccessfulStage) and len(stage.ledger.outputs) < stage.spec.partitions


def _is_of_tables(event: Event) -> bool:
    match event:
        case StepEnded() | JobFailed():
            return True
        case TaskFailed():
            return event.failure.cause is FailureCause.CATALOG_CHANGED
        case JobPlanned():
            has_steps = bool(event.stages) and event.stages[0].work is StageWork.STEP
            return has_steps or _is_partitioned(event.summary) or bool(event.summary.catalog_digest)
        case _:
            return False


def _major_of_event(event: Event) -> int:  # noqa: PLR0911 - one for each version
    if isinstance(event, TaskSucceeded):  # as most events are
        return 1
    if isinstance(event, TaskFailed) and event.failure.cause is FailureCause.NO_PLACE:
        return PLACES_MAJOR
    if isinstance(event, JobPlanned) and _is_foreign(event.summary):
        return FOREIGN_MAJOR
    if isinstance(event, OutputsTaken):
        return REUSE_MAJOR
    if _is_of_tables(event):
        return TABLES_MAJOR
    if isinstance(event, FeedEvent) or (isinstance(event, JobPlanned) and any(s.feed for s in event.stages)):
        return FEED_MAJOR
    if isinstance(event, ReplanBegun | StageReplanned | ReplanGivenUp):
        return REPLANNED_MAJOR
    if isinstance(event, StageLaidOut):
        return ADAPTIVE_MAJOR
    if isinstance(event, PipelineAbandoned):
        return PIPELINED_MAJOR
    return SPECULATION_MAJOR if isinstance(event, StragglersFound | TasksSpeculated) else 1


def _encode(body: str, major: int) -> bytes:
    return f'{{"schema_version":"{major}.{_MINORS[major]}",{body[1:]}'.encode()


def _decode(adapter: TypeAdapter[Any], data: bytes, what: str) -> Any:
    return _validated(adapter, data, what, _check_version(data, what))


def _validated(adapter: TypeAdapter[Any], data: bytes, what: str, version: tuple[int, int]) -> Any:
    major, minor = version
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        if minor > _MINORS.get(major, 0):
            # It need not be damaged: the version that wrote it may read it.
            raise SchemaVersionError(what, f"{major}.{minor}", _newest()) from error
        found = error.errors(include_url=False, include_input=False)[:3]
        raise StateCorruptError(f"{what} cannot be read: {found}") from error


def _check_version(data: bytes, what: str) -> tuple[int, int]:
    found = _VERSION.match(data)
    if found is None:
        raise StateCorruptError(f"{what} cannot be read: it does not begin with a schema version")
    major, minor = int(found[1]), int(found[2])
    check_readable(major, minor, what)
    return major, minor


def check_readable(major: int, minor: int, what: str) -> None:
    """Raise `SchemaVersionError`, naming *what*, if this module does not read records of that version."""
    if major > SCHEMA_MAJOR:
        raise SchemaVersionError(what, f"{major}.{minor}", _newest())


def _newest() -> str:
    return f"{SCHEMA_MAJOR}.{_MINORS[SCHEMA_MAJOR]}"


@cache
def _graphs() -> TypeAdapter[Any]:
    return TypeAdapter(ExecutionGraph)


@cache
def _outputs() -> TypeAdapter[Any]:
    return TypeAdapter(dict[int, TaskOutput])


@cache
def _batches() -> TypeAdapter[Any]:
    return TypeAdapter(EventBatch)
