"""A program of PySpark that the cluster runs, and that goes on when its process is killed: ``onager run program.py``.

Each round adds rows to a table. However often the process dies meanwhile, no row is missing, and none is there twice.
"""

import sys
import time

from pyspark.sql import SparkSession

if __name__ == "__main__":
    rounds = int((sys.argv[1:] or ["5"])[0])
    spark = SparkSession.builder.getOrCreate()
    spark.sql("DROP TABLE IF EXISTS rounds")
    spark.sql("CREATE TABLE rounds (round INT, n BIGINT)")
    for number in range(rounds):
        spark.sql(f"INSERT INTO rounds SELECT {number}, id FROM range(1000)")
        print(f"round {number} is written", flush=True)
        time.sleep(0.5)  # stands for a loop that takes hours
    found = spark.sql("SELECT count(*) AS n, count(DISTINCT round, n) AS different FROM rounds").first()
    print(f"{found.n} rows, {found.different} different ones", flush=True)
