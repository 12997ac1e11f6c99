"""Jobs that are planned with a catalog: what they read of it, what they change, and what they leave alone."""

import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql.functions import count
from pyspark.sql.functions import sum as sum_

from onager.errors import CatalogConflictError, SideEffectError, VersionMismatchError
from onager.executor.spark import plan_codec
from onager.executor.spark.jvm import jvm_context
from onager.executor.spark.kernel_build import find_javac
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.catalogs import commit, planned_with, rows
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import CUT, OneExecutor
from tests.support.waiting import HANGS_S, until

TABLE_LESS = {
    "a constant": "SELECT 1",
    "a range": "SELECT id % 3 AS k, count(*) FROM range(10) GROUP BY k",
    "a view": "CREATE TEMPORARY VIEW own AS SELECT 1 AS a; SELECT upper(string(a)) FROM own",
    "a function": "CREATE TEMPORARY FUNCTION one_more (x INT) RETURNS INT RETURN x + 1; SELECT one_more(1)",
    "a variable": "DECLARE VARIABLE v INT DEFAULT 5; SET VAR v = 6; SELECT v",
    "files": "SELECT * FROM csv.`{people}`",
    "a setting": "SET spark.sql.shuffle.partitions = 3; SELECT id FROM range(3) ORDER BY id",
    "a common expression": "WITH t AS (SELECT 1 AS a) SELECT * FROM t",
    "files of the job": "SELECT * FROM people",
}


# ---------------------------------------------------------------- reads


@pytest.mark.parametrize("what", TABLE_LESS)
def test_a_query_without_tables_reads_nothing(
    executor: OneExecutor, catalog: MemoryCatalog, people: str, what: str
) -> None:
    text = TABLE_LESS[what].replace("{people}", people)
    outcome = executor.plan_sql(text, conf={}, views=[pb.View(name="people", path=people, format="csv")])
    assert not outcome.HasField("catalog")
    assert catalog.requests == []


def test_only_the_partitions_that_a_query_needs_are_listed_and_read(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str
) -> None:
    for region in (1, 2, 3):  # whoever looked into these would fail
        for day in range(10):
            for file in Path(sales, f"region={region}", f"day={day}").glob("*"):
                file.unlink()
    for conf in ({}, CUT):
        query = "SELECT day, count(*), sum(id) FROM sales WHERE region = 0 AND day < 5 GROUP BY day"
        outcome = executor.plan_sql(query, conf=conf)
        expected = [(day, [i for i in range(400) if i % 4 == 0 and i % 10 == day]) for day in (0, 2, 4)]
        assert sorted(executor.run(outcome)) == [(day, len(ids), sum(ids)) for day, ids in expected]
        if conf:
            assert len(outcome.stages) == 2
            assert outcome.stages[0].name.startswith("scan sales")
            (blob,) = [blob for blob in outcome.blobs if blob.digest == outcome.stages[0].plan_digest]
            assert plan_codec.decode(blob.content).inputs[0].label == "Parquet sales (3 files)"
        keys = [key for request in catalog.requests for key in request.keys]
        assert {key.split("/")[0] for key in keys} == {"tables", "pages"}


def test_a_table_is_read_by_other_executors_without_the_catalog(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str
) -> None:
    commit(executor, catalog, "CREATE VIEW by_region AS SELECT region, count(*) AS n FROM sales GROUP BY region")
    query = "SELECT * FROM by_region JOIN (SELECT DISTINCT region FROM sales WHERE day = 1) USING (region)"
    outcome = executor.plan_sql(query, conf=CUT)
    asked = len(catalog.requests)
    assert sorted(executor.run(outcome)) == [(1, 100), (3, 100)]
    assert len(catalog.requests) == asked


def test_partitions_without_a_filter_count_as_large_as_their_files(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str
) -> None:
    outcome = executor.plan_sql("SELECT region, count(*) FROM sales GROUP BY region", conf={})
    assert outcome.HasField("fused_output"), "a small table is not cut"
    assert sorted(executor.run(outcome)) == [(region, 100) for region in range(4)]


def test_a_bucketed_table_is_read_like_any_other(executor: OneExecutor, catalog: MemoryCatalog, tmp_path: Path) -> None:
    directory = f"{tmp_path}/buckets"
    frame = executor.spark.range(100).selectExpr("id % 7 AS k", "id AS v")
    executor.spark.sql("CREATE DATABASE IF NOT EXISTS bucketed")
    frame.write.bucketBy(3, "k").option("path", directory).mode("overwrite").saveAsTable("bucketed.t")
    executor.spark.sql("DROP DATABASE bucketed CASCADE")
    commit(
        executor,
        catalog,
        f"CREATE TABLE b (k BIGINT, v BIGINT) USING parquet CLUSTERED BY (k) INTO 3 BUCKETS LOCATION '{directory}'",
    )
    query = "SELECT k, count(*), sum(v) FROM b GROUP BY k"
    expected = sorted(tuple(row) for row in frame.groupBy("k").agg(count("*"), sum_("v")).collect())
    assert rows(executor, query, CUT) == expected == rows(executor, query)


