"""Planning over a large catalog: ``python -m benchmarks.catalog --json FILE [--tables 1000] [--partitions 1000]``.

A real scheduler over etcd, and an executor of one slot. A folder with as many partitions, of a file each, is made a
table by `CREATE TABLE` and `MSCK REPAIR TABLE`; its records are then copied until there are as many tables, all over
that folder. The same query for one partition is asked in turns: over a table by its name, and over the files by their
path, where Spark lists all directories to find the partitions. The plan is cut, so planning runs nothing.

| figure | what it is |
|---|---|
| ``plan_ms`` | the time of the planning task; median |
| ``job_ms`` | from the submission of the job to its end; median |
| ``ratio`` | planning by name over planning by path |
| ``partition_bytes``, ``table_bytes`` | what the store has of a partition, and of a table without its partitions |
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import onager
from benchmarks.bare_cluster import store
from benchmarks.cluster import Cluster
from onager.catalog_records import page_key
from onager.state_backend import Keyspace, Put, open_backend

CONF: Final = {"onager.fusion.maxBytes": 0}
MAKE: Final = """\
CREATE TABLE t0 (v BIGINT, d STRING) USING parquet PARTITIONED BY (d) LOCATION '{}';
MSCK REPAIR TABLE t0"""
QUERY: Final = "SELECT count(*) AS n FROM {} WHERE d = '{}'"
_WARM_UP: Final = 5


def make_files(folder: Path, partitions: int) -> None:
    """Write a file of one row into each of *partitions* directories."""
    for number in range(partitions):
        directory = folder / f"d={number:05}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"v": pa.array([number], pa.int64())}), directory / "part-0.parquet")


async def copy(url: str, tables: int) -> dict[str, float]:
    """Copy the table t0 until there are *tables*; return what a partition and a table take in the store, in bytes."""
    async with await open_backend(url) as backend:
        found = await backend.get(Keyspace.Catalog, "tables/default/t0")
        assert found is not None
        record = json.loads(found.value)
        names = record.pop("pages")
        pages = [await backend.get(Keyspace.Catalog, page_key(record["id"], name)) for name in names]
        for number in range(1, tables):
            copied = record | {"id": f"{number:016x}", "pages": names}
            copied["spark"] = record["spark"] | {"name": f"t{number}"}
            ops = [Put(Keyspace.Catalog, f"tables/default/t{number}", json.dumps(copied).encode())]
            ops += [
                Put(Keyspace.Catalog, page_key(copied["id"], name), page.value)
                for name, page in zip(names, pages, strict=True)
                if page is not None
            ]
            await backend.put_all(ops)
        held = sum(len(page.value) for page in pages if page is not None)
        return {"pages_bytes": held, "table_bytes": len(found.value)}


def measure(client: onager.OnagerClient, queries: dict[str, str], runs: int) -> dict[str, dict[str, float]]:
    """Run the queries in turns, and return the medians of each."""
    plan_ms: dict[str, list[float]] = {name: [] for name in queries}
    job_ms: dict[str, list[float]] = {name: [] for name in queries}
    for number in range(-_WARM_UP, runs):
        for name, text in queries.items():
            began_s = time.perf_counter()
            job = client.sql(text, conf=CONF)
            rows = job.to_arrow().to_pylist()
            took_ms = (time.perf_counter() - began_s) * 1e3
            assert rows == [{"n": 1}], rows
            if number >= 0:
                planning = job.progress().stages[0]
                plan_ms[name].append(planning.ended_ms - planning.started_ms)
                job_ms[name].append(took_ms)
    return {
        name: {"plan_ms": statistics.median(plan_ms[name]), "job_ms": round(statistics.median(job_ms[name]), 1)}
        for name in queries
    }


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.catalog", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=1_000, help="of each table")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onager-catalog-") as made:
        directory = Path(made)
        folder = directory / "files"
        make_files(folder, options.partitions)
        with (
            store("etcd", directory) as found,
            Cluster((1,), backend=found.url) as cluster,
            onager.connect(cluster.address) as client,
        ):
            client.sql(MAKE.format(folder)).wait()
            bytes_of = asyncio.run(copy(found.url, options.tables))
            value = f"{options.partitions // 2:05}"
            queries = {
                "by name": QUERY.format(f"t{options.tables // 2}", value),
                "by path": QUERY.format(f"parquet.`{folder}`", value),
            }
            figures = measure(client, queries, options.runs)
    report: dict[str, Any] = {
        "tables": options.tables,
        "partitions": options.partitions,
        "runs": options.runs,
        **figures,
        "ratio": round(figures["by name"]["plan_ms"] / figures["by path"]["plan_ms"], 3),
        "partition_bytes": round(bytes_of["pages_bytes"] / options.partitions, 1),
        "table_bytes": bytes_of["table_bytes"],
    }
    print(json.dumps(report))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
