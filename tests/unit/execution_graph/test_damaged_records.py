"""Damaged records are reported as such, whole and in portions."""

from collections.abc import Generator
from typing import TypeVar

import pytest
from msgspec.structs import replace

from onager.errors import SchemaVersionError, StateCorruptError
from onager.execution_graph import (
    Event,
    apply_all,
    decode_batch,
    decode_graph,
    decoding_graph,
    encoding_graph,
)
from onager.execution_graph.codec import encode_graph
from tests.unit.execution_graph.builder import (
    Job,
    planned,
    stage,
)
from tests.unit.execution_graph.jobs_in_every_state import JOBS, running_with_everything, with_version

T = TypeVar("T")


GRAPH = encode_graph(running_with_everything().graph)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"\x00\xff",
        b'{"schema_version":"11.0",',
        b'{"schema_version":"11.0",}',
        b'{"schema_version":"' + b"9" * 5_000 + b'.0",}',
        b'{"schema_version":1,"job_id":"j"}',
        b'{"schema_version":"11.0","x":' + b"[" * 100_000,
        b'{"job_id":"j"}',
        GRAPH[:-1],
        GRAPH[: len(GRAPH) // 2],
        GRAPH + b"x",
        GRAPH.replace(b'"state":"running"', b'"state":"walking"'),
        GRAPH.replace(b'"partitions":8', b'"partitions":"many"'),
        GRAPH.replace(b"job-1", b"job-\xff"),
        GRAPH.replace(b'"job_id"', b'"job_ix"'),
    ],
)
def test_damaged_bytes_are_reported_as_such(data: bytes) -> None:
    with pytest.raises(StateCorruptError, match="cannot be read"):
        decode_graph(data)
    with pytest.raises(StateCorruptError, match="cannot be read"):
        decode_batch(data)


def test_bytes_cut_short_anywhere_are_reported_as_damaged() -> None:
    for end in range(len(GRAPH)):
        with pytest.raises(StateCorruptError):
            decode_graph(GRAPH[:end])


# ---------------------------------------------------------------- in portions


def in_portions(work: Generator[None, None, T]) -> tuple[T, int]:
    """Return the result of *work*, and how many times others had their turn."""
    turns = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, turns
        turns += 1


def large() -> Job:
    """Return a job with two stages of many outputs, one of them of odd names, one stage of none and one of few."""
    job = planned(
        stage(1, 3_000), stage(2, 2, reads=(1,)), stage(3, 0), stage(4, 3_000, reads=(1, 2, 3)), is_shared=False
    )
    for number in (1, 2, 4):
        launched = job.launch("executor-1", 3_000)
        reports: list[Event] = []
        for partition, _ in launched.tasks:
            event = job.success(number, partition)
            files = ('},"7":{"nonce":"x"', '"outputs":{"1":{', "}}") if number == 4 else ()
            reports.append(replace(event, output=replace(event.output, nonce=f"{partition:016x}", files=files)))
        job.graph = apply_all(job.graph, reports[:-7] if number == 4 else reports)
    return job


@pytest.mark.parametrize("make", [*JOBS, large])
def test_portions_are_the_whole(make: type[Job]) -> None:
    job = make()
    data = encode_graph(job.graph)
    written, turns = in_portions(encoding_graph(job.graph))
    assert written == data
    assert (turns > 5) == (make is large)
    found, turns = in_portions(decoding_graph(data))
    assert found == job.graph
    assert encode_graph(found) == data
    assert (turns > 5) == (make is large)


@pytest.mark.parametrize("at", [0.2, 0.4, 0.8])
def test_damage_within_a_portion_is_reported_as_such(at: float) -> None:
    data = encode_graph(large().graph)
    place = data.index(b'"rows":', int(len(data) * at)) + len(b'"rows":')
    with pytest.raises(StateCorruptError, match="cannot be read"):
        decode_graph(data[:place] + b"x" + data[place + 1 :])
    newer = with_version(data, "11.1")
    with pytest.raises(SchemaVersionError):
        decode_graph(newer[:place] + b"x" + newer[place + 1 :])