def test_a_partition_in_a_private_directory_is_not_read(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str
) -> None:
    private = f"{executor.directory}/secret"
    conf = jvm_context(executor.spark).conf()
    conf.set("spark.onager.privatePaths", str(executor.directory))
    try:
        commit(executor, catalog, f"ALTER TABLE sales ADD PARTITION (region = 9, day = 9) LOCATION '{private}'")
        assert rows(executor, "SELECT count(*) FROM sales WHERE region = 1") == [(100,)]
        with pytest.raises(Exception, match="where Onager keeps files of its own"):
            executor.plan_sql("SELECT count(*) FROM sales WHERE region = 9", conf={})
    finally:
        conf.remove("spark.onager.privatePaths")


TOTAL = """
import org.apache.spark.sql.Row;
import org.apache.spark.sql.expressions.MutableAggregationBuffer;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

public class OnagerTestTotal extends org.apache.spark.sql.expressions.UserDefinedAggregateFunction {
    private static final StructType ONE = new StructType().add("v", DataTypes.LongType);
    @Override public StructType inputSchema() { return ONE; }
    @Override public StructType bufferSchema() { return ONE; }
    @Override public DataType dataType() { return DataTypes.LongType; }
    @Override public boolean deterministic() { return true; }
    @Override public void initialize(MutableAggregationBuffer to) { to.update(0, 0L); }
    @Override public void update(MutableAggregationBuffer to, Row row) { to.update(0, to.getLong(0) + row.getLong(0)); }
    @Override public void merge(MutableAggregationBuffer to, Row row) { to.update(0, to.getLong(0) + row.getLong(0)); }
    @Override public Object evaluate(Row row) { return row.getLong(0); }
}
"""


def test_a_function_by_class_goes_with_the_stages(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str, tmp_path: Path
) -> None:
    source = tmp_path / "OnagerTestTotal.java"
    source.write_text(TOTAL)
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    subprocess.run([str(find_javac()), "-nowarn", "-cp", jars, "-d", str(tmp_path), str(source)], check=True)
    jvm = executor.spark.sparkContext._jvm
    jvm.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(str(tmp_path)).toURI().toURL())
    commit(
        executor,
        catalog,
        "CREATE FUNCTION total AS 'OnagerTestTotal'; "
        "CREATE VIEW totals AS SELECT region, total(id) AS t FROM sales GROUP BY region",
    )
    expected = [(region, sum(i for i in range(400) if i % 4 == region)) for region in range(4)]
    assert rows(executor, "SELECT * FROM totals", CUT) == expected
    assert len(executor.plan_sql("SELECT * FROM totals", conf=CUT).stages) == 2


def test_python_functions_read_tables_and_change_nothing(
    executor: OneExecutor, catalog: MemoryCatalog, sales: str
) -> None:
    commit(executor, catalog, "CREATE VIEW odd AS SELECT id FROM sales WHERE id % 2 = 1")
    source = """
def query(spark):
    assert "sales" in [table.name for table in spark.catalog.listTables()]
    assert spark.catalog.tableExists("odd")
    return spark.table("odd").union(spark.sql("SELECT id FROM sales WHERE region = 0")).groupBy().count()
"""
    assert executor.run(executor.plan_python(source)) == [(300,)]
    for refused in (
        'spark.sql("DROP TABLE sales")',
        'spark._jsparkSession.sql("DROP TABLE sales")',
        'spark.catalog.createTable("t", path="/tmp", source="csv")',
        'spark.catalog.recoverPartitions("sales")',
    ):
        with pytest.raises((SideEffectError, Exception), match=r"would change something|changed by statements"):
            executor.plan_python(f"def query(spark):\n    {refused}\n    return spark.range(1)\n")
    assert executor.plan_python(source).HasField("catalog") is False


# ---------------------------------------------------------------- one revision


def test_a_planning_whose_catalog_moves_is_repeated(executor: OneExecutor, catalog: MemoryCatalog, people: str) -> None:
    commit(executor, catalog, f"CREATE TABLE people USING csv OPTIONS (header 'true') LOCATION '{people}'")
    commit(executor, catalog, "CREATE VIEW v AS SELECT name FROM people")
    commit(executor, catalog, "CREATE VIEW w AS SELECT 'new' AS name")
    moved = catalog.records["tables/default/w"][0].replace(b'"name":"w"', b'"name":"v"')

    def move(request: pb.ReadCatalogRequest) -> None:
        if "tables/default/people" in request.keys:
            catalog.before_read = None
            catalog.put("tables/default/v", moved)

    catalog.before_read = move
    assert rows(executor, "SELECT DISTINCT name FROM v") == [("new",)]


