"""The load of an executor with Spark: the JVM's own figures, and its Python workers."""

from pyspark.sql.functions import udf

from onager.executor.spark.load import ProcessTree
from tests.support.spark.runner import cut


def test_the_jvm_tells_its_heap_and_collections(runner):
    use = runner.kernel.jvm_use()
    assert 0 < use["heap_used_bytes"] <= use["heap_max_bytes"]
    assert use["gc_ms"] >= 0


def test_sparks_python_workers_are_seen(spark, job):
    frame = spark.range(0, 10, 1, 2).select(udf(lambda n: n + 1, "long")("id").alias("n"))
    assert job.result(cut(spark, frame)).num_rows == 10
    use = ProcessTree().look()
    assert 1 <= use.python_workers <= 4
    assert use.rss_bytes > 100 << 20
