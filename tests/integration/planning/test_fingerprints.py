"""Fingerprints of stages: equal wherever and whenever the same is planned over the same files, and never otherwise."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onager.protocol import onager_pb2 as pb
from tests.integration.planning.small_tables import make_views
from tests.support.file_times import make_older, round_new
from tests.support.selection import some
from tests.support.spark.one_executor import CUT

QUERIES = {
    "join": "SELECT a.k, count(*) AS n FROM sales a JOIN sales b ON a.k = b.k WHERE a.v > 1 GROUP BY a.k",
    "merge join": "SELECT /*+ merge(b) */ a.k, b.v FROM sales a JOIN sales b ON a.k = b.k AND a.v < b.v",
    "aggregates": "SELECT k, sum(v) AS s, min(v), avg(v + 0.5), count(DISTINCT v) FROM sales GROUP BY k",
    "sort": "SELECT k, v FROM sales ORDER BY v, k",
    "subquery": "SELECT k FROM sales WHERE v > (SELECT avg(v) FROM sales) GROUP BY k",
    "union": "SELECT k, count(*) FROM (SELECT k FROM sales UNION ALL SELECT v FROM sales) GROUP BY k",
    "rows": "SELECT k, count(*) FROM VALUES (1, 'a'), (2, 'b') AS t(k, x) JOIN sales USING (k) GROUP BY k",
    "range": "SELECT id % 3 AS k, count(*) FROM range(0, 1000, 1, 3) GROUP BY id % 3",
    "set": "SELECT k, count(*) FROM sales WHERE k IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) GROUP BY k",
}


@pytest.fixture
def sales(tmp_path):
    for number in range(2):
        pq.write_table(pa.table({"k": [1, 2, 1, 3], "v": [number, 2, 3, 4]}), tmp_path / f"{number}.parquet")
    return make_older(tmp_path)


@pytest.fixture
def prints(executor):
    """The fingerprints of a query's stages, but for the last one's, which gives the result and has none."""

    def planned(text, *, conf=CUT, **views):
        for path in views.values():
            round_new(path)
        made = [pb.View(name=name, path=str(path)) for name, path in views.items()]
        spec = pb.JobSpec(sql=pb.SqlScript(text=text), views=made, conf=conf)
        *others, last = executor.plan(spec, has_fingerprints=True).stages
        assert others
        assert last.fingerprint == ""
        return [stage.fingerprint for stage in others]

    return planned


@pytest.mark.parametrize("name", some(list(QUERIES)))
def test_the_same_query_is_the_same_in_another_session(prints, sales, name):
    first = prints(QUERIES[name], sales=sales)
    assert all(first)
    assert prints(QUERIES[name], sales=sales) == first, "the first planning of a view finds its schema"


def test_what_is_called_otherwise_is_the_same_as_far_as_rows_go(prints, sales):
    mine = prints("SELECT k, sum(v) AS s FROM sales GROUP BY k", sales=sales)
    assert prints("SELECT k AS other, sum(v) AS t FROM more GROUP BY k", more=sales) == mine


@pytest.mark.parametrize(
    "other",
    [
        "SELECT k, sum(k) AS s FROM sales GROUP BY k",
        "SELECT v, sum(k) AS s FROM sales GROUP BY v",
        "SELECT k, max(v) AS s FROM sales GROUP BY k",
        "SELECT k, sum(v) AS s FROM sales WHERE v > 1 GROUP BY k",
        "SELECT k, sum(v) AS s FROM sales WHERE v > 2 GROUP BY k",
        "SELECT k, sum(CAST(v AS INT)) AS s FROM sales GROUP BY k",
        "SELECT k, sum(v + 1) AS s FROM sales GROUP BY k",
        "SELECT k, sum(v + 1.0) AS s FROM sales GROUP BY k",
    ],
)
def test_what_gives_other_rows_is_not_the_same(prints, sales, other):
    assert not {*prints("SELECT k, sum(v) AS s FROM sales GROUP BY k", sales=sales)} & {*prints(other, sales=sales)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x COLLATE UTF8_LCASE", "x"),
        ("x COLLATE UTF8_LCASE", "x COLLATE UNICODE_CI"),
        ("named_struct('a', x COLLATE UTF8_LCASE)", "named_struct('a', x)"),
        ("concat(x, CAST(X'FE' AS STRING))", "concat(x, CAST(X'FF' AS STRING))"),
        ("CAST(x AS DECIMAL(10, 1))", "CAST(x AS DECIMAL(10, 2))"),
        ("x IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k')", "x IN ('a', 'b', 'c', 'd', 'e')"),
    ],
)
def test_values_and_types_count_to_the_last_bit(prints, tmp_path, one, other):
    pq.write_table(pa.table({"x": ["a", "A"]}), tmp_path / "words.parquet")
    make_older(tmp_path)
    text = "SELECT {0} AS k, count(*) FROM words GROUP BY {0}"
    first, second = (prints(text.format(key), words=tmp_path / "words.parquet") for key in (one, other))
    assert all(first)
    assert all(second)
    assert not {*first} & {*second}


@pytest.mark.parametrize(("s", "is_known"), [(-3_600, True), (0, False), (3_600, False)])
def test_a_file_whose_time_may_stay_the_same_when_it_changes_has_none(prints, sales, s, is_known):
    """As in stores that count in whole seconds, of which this one is not over for sure."""
    for file in sales.iterdir():
        os.utime(file, times=(0, int(file.stat().st_mtime) + 3_600 + s))
    found = prints("SELECT k, sum(v) AS s FROM sales GROUP BY k", sales=sales)
    assert all(found) if is_known else not any(found)


def test_rows_that_are_divided_otherwise_are_not_the_same(prints, sales):
    text = "SELECT /*+ repartition({}, {}) */ k, v FROM sales"
    found = [prints(text.format(*how), sales=sales)[0] for how in ((2, "k"), (2, "v"), (3, "k"))]
    assert len({*found}) == 3


def test_a_file_that_has_changed_is_noticed(prints, sales):
    text = "SELECT k, sum(v) AS s FROM sales GROUP BY k"
    seen = [prints(text, sales=sales)]
    file = sales / "1.parquet"
    os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 5_000_000))
    seen.append(prints(text, sales=sales))
    pq.write_table(pa.table({"k": [1], "v": [1]}), sales / "2.parquet")
    make_older(sales / "2.parquet")
    seen.append(prints(text, sales=sales))
    (sales / "2.parquet").unlink()
    assert prints(text, sales=sales) == seen[1]
    assert len({tuple(each) for each in seen}) == 3


def test_settings_and_rows_of_the_query_itself_count(prints, sales):
    text = "SELECT k, count(*) FROM VALUES ({}) AS t(k) JOIN sales USING (k) GROUP BY k"
    seen = [prints(text.format(value), sales=sales) for value in (1, 2)]
    seen.append(prints(text.format(1), conf=CUT | {"spark.sql.ansi.enabled": "false"}, sales=sales))
    assert len({tuple(each) for each in seen}) == 3


def test_every_format_of_files(executor, tmp_path):
    tables = make_views(executor.spark, tmp_path)
    make_older(tmp_path)
    round_new(tmp_path)
    for view in tables:
        text = f"SELECT /*+ repartition(2) */ * FROM {view.name}"
        spec = pb.JobSpec(sql=pb.SqlScript(text=text), views=[view], conf=CUT)
        twice = [[stage.fingerprint for stage in executor.plan(spec, has_fingerprints=True).stages] for _ in range(2)]
        assert twice[0] == twice[1]
        assert all(twice[0][:-1]), view.name


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, count(*) FROM sales WHERE rand() < 0.5 GROUP BY k",
        "SELECT k, first(v) FROM sales GROUP BY k ORDER BY k",
        "SELECT k, count(*) FROM (SELECT * FROM sales DISTRIBUTE BY k LIMIT 3) GROUP BY k",
        "SELECT k, count(*) FROM sales WHERE uuid() <> k GROUP BY k",
    ],
)
def test_what_may_give_other_rows_has_none(prints, sales, text):
    assert "" in prints(text, sales=sales)


def planned_by(executor, source, **arguments):
    if path := arguments.get("path"):
        round_new(Path(path))
    function = pb.PythonFunction(
        source=source.encode(), function="query", file_name="job.py", arguments_json=json.dumps(arguments)
    )
    return [
        stage.fingerprint
        for stage in executor.plan(pb.JobSpec(python=function, conf=CUT), has_fingerprints=True).stages
    ]


def test_what_readers_go_by_counts(executor, sales):
    """The value of a column that a file lacks, and the number by which it is found, are not in its name or type."""
    source = """
