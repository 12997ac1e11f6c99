"""Spark's Python workers: forks of a daemon that has imported what they need."""

import os

from pyspark.sql.functions import udf


def test_workers_begin_with_pandas_and_with_numbers_of_their_own(spark):
    @udf("string")
    def look(number):
        import sys

        was_imported = {"pandas", "pyarrow"} <= sys.modules.keys()
        import numpy as np

        return f"{os.getpid()} {was_imported} {np.random.random()}"  # noqa: NPY002 - as users do

    frame = spark.range(0, 2, 1, 2).select(look("id").alias("seen"))
    seen = []
    while len({pid for pid, *_ in seen}) < 2:  # a worker that is done early takes both rows
        seen += [row.seen.split() for row in frame.collect()]
    assert {was_imported for _, was_imported, _ in seen} == {"True"}
    first_numbers = {pid: number for pid, _, number in reversed(seen)}
    assert len(set(first_numbers.values())) == len(first_numbers)
