"""Tables of the session's own catalog: partitioned, bucketed, and as a view keeps them."""

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq

ALL = {
    "all partitions": "select day, count(*), sum(id) from sold group by day",
    "one partition": "select id % 5, count(*) from sold where day = 3 group by 1",
    "a join of both": "select b.k, count(*) from buckets b join sold s on s.id = b.id group by b.k",
    "a join on the buckets": "select a.k, count(*) from buckets a join buckets b on a.k = b.k group by a.k",
    "a view": "select day, sum(n) from per_day group by day",
}


@pytest.fixture(scope="module", autouse=True)
def sold(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tables")
    rows = spark.range(200).selectExpr("id", "id % 7 as k", "id % 4 as day")
    rows.write.partitionBy("day").option("path", f"{directory}/sold").saveAsTable("sold")
    rows.select("id", "k").write.bucketBy(3, "k").option("path", f"{directory}/buckets").saveAsTable("buckets")
    spark.sql("create view per_day as select day, count(*) as n from sold group by day")
    yield
    spark.sql("drop view per_day")
    spark.sql("drop table sold")
    spark.sql("drop table buckets")


@pytest.mark.parametrize("text", ALL.values(), ids=ALL.keys())
def test_tables_give_the_same_rows(spark, text):
    for join in ("-1", "10m"):
        assert_distributed_eq(spark.sql(text), HarnessConfig(conf={"spark.sql.autoBroadcastJoinThreshold": join}))
