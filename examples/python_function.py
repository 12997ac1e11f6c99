"""Submit a Python function that builds a DataFrame. An executor calls it to plan the job.

Run it: python examples/python_function.py
"""

import onager


def squares(spark, rows):
    from pyspark.sql import functions as F

    @F.udf("long")
    def square(x):
        return x * x

    return spark.range(rows).select("id", square("id").alias("square")).orderBy("id")


with onager.connect() as client:
    job = client.python(squares, args={"rows": 5}, name="squares")
    job.wait(on_progress=lambda progress: print("state:", progress.state))
    for row in job.to_arrow().to_pylist():
        print(row["id"], row["square"])
