"""Rules of merging, the metrics of a stage, and what of them was wasted."""

from msgspec.structs import replace

from onager.execution_graph import FailureKind, TaskMetrics, decode_graph, encode_event
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.task_metrics import NO_METRICS
from tests.unit.execution_graph.builder import METRICS, Job, chain, planned, stage
from tests.unit.execution_graph.test_speculation import three_of_four_done

COST = TaskMetrics(run_ms=30, queued_ms=4, fetch_ms=3, commit_ms=2, peak_memory_bytes=9)


def fail(job: Job, partition: int) -> None:
    assert job.feed(replace(job.failed(1, partition, FailureKind.IO_ERROR), metrics=COST))


def test_fields_are_merged_by_their_rules() -> None:
    merged = COST.merge(COST, replace(METRICS, queued_ms=1))
    assert merged == TaskMetrics(
        run_ms=65, rows_out=10, bytes_out=100, queued_ms=9, fetch_ms=6, commit_ms=4, peak_memory_bytes=9
    )
    assert COST.merge() == COST
    assert not NO_METRICS
    assert COST


def test_failed_attempts_and_repeated_successes_are_wasted() -> None:
    job = planned(*chain(2), is_shared=False)
    job.launch("a")
    fail(job, 0)
    assert (job.stage(1).ledger.metrics, job.stage(1).ledger.wasted) == (NO_METRICS, COST)

    job.succeed(1, 1)
    job.run(1, "a")
    assert job.stage(1).ledger.metrics == METRICS.merge(METRICS)
    assert decode_graph(encode_graph(job.graph)) == job.graph

    job.lose("a")
    job.run(1, "b")
    assert job.stage(1).ledger.metrics == METRICS.merge(METRICS), "each partition's once"
    assert job.stage(1).ledger.wasted == COST.merge(METRICS, METRICS)


def test_the_attempt_that_another_one_beat_is_wasted() -> None:
    job = three_of_four_done()
    job.speculate("s")
    launched_ms = job.held(1, 3).launched_ms
    won = job.success(1, 3, job.second(1, 3))
    assert job.feed(won)
    assert job.stage(1).ledger.wasted == TaskMetrics(run_ms=won.at_ms - launched_ms)


def test_a_failure_of_an_attempt_that_nobody_wants_wastes_nothing() -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    late = replace(job.failed(1, 0, FailureKind.IO_ERROR), metrics=COST)
    assert job.feed(late)
    before = job.graph
    assert not job.feed(late)
    assert job.graph is before


def test_nothing_is_written_for_what_is_not_there() -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    failed = job.failed(1, 0, FailureKind.IO_ERROR)
    assert '"metrics"' not in encode_event(failed)
    assert b"wasted" not in encode_graph(job.graph)
    assert '"metrics":{"run_ms":30,' in encode_event(replace(failed, metrics=COST))
