"""What may be merged, split and fused of a plan, and what may not."""

import pytest

from tests.support.spark.one_executor import CUT

MERGE_JOIN = CUT | {"spark.sql.autoBroadcastJoinThreshold": "-1"}
A = "(select id % 10 as k, id as v from range(0, 100, 1, 3)) a"
B = "(select id % 10 as k, id as w from range(0, 50, 1, 2)) b"
WITH_ITSELF = f"""
    with sides as (select /*+ repartition(k) */ k, v from {A})
    select x.k, x.v, y.v from sides x join sides y on x.k = y.k"""


@pytest.fixture
def stages(executor):
    """The stages of a query, the last one first."""

    def planned(text, conf=CUT):
        return list(reversed(executor.plan_sql(text, conf=conf).stages))

    return planned


@pytest.fixture
def python_stages(executor):
    """The stages of what a function makes of the frame `rows`, the last one first."""

    def planned(expression):
        source = f"""
            from pyspark.sql import functions as F

            def query(spark):
                rows = spark.range(0, 100, 1, 3).selectExpr("id % 10 as k", "id as v")
                return {expression}
        """
        source = "\n".join(line[12:] for line in source.splitlines())
        return list(reversed(executor.plan_python(source).stages))

    return planned


def splits(stage):
    return [source.stage_id for source in stage.inputs if source.may_split]


# ---------------------------------------------------------------- merged


@pytest.mark.parametrize(
    "text",
    [
        f"select k, sum(v) from {A} group by k",
        f"select a.k, v, w from {A} join {B} on a.k = b.k",
        f"select k, v, rank() over (partition by k order by v) from {A}",
        f"select /*+ repartition(k) */ k, v from {A}",
        f"select /*+ rebalance(k) */ k, v from {A}",
        f"select /*+ rebalance */ k, v from {A}",
    ],
    ids=["aggregate", "join", "window", "repartition by a column", "rebalance by a column", "rebalance"],
)
def test_buckets_of_which_nobody_gave_the_number_may_be_merged(stages, text):
    last, *before = stages(text, MERGE_JOIN)
    assert last.may_merge
    assert not any(stage.may_merge for stage in before), "leaves have no buckets"


def test_buckets_of_which_the_user_gave_the_number_may_not_be_merged(stages):
    last, _ = stages(f"select /*+ repartition(4, k) */ k, v from {A}")
    assert not last.may_merge


def test_dealt_rows_of_which_the_user_gave_the_number_may_not_be_merged(stages):
    last, _ = stages(f"select /*+ repartition(4) */ k, v from {A}")
    assert not last.may_merge


def test_a_join_with_a_side_of_which_the_user_gave_the_number_may_not_be_merged(stages):
    text = f"select a.k, v, w from (select /*+ repartition(3, k) */ * from {A}) a join {B} on a.k = b.k"
    last, *_ = stages(text, MERGE_JOIN)
    assert len(last.inputs) == 2
    assert not last.may_merge


def test_ranges_of_sorted_runs_may_not_be_merged(stages):
    last, _ = stages(f"select k, v from {A} order by k, v", CUT | {"onager.sort.parallelFromBytes": "0"})
    assert last.partitions > 1
    assert not last.may_merge


def test_one_bucket_cannot_be_merged(stages):
    last, _ = stages(f"select sum(v) from {A}")
    assert not last.may_merge


def test_a_union_of_buckets_may_not_be_merged(stages):
    """Its task i does not read bucket i."""
    text = f"select k, sum(v) from {A} group by k union all select k, max(w) from {B} group by k"
    last, *_ = stages(text)
    assert last.partitions == 6
    assert not last.may_merge


def test_a_cartesian_product_may_not_be_merged(stages):
    text = f"""
        select * from (select k, sum(v) s from {A} group by k) x
        cross join (select k, max(w) m from {B} group by k) y"""
    product = next(stage for stage in stages(text, MERGE_JOIN) if stage.partitions == 9)
    assert not product.may_merge


def test_what_is_coalesced_may_not_be_merged(stages):
    last, _ = stages(f"select /*+ coalesce(2) */ k, sum(v) from {A} group by k")
    assert not last.may_merge


@pytest.mark.parametrize("function", ["monotonically_increasing_id()", "spark_partition_id()", "rand(3)", "uuid()"])
def test_what_depends_on_partitions_may_be_neither_merged_nor_fused(stages, function):
    last, first = stages(f"select k, sum(v), {function} from {A} group by k")
    assert (last.may_merge, last.may_fuse) == (False, False)
    assert first.may_fuse


def test_a_sample_depends_on_partitions(stages):
    text = f"select * from (select k, sum(v) from {A} group by k) tablesample (50 percent) repeatable (7)"
    last, _ = stages(text)
    assert (last.may_merge, last.may_fuse) == (False, False)


def test_a_function_over_partitions_that_spark_made_may_be_merged_and_fused(python_stages):
    last, _ = python_stages("rows.repartition('k').mapInPandas(lambda frames: frames, rows.schema)")
    assert (last.may_merge, last.may_fuse) == (True, True)


def test_a_function_over_partitions_that_the_user_made_may_be_neither(python_stages):
    last, _ = python_stages("rows.repartition(4).mapInPandas(lambda frames: frames, rows.schema)")
    assert (last.may_merge, last.may_fuse) == (False, False)


