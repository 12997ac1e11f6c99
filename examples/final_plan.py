"""Cut a query into stages, and print the plan as it ran.

A small query runs as a single stage. ``onager.fusion.maxBytes=0`` cuts this one anyway, and
``onager.metrics=full`` also measures the time and memory of operators.

Run it: python examples/final_plan.py
"""

import onager

QUERY = """
SELECT l.id % 5 AS k, count(*) AS n
FROM range(0, 10000, 1, 4) AS l JOIN range(0, 10000, 1, 4) AS r ON l.id = r.id
GROUP BY k ORDER BY k
"""
CONF = {"onager.fusion.maxBytes": 0, "onager.metrics": "full", "spark.sql.shuffle.partitions": 2}

with onager.connect() as client:
    job = client.sql(QUERY, conf=CONF, name="cut into stages")
    print(job.to_arrow().to_pylist())
    for stage in job.final_plan().stages:
        ran = stage.progress
        print(f"stage {ran.stage_id} ({ran.name}): {ran.partitions} tasks, {ran.rows_out} rows")
