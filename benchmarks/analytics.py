"""``python -m benchmarks.analytics [--queries 50] [--runs 1] [--fused] --json FILE``: reports drawn by seeds.

Analytic statements over TPC-H's tables at SF 1, each of two to three joins of facts that are aggregated by common keys
and then compared, ranked, united or filtered by each other: some ten stages each. Every exchange is cut, on two
executors of one slot (``--fused``: as users run them, on one executor of two), beside plain Spark's ``local[2]`` with
AQE; the best of *--runs* after one to warm up. The rows are compared. A number draws the same statement each time.
"""
# ruff: noqa: S608  (all of the statements is ours)

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import onager
from benchmarks.cluster import Cluster
from benchmarks.side_by_side import Asked, run_plain
from benchmarks.tpch.comparison import difference
from benchmarks.tpch.data import generate, views
from onager.job_settings import ADAPTIVE_DEFAULT

_CONF: Final = {"onager.fusion.maxBytes": "0"}

_LINES = "lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey"
_CUSTOMERS = "orders JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey"
_PARTS = "lineitem JOIN part ON l_partkey = p_partkey JOIN supplier ON l_suppkey = s_suppkey"
_STOCK = "partsupp JOIN part ON ps_partkey = p_partkey JOIN supplier ON ps_suppkey = s_suppkey"

FACTS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    _LINES: (
        ("l_extendedprice * (1 - l_discount)", "l_quantity", "o_totalprice"),
        ("l_orderkey", "o_custkey", "l_suppkey"),
        ("l_shipdate >= DATE '1995-01-01'", "o_orderpriority < '3'", "l_returnflag <> 'R'", "c_acctbal > 0"),
    ),
    f"{_LINES} JOIN nation ON c_nationkey = n_nationkey": (
        ("l_extendedprice", "l_quantity * l_discount", "c_acctbal"),
        ("o_custkey", "l_partkey"),
        ("l_shipmode IN ('AIR', 'RAIL', 'SHIP')", "o_orderdate < DATE '1996-07-01'", "l_quantity > 20"),
    ),
    _CUSTOMERS: (
        ("o_totalprice", "c_acctbal"),
        ("o_custkey", "o_clerk"),
        ("o_orderstatus = 'F'", "c_mktsegment <> 'BUILDING'", "year(o_orderdate) > 1993"),
    ),
    _PARTS: (
        ("l_extendedprice - p_retailprice", "l_quantity", "p_size"),
        ("l_orderkey", "s_nationkey", "l_partkey"),
        ("p_size BETWEEN 10 AND 35", "p_type LIKE '%STEEL%'", "l_commitdate < l_receiptdate"),
    ),
    _STOCK: (
        ("ps_supplycost * ps_availqty", "p_retailprice", "ps_availqty"),
        ("ps_suppkey", "p_type"),
        ("s_acctbal > 1000", "p_container LIKE 'MED%'", "ps_availqty > 100"),
    ),
}
"""Of each way of joining tables: what can be added up, what can be counted once each, and filters."""

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "c_custkey": (_LINES, f"{_LINES} JOIN nation ON c_nationkey = n_nationkey", _CUSTOMERS),
    "o_orderdate": (_LINES, f"{_LINES} JOIN nation ON c_nationkey = n_nationkey", _CUSTOMERS),
    "o_clerk": (_LINES, f"{_LINES} JOIN nation ON c_nationkey = n_nationkey", _CUSTOMERS),
    "p_partkey": (_PARTS, _STOCK),
    "s_suppkey": (_PARTS, _STOCK),
    "p_brand, p_size": (_PARTS, _STOCK),
}
"""What facts can be aggregated by, and which facts have it."""


