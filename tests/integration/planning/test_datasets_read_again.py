"""A view over a dataset that a job wrote has the same rows, whatever their values; options apply or are refused."""

import csv
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException

from onager.errors import PlanningError, SinkError
from onager.executor.exchange import carry_out, check_appended, plan_publish
from onager.ids import new_nonce
from onager.protocol import onager_pb2 as pb
from tests.support.selection import IS_ALL
from tests.support.spark.one_executor import OneExecutor, as_multiset

MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001  (Hypothesis wants them so)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    [
        "",
        " a ",
        "a\nb",
        "\r\n",
        "\r",
        '"',
        '""',
        'a"b',
        "\\",
        'x,y\\"',
        "\\N",
        "NULL",
        "#",
        "\x00",
        "NaN",
        "\ufeff",
        "null",
    ]
)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), TEXTS),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "flag": (pa.bool_(), st.booleans()),
    "exact": (pa.decimal128(38, 18), st.decimals("-99999999999999999999", "99999999999999999999", places=18)),
    "day": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us", tz="UTC"), MOMENTS),
    "wall": (pa.timestamp("us"), MOMENTS),
}
NESTED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "list": (pa.list_(pa.string()), st.lists(st.none() | TEXTS, max_size=3)),
    "pair": (
        pa.struct([("a", pa.int32()), ("b", pa.timestamp("us", tz="UTC"))]),
        st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9), "b": st.none() | MOMENTS}),
    ),
    "map": (
        pa.map_(pa.string(), pa.list_(pa.float64())),
        st.dictionaries(TEXTS, st.none() | st.lists(st.floats(allow_nan=False), max_size=2), max_size=2).map(
            lambda d: list(d.items())
        ),
    ),
    "bytes": (pa.binary(), st.binary(max_size=4)),
}
FORMATS = {"csv": TYPES, "json": TYPES | NESTED}


def publish(executor: OneExecutor, text: str, sink: pb.Sink, views: Sequence[pb.View] = (), **conf: str) -> None:
    """Run a query, and publish its result as schedulers have it done."""
    spec = pb.JobSpec(sql=pb.SqlScript(text=text), views=views, sink=sink, conf=conf)
    outcome = executor.plan(spec)
    published = pb.Sink()
    published.CopyFrom(outcome.sink)
    published.schema_json = outcome.schema_json
    carry_out(plan_publish(executor.job_id, published, [outcome.fused_output], new_nonce()))


def rows(executor: OneExecutor, path: Path, options: Mapping[str, str] | None = None) -> list[tuple[Any, ...]]:
    view = pb.View(name="v", path=str(path), options=options)
    return executor.run(executor.plan_sql("SELECT * FROM v", views=[view], conf={}))


@pytest.mark.parametrize("form", FORMATS)
def test_any_rows_come_back(executor, tmp_path_factory, form):
    columns = FORMATS[form]
    row = st.fixed_dictionaries({name: st.none() | drawn for name, (_, drawn) in columns.items()})

    @settings(max_examples=8 if IS_ALL else 4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(row, min_size=1, max_size=40), st.sampled_from(["UTC", "Asia/Tokyo", "America/St_Johns"]))
    def check(drawn: list[dict[str, Any]], zone: str) -> None:
        directory = tmp_path_factory.mktemp("rows")
        schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
        pq.write_table(pa.Table.from_pylist(drawn, schema), directory / "in.parquet")
        target = directory / "out"
        view = pb.View(name="given", path=f"{directory}/in.parquet")
        conf = {"spark.sql.session.timeZone": zone}
        publish(executor, "SELECT * FROM given", pb.Sink(path=str(target), format=form), [view], **conf)
        assert as_multiset(rows(executor, target)) == as_multiset(rows(executor, directory / "in.parquet"))

    check()


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "orc"])
def test_a_column_alone_keeps_its_nulls_and_types(executor, tmp_path, form):
    for name, literals in {
        "texts": "('a'), (null), (''), (null)",
        "numbers": "(1), (null), (2)",
        "moments": "(timestamp'2020-01-01 00:00:00.000001Z'), (null)",
        "exact": "(cast(1.10 AS DECIMAL(10, 2))), (null)",
    }.items():
        target = tmp_path / name
        text = f"SELECT * FROM VALUES {literals} AS t(only)"
        publish(executor, text, pb.Sink(path=str(target), format=form))
        assert as_multiset(rows(executor, target)) == as_multiset(executor.run(executor.plan_sql(text, conf={})))
        written = executor.plan_sql(text, conf={}).schema_json
        read = executor.plan_sql("TABLE v", views=[pb.View(name="v", path=str(target))], conf={}).schema_json
        assert [f["type"] for f in json.loads(read)["fields"]] == [f["type"] for f in json.loads(written)["fields"]]


