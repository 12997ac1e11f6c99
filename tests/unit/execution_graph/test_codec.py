"""Records: every state survives a round trip, other formats are refused, and the size per task is bounded."""

import json
import re
from collections.abc import Generator
from typing import TypeVar, get_args

import pytest
from msgspec.structs import replace

from onager.errors import FeatureMissingError, SchemaVersionError, StateCorruptError
from onager.execution_graph import (
    AdaptivePolicy,
    Event,
    EventBatch,
    ExecutionGraph,
    FailureKind,
    FetchFailure,
    JobCancelled,
    JobFailed,
    LaunchesRepeated,
    OutputsTaken,
    Pipeline,
    RetryLimits,
    SpeculationPolicy,
    StageInput,
    StepEnded,
    TakenOutput,
    TaskRead,
    TasksLost,
    apply_all,
    decode_batch,
    decode_graph,
    decoding_graph,
    encode_batch,
    encoding_graph,
    find_stragglers,
    sizes_text,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.events import PipelineAbandoned, ReplanBegun, ReplanGivenUp, StageLaidOut
from onager.execution_graph.stages import FailedStage, RunningStage
from tests.unit.execution_graph.builder import (
    SINK,
    Job,
    chain,
    failure,
    feed,
    output,
    planned,
    stage,
    with_sink,
)
from tests.unit.execution_graph.test_replanning import begun, owing, replanned, swapped

T = TypeVar("T")


def unresolved_and_resolved() -> Job:
    return planned(*chain(2))


def running_with_everything() -> Job:
    """Outputs, running, returned and fresh partitions; counters of every sort."""
    job = planned(*chain(2, partitions=8), is_shared=False)
    job.launch("a", 4, list_number=3)
    job.launch("b", 2)
    job.succeed(1, 0, 4)
    job.fail(1, 1, FailureKind.IO_ERROR)
    job.feed(
        LaunchesRepeated(stage_id=1, stage_attempt=0, executor_id="b", list_number=9, tasks=((5, 0),), at_ms=job.tick())
    )
    job.lose("a")
    return job


def rolled_back() -> Job:
    job = planned(*chain(3), is_shared=False)
    job.run(1, "a")
    job.run(2, "b")
    job.lose("a")
    job.launch("c")
    job.feed(job.cannot_fetch(3, 0, 2, 0))
    return job


def successful() -> Job:
    job = planned(*with_sink(stage(1, 2)))
    job.finish()
    return job


def failed() -> Job:
    job = planned(stage(1))
    job.launch()
    event = job.failed(1, 0, FailureKind.USER_ERROR)
    told = replace(event.failure, error_class="DIVIDE_BY_ZERO", sql_state="22012", query_context="1/0", details="at …")
    job.feed(replace(event, failure=told))
    return job


def cancelled() -> Job:
    job = planned(stage(1))
    job.feed(JobCancelled(reason='"enough" ☂', at_ms=5))
    return job


def fused() -> Job:
    job = Job()
    job.launch("planner")
    job.feed(job.plan(stage(1, 1), fused=output("n", is_shared=False)))
    return job


def speculating() -> Job:
    """Second attempts: one that runs, one that waits, one that has won."""
    job = planned(stage(1, 6), speculation=SpeculationPolicy(quantile=0.5, min_task_runtime_ms=1))
    job.launch("a")
    job.succeed(1, 0, 1, 2)
    job.speculate("s")
    job.feed(job.success(1, 3, job.second(1, 3)))
    job.fail(1, 5, FailureKind.TASK_KILLED)
    job.feed(find_stragglers(job.graph, ["b"], job.now_ms + 5_000)[0])
    return job


def pausing() -> Job:
    """A failed task that waits for its next try."""
    job = planned(stage(1, 3), limits=RetryLimits(retry_pauses_ms=(500, 2_000)))
    job.launch("a", 2)
    job.fail(1, 1, FailureKind.IO_ERROR)
    return job


def replanned_twice() -> Job:
    """A new plan, and a re-plan that took too long."""
    job = owing()
    begun(job)
    job.launch("b", 1)
    job.feed(replanned(job, *swapped(6), dropped=(2, 3, 4), result=7))
    job.feed(
        ReplanBegun(replan_id=8, basis=((1, 0),), finished=(1,), held=(6, 7), why="a try", at_ms=job.tick()),
    )
    job.feed(ReplanGivenUp(replan_id=8, reason="it took too long", at_ms=job.tick()))
    return job


def pipelined() -> Job:
    """Stages that run together."""
    job = planned(*chain(3), pipeline=Pipeline())
    for _ in range(3):
        job.launch("a")
    job.succeed(1, 0)
    return job


def abandoned() -> Job:
    job = pipelined()
    job.feed(PipelineAbandoned(reason="no executor can", at_ms=job.tick()))
    return job


def laid_out() -> Job:
    """A stage that was fused into another, and one whose tasks read several buckets, or parts of one."""
    split = (StageInput(1, "bucket", may_split=True),)
    last = replace(stage(4, reads=(1, 3)), inputs=(*split, StageInput(3, "all")))
    job = planned(stage(1), *(replace(s, may_fuse=True) for s in (stage(2), stage(3, reads=(2,)))), last,
                  adaptive=AdaptivePolicy())  # fmt: skip
    job.feed(StageLaidOut(stage_id=3, basis=((2, 0), (3, 0)), fused=(2,), at_ms=job.tick()))
    job.launch("a")
    job.launch("b")
    for stage_id, partition in ((1, 0), (1, 1), (3, 0)):
        made = job.success(stage_id, partition)
        job.feed(replace(made, output=replace(made.output, bucket_sizes=sizes_text(bytes(2), 2, 2))))
    reads = (
        TaskRead(first_bucket=0, end_bucket=1),
        TaskRead(first_bucket=1, end_bucket=2, split_stage_id=1, first_producer=0, end_producer=1),
        TaskRead(first_bucket=1, end_bucket=2, split_stage_id=1, first_producer=1, end_producer=2),
    )
    job.feed(StageLaidOut(stage_id=4, basis=((1, 0), (3, 0), (4, 0)), reads=reads, at_ms=job.tick()))
    assert job.states() == ["successful", "fused", "successful", "resolved"]
    return job


def growing() -> Job:
    """A stage that was given a portion, and whose feed goes on; another one whose feed has ended."""
    job = planned(feed(1), stage(2, fed_by=1), feed(3), stage(4, fed_by=3), stage(5, reads=(2, 4)))
    job.launch("a", 1)
    job.launch("a", 2)
    job.launch("a", 1)
    job.feed(job.found(1, 3))
    job.feed(job.found(3, 1, is_last=True))
    return job


def reusing() -> Job:
    first, second = chain(2)
    job = planned(first, replace(second, fingerprint="f"), stage(3, reads=(2,), kind="result"))
    taken = TakenOutput(stage_id=2, job_id="other", of_stage_id=7, fingerprint="f", outputs=(output("x"), output("y")))
    assert job.feed(OutputsTaken(taken=(taken,), at_ms=job.tick()))
    return job


def partitioned() -> Job:
    """Its output has directories by columns."""
    job = Job()
    job.launch("a")
    job.feed(job.plan(*with_sink(stage(1, 2)), sink=replace(SINK, partition_by=("d", "k"))))
    job.finish()
    return job


def foreign() -> Job:
    """It writes a table of another catalog."""
    job = Job()
    job.launch("a")
    job.feed(job.plan(*with_sink(stage(1, 2)), sink=replace(SINK, foreign='{"catalog": "ice"}')))
    job.finish()
    return job


JOBS = [
    Job,
    foreign,
    partitioned,
    growing,
    reusing,
    unresolved_and_resolved,
    running_with_everything,
    rolled_back,
    successful,
    failed,
    cancelled,
    fused,
    speculating,
    pausing,
    pipelined,
    abandoned,
    laid_out,
    replanned_twice,
]


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


# ---------------------------------------------------------------- other versions


def with_version(data: bytes, version: str) -> bytes:
    return re.sub(rb'"schema_version":"[0-9.]+"', f'"schema_version":"{version}"'.encode(), data, count=1)


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


# ---------------------------------------------------------------- damage

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
def test_damaged_bytes_are_told_as_such(data: bytes) -> None:
    with pytest.raises(StateCorruptError, match="cannot be read"):
        decode_graph(data)
    with pytest.raises(StateCorruptError, match="cannot be read"):
        decode_batch(data)


def test_bytes_cut_short_anywhere_are_told_as_damaged() -> None:
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
def test_damage_within_a_portion_is_told_as_such(at: float) -> None:
    data = encode_graph(large().graph)
    place = data.index(b'"rows":', int(len(data) * at)) + len(b'"rows":')
    with pytest.raises(StateCorruptError, match="cannot be read"):
        decode_graph(data[:place] + b"x" + data[place + 1 :])
    newer = with_version(data, "11.1")
    with pytest.raises(SchemaVersionError):
        decode_graph(newer[:place] + b"x" + newer[place + 1 :])


# ---------------------------------------------------------------- size


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
