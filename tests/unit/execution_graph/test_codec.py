"""Records: every state survives a round trip, other formats are refused, and the size per task is bounded."""

import json
from typing import get_args

import pytest
from msgspec.structs import replace

from onager.errors import FeatureMissingError, SchemaVersionError, StateCorruptError
from onager.execution_graph import (
    Event,
    EventBatch,
    ExecutionGraph,
    FailureKind,
    FetchFailure,
    JobCancelled,
    JobFailed,
    LaunchesRepeated,
    StepEnded,
    TasksLost,
    apply_all,
    decode_batch,
    decode_graph,
    encode_batch,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.stages import FailedStage, RunningStage
from tests.unit.execution_graph.builder import (
    Job,
    chain,
    failure,
    planned,
    stage,
)
from tests.unit.execution_graph.jobs_in_every_state import (
    JOBS,
    abandoned,
    failed,
    growing,
    laid_out,
    pausing,
    replanned_twice,
    reusing,
    running_with_everything,
    speculating,
    with_version,
)


@pytest.mark.parametrize("make", JOBS)
def test_every_state_survives_the_round_trip(make: type[Job]) -> None:
    job = make()
    data = encode_graph(job.graph)

    found = decode_graph(data)

    assert found == job.graph
    assert type(found.stages[-1]) is type(job.graph.stages[-1])
    assert encode_graph(found) == data, "equal graphs give equal bytes"


def test_the_jobs_of_this_file_are_in_every_state() -> None:
    states = {s.state for make in JOBS for s in make().graph.stages}
    assert states == {"unresolved", "resolved", "running", "successful", "failed", "fused", "superseded"}
    outcomes = {make().graph.outcome.type for make in JOBS}
    assert outcomes == {"active", "succeeded", "failed", "cancelled"}
    stage_1 = running_with_everything().stage(1)
    assert isinstance(stage_1, RunningStage)
    assert stage_1.running
    assert stage_1.returned
    assert isinstance(failed().stage(1), FailedStage)
    stage_1 = pausing().stage(1)
    assert isinstance(stage_1, RunningStage)
    assert list(stage_1.paused) == [1]
    stage_1 = speculating().stage(1)
    assert isinstance(stage_1, RunningStage)
    assert stage_1.speculatable == (5,)
    assert list(stage_1.speculative) == [4]
    assert set(stage_1.ledger.durations_ms) == {0, 1, 2, 3}


@pytest.mark.parametrize("make", JOBS)
def test_every_log_survives_the_round_trip(make: type[Job]) -> None:
    batch = EventBatch(batch_id="b-1", events=tuple(make().log))
    assert decode_batch(encode_batch(batch)) == batch


def test_every_event_survives_the_round_trip() -> None:
    job = planned(*chain(2))
    launched = job.launch()
    fetch = FetchFailure(1, 0, "n")
    events: list[Event] = [
        *job.log,
        TasksLost(
            stage_id=1, stage_attempt=0, executor_id="a", tasks=launched.tasks, reason=FailureKind.LAUNCH_LOST, at_ms=1
        ),
        LaunchesRepeated(stage_id=1, stage_attempt=0, executor_id="a", list_number=1, tasks=launched.tasks, at_ms=1),
        replace(job.failed(1, 0, FailureKind.IO_ERROR), failure=failure(FailureKind.FETCH_FAILED, fetch=fetch)),
        job.success(1, 0),
        JobCancelled(reason="r", at_ms=1),
        StepEnded(stage_id=1, child_id="j.1", rows=1, failure=failure(FailureKind.USER_ERROR), at_ms=1),
        JobFailed(failure=failure(FailureKind.USER_ERROR), at_ms=1),
        *speculating().log,
        *abandoned().log,
        *laid_out().log,
        *replanned_twice().log,
        *growing().log,
        *reusing().log,
    ]
    job.lose("a")
    events += job.log[-1:]
    union = get_args(Event)
    assert {type(e) for e in events} == set(union), "an event is missing here"

    batch = EventBatch(batch_id="b", events=tuple(events))
    assert decode_batch(encode_batch(batch)) == batch


def test_a_record_can_be_read_by_people() -> None:
    record = json.loads(encode_graph(running_with_everything().graph))

    assert next(iter(record)) == "schema_version"
    stage_1 = record["graph"]["stages"][1]
    assert stage_1["state"] == "running"
    assert list(stage_1["running"]) == ["5"]
    assert stage_1["ledger"]["failures"] == {"1": 1}
    (portion,) = record["outputs"]["1"]
    assert list(portion) == ["4"]


@pytest.mark.parametrize("version", ["12.0", "12.3", "10.0", "1.11"])
def test_another_major_version_is_refused(version: str) -> None:
    data = with_version(encode_graph(Job().graph), version)
    with pytest.raises(SchemaVersionError, match="use the release of Onager that wrote it"):
        decode_graph(data)
    with pytest.raises(SchemaVersionError):
        decode_batch(with_version(encode_batch(EventBatch(batch_id="b", events=())), version))


def test_unknown_fields_of_a_newer_minor_version_are_ignored() -> None:
    job = running_with_everything()

    def extended(found: object) -> object:
        if isinstance(found, dict) and not any(k.isdigit() for k in found):
            return {**{k: extended(v) for k, v in found.items()}, "added_later": {"x": [1]}}
        if isinstance(found, dict):
            return {k: extended(v) for k, v in found.items()}
        return [extended(v) for v in found] if isinstance(found, list) else found

    graph = json.dumps(extended(json.loads(encode_graph(job.graph))), separators=(",", ":")).encode()
    assert decode_graph(with_version(graph, "11.1")) == job.graph
    batch = EventBatch(batch_id="b", events=tuple(job.log))
    data = json.dumps(extended(json.loads(encode_batch(batch))), separators=(",", ":")).encode()
    assert decode_batch(with_version(data, "11.1")) == batch


@pytest.fixture
def needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let second attempts be a feature."""
    uses = {"speculation": lambda of: isinstance(of, ExecutionGraph) and of.speculation is not None}
    monkeypatch.setattr("onager.execution_graph.codec.NEEDS", uses)


@pytest.mark.usefixtures("needs")
def test_a_record_that_uses_a_feature_is_refused_by_a_release_that_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = speculating().graph
    data = encode_graph(graph)
    assert data.startswith(b'{"schema_version":"11.0","needs":"speculation","graph":')
    assert b'"needs"' not in encode_graph(pausing().graph)
    with pytest.raises(FeatureMissingError, match=r"an execution graph needs speculation, which Onager .* lacks"):
        decode_graph(data)
    monkeypatch.setattr("onager.features.FEATURES", frozenset({"others", "speculation"}))
    assert decode_graph(data) == graph


def test_a_batch_that_uses_a_feature_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = {"first": lambda _: True, "second": lambda of: isinstance(of, EventBatch) and of.batch_id == "b"}
    monkeypatch.setattr("onager.execution_graph.codec.NEEDS", uses)
    data = encode_batch(EventBatch(batch_id="b", events=()))
    with pytest.raises(FeatureMissingError, match="needs first, second, which"):
        decode_batch(data)
    monkeypatch.setattr("onager.features.FEATURES", frozenset({"first"}))
    with pytest.raises(FeatureMissingError, match="needs second, which"):
        decode_batch(data)


def test_what_cannot_be_read_of_a_newer_minor_version_is_not_called_damaged() -> None:
    batch = b'{"schema_version":"11.0","batch_id":"b","events":[{"type":"invented_later"}]}'
    with pytest.raises(StateCorruptError):
        decode_batch(batch)
    with pytest.raises(SchemaVersionError, match=r"11\.1"):
        decode_batch(with_version(batch, "11.1"))


def bytes_per_task(tasks: int) -> tuple[float, float]:
    """Return what a finished task weighs in the snapshot, and in the log of a hand-out of 16."""
    job = planned(stage(1, tasks), stage(2, 1, reads=(1,)))
    empty = len(encode_graph(job.graph))
    launched = job.launch("executor-1", tasks)
    reports: list[Event] = []
    for partition, _ in launched.tasks:
        event = job.success(1, partition)
        reports.append(replace(event, output=replace(event.output, nonce="0123456789abcdef", rows=10**6, bytes=10**8)))
    job.graph = apply_all(job.graph, reports)
    some = (replace(launched, tasks=launched.tasks[:16]), *reports[:16])
    log = len(encode_batch(EventBatch(batch_id="0123456789abcdef", events=some))) / 16
    return (len(encode_graph(job.graph)) - empty) / tasks, log


def test_a_task_weighs_the_same_in_small_and_large_stages() -> None:
    small, log = bytes_per_task(100)
    large, _ = bytes_per_task(5_000)

    assert large < 150
    assert abs(large - small) < 10
    assert log < 400