def test_csv_is_what_other_readers_expect(executor, tmp_path):
    moment = "timestamp'2020-01-01 00:00:00Z' AS t"
    text = f"""SELECT 'a "b", c' AS quoted, ' x ' AS spaced, 'back\\\\slash' AS slashed, {moment}"""
    publish(executor, text, pb.Sink(path=str(tmp_path / "out"), format="csv"))
    (part,) = (tmp_path / "out").glob("part-*")
    with part.open(newline="") as file:
        names, values = csv.reader(file)
    assert names == ["quoted", "spaced", "slashed", "t"]
    assert values == ['a "b", c', " x ", "back\\slash", "2020-01-01T00:00:00.000000Z"]


def test_options_that_the_user_gives_count_first(executor, tmp_path):
    target = tmp_path / "out"
    sink = pb.Sink(path=str(target), format="csv", options={"HEADER": "false", "delimiter": ";"})
    publish(executor, "SELECT id, 'x' AS y FROM range(0, 2, 1, 1)", sink)
    (part,) = target.glob("part-*")
    assert part.read_text() == "0;x\n1;x\n"
    assert rows(executor, target) == [(0, "x"), (1, "x")]
    assert rows(executor, target, {"inferSchema": "false", "sep": "|"}) == [("0;x",), ("1;x",)]
    given = pb.View(name="v", path=str(target), format="text")
    assert executor.run(executor.plan_sql("SELECT * FROM v", views=[given], conf={})) == [("0;x",), ("1;x",)]


def test_a_dataset_of_a_statement_is_written_as_spark_writes_it_and_read_as_it_was_written(executor, tmp_path):
    target = tmp_path / "out"
    text = f"INSERT OVERWRITE DIRECTORY '{target}' USING csv SELECT id, id * 2 AS two FROM range(0, 2, 1, 1)"
    outcome = executor.plan_sql(text, conf={})
    sink = pb.Sink()
    sink.CopyFrom(outcome.sink)
    sink.schema_json = outcome.schema_json
    carry_out(plan_publish(executor.job_id, sink, [outcome.fused_output], new_nonce()))
    (part,) = target.glob("part-*")
    assert part.read_text() == "0,0\n1,2\n"
    assert rows(executor, target) == [(0, 0), (1, 2)]


def test_what_is_appended_has_to_be_written_alike(executor, tmp_path):
    target = tmp_path / "out"
    sink = pb.Sink(path=str(target), format="csv", mode="append")
    publish(executor, "SELECT id FROM range(2)", sink)
    publish(executor, "SELECT id + 5 AS id FROM range(2)", sink)
    assert sorted(rows(executor, target)) == [(0,), (1,), (5,), (6,)]
    for text, options, what in (
        ("SELECT 'a' AS id", {}, "columns"),
        ("SELECT 1L AS other", {}, "columns"),
        ("SELECT 1L AS id", {"sep": "|"}, r"options \(sep\)"),
    ):
        with pytest.raises(SinkError, match=f"holds rows written with other {what}: append the same"):
            publish(executor, text, pb.Sink(path=str(target), format="csv", mode="append", options=options))
    for form in ("json", "parquet", "orc"):
        with pytest.raises(SinkError, match=rf"other format \({form}, not csv\)"):
            publish(executor, "SELECT 1L AS id", pb.Sink(path=str(target), format=form, mode="append"))
    assert len(rows(executor, target)) == 4


def test_rows_of_others_are_not_described_by_what_is_appended_to_them(executor, tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "theirs.csv").write_text("id\n7\n")
    publish(executor, "SELECT id FROM range(1)", pb.Sink(path=str(target), format="csv", mode="append"))
    assert not (target / "_onager.json").exists()
    assert sorted(rows(executor, target)) == [(0,), (7,)]


def test_two_that_append_first_are_compared_when_they_are_published(executor, tmp_path):
    target = tmp_path / "out"
    staged = []
    for text in ("SELECT 1L AS id", "SELECT 'a' AS name"):
        sink = pb.Sink(path=str(target), format="csv", mode="append")
        outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text), sink=sink))
        sink.CopyFrom(outcome.sink)
        sink.schema_json = outcome.schema_json
        staged.append(plan_publish(executor.job_id, sink, [outcome.fused_output], new_nonce()))
    carry_out(staged[0])
    carry_out(staged[0])
    with pytest.raises(SinkError, match="holds rows written with other columns"):
        carry_out(staged[1])
    assert rows(executor, target) == [(1,)]


def test_another_format_that_is_appended_at_the_same_time_is_refused_when_it_is_published(executor, tmp_path):
    target = tmp_path / "out"
    staged = []
    for form in ("csv", "parquet"):
        sink = pb.Sink(path=str(target), format=form, mode="append")
        outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text="SELECT 1L AS id"), sink=sink))
        sink.CopyFrom(outcome.sink)
        sink.schema_json = outcome.schema_json
        staged.append(plan_publish(executor.job_id, sink, [outcome.fused_output], new_nonce()))
    carry_out(staged[0])
    with pytest.raises(SinkError, match=r"other format \(parquet, not csv\)"):
        carry_out(staged[1])
    assert rows(executor, target) == [(1,)]


