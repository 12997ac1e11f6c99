"""Jobs from end to end: the answers of plain Spark, datasets written whole, results fetched from any moment."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import onager
from onager.errors import JobCancelledError, JobFailedError
from tests.e2e.conftest import JOBS, UNFUSED, Gate, query, rows
from tests.support.processes.cluster import Cluster
from tests.support.selection import some
from tests.support.trees import below
from tests.support.waiting import HANGS_S, until


@pytest.fixture
def cluster(shared_cluster) -> Cluster:
    return shared_cluster


@pytest.mark.parametrize("number", [1, 3, 18])
@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_tpch_equals_plain_spark(cluster, spark, tpch, number, conf):
    job = cluster.client.sql(query(number), views=tpch, conf=conf)
    expected = spark.sql(query(number)).toArrow()
    got = job.to_arrow()
    assert got.column_names == expected.column_names
    assert rows(got) == rows(expected)
    assert (len(job.progress().stages) > 2) == bool(conf)


def test_a_query_that_is_laid_out_as_it_runs_equals_plain_spark(cluster, spark, tpch):
    job = cluster.client.sql(query(18), views=tpch, conf=UNFUSED | {"onager.adaptive": "on"})
    assert rows(job.to_arrow()) == rows(spark.sql(query(18)).toArrow())
    stages = job.progress().stages
    assert any(stage.state == "fused" for stage in stages), [stage.state for stage in stages]
    assert "fused into stage" in "".join(stage.name for stage in stages)
    assert any(event.fields.get("fused") for event in job.events() if event.type == "stage_laid_out")


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_the_final_plan_has_what_operators_measured(cluster, tpch, conf):
    job = cluster.client.sql(query(18), views=tpch, conf=conf)
    rows_in_all = job.to_arrow().num_rows
    plan = job.final_plan()
    queries = [stage for stage in plan.stages if stage.progress.work == "query"]
    assert [stage.progress.stage_id for stage in plan.stages] == list(range(len(plan.stages)))
    assert (len(queries) > 1) == bool(conf)
    for stage in queries:
        assert stage.reported == stage.progress.partitions
        assert all(each.stage_id < stage.progress.stage_id for each in stage.inputs)
    operators = [each for stage in queries for bound in stage.plans for each in bound.operators]
    scanned = {each.rows for each in operators if each.name.startswith("Scan parquet")}
    lengths = {pq.read_metadata(tpch[name]).num_rows for name in ("lineitem", "orders", "customer")}
    assert scanned == lengths
    if conf:
        read = {each.name: each.rows for each in operators if each.name.startswith("Scan stage")}
        given = {f"Scan stage {stage.progress.stage_id}": stage.progress.rows_out for stage in queries[:-1]}
        assert read == given
        ran = job.task_costs()
        assert {i: len(tasks) for i, tasks in ran.items()} == {
            stage.progress.stage_id: stage.progress.partitions for stage in queries
        }
    else:
        assert any(metric.name == "pipelineTime" and metric.value for each in operators for metric in each.metrics)
    assert queries[-1].progress.rows_out == rows_in_all


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_explain_analyze_gives_the_plan_as_it_ran(cluster, tpch, conf):
    text = f"SET a = c; -- first\nEXPLAIN /* it */ analyze\n{query(18)}"
    job = cluster.client.sql(text, views=tpch, conf=conf)
    (row,) = job.to_arrow().to_pylist()
    plan = row["plan"]
    scanned = f"{pq.read_metadata(tpch['lineitem']).num_rows:,} "
    assert any(line.strip().startswith(scanned) and "Scan parquet" in line for line in plan.splitlines())
    assert "TIME" in plan  # all metrics are measured, unless the job says otherwise
    assert max(map(len, plan.splitlines())) <= 100
    assert job.to_pandas()["plan"][0] == plan


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_script_with_settings_and_views_before_its_query(cluster, conf):
    text = """
        -- a semicolon; in a comment
        SET spark.sql.session.timeZone = Asia/Tokyo;
        CREATE OR REPLACE TEMPORARY VIEW evens AS SELECT id FROM range(10) WHERE id % 2 = 0;
        SELECT id, ';' AS semicolon, current_timezone() AS zone FROM evens ORDER BY id DESC;
    """
    table = cluster.client.sql(text, conf=conf).to_arrow()
    assert table.column("id").to_pylist() == [8, 6, 4, 2, 0]
    assert set(table.column("zone").to_pylist()) == {"Asia/Tokyo"}
    assert set(table.column("semicolon").to_pylist()) == {";"}


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_job_with_settings_for_the_schedulers(cluster, conf):
    terms = {
        "onager.weight": 2.5,
        "onager.session": "nightly",
        "onager.session.max-tasks": 1,
        "onager.speculation": True,
        "onager.speculation.min-task-runtime-ms": 100,
    }
    table = cluster.client.sql(
        "SELECT id % 2 AS k, count(*) AS n FROM range(10) GROUP BY k", conf=conf | terms
    ).to_arrow()
    assert rows(table) == rows(pa.table({"k": [0, 1], "n": [5, 5]}))


def test_a_python_function_from_the_caller_s_process(cluster):
    def squares(spark, limit):
        from pyspark.sql.functions import pandas_udf

        @pandas_udf("long")
        def square(x):
            return x * x

        return spark.range(limit).select(square("id").alias("square"))

    job = cluster.client.python(squares, args={"limit": 50}, conf=UNFUSED)
    assert sorted(job.to_arrow().column("square").to_pylist()) == [i * i for i in range(50)]


def test_a_module_that_a_function_imports(cluster, tmp_path):
    (tmp_path / "my_own_module.py").write_text("def triple(x):\n    return 3 * x\n")
    (tmp_path / "job.py").write_text(
        "import my_own_module\n"
        "def main(spark):\n"
        "    from pyspark.sql.functions import udf\n"
        "    return spark.range(5).select(udf(my_own_module.triple, 'long')('id').alias('t'))\n"
    )
    job = cluster.client.python(tmp_path / "job.py", py_files=[tmp_path / "my_own_module.py"], conf=UNFUSED)
    assert sorted(job.to_arrow().column("t").to_pylist()) == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_result_of_many_batches_comes_whole_and_in_order(cluster, conf):
    text = "SELECT id, repeat('x', 50) AS filler FROM range(200000) ORDER BY id DESC"
    job = cluster.client.sql(text, conf=conf)
    assert job.to_arrow().column("id").to_pylist() == list(range(199_999, -1, -1))
    again = cluster.client.job(job.id).to_arrow()
    assert again.num_rows == 200_000


@pytest.mark.parametrize("exchange", ["durable", "streaming"])
def test_a_sort_in_parallel_comes_in_order(cluster, exchange):
    text = "SELECT id * 7919 % 100003 AS n, repeat('x', 50) AS filler FROM range(100000) ORDER BY n DESC"
    conf = UNFUSED | {"onager.sort.parallelFromBytes": 0, "onager.exchange": exchange}
    job = cluster.client.sql(text, conf=conf)
    assert job.to_arrow().column("n").to_pylist() == sorted((i * 7919 % 100_003 for i in range(100_000)), reverse=True)
    assert job.progress().stages[-1].partitions == 4
    assert job.progress().exchange == exchange


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "orc"])
@pytest.mark.parametrize("conf", some([UNFUSED, {}]), ids=some(["cut", "fused"]))
def test_a_result_written_as_a_dataset(cluster, spark, tmp_path, kind, conf):
    target = tmp_path / f"out.{kind}"
    text = "SELECT id % 7 AS k, count(*) AS n FROM range(1000) GROUP BY 1"
    cluster.client.sql(text, conf=conf, output=target, format=kind).wait(timeout=HANGS_S)
    assert (target / "_SUCCESS").exists()
    reader = spark.read.schema("k LONG, n LONG").format(kind).options(**{"header": "true"} if kind == "csv" else {})
    assert rows(reader.load(str(target)).toArrow()) == rows(spark.sql(text).toArrow())
    assert [entry.name for entry in tmp_path.iterdir()] == [target.name], "nothing is left beside the target"


def test_overwrite_and_append(cluster, spark, tmp_path):
    target = tmp_path / "out"

    def write(value: int, mode: str):
        cluster.client.sql(f"SELECT {value} AS v", output=target, mode=mode, conf=UNFUSED).wait(timeout=HANGS_S)
        return sorted(row.v for row in spark.read.parquet(str(target)).collect())

    assert write(1, "error") == [1]
    assert write(2, "append") == [1, 2]
    assert write(3, "overwrite") == [3]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_insert_overwrite_directory(cluster, tmp_path):
    target = tmp_path / "out"
    text = f"INSERT OVERWRITE DIRECTORY '{target}' USING parquet SELECT id FROM range(5)"
    cluster.client.sql(text, conf=UNFUSED).wait(timeout=HANGS_S)
    assert sorted(pq.read_table(target).column("id").to_pylist()) == [0, 1, 2, 3, 4]


def test_a_job_that_fails_leaves_nothing_at_its_target(cluster, tmp_path):
    target = tmp_path / "out"
    text = "SELECT 1 / (id - 500) AS x FROM range(1000)"
    job = cluster.client.sql(text, conf={**UNFUSED, "spark.sql.ansi.enabled": True}, output=target)
    with pytest.raises(JobFailedError, match="DIVIDE_BY_ZERO"):
        job.wait(timeout=HANGS_S)
    until(lambda: not list(tmp_path.iterdir()), "an empty directory")


def test_a_cancelled_job_stops_its_tasks_and_frees_the_slots(cluster, gate: Gate):
    job = cluster.client.python(
        f"{JOBS}:gated_range", args={"gate": str(gate.directory), "partitions": 2, "held": 0}, conf=UNFUSED
    )
    gate.wait()
    job.cancel("no longer wanted")
    with pytest.raises(JobCancelledError, match="no longer wanted"):
        job.wait(timeout=HANGS_S)
    # The gate is still shut: only a stopped task frees its slot.
    until(lambda: sum(executor.running for executor in cluster.client.executors()) == 0, "free slots")
    answers = [cluster.client.sql("SELECT 1 AS one") for _ in range(2)]
    assert [answer.to_arrow().to_pylist() for answer in answers] == [[{"one": 1}]] * 2


def test_the_command_line_from_submission_to_result(cluster, tpch):
    directory = str(Path(tpch["region"]).parent)
    shown = cluster.cli("submit", "-e", "SELECT r_name FROM region ORDER BY 1", "--views-from", directory, "-o", "json")
    assert shown.returncode == 0, shown.stderr
    assert [row["r_name"] for row in json.loads(shown.stdout)][:2] == ["AFRICA", "AMERICA"]
    listed = json.loads(cluster.cli("jobs", "-o", "json").stdout)
    newest = max(listed, key=lambda job: int(job["submitted_ms"]))
    whole = json.loads(cluster.cli("job", newest["job_id"], "-o", "json").stdout)
    assert {task["successes"] for stage in whole["stages"] for task in stage["tasks"]} == {1}
    assert {e["executor_id"] for e in json.loads(cluster.cli("executors", "-o", "json").stdout)} >= {"e-1", "e-2"}


def test_the_exchange_holds_nothing_of_ended_jobs_but_their_results(cluster):
    job = cluster.client.sql("SELECT id % 3 AS k, sum(id) AS s FROM range(1000) GROUP BY 1", conf=UNFUSED)
    assert job.to_arrow().num_rows == 3
    until(lambda: not below(cluster.exchange_dir / job.id, "*.rows"), "an exchange without rows")


def test_a_client_that_comes_later_finds_result_and_schema(cluster):
    job = cluster.client.sql("SELECT CAST(1.5 AS DECIMAL(38, 10)) AS d, DATE'2024-02-29' AS day", conf=UNFUSED)
    job.wait(timeout=HANGS_S)
    with onager.connect(cluster.address) as other:
        table = other.job(job.id).to_arrow()
    assert table.schema.field("d").type == pa.decimal128(38, 10)
    assert table.schema.field("day").type == pa.date32()
