"""Sorted runs, and the ranges of them that tasks read: merged where they can be, from the frames that hold them."""

import pytest

from tests.support.spark.runner import cut

ROWS = 60_000
MANY = f"SELECT id * 7919 % {ROWS + 7} AS n, sha2(string(id), 256) AS filler FROM RANGE(0, {ROWS}, 1, 4)"
FEW = "SELECT id * 37 % 101 AS n, sha2(string(id), 256) AS filler FROM RANGE(0, 100, 1, 4)"
MANY_RUNS = "SELECT id * 37 % 101 AS n FROM RANGE(0, 100, 1, 70)"


def stages_of(spark, text):
    return cut(spark, spark.sql(text), parallel_sort_bytes=0)


def last_plan(job, stages) -> str:
    stage = stages[-1]
    return job.runner.binder.bound(job.task_set(stage.stage_id, stage.plan, []), stage.plan).java.text()


def test_a_task_reads_its_range_and_little_more(spark, job):
    stages = stages_of(spark, f"{MANY} ORDER BY n")

    table = job.result(stages)

    assert table.column("n").to_pylist() == sorted(i * 7919 % (ROWS + 7) for i in range(ROWS))
    written = sum(output.bytes for output in job.outputs[1].values())
    reads = [report.success.metrics.bytes_in for report in job.reports[-3:]]
    assert sum(reads) < 1.5 * written
    rows = [output.rows for output in job.outputs[2].values()]
    assert max(rows) < 1.05 * ROWS / 3
    assert sum(output.rows for output in job.outputs[1].values()) == ROWS, "keys that go along are no rows"
    assert "Sort" not in last_plan(job, stages)


def test_a_run_tells_what_its_rows_take_in_memory(spark, job):
    even = "SELECT id * 37 % 4001 AS n, repeat(char(97 + id % 3), 2000) AS filler FROM RANGE(0, 4000, 1, 2) ORDER BY n"
    for report in job.run(1, stages_of(spark, even)[0].plan):
        in_memory, written = report.success.metrics.plain_bytes_out, report.success.output.bytes
        assert in_memory > 2000 * report.success.output.rows > 20 * written


@pytest.mark.parametrize(
    ("text", "sorts"),
    [
        pytest.param(f"{MANY_RUNS} ORDER BY n", True, id="more runs than are merged"),
        pytest.param(
            f"SELECT /*+ repartition_by_range(3, n) */ * FROM ({FEW}) SORT BY filler", True, id="another order"
        ),
        pytest.param(f"SELECT /*+ repartition_by_range(3, n, filler) */ * FROM ({FEW}) SORT BY n", False, id="less"),
    ],
)
def test_what_does_not_come_in_order_is_sorted(spark, job, text, sorts):
    stages = stages_of(spark, text)

    table = job.result(stages)

    expected = spark.sql(text).toArrow()
    assert sorted(map(str, table.to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert ("Sort" in last_plan(job, stages)) == sorts
    assert "ORDER BY" not in text or table == expected


def test_a_run_that_is_gone_is_a_fetch_failure(spark, job, exchange_dir):
    stages = stages_of(spark, f"{MANY} ORDER BY n")
    job.run(1, stages[0].plan)
    nonce = job.outputs[1][2].nonce
    (exchange_dir / job.job_id / "1" / f"2-{nonce}.rows").unlink()

    reports = job.run(2, stages[1].plan)

    assert {report.failure.kind for report in reports} == {"fetch_failed"}
    assert {report.failure.fetch.nonce for report in reports} == {nonce}


def test_ranges_stay_the_same_when_a_run_is_made_again(spark, job):
    ties = f"SELECT id % 500 AS n, id FROM RANGE(0, {ROWS}, 1, 3) ORDER BY n"
    stages = stages_of(spark, ties)
    job.run(1, stages[0].plan)
    job.run(2, stages[1].plan, [0], attempt=0)
    job.run(1, stages[0].plan, [1], attempt=1)
    job.run(2, stages[1].plan, [1, 2], attempt=1)
    assert sum(output.rows for output in job.outputs[2].values()) == ROWS
