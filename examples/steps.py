"""Run several jobs that wait for each other as one job with steps.

Two steps write a dataset each, at the same time. The third step joins the datasets.

Run it: python examples/steps.py
"""

from pathlib import Path

import onager

here = Path.cwd()


def load(spark):
    return spark.createDataFrame([(1, "DE"), (2, "FR")], "customer long, country string")


with onager.connect() as client:
    script = client.script(name="nightly", conf={"spark.sql.shuffle.partitions": 2})
    orders = script.sql(
        "SELECT id % 2 + 1 AS customer, id AS amount FROM range(10)",
        name="orders",
        output=here / "step-orders",
        mode="overwrite",
    )
    customers = script.function(load, name="customers", output=here / "step-customers", mode="overwrite")
    script.sql(
        f"SELECT country, sum(amount) AS amount FROM parquet.`{here}/step-orders` "
        f"JOIN parquet.`{here}/step-customers` USING (customer) GROUP BY country ORDER BY country",
        name="report",
        after=[orders, customers],
    )
    job = script.submit()
    print(job.to_arrow().to_pylist())
    # Each step is a job of its own.
    print("orders:", job.step("orders").progress().state)
