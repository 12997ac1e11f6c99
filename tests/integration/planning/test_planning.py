"""Plans: single-stage or distributed, number of tasks, determinism of stages, unsupported operators."""

import json
from pathlib import Path

import pytest

from onager.errors import InvalidSettingError, TargetExistsError, UnsupportedPlanError
from onager.executor.spark.plan_codec import decode
from onager.executor.spark.stage_plan import LeafInput
from onager.protocol import onager_pb2 as pb


def stages(outcome):
    return [(stage.name, stage.partitions) for stage in outcome.stages]


def test_a_small_query_runs_whole_in_the_planning_task(executor, tables):
    executor.fused.clear()
    outcome = executor.plan_sql("select k, count(*) from sales group by k order by k", views=tables, conf={})
    (stage,) = outcome.stages
    assert (stage.stage_id, stage.work, stage.partitions, stage.output.kind) == (1, pb.Work.QUERY, 1, "result")
    assert outcome.fused_output.rows == 7
    assert [row[0] for row in executor.run(outcome)] == list(range(7))
    ((frame, names, sink),) = executor.fused
    assert (list(names), sink) == (["k", "count(1)"], None)
    assert frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"


def test_a_word_that_metrics_do_not_know_is_refused_before_anything_runs(executor, tables):
    executor.fused.clear()
    with pytest.raises(InvalidSettingError, match=r"onager\.metrics='rowz': give off, rows or full"):
        executor.plan_sql("select 1", views=tables, conf={"onager.metrics": "rowz"})
    assert executor.fused == []


def test_a_fused_query_is_planned_as_plain_spark_plans_it_even_when_it_was_cut_first(executor, tables):
    """All files of the table are more than the limit, those of one partition are not."""
    executor.fused.clear()
    executor.plan_sql(
        "select count(*) from parts where part = 1",
        views=tables,
        conf={"onager.fusion.maxBytes": "1500", "spark.sql.adaptive.enabled": "true"},
    )
    ((frame, _, _),) = executor.fused
    assert frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"
    assert frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "200"


@pytest.mark.parametrize(
    ("text", "is_fused"),
    [
        ("SELECT * FROM sales", False),
        ("SELECT sum(id) FROM sales WHERE k > 1", True),
        ("SELECT count(*) FROM sales a JOIN (SELECT k FROM groups) b ON a.k = b.k", True),
        ("SELECT * FROM lines_csv", False),
        ("SELECT sum(id) FROM lines_csv", False),
    ],
)
def test_input_is_what_is_read_of_files_whose_columns_lie_apart(executor, tables, text, is_fused):
    table = "sales" if "sales" in text else "lines_csv"
    path = Path(next(view.path for view in tables if view.name == table))
    half = sum(file.stat().st_size for file in path.iterdir()) // 2

    outcome = executor.plan_sql(text, views=tables, conf={"onager.fusion.maxBytes": str(half)})

    assert outcome.HasField("fused_output") == is_fused


def test_a_fused_sink(executor, tables, tmp_path):
    sink = pb.Sink(path=str(tmp_path / "out"), format="json", mode="error")
    outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text="select k from groups"), views=tables, sink=sink))
    (stage,) = outcome.stages
    assert (stage.work, stage.output.kind) == (pb.Work.QUERY, "sink")
    assert (outcome.sink.path, outcome.sink.format, outcome.sink.mode) == (sink.path, sink.format, sink.mode)


def test_producers_stand_before_consumers_and_blobs_hold_every_plan(executor, tables):
    text = "select /*+ merge(g) */ g.label, count(*) from sales s join groups g on s.k = g.k group by 1 order by 1"
    outcome = executor.plan_sql(text, views=tables)
    blobs = {blob.digest: blob.content for blob in outcome.blobs}
    for position, stage in enumerate(outcome.stages, start=1):
        assert stage.stage_id == position
        assert all(read.stage_id < position for read in stage.inputs)
        assert decode(blobs[stage.plan_digest]).partitions == stage.partitions
    assert outcome.stages[-1].output.kind == "result"
    assert "scan sales" in {name for name, _ in stages(outcome)}
    assert "SortMergeJoin" in outcome.plan


def test_stages_have_names_that_say_what_they_do(executor, tables):
    text = "select g.label, sum(amount) from sales s join groups g on s.k = g.k group by 1 order by 2 limit 3"
    names = [name for name, _ in stages(executor.plan_sql(text, views=tables))]
    assert names == ["scan groups", "scan sales → broadcast join → partial aggregate", "aggregate → top", "top"]


