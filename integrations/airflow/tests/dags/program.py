"""A program of PySpark: ``program.py DAY STEPS [EXIT CODE]`` counts as many times."""

import sys
import time

from pyspark.sql import SparkSession

if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    day, steps, code = sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0])
    for step in range(steps):
        print(day, "step", step, spark.range(10 * step).count(), flush=True)  # noqa: T201
        time.sleep(0.2)
    sys.exit(code)
