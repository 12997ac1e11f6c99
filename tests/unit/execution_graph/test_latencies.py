"""Distributions of durations: how exact, how large, in what order; and which tasks of a stage are in them."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onager.errors import SchemaVersionError, StateCorruptError
from onager.execution_graph import TaskMetrics, apply, apply_all, decode_graph
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.duration_sketch import RELATIVE_ERROR, LatencyMetric, WideLatencyMetric
from onager.execution_graph.stages import TaskLedger
from onager.execution_graph.task_latencies import Latencies, StageLatencies
from tests.unit.execution_graph.builder import Job, chain, planned, stage, stored_ledger

MAX_BYTES_A_STAGE = 4_000
KINDS = (LatencyMetric, WideLatencyMetric)

durations = st.one_of(st.integers(0, 100), st.integers(0, 100_000), st.integers(0, 2**43))
samples = st.lists(durations, min_size=1, max_size=300)
kinds = st.sampled_from(KINDS)


def exactly(found: list[int], percent: int) -> int:
    return sorted(found)[max(0, math.ceil(len(found) * percent / 100) - 1)]


@settings(deadline=None)
@given(kinds, samples)
def test_quantiles_are_within_the_error_that_is_reported(kind: type[LatencyMetric], found: list[int]) -> None:
    sketch = kind.of(found)
    assert (sketch.count, sketch.max_ms) == (len(found), max(found))
    for percent, reported in zip((0, 50, 95, 99, 100), sketch.quantiles_ms(0, 50, 95, 99, 100), strict=True):
        exact = min(exactly(found, percent), 10**10)
        assert (
            abs(reported - exact) <= sketch.relative_error * exact + 2**sketch.level
            or reported == sketch.max_ms > 10**10
        )


@settings(deadline=None)
@given(st.lists(st.integers(1_000, 10_000), min_size=1, max_size=60), st.integers(1, 10))
def test_two_percent_where_durations_differ_by_no_more_than_ten_times(found: list[int], times: int) -> None:
    sketch = WideLatencyMetric.of(found * times)
    assert sketch.level == 0
    for percent, reported in zip((50, 95, 99), sketch.quantiles_ms(50, 95, 99), strict=True):
        exact = exactly(found * times, percent)
        assert abs(reported - exact) <= RELATIVE_ERROR * exact + 1


@settings(deadline=None)
@given(kinds, st.lists(samples, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_neither_order_nor_portions_make_a_difference(kind, portions, random) -> None:
    at_once = kind.of([ms for portion in portions for ms in portion])
    random.shuffle(portions)
    left = right = kind()
    for portion in portions:
        left = left.merge(kind.of(portion))
    for portion in reversed(portions):
        right = kind.of(portion).merge(right)
    assert left == right == at_once


@settings(deadline=None)
@given(
    st.lists(st.tuples(durations, durations, durations, durations, st.integers(1, 50_000)), min_size=1, max_size=120)
)
def test_four_distributions_take_less_than_4000_bytes(found) -> None:
    """Each of the durations occurs many times: large counts take more room."""

    def many(kind: type[LatencyMetric], of: int) -> LatencyMetric:
        sketch = kind()
        for each in found:
            one = kind.of([each[of]])
            for _ in range(each[4].bit_length()):
                one = one.merge(one)
            sketch = sketch.merge(one)
        return sketch

    latencies = StageLatencies(
        queued=many(LatencyMetric, 0),
        run=many(WideLatencyMetric, 1),
        fetch=many(LatencyMetric, 2),
        delivery=many(LatencyMetric, 3),
    )
    ledger = TaskLedger(latencies=Latencies(latencies))
    (_, before), (read, after) = map(stored_ledger, (TaskLedger(), ledger))
    assert len(after) - len(before) <= MAX_BYTES_A_STAGE
    assert read == ledger


def test_of_nothing_there_is_nothing_to_tell() -> None:
    assert not LatencyMetric.of([])
    with pytest.raises(ValueError, match="no quantiles"):
        LatencyMetric().quantiles_ms(50)


def done(job: Job, *runs_ms: int) -> None:
    """Let the tasks of stage 1 succeed, each having run for so long."""
    for partition, run_ms in enumerate(runs_ms):
        success = job.success(1, partition)
        cost = TaskMetrics(run_ms=run_ms, queued_ms=3, fetch_ms=run_ms // 2)
        assert job.feed(replace(success, metrics=cost, at_ms=success.at_ms + run_ms + 10))


def of(job: Job, stage_id: int = 1) -> StageLatencies:
    return job.stage(stage_id).ledger.latencies.distributions()


def test_a_stage_tells_how_long_its_tasks_took() -> None:
    job = planned(stage(1, 3))
    job.launch("a")
    done(job, 100, 20, 1000)
    found = of(job)
    assert found.run.quantiles_ms(0, 50, 100) == [20, 102, 986]
    assert found.queued.quantiles_ms(50) == [3]
    assert found.fetch.max_ms == 500
    assert found.delivery.max_ms == 10, "three ticks more or less, and three in the queue"
    assert decode_graph(encode_graph(job.graph)) == job.graph


def test_a_stage_of_one_task_needs_none() -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    done(job, 100)
    assert not job.stage(1).ledger.latencies
    assert b"latencies" not in encode_graph(job.graph)


def test_each_partition_counts_once() -> None:
    job = planned(*chain(2), is_shared=False)
    job.launch("a")
    done(job, 100, 200)
    before = of(job)
    job.lose("a")
    job.run(1, "b")
    assert of(job) == before


def test_reports_one_by_one_and_together_lead_to_the_same_record() -> None:
    job = planned(stage(1, 600), stage(2, 2, reads=(1,)))
    job.launch("a", 600)
    graph = job.graph
    reports = [
        replace(job.success(1, p), metrics=TaskMetrics(run_ms=p * p % 997, queued_ms=p % 7), at_ms=9_000 + p)
        for p in range(600)
    ]
    one_by_one = graph
    for report in reports[:500]:
        one_by_one = apply(one_by_one, report)
    together = apply_all(graph, reports[:500])
    assert one_by_one == together
    assert encode_graph(one_by_one) == encode_graph(together)
    read = decode_graph(encode_graph(together))
    assert read == together
    assert encode_graph(apply_all(read, reports[500:])) == encode_graph(apply_all(one_by_one, reports[500:]))
    assert apply_all(read, reports[500:]).stages[1].ledger.latencies.distributions().run.count == 600


@pytest.mark.parametrize(
    "damage", [{"counts": {"9999": 1}}, {"counts": {"-1": 1}}, {"counts": {"3": 0}}, {"level": -1}, {"level": 10**9}]
)
def test_a_damaged_distribution_is_reported_as_such(damage: dict[str, object]) -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    done(job, 100, 200)
    record = json.loads(encode_graph(job.graph))
    record["graph"]["stages"][1]["ledger"]["latencies"]["run"] |= damage

    def written(version: str) -> bytes:
        return json.dumps({**record, "schema_version": version}, separators=(",", ":")).encode()

    with pytest.raises(StateCorruptError, match="a bucket that there is not"):
        decode_graph(written("11.0"))
    with pytest.raises(SchemaVersionError, match=r"11\.1"):
        decode_graph(written("11.1"))
