"""Make a table and a view in the catalog, query them from another job, and list them.

Run it: python examples/tables.py
"""

import onager

SHOP = """
CREATE DATABASE example_shop;
CREATE TABLE example_shop.sales (id BIGINT, amount INT) USING parquet PARTITIONED BY (day STRING);
INSERT INTO example_shop.sales VALUES (1, 10, 'mon'), (2, 20, 'mon'), (3, 5, 'tue');
CREATE VIEW example_shop.by_day AS SELECT day, sum(amount) AS amount FROM example_shop.sales GROUP BY day;
"""

with onager.connect() as client:
    client.sql("DROP DATABASE IF EXISTS example_shop CASCADE").wait()
    client.sql(SHOP, name="shop").wait()

    for row in client.sql("SELECT * FROM example_shop.by_day ORDER BY day").to_arrow().to_pylist():
        print(row["day"], row["amount"])
    for entry in client.catalog("example_shop"):
        print(entry.kind, entry.name)
    for path, _ in client.partitions("example_shop", "sales"):
        print("partition", path)
    client.sql("DROP DATABASE example_shop CASCADE").wait()