from pyspark.sql.types import LongType, StructField, StructType

def query(spark, path, known):
    columns = [StructField("k", LongType()), StructField("late", LongType(), True, known)]
    return spark.read.schema(StructType(columns)).parquet(path).groupBy("k").sum("late")
"""
    known = [{}, {"EXISTS_DEFAULT": "5"}, {"EXISTS_DEFAULT": "6"}, {"parquet.field.id": 1}, {"parquet.field.id": 2}]
    found = [planned_by(executor, source, path=str(sales), known=each)[0] for each in known]
    assert all(found)
    assert len({*found}) == len(known)


def test_a_subquery_counts(prints, sales):
    text = "SELECT k, count(*) FROM sales WHERE v > (SELECT {}(v) FROM sales) GROUP BY k"
    found = [prints(text.format(name), sales=sales)[-1] for name in ("avg", "min")]
    assert all(found)
    assert found[0] != found[1]


def test_functions_of_users_have_none(executor):
    source = """
from pyspark.sql import functions as F

def query(spark):
    @F.udf("long")
    def twice(number):
        return 2 * number

    return spark.range(0, 10, 1, 2).groupBy(twice("id").alias("k")).count()
"""
    assert planned_by(executor, source) == ["", ""]


def test_nobody_asked_for_them(executor, sales):
    outcome = executor.plan_sql(QUERIES["join"], views=[pb.View(name="sales", path=str(sales))])
    assert not any(stage.fingerprint for stage in outcome.stages)
