"""Python data sources: planned once, each partition read by the task of its number."""

import sys

import pytest

from onager.executor.spark import leaves
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.leaves import LeafTools
from onager.executor.spark.plan_codec import decode
from onager.executor.spark.planning import plan_job
from tests.integration.planning.python_jobs import compare, source

NUMBERS = """
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"
    def schema(self):
        return "n long, part int"
    def reader(self, schema):
        return Reader(int(self.options.get("parts", 4)))
class Reader(DataSourceReader):
    def __init__(self, parts):
        self.parts = parts
    def partitions(self):
        return [InputPartition(i) for i in range(self.parts)]
    def read(self, partition):
        for i in range(25):
            yield (25 * partition.value + i, partition.value)
"""


def body(text, numbers=NUMBERS):
    lines = [f"    {line}" for line in numbers.strip().splitlines()]
    return "\n".join([lines[0].strip(), *lines[1:], "    spark.dataSource.register(Numbers)", f"    {text}"])


def test_each_task_reads_its_own_share(executor, tables):
    read = "return spark.read.format('numbers').load().select('n', 'part', F.spark_partition_id().alias('task'))"
    outcome = compare(executor, tables, body(read))
    (stage,) = outcome.stages
    assert (stage.name, stage.partitions) == ("scan numbers", 4)
    assert not stage.deterministic, "what is read again may be something else"
    rows = executor.run(executor.plan_python(source(body(read)), views=tables))
    assert sorted(n for n, _, _ in rows) == list(range(100))
    assert all(part == task for _, part, task in rows)


@pytest.mark.parametrize(
    "read",
    [
        "return spark.read.format('numbers').load().groupBy('part').agg(F.sum('n'))",
        "return spark.read.format('numbers').load().join(spark.table('sales'), F.col('n') == F.col('id'))",
        "return spark.read.format('numbers').option('parts', 1).load().where('n > 3').select(F.sum('n'))",
        "return spark.read.format('numbers').load().orderBy('n').limit(7)",
        "return spark.read.format('numbers').load().select()",
        "one = spark.read.format('numbers').load()\n    return one.union(one).groupBy('n').count()",
        "spark.sql('create temporary view few using numbers')\n    return spark.sql('select max(n) from few')",
    ],
    ids=["aggregate", "join", "filter", "top", "no columns", "twice", "a view"],
)
def test_shape(executor, tables, read):
    outcome = compare(executor, tables, body(read))
    assert not outcome.HasField("fused_output")


BATCHES = NUMBERS.replace(
    "        for i in range(25):\n            yield (25 * partition.value + i, partition.value)",
    "        yield pa.record_batch({'n': [1, 2], 'part': pa.array([partition.value] * 2, pa.int32())})",
)


def test_a_source_of_record_batches(executor, tables):
    compare(
        executor, tables, body("return spark.read.format('numbers').load().groupBy('part').agg(F.sum('n'))", BATCHES)
    )


LARGE = (
    NUMBERS.replace("InputPartition(i) for i", "Large(i) for i")
    + """
class Large(InputPartition):
    def __init__(self, value):
        super().__init__(value)
        self.held = bytes(3000)
"""
)


def test_partitions_that_hold_more_than_a_plan_carries(executor, tables, monkeypatch):
    read = body("return spark.read.format('numbers').load().groupBy('part').agg(F.sum('n'))", LARGE)
    outcome = compare(executor, tables, read)
    assert not outcome.HasField("fused_output")
    (leaf,) = decode(outcome.blobs[0].content).inputs
    jvm = Jvm.of(executor.spark)
    made = LeafTools(jvm).rebuild(jvm_session(executor.spark), leaf.description)
    assert len(leaf.description) > 12_000
    assert len(jvm.java_class("onager.values.Serialization").encode(made)) < 12_000, (
        "what tasks get along with closures"
    )
    monkeypatch.setattr(leaves, "LOCAL_ROWS_LIMIT_BYTES", 10_000)
    outcome = compare(executor, tables, read)
    assert outcome.HasField("fused_output")
    assert "a data source whose partitions hold more than" in outcome.stages[0].name


def test_more_partitions_than_the_tasks_of_the_next_stage_can_be_given(executor, tables, monkeypatch):
    monkeypatch.setattr(sys.modules[plan_job.__module__], "MAX_OUTPUTS", 3)
    read = body("return spark.read.format('numbers').load().groupBy('part').agg(F.sum('n'))")
    outcome = compare(executor, tables, read)
    assert outcome.HasField("fused_output")
    assert "a stage that reads the output of 4 tasks" in outcome.stages[0].name