def test_a_reused_exchange_is_one_stage(executor, tables):
    text = """
    with a as (select k, sum(amount) v from sales group by k)
    select /*+ merge(y) */ x.k from a x join a y on x.v = y.v"""
    names = [name for name, _ in stages(executor.plan_sql(text, views=tables))]
    assert names.count("scan sales → partial aggregate") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select * from sales where amount > 3", [True]),
        ("select k, sum(amount) from sales group by k", [True, True]),
        ("select id, rand() from sales", [False]),
        ("select id, uuid() from sales", [False]),
        ("select id, monotonically_increasing_id() from sales", [False]),
        ("select k, first(id) from sales group by k", [True, False]),
        ("select k, collect_list(id) from sales group by k", [True, False]),
        ("select id from sales limit 3", [True, False]),
        ("select /*+ repartition(3) */ id from sales", [True, True]),
        ("select /*+ repartition(3) */ k from (select k, count(*) from sales group by k)", [True, False, True]),
        ("select id, row_number() over (partition by k order by amount) from sales", [True, False]),
    ],
)
def test_which_stages_give_the_same_rows_again(executor, tables, text, expected):
    outcome = executor.plan_sql(text, views=tables)
    assert [stage.deterministic for stage in outcome.stages] == expected


def test_tasks_follow_the_files_whatever_the_executors_cores(executor, tables):
    outcome = executor.plan_sql("select * from sales", views=tables, slots=16)
    assert outcome.stages[0].partitions == 3
    (blob,) = outcome.blobs
    plan = decode(blob.content)
    assert plan.conf["spark.sql.files.minPartitionNum"] == "16"
    assert plan.conf["spark.sql.leafNodeDefaultParallelism"] == "16"
    (source,) = plan.inputs
    assert isinstance(source, LeafInput)
    assert source.label.startswith("Parquet /")
    assert source.label.endswith("/sales (3 files)")
    assert len(executor.run(outcome)) == 300


def test_only_the_files_of_the_wanted_partitions_are_in_the_plan(executor, tables):
    outcome = executor.plan_sql("select id from parts where part = 2", views=tables)
    plan = decode(outcome.blobs[0].content)
    assert "part=2" in str(plan.inputs[0].description)
    assert "part=1" not in str(plan.inputs[0].description)


def test_values_drawn_by_a_task_are_not_drawn_by_another(executor, tables):
    rows = executor.run(executor.plan_sql("select uuid(), monotonically_increasing_id() from sales", views=tables))
    assert len({row[0] for row in rows}) == len({row[1] for row in rows}) == 300
    parts = executor.run(executor.plan_sql("select distinct spark_partition_id() from sales", views=tables))
    assert sorted(parts) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("select id from sales offset 290", 10),
        ("select id from sales limit 10 offset 3", 10),
        ("select id from sales limit 10 offset 295", 5),
        ("select id from sales limit 0", 0),
        ("select id from sales limit 7", 7),
    ],
)
def test_limits_and_offsets_of_unordered_rows_give_as_many_as_there_are(executor, tables, text, rows):
    got = executor.run(executor.plan_sql(text, views=tables))
    assert len(set(got)) == len(got) == rows


def test_barrier_mode_is_refused(executor, tables):
    source = """
def query(spark):
    def same(frames):
        yield from frames
    return spark.table("groups").mapInPandas(same, "k long, label string", barrier=True)
"""
    with pytest.raises(UnsupportedPlanError, match="barrier"):
        executor.plan_python(source, views=tables)


def test_a_view_over_files_that_changed_has_their_new_schema(executor, tmp_path):
    path = tmp_path / "t.csv"

    def planned():
        view = pb.View(name="t", path=str(path), format="csv")
        return json.loads(executor.plan_sql("SELECT * FROM t", views=[view]).schema_json)["fields"]

    path.write_text("a\n1\n")
    first = planned()
    assert planned() == first
    path.write_text("a,b\n1.5,x\n")
    assert [(f["name"], f["type"]) for f in planned()] == [("a", "double"), ("b", "string")]
    assert [(f["name"], f["type"]) for f in first] == [("a", "integer")]


@pytest.mark.parametrize("mode", ["error", ""])
def test_a_target_that_may_not_be_replaced_is_refused_before_anything_runs(executor, tmp_path, mode):
    sink = pb.Sink(path=str(tmp_path), format="parquet", mode=mode)
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1 / 0"), sink=sink)
    with pytest.raises(TargetExistsError, match="already exists"):
        executor.plan(spec)
