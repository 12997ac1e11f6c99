"""A program of PySpark, with nothing of Onager in it. ``SPARK_REMOTE`` names the cluster.

Run it: SPARK_REMOTE=sc://127.0.0.1:50050 python examples/spark_connect.py
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()

orders = spark.createDataFrame([(1, 19.5), (1, 5.0), (2, 7.5)], ["customer", "amount"])
orders.createOrReplaceTempView("orders")

spark.udf.register("rounded", lambda amount: int(amount + 0.5), "int")
spark.sql("SELECT customer, sum(rounded(amount)) AS amount FROM orders GROUP BY customer ORDER BY customer").show()

best = orders.groupBy("customer").agg(F.max("amount").alias("best")).orderBy("customer")
print([(row.customer, row.best) for row in best.collect()])

spark.stop()