def test_a_damaged_description_is_reported(executor, tmp_path):
    publish(executor, "SELECT 1 AS a", pb.Sink(path=str(tmp_path / "out"), format="csv"))
    for content in ("{", '{"version": 2}', "[]"):
        (tmp_path / "out" / "_onager.json").write_text(content)
        with pytest.raises(PlanningError, match=r"_onager\.json says how .* was written, and cannot be read"):
            rows(executor, tmp_path / "out")


def test_a_line_that_was_broken_later_is_an_error_and_no_null(executor, tmp_path):
    publish(executor, "SELECT id FROM range(0, 3, 1, 1)", pb.Sink(path=str(tmp_path / "out"), format="csv"))
    (part,) = (tmp_path / "out").glob("part-*")
    part.write_text("id\n1\nx\n")
    with pytest.raises(Exception, match=r"MALFORMED_RECORD|Malformed"):
        rows(executor, tmp_path / "out")


@pytest.mark.parametrize(
    ("form", "options", "words"),
    [
        ("csv", {"headr": "true"}, "the option headr has no effect when csv is written: did you mean header?"),
        ("csv", {"inferSchema": "true"}, "it is an option for reading (--view-option)"),
        ("parquet", {"header": "true"}, "the option header has no effect when parquet is written"),
        ("parquet", {"partitionBy": "k"}, "name the columns with --partition-by"),
        ("json", {"bucketBy": "k"}, "REPARTITION(n)"),
        ("json", {"maxRecordsPerFile": "ten"}, "maxRecordsPerFile is a number of rows, not ten"),
        ("orc", {"path": "/x"}, "the path is not given as an option"),
    ],
)
def test_an_option_without_effect_is_refused_when_writing(executor, tmp_path, form, options, words):
    with pytest.raises(PlanningError) as refused:
        publish(executor, "SELECT 1 AS a", pb.Sink(path=str(tmp_path / "out"), format=form, options=options))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("form", "options", "words"),
    [
        ("csv", {"seperator": ";"}, "the option seperator has no effect when csv is read"),
        ("json", {"compression": "gzip"}, "it is an option for writing (--output-option)"),
        ("parquet", {"header": "true"}, "view v: the option header has no effect when parquet is read"),
    ],
)
def test_an_option_without_effect_is_refused_when_reading(executor, tmp_path, form, options, words):
    view = pb.View(name="v", path=str(tmp_path), format=form, options=options)
    with pytest.raises(PlanningError) as refused:
        executor.plan_sql("SELECT * FROM v", views=[view])
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("csv", {"Sep": ";", "CODEC": "gzip", "quoteAll": "true", "dateFormat": "dd.MM.yyyy"}),
        ("json", {"ignoreNullFields": "false", "compression": "gzip", "encoding": "UTF-8"}),
        ("parquet", {"compression": "zstd", "parquet.block.size": "1048576"}),
        ("orc", {"orc.compress": "ZLIB", "orc.stripe.size": "1048576"}),
    ],
)
def test_options_of_spark_and_of_the_libraries_below_are_taken(executor, tmp_path, form, options):
    text = "SELECT id, date'2020-01-02' AS day FROM range(0, 2, 1, 1)"
    publish(executor, text, pb.Sink(path=str(tmp_path / "out"), format=form, options=options))
    assert rows(executor, tmp_path / "out") == [(0, dt.date(2020, 1, 2)), (1, dt.date(2020, 1, 2))]


@pytest.mark.parametrize(
    ("form", "query", "words"),
    [
        ("csv", "SELECT X'00' AS raw", "column raw cannot be written as csv and read again: write base64"),
        ("csv", "SELECT array(1) AS l", "column l cannot be written as csv and read again: write to_json"),
        ("csv", "SELECT map('a', 1) AS m", "column m cannot be written as csv and read again: write to_json"),
        ("csv", "SELECT struct(1 AS a) AS s", "column s cannot be written as csv and read again: write to_json"),
        (
            "json",
            "SELECT array(map(1, 2)) AS m",
            "column m cannot be written as json and read again: the keys of a map",
        ),
    ],
)
def test_columns_without_a_way_back_are_refused(executor, tmp_path, form, query, words):
    with pytest.raises(PlanningError, match=words):
        publish(executor, query, pb.Sink(path=str(tmp_path / "out"), format=form))


@pytest.mark.parametrize("nested", ["array(1)", "map('a', 1)", "struct(1 AS a)"])
def test_a_statement_that_writes_what_csv_does_not_hold_is_refused_in_sparks_words(executor, tmp_path, nested):
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"):
        executor.plan_sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING csv SELECT {nested} AS x", conf={})


def test_the_decimals_of_a_format_are_exact(executor, tmp_path):
    publish(executor, "SELECT cast('0.1' AS DECIMAL(38, 37)) AS d", pb.Sink(path=str(tmp_path / "out"), format="json"))
    assert rows(executor, tmp_path / "out") == [(Decimal("0.1000000000000000000000000000000000000"),)]


def test_what_is_not_appended_to_is_not_compared(tmp_path):
    check_appended(pb.Sink(path=str(tmp_path / "nowhere"), format="csv", mode="append", schema_json='{"fields": []}'))