# ---------------------------------------------------------------- split


@pytest.mark.parametrize("way", ["merge", "shuffle_hash"])
@pytest.mark.parametrize(
    ("kind", "sides"),
    [
        ("inner", "lr"),
        ("left outer", "l"),
        ("right outer", "r"),
        ("left semi", "l"),
        ("left anti", "l"),
        ("full outer", ""),
    ],
)
def test_the_sides_that_a_join_lets_split(stages, way, kind, sides):
    columns = "a.k, v" if kind in {"left semi", "left anti"} else "a.k, v, w"
    last, *_ = stages(f"select /*+ {way}(b) */ {columns} from {A} {kind} join {B} on a.k = b.k")
    left, right = (source.stage_id for source in last.inputs)
    assert splits(last) == [left] * ("l" in sides) + [right] * ("r" in sides)


def test_a_join_below_a_partial_aggregate_may_be_split(stages):
    text = f"select v % 2, sum(w) from {A} join {B} on a.k = b.k group by v % 2"
    _, join, *_ = stages(text, MERGE_JOIN)
    assert len(splits(join)) == 2


@pytest.mark.parametrize(
    "text",
    [
        f"select a.k, sum(w) from {A} join {B} on a.k = b.k group by a.k",
        f"select a.k, v, rank() over (partition by a.k order by v) from {A} join {B} on a.k = b.k",
        f"select a.k, v, w, id from {A} join {B} on a.k = b.k join range(9) c on a.k = c.id",
    ],
    ids=["aggregate", "window", "join"],
)
def test_a_join_whose_rows_of_equal_keys_are_needed_together_may_not_be_split(stages, text):
    assert not any(splits(stage) for stage in stages(text, MERGE_JOIN))


def test_a_side_that_was_aggregated_may_not_be_split(stages):
    text = f"select a.k, v, s from {A} join (select k, sum(w) s from {B} group by k) y on a.k = y.k"
    assert not any(splits(stage) for stage in stages(text, MERGE_JOIN))


def test_a_join_of_a_stage_with_itself_may_not_be_split(stages):
    """Both sides are read of one stage, and a part of both is not what is meant."""
    last, *_ = stages(WITH_ITSELF, MERGE_JOIN)
    assert len(last.inputs) == 1
    assert splits(last) == []


def test_a_join_of_which_the_user_gave_the_number_may_not_be_split(stages):
    text = f"select a.k, v, w from (select /*+ repartition(3, k) */ * from {A}) a join {B} on a.k = b.k"
    last, *_ = stages(text, MERGE_JOIN)
    assert splits(last) == []


# ---------------------------------------------------------------- fused


def test_leaves_and_what_they_read_are_reported(executor, tables):
    outcome = executor.plan_sql("select k, count(*) from lines_csv group by k order by k", views=tables)
    first, *rest = outcome.stages
    assert first.leaf_bytes > 100
    assert [stage.leaf_bytes for stage in rest] == [0] * len(rest)
    assert all(stage.may_fuse for stage in outcome.stages)


def test_a_number_of_files_that_the_user_gave_is_kept(stages):
    last, first = stages(f"select /*+ repartition(4) */ k, v from {A}")
    assert (last.may_fuse, first.may_fuse) == (False, True)


def test_a_number_of_files_that_the_user_gave_by_coalescing_is_kept(stages):
    last, first = stages(f"select /*+ coalesce(2) */ k, sum(v) from {A} group by k")
    assert (last.may_fuse, first.may_fuse) == (False, True)


def test_what_only_passes_through_a_number_of_partitions_may_be_fused(stages):
    text = f"select k, sum(v) from (select /*+ repartition(4) */ k, v from {A}) group by k"
    assert [stage.may_fuse for stage in stages(text)] == [True, True, True]


def test_workers_that_the_user_asked_for_are_kept(python_stages):
    expression = "rows.repartition(4).select(F.udf(lambda x: x, 'long')('v').alias('v')).groupBy('v').count()"
    last, python, first = python_stages(expression)
    assert "Python" in python.name
    assert (last.may_fuse, python.may_fuse, first.may_fuse) == (True, False, True)


def test_a_function_over_a_sources_partitions_may_not_be_fused(python_stages):
    _, first = python_stages("rows.mapInPandas(lambda frames: frames, rows.schema).groupBy('k').count()")
    assert not first.may_fuse


def test_a_function_over_groups_may_be_fused_and_merged(python_stages):
    last, first = python_stages("rows.groupBy('k').applyInPandas(lambda group: group, rows.schema)")
    assert (last.may_fuse, last.may_merge, first.may_fuse) == (True, True, True)


def test_a_join_that_runs_what_is_below_it_twice_may_not_be_fused(stages):
    text = f"""
        select /*+ broadcast(g) */ count(*) from (select v from {A}) s right join (select k from {B}) g
        on s.v > g.k + 90"""
    joins = [stage for stage in stages(text) if "nested-loop" in stage.name]
    assert [stage.may_fuse for stage in joins] == [False]


def test_what_one_stage_reads_twice_may_not_be_fused_into_it(stages):
    last, first = stages(WITH_ITSELF, MERGE_JOIN)
    assert (last.may_fuse, first.may_fuse) == (True, False)