def test_a_catalog_that_never_rests_is_a_conflict(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT * FROM t")
    executor.fused.clear()
    content = catalog.records["tables/default/v"][0]
    catalog.before_read = lambda _: catalog.put("tables/default/v", content)
    with pytest.raises(CatalogConflictError, match="each of the 5 times"):
        executor.plan_sql("SELECT * FROM v", conf={})
    assert executor.fused == [], "nothing runs on what was not there at once"


def test_a_list_that_grows_is_seen(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT)")
    content = catalog.records["tables/default/t"][0]
    listed = 0

    def grow(request: pb.ReadCatalogRequest) -> None:
        nonlocal listed
        listed += bool(request.prefixes)
        if request.keys and listed == 1:
            catalog.put("tables/default/u", content.replace(b'"name":"t"', b'"name":"u"'))

    catalog.before_read = grow
    found = rows(executor, "SHOW TABLE EXTENDED LIKE '*'")
    assert [row[1] for row in found] == ["t", "u"]


def test_many_tables_are_listed_page_by_page(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT)")
    content = catalog.records["tables/default/t"][0]
    for i in range(2_300):
        catalog.put(f"tables/default/t{i}", content.replace(b'"name":"t"', f'"name":"t{i}"'.encode()))
    outcome = executor.plan_sql("SHOW TABLES", conf={})
    assert len(executor.run(outcome)) == 2_301
    assert executor.run(executor.plan_sql("SHOW VIEWS", conf={})) == []


# ---------------------------------------------------------------- failures


def test_an_old_scheduler_fails_only_what_needs_the_catalog(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    def refuse(_: pb.ReadCatalogRequest) -> None:
        raise VersionMismatchError("it is too old")

    catalog.before_read = refuse
    assert rows(executor, "SELECT 1") == [(1,)]
    for text in ("SELECT * FROM t", "CREATE TABLE t (a INT)", "SHOW TABLES", "SELECT nosuch(1)"):
        with pytest.raises(VersionMismatchError, match="it is too old"):
            executor.plan_sql(text, conf={})
    source = """
def query(spark):
    try:
        spark.table("t")
    except Exception:
        pass
    return spark.range(1)
"""
    with pytest.raises(VersionMismatchError, match="it is too old"):
        executor.plan_python(source)


def test_damaged_records_are_named(executor: OneExecutor, catalog: MemoryCatalog, sales: str) -> None:
    (page,) = [key for key in catalog.records if key.startswith("pages/")]
    catalog.put(page, b"damaged")
    with pytest.raises(Exception, match=f"{page} of the catalog cannot be read"):
        executor.plan_sql("SELECT count(*) FROM sales WHERE region = 1", conf={})
    catalog.put("tables/default/sales", b"{damaged")
    with pytest.raises(Exception, match="the record tables/default/sales of the catalog is damaged"):
        executor.plan_sql("SELECT * FROM sales", conf={})


def test_a_read_that_never_ends_can_be_interrupted(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    forever: Future[pb.ReadCatalogResponse] = Future()
    asked = threading.Event()

    class Stuck:
        def read(self, _: pb.ReadCatalogRequest) -> Future[pb.ReadCatalogResponse]:
            asked.set()
            return forever

    executor.catalog = Stuck()
    kernel = executor.runner.kernel
    raised: list[BaseException] = []

    def plan() -> None:
        try:
            with kernel.control("stuck", "stuck", "stuck", lambda: True):
                executor.plan_sql("SELECT * FROM t", conf={})
        except BaseException as e:  # noqa: BLE001 - looked at below
            raised.append(e)

    thread = threading.Thread(target=plan)
    thread.start()
    assert asked.wait(HANGS_S)
    kernel.cancel_control("stuck")
    thread.join(HANGS_S)
    assert not thread.is_alive()
    assert isinstance(raised[0], Py4JJavaError | Exception)
    assert forever.cancelled()


# ---------------------------------------------------------------- sessions


def test_plannings_are_apart_from_each_other_and_from_the_process(
    executor: OneExecutor, catalog: MemoryCatalog
) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT)")
    with planned_with(executor) as other:
        commit(executor, other, "CREATE TABLE u (a INT)")
        assert [row[1] for row in rows(executor, "SHOW TABLES")] == ["u"]
    executor.catalog = catalog
    assert [row[1] for row in rows(executor, "SHOW TABLES")] == ["t"]
    executor.catalog = None
    assert rows(executor, "SHOW TABLES") == []
    assert executor.spark.catalog.listTables() == []


def test_plannings_leave_no_listener_and_no_thread(executor: OneExecutor, catalog: MemoryCatalog) -> None:
    commit(executor, catalog, "CREATE TABLE t (a INT)")

    def listeners() -> int:
        executor.spark.sparkContext._jvm.System.gc()
        return int(jvm_context(executor.spark).listenerBus().listeners().size())

    def plan(times: int) -> None:
        for _ in range(times):
            executor.plan_sql("SHOW TABLES", conf={})

    plan(2)
    before, threads = listeners(), threading.active_count()
    plan(20)
    # Spark drops those of sessions that are gone when they are collected.
    until(lambda: listeners() <= before, "as many listeners as before")
    assert threading.active_count() <= threads + 1  # the next planning may begin while the last one's reader ends
