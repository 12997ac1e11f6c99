"""Python jobs of the chaos; they travel as source, so each function imports what it needs."""


def digests(spark):
    """Orders by priority and by what two Python functions make of them, slow enough to be killed in the middle."""
    from pyspark.sql.functions import udf

    def digest(key):
        import zlib

        return zlib.crc32(str(key).encode()) % 1000

    def summed(frame):
        import time

        time.sleep(0.15)
        return frame.groupby("o_orderpriority", as_index=False).agg(n=("digest", "size"), total=("digest", "sum"))

    orders = spark.table("orders")
    marked = orders.select("o_orderpriority", udf(digest, "long")("o_orderkey").alias("digest"))
    grouped = marked.groupBy("o_orderpriority").applyInPandas(summed, "o_orderpriority string, n long, total long")
    return grouped.orderBy("o_orderpriority")
