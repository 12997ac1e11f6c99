"""Write the result of a query as a dataset, and read the dataset in another job.

Run it: python examples/sql_output.py
"""

from pathlib import Path

import onager

orders = Path("orders").absolute()

with onager.connect() as client:
    query = "SELECT id, id % 3 AS customer, id * 10 AS amount FROM range(100)"
    job = client.sql(query, name="orders", output=orders, mode="overwrite")
    job.wait()
    print("state:", job.progress().state)

    totals = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer ORDER BY customer"
    for row in client.sql(totals, views={"orders": orders}).to_arrow().to_pylist():
        print(row["customer"], row["total"])
