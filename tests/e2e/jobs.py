# ruff: noqa: PTH110, PTH123 - these functions travel alone
"""Python jobs of the end-to-end tests; they travel as source, so each function imports what it needs."""


def gated_query(spark, text, gate, table, key):
    """The query *text*, with the scan of *table* held at *gate* until a file `open` is there."""
    import os
    import time

    from pyspark.sql.functions import udf

    def passes(_):
        while not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        return True

    spark.table(f"{table}_ungated").where(udf(passes, "boolean")(key)).createOrReplaceTempView(table)
    return spark.sql(text)


def gated_range(spark, gate, partitions, held):
    """The numbers 0 to 999 in *partitions* tasks, of which number *held* waits at *gate*."""
    import os
    import time

    from pyspark.sql.functions import col, spark_partition_id, udf

    def passes(partition):
        while partition == held and not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        return True

    frame = spark.range(0, 1000, 1, partitions)
    return frame.where(udf(passes, "boolean")(spark_partition_id())).select(col("id"))


def raising(spark):
    """A function of the user that fails on one row."""
    from pyspark.sql.functions import udf

    def reciprocal(x):
        if x == 7:
            raise ValueError("seven is not allowed here")
        return x

    return spark.range(10).select(udf(reciprocal, "long")("id"))


def captures_broadcast(spark):
    """A user function over a broadcast variable."""
    from pyspark.sql.functions import udf

    table = spark.sparkContext.broadcast({i: i * i for i in range(10)})
    return spark.range(10).select(udf(lambda x: table.value[x], "long")("id").alias("square"))


def not_a_frame(spark):
    """A function that returns something else."""
    return 42


def writes_while_planned(spark, path):
    """A function that would write while it is planned."""
    spark.range(3).write.parquet(path)
    return spark.range(1)


def raises_while_planned(spark):
    """A function that fails before there is a query."""
    raise KeyError("no such thing in the config")


def no_columns(spark):
    """Three rows of nothing."""
    return spark.range(3).select()


def gated_exchange(spark, gate, rows):
    """The numbers 0 to 2 * *rows*, dealt out by two tasks; the first waits at *gate* before its last row."""
    import os
    import time

    from pyspark.sql.functions import udf

    def passes(number):
        while number == rows - 1 and not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        return "x" * 100  # Python hands on what it gives in buffers: much of it, so that rows flow

    frame = spark.range(0, 2 * rows, 1, 2).select("id", udf(passes, "string")("id").alias("filler"))
    return frame.repartition(3, "id").selectExpr("count(filler) AS n", "sum(id) AS s")


def where_it_runs(spark, partitions):
    """The interpreter and the parent process of each Python worker that runs a task."""
    from pyspark.sql.functions import udf

    def here(_):
        import os
        import sys

        return f"{sys.executable} {os.getpid()}"

    return spark.range(0, partitions, 1, partitions).select(udf(here, "string")("id").alias("here"))
