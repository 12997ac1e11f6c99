"""The cost of planning: ``python -m benchmarks.planning --json FILE [--against CHECKOUT]``.

Jobs that do next to nothing, one after the other, on an executor of one slot: a query of SQL, a Python function, and
one that makes its rows with pandas. What is measured is the time from submitting a job to its end. With *CHECKOUT*,
another cluster runs beside, of the code that lies there, and both are asked in turns: a busy machine hinders both.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import onager
from benchmarks.cluster import Cluster

HERE: Final = "here"
THERE: Final = "there"


def trivial(spark: Any) -> Any:
    """Return one row."""
    return spark.range(1)


def of_pandas(spark: Any) -> Any:
    """Return one row that pandas made."""
    import pandas as pd

    return spark.createDataFrame(pd.DataFrame({"id": [1]}))


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=60, help="timed jobs of each kind, after a tenth as many to warm up"
    )
    parser.add_argument("--against", type=Path, help="a checkout of another version, to be measured in turns")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    options = parser.parse_args()
    checkouts = {HERE: None} | ({THERE: options.against} if options.against else {})
    with ExitStack() as stack:
        clusters = {name: stack.enter_context(Cluster((1,), checkout=path)) for name, path in checkouts.items()}
        clients = {name: stack.enter_context(onager.connect(cluster.address)) for name, cluster in clusters.items()}
        times_s = _measured(clients, options.runs)
    report = {f"{kind}, {name}": _summary(found) for (kind, name), found in times_s.items()}
    for label, figures in report.items():
        print(f"{label}: " + ", ".join(f"{name} {value:.0f}" for name, value in figures.items()))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"runs": options.runs} | report, indent=1) + "\n")


def _measured(clients: dict[str, onager.OnagerClient], runs: int) -> dict[tuple[str, str], list[float]]:
    kinds: dict[str, Callable[[onager.OnagerClient], onager.JobHandle]] = {
        "sql": lambda client: client.sql("SELECT 1 AS one"),
        "function": lambda client: client.python(trivial),
        "function with pandas": lambda client: client.python(of_pandas),
    }
    times_s: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in kinds for name in clients}
    for number in range(-max(runs // 10, 5), runs):
        for kind, submit in kinds.items():
            for name, client in clients.items():
                began_s = time.perf_counter()
                submit(client).wait()
                if number >= 0:
                    times_s[kind, name].append(time.perf_counter() - began_s)
    return times_s


def _summary(times_s: list[float]) -> dict[str, float]:
    deciles = statistics.quantiles(times_s, n=10)
    return {"p50_ms": statistics.median(times_s) * 1e3, "p10_ms": deciles[0] * 1e3, "p90_ms": deciles[-1] * 1e3}


if __name__ == "__main__":
    main()
