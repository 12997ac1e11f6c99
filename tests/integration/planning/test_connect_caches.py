"""What sessions of Spark Connect cache, as jobs are planned: which rows are the same ones, and how they are read."""

import pytest
from pyspark import StorageLevel
from pyspark.sql.connect import functions as sf
from pyspark.sql.connect.proto import ExecutePlanRequest
from pyspark.sql.datasource import DataSource, DataSourceReader

from onager.caches import cache_of
from onager.executor.spark.kernel.plans import JavaCutting
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.connect_client import ConnectClient
from tests.integration.planning.connect_frames import lazy
from tests.support.spark.one_executor import CUT, OneExecutor


def planned(client: ConnectClient, executor: OneExecutor, frame, *, slots=2, conf=None) -> pb.PlanOutcome:
    request = ExecutePlanRequest(plan=client._plan(frame))
    plan = pb.ConnectPlan(request=request.SerializeToString(), session=client.stored)
    return executor.plan(pb.JobSpec(connect=plan, conf=conf or {}), slots=slots)


def prints(outcome: pb.PlanOutcome) -> list[str]:
    return [stage.fingerprint for stage in outcome.stages if cache_of(stage.fingerprint)]


def test_the_rows_of_a_cache_are_known_by_what_they_were_made_of(client, executor):
    client.sql("CREATE TABLE sold (id BIGINT, k INT) USING parquet")
    client.sql("INSERT INTO sold VALUES (1, 1), (2, 1), (3, 2)")
    frame = client.spark.table("sold").repartition("k").withColumn("r", sf.rand())
    client.cache(frame)
    first = planned(client, executor, frame)
    (made,) = prints(first)
    assert cache_of(made) == client.stored.entries[0].name
    assert [len(stage.inputs) for stage in first.stages] == [0, 1, 1]
    assert not first.stages[1].deterministic
    other = planned(client, executor, frame.where("k = 1"), slots=7)
    assert (prints(other), other.stages[1].partitions) == ([made], first.stages[1].partitions)
    client.set("spark.sql.shuffle.partitions", "11")
    client.set("spark.sql.session.timeZone", "Asia/Tokyo")
    client.cache(client.spark.range(3))
    assert prints(planned(client, executor, frame.groupBy("k").count())) == [made]
    client.sql("INSERT INTO sold VALUES (4, 1)")
    (later,) = prints(planned(client, executor, frame))
    assert cache_of(later) == cache_of(made)
    assert later != made
    client.uncache(frame)
    assert prints(planned(client, executor, frame)) == []


def test_what_is_not_cached_is_planned_as_ever(client, executor):
    client.cache(client.spark.range(10))
    outcome = planned(client, executor, client.spark.range(11))
    assert outcome.HasField("fused_output")


def test_a_cache_of_a_cache_goes_with_it(client, executor):
    numbers = client.spark.range(0, 40, 1, 4)
    client.cache(numbers)
    twice = numbers.select((sf.col("id") * 2).alias("n"))
    client.cache(twice)
    client.cache(numbers)  # it is
    assert [made.kind for made in client.stored.entries] == ["cache", "cache"]
    outcome = planned(client, executor, twice.join(numbers, twice.n == numbers.id))
    assert len({cache_of(each) for each in prints(outcome)}) == 2
    assert [stage.name for stage in outcome.stages][:2] == ["range → cache", "cached rows → cache"]
    assert sorted(client.rows(twice.groupBy().sum())) == [(1560,)]
    client.uncache(numbers)
    assert [cache_of(each) for each in prints(planned(client, executor, twice))] == [client.stored.entries[0].name]


