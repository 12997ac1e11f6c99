"""The rest of a query is planned again whenever a stage is done, by false sizes: the rows stay plain Spark's.

Some queries in one of the ways, in turns; with ``ONAGER_TESTS=all`` (`make test-all`) all of them in all ways.
"""

from dataclasses import replace

import pytest

from onager.testing import DistributedRunError, HarnessConfig, assert_distributed_eq, create_stages
from onager.testing.check import Comparison
from onager.testing.replans import Measured
from tests.harness.conftest import QUERIES
from tests.harness.faults import fault, in_files
from tests.harness.more_shapes import MORE_ORDERED, MORE_SHAPES
from tests.harness.shapes import ORDERED, SHAPES
from tests.harness.test_python_shapes import FUNCTIONS
from tests.integration.planning.python_jobs import as_before, query_of
from tests.support.selection import IS_ALL

WAYS = ("larger", "smaller", "mixed")
SMALLER = HarnessConfig(replans="smaller", conf={"spark.sql.autoBroadcastJoinThreshold": "500"})
"""Sides of joins are broadcast because they are said to be tiny."""
EVERY_SHAPE = SHAPES | MORE_SHAPES | ORDERED | MORE_ORDERED
SOME_SHAPES = ("left join of nothing", "scalar in an aggregate", "reused exchange", "union of aggregates", "top")
JOINED = """
    select g.label, count(*) n from (select distinct k, id from sales) s
    join (select distinct k, label from groups) g on s.k = g.k group by g.label"""


def ways(number, most_broadcast="500"):
    conf = {"spark.sql.autoBroadcastJoinThreshold": most_broadcast}
    return [HarnessConfig(replans=way, conf=conf) for way in (WAYS if IS_ALL else WAYS[number % 3 :][:1])]


def ways_of(frame, number):
    """Return the ways for a query that may be one stage, with what they make of it."""
    return [replace(way, single_stage=not create_stages(frame, way).is_cut) for way in ways(number)]


@pytest.mark.parametrize("number", range(1, 23) if IS_ALL else (21,))
def test_query(spark, tpch, number, tell):
    query = Comparison(spark.sql((QUERIES / f"q{number}.sql").read_text()))
    for config in ways(number, most_broadcast="20k"):
        run = query.check(config)
        taken = sum("a new plan" in text for text in run.replans)
        tell(f"q{number}, {config.replans}: {len(run.replans)} re-plans, {taken} taken")
        assert run.replans


@pytest.mark.parametrize("name", EVERY_SHAPE if IS_ALL else SOME_SHAPES)
def test_shape(spark, tables, name):
    frame = spark.sql(EVERY_SHAPE[name])
    query = Comparison(frame)
    for config in ways_of(frame, list(EVERY_SHAPE).index(name)):
        query.check(config)


@pytest.mark.parametrize("name", FUNCTIONS if IS_ALL else ("Arrow aggregate",))
def test_function(spark, tables, name):
    with as_before(spark):
        frame = query_of(FUNCTIONS[name])(spark, {})
        for config in ways_of(frame, list(FUNCTIONS).index(name)):
            assert_distributed_eq(frame, config)


@pytest.fixture(scope="module")
def joined(spark, tables):
    """The run of a query whose join is another one in the end."""
    return assert_distributed_eq(spark.sql(JOINED), SMALLER)


def test_other_plans_run_and_what_they_do_without_does_not(spark, joined):
    planned = create_stages(spark.sql(JOINED), SMALLER).stages
    assert [stage.name for stage in joined.graph.stages[: len(planned)]] == [stage.name for stage in planned]
    assert any("SortMergeJoin" in stage.plan for stage in planned)
    assert any("BroadcastHashJoin" in stage.plan for stage in joined.graph.stages[len(planned) :])
    assert any("sort-merge joins 1 → 0, broadcast joins 0 → 1" in text for text in joined.replans), joined.replans
    ran = {task.stage_id for task in joined.tasks}
    assert 1 in ran
    assert len(planned) not in ran
    assert joined.graph.stages[-1].stage_id in ran


def joining(run):
    """Return the stage that joins in the last plan."""
    return next(stage for stage in reversed(run.graph.stages) if "BroadcastHashJoin" in stage.plan)


@pytest.mark.parametrize("kind", ["duplicate", "lose"])
def test_a_row_too_many_or_too_few_in_a_new_plan_is_caught(spark, joined, kind):
    joins = joining(joined)
    with pytest.raises(AssertionError, match="another result") as caught:
        assert_distributed_eq(spark.sql(JOINED), SMALLER, plant=fault(kind, joins.stage_id))
    assert f"stage {joins.stage_id}: {joins.name}" in str(caught.value)


def test_a_file_that_a_new_plan_reads_is_not_as_it_was_written(spark, joined):
    joins = joining(joined).stage_id
    reader = next(task.stage_id for task in joined.tasks if task.stage_id > joins)

    def cut_short(paths):
        paths[0].write_bytes(paths[0].read_bytes()[:-7])

    with pytest.raises(DistributedRunError, match=rf"task \d of stage {reader} failed: ") as caught:
        assert_distributed_eq(spark.sql(JOINED), SMALLER, plant=in_files(joins, cut_short, reader=reader))
    assert "FetchFailure" in caught.value.details


def test_a_wrong_conclusion_from_what_was_measured_is_caught(spark, tables, monkeypatch):
    monkeypatch.setattr("onager.testing.job.JobRun._measured", lambda *_: Measured(0, 0))
    with pytest.raises(AssertionError, match="0 rows, where plain Spark gives"):
        assert_distributed_eq(spark.sql(JOINED), SMALLER)


def test_a_way_to_plan_again_is_checked():
    with pytest.raises(ValueError, match="replans is 'always': give one of never, larger, smaller, mixed"):
        HarnessConfig(replans="always")
    for other in ({"exchange": "streams"}, {"layout": "fused"}):
        with pytest.raises(ValueError, match="that is for files, and stages as planned"):
            HarnessConfig(replans="mixed", **other)
