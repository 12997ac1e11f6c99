"""Run the stages of a job together: rows go from task to task, and not through files.

Run it: python examples/streaming_exchange.py
"""

import onager

QUERY = "SELECT id % 4 AS k, count(*) AS n FROM range(0, 1000, 1, 2) GROUP BY k ORDER BY k"
CONF = {"onager.exchange": "streaming", "onager.fusion.maxBytes": 0, "spark.sql.shuffle.partitions": 2}

with onager.connect() as client:
    job = client.sql(QUERY, conf=CONF, name="streaming")
    print(job.to_arrow().to_pylist())
    progress = job.progress()
    print("exchange:", progress.exchange)
    # A job that cannot stream uses files, and gives the reason.
    if progress.durable_because:
        print("because:", progress.durable_because)