def statement(number: int) -> str:
    """Return the statement that *number* draws."""
    drawn = np.random.default_rng(number)
    key = _one(drawn, tuple(KEYS))
    names = key.split(", ")
    a, b, c = (_aggregated(drawn, key) for _ in range(3))
    on = " AND ".join(f"a.{name} = b.{name}" for name in names)
    shown = ", ".join(f"a.{name}" for name in names)
    order = ", ".join(names)
    match drawn.integers(6):
        case 0:
            return f"""WITH a AS ({a}), b AS ({b})
                SELECT {shown}, a.total AS mine, b.total AS other, a.rows_of - b.rows_of AS more
                FROM a JOIN b ON {on} WHERE a.total > (SELECT avg(total) FROM b)
                ORDER BY mine DESC, {order} LIMIT 100"""
        case 1:
            return f"""WITH a AS ({a}), b AS ({b}),
                ranked AS (SELECT {shown}, a.total AS mine, b.each_once AS others,
                    rank() OVER (PARTITION BY b.each_once % 10 ORDER BY a.total DESC, {shown}) AS place
                  FROM a LEFT JOIN b ON {on})
                SELECT * FROM ranked WHERE place <= 5 ORDER BY others, place, {order} LIMIT 200"""
        case 2:
            return f"""WITH a AS ({a}), b AS ({b})
                SELECT a.rows_of AS how_many, count(*) AS keys, sum(a.total) AS total, max(a.each_once) AS most
                FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {on} AND b.total > a.rows_of)
                GROUP BY a.rows_of ORDER BY how_many"""
        case 3:
            united = f"SELECT * FROM ({a}) UNION ALL SELECT * FROM ({b}) UNION ALL SELECT * FROM ({c})"
            return f"""SELECT {order}, sum(rows_of) AS n, sum(total) AS total, max(each_once) AS most
                FROM ({united}) GROUP BY {order} HAVING count(*) > 1
                ORDER BY total DESC, {order} LIMIT 50"""
        case 4:
            return f"""WITH a AS ({a}), b AS ({b})
                SELECT count(*) AS keys, count(a.total) AS mine, count(b.total) AS other,
                  sum(coalesce(a.rows_of, 0) - coalesce(b.rows_of, 0)) AS more
                FROM a FULL OUTER JOIN b ON {on}"""
        case _:
            both = " AND ".join(f"b.{name} = c.{name}" for name in names)
            return f"""WITH a AS ({a}), b AS ({b}), c AS ({c})
                SELECT {shown}, a.total + c.total AS total, b.each_once AS others
                FROM a JOIN b ON {on} JOIN c ON {both}
                WHERE a.rows_of > (SELECT avg(rows_of) FROM c)
                ORDER BY total DESC, {order} LIMIT 100"""


def _one(drawn: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(drawn.integers(len(choices)))]


def _aggregated(drawn: np.random.Generator, key: str) -> str:
    tables = _one(drawn, KEYS[key])
    sums, once, filters = FACTS[tables]
    return (
        f"SELECT {key}, count(*) AS rows_of, sum({_one(drawn, sums)}) AS total, "
        f"count(DISTINCT {_one(drawn, once)}) AS each_once FROM {tables} WHERE {_one(drawn, filters)} GROUP BY {key}"
    )


def main() -> None:
    """Measure, print, write the JSON; exit code 1 unless all rows are the same."""
    options = _options()
    data = generate(options.sf)
    statements = {f"r{number}": statement(number) for number in range(1, options.queries + 1)}
    mine = _run_onager(views(data), statements, options)
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch:
        plain = run_plain(Asked(views(data), statements, options.runs), Path(scratch))
    rows = []
    for name, (result, measured) in mine.items():
        why = difference(result, plain.results[name], statements[name])
        if why is not None:
            print(f"{name}: {why}", file=sys.stderr)
        rows.append(measured | {"statement": name, "equal": why is None, "spark_s": plain.best_s(name)})
    report = _report(options, plain.spark, rows)
    print(json.dumps({key: value for key, value in report.items() if key != "statements"}, indent=1))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["equal"] == len(rows) else 1)


def _run_onager(
    tables: dict[str, str], statements: dict[str, str], options: argparse.Namespace
) -> dict[str, tuple[pa.Table, dict[str, Any]]]:
    found = {}
    conf = {"onager.adaptive": options.adaptive} | ({} if options.fused else _CONF)
    with Cluster((2,) if options.fused else (1, 1)) as cluster, onager.connect(cluster.address) as client:
        for name, text in statements.items():
            times = []
            for _ in range(1 + options.runs):
                start_s = time.perf_counter()
                job = client.sql(text, views=tables, conf=conf, name=name)
                result = job.to_arrow()
                times.append(time.perf_counter() - start_s)
            stages = [stage for stage in job.detail().progress.stages if stage.work == "query"]
            found[name] = result, {"onager_s": round(min(times[1:]), 3), "stages": len(stages)}
            print(f"{name}: {found[name][1]['onager_s']:.2f} s, {len(stages)} stages", file=sys.stderr)
    return found


def _report(options: argparse.Namespace, spark_version: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    mine, theirs = sum(row["onager_s"] for row in rows), sum(row["spark_s"] for row in rows)
    stages = sum(row["stages"] for row in rows)
    return {
        "sf": options.sf,
        "fused": options.fused,
        "adaptive": options.adaptive,
        "spark": spark_version,
        "equal": sum(row["equal"] for row in rows),
        "onager_total_s": round(mine, 2),
        "spark_total_s": round(theirs, 2),
        "ratio": round(mine / theirs, 3),
        "stages_each": round(stages / len(rows), 1),
        "overhead_ms_per_stage": round((mine - theirs) * 1000 / stages, 1),
        "statements": rows,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.analytics", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sf", type=float, default=1, help="scale factor of TPC-H's tables; 1 is about 1 GB as text")
    parser.add_argument("--queries", type=int, default=50, help="how many statements: those of the numbers from 1 on")
    parser.add_argument("--runs", type=int, default=1, help="timed runs, after one to warm up")
    parser.add_argument("--fused", action="store_true", help="cut only what is cut for users, too")
    parser.add_argument(
        "--adaptive", choices=("on", "off"), default=ADAPTIVE_DEFAULT, help="lay stages out by what was measured"
    )
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