@pytest.mark.parametrize("layout", ["planned", "merged", "split", "fused", "fused whole"])
def test_however_stages_are_laid_out_partitions_and_order_are_kept(client, executor, layout):
    left = (
        client.spark.range(0, 200, 1, 4).withColumn("k", sf.col("id") % 9).repartition(3, "k").sortWithinPartitions("k")
    )
    client.cache(left)
    right = client.spark.range(0, 30, 1, 2).select((sf.col("id") % 9).alias("k"), sf.col("id").alias("b"))
    for joined in (left.hint("merge").join(right, "k"), left.union(left).groupBy("k").count(), left.join(left, "k")):
        found = executor.run(planned(client, executor, joined, conf=CUT), layout)
        client.uncache(left)
        expected = executor.run(planned(client, executor, joined, conf=CUT))
        client.cache(left)
        assert sorted(found) == sorted(expected)
    counted = left.join(right, "k").groupBy("b").count()
    expected = executor.run(planned(client, executor, counted, conf=CUT))
    client.cache(counted)
    of_counted = planned(client, executor, counted, conf=CUT)
    assert sorted(executor.run(of_counted, layout)) == sorted(expected)
    down = left.orderBy(sf.desc("id"))
    client.cache(down)
    assert [row[0] for row in executor.run(planned(client, executor, down, conf=CUT), layout)] == [*range(199, -1, -1)]
    limited = executor.run(planned(client, executor, down.select("id").limit(3), conf=CUT), layout)
    assert limited == [(199,), (198,), (197,)]


def test_a_view_is_the_one_that_was_there_then(client):
    client.view("v", client.spark.range(5))
    of_view = lazy(client, "SELECT * FROM v")
    cached = client.spark.table("v").where("id > 2")
    client.cache(cached)
    client.view("v", client.spark.range(100, 105))
    assert client.rows(cached) == [(3,), (4,)]
    assert client.rows(of_view) == [(100,), (101,), (102,), (103,), (104,)]
    again = client.spark.table("v").where("id > 2")
    assert len(client.rows(again)) == 5, "it is another one"
    assert client.level(again) == StorageLevel(False, False, False, False)


def test_of_what_does_not_tell_whether_it_has_changed_nothing_is_kept(client, executor, tmp_path, monkeypatch):
    def described(cutting, *arguments):
        return [facts | {"digest": ""} if facts["files"] else facts for facts in describe(cutting, *arguments)]

    describe = JavaCutting.describe
    monkeypatch.setattr(JavaCutting, "describe", described)  # as of a table of another catalog
    executor.spark.range(5).write.parquet(f"{tmp_path}/five")
    five, few = client.spark.read.parquet(f"{tmp_path}/five"), client.spark.range(3)
    client.cache(five)
    client.cache(few)
    outcome = planned(client, executor, five.join(few, "id"), conf=CUT)
    assert [cache_of(each) for each in prints(outcome)] == [client.stored.entries[1].name]
    assert sorted(executor.run(outcome)) == [(0,), (1,), (2,)]


def test_a_query_that_cannot_be_cut_is_run_without_caches(client, executor, tmp_path):
    executor.spark.range(5).write.parquet(f"{tmp_path}/five")
    client.set("spark.sql.sources.useV1SourceList", "")
    five = client.spark.read.parquet(f"{tmp_path}/five")
    client.cache(five)
    outcome = planned(client, executor, five.where("id > 2"), conf=CUT)
    assert (prints(outcome), outcome.HasField("fused_output")) == ([], True)
    assert "InMemoryTableScan" not in outcome.plan
    assert sorted(executor.run(outcome)) == [(3,), (4,)]


def test_a_source_in_python_is_as_it_was(client, executor):
    class OnePage(DataSourceReader):  # here, or workers would have to import this module
        def read(self, _):
            yield from ((n,) for n in range(5))

    class Pages(DataSource):
        @classmethod
        def name(cls):
            return "pages"

        def schema(self):
            return "n INT"

        def reader(self, schema):
            del schema
            return OnePage()

    client.source(Pages)
    pages = client.spark.read.format("pages").load()
    client.cache(pages)
    first, second = (planned(client, executor, pages) for _ in range(2))
    assert len(prints(first)) == 1
    assert prints(first) == prints(second)
    assert sorted(executor.run(second)) == [(0,), (1,), (2,), (3,), (4,)]


def test_a_table_that_is_gone_takes_nothing_but_itself_along(client):
    client.sql("CREATE TABLE sold (id BIGINT) USING parquet")
    client.cache(client.spark.table("sold"))
    kept = client.spark.range(3)
    client.cache(kept)
    client.sql("DROP TABLE sold")
    assert client.rows(kept) == [(0,), (1,), (2,)]
    client.sql("CLEAR CACHE")
    assert not client.stored.entries
