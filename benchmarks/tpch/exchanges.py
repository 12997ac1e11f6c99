"""Both exchanges side by side: the same queries over files and over streams, in one cluster, turn and turn about."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import onager
from benchmarks.cluster import Cluster
from benchmarks.tpch import query_text
from benchmarks.tpch.comparison import difference
from benchmarks.tpch.data import views
from onager.errors import OnagerError

EXCHANGES = ("durable", "streaming")


@dataclass(slots=True)
class Timed:
    """One query over one exchange: the best run by its total."""

    first_row_s: float = 0.0
    """From the submission to the first batch of the result; nearly the total where there is one batch."""
    total_s: float = 0.0
    runs: int = 0
    given_up: str = ""
    """Why a run that was to stream did not."""


@dataclass(slots=True)
class Compared:
    """One query over both."""

    query: int
    stages: int = 0
    equal: bool = False
    durable: Timed = field(default_factory=Timed)
    streaming: Timed = field(default_factory=Timed)


def compare(
    queries: Sequence[int], data: Path, *, slots: Sequence[int], runs: int, conf: Mapping[str, str]
) -> list[Compared]:
    """Run each of *queries* over both exchanges: once to warm up, and *runs* times."""
    found = []
    with Cluster(slots) as cluster, onager.connect(cluster.address) as client:
        for number in queries:
            compared = Compared(number)
            try:
                _compare(client, compared, data, runs, conf)
            except OnagerError as error:
                print(f"q{number} failed: {error}", file=sys.stderr)
            found.append(compared)
            print(_line(compared), flush=True)
    return found


def report(found: Sequence[Compared], *, sf: float, slots: Sequence[int], path: Path) -> bool:
    """Print the sums, and write everything to *path*; return whether all results were equal and streamed."""
    totals = {name: round(sum(getattr(q, name).total_s for q in found), 3) for name in EXCHANGES}
    sums: dict[str, Any] = {
        "sf": sf,
        "slots": list(slots),
        "queries": [asdict(q) for q in found],
        "equal": sum(q.equal for q in found),
        "streamed": sum(not q.streaming.given_up for q in found),
        "totals_s": totals,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sums, indent=1) + "\n")
    print(
        f"{sums['equal']} of {len(found)} equal, {sums['streamed']} streamed; durable {totals['durable']:.1f} s, "
        f"streaming {totals['streaming']:.1f} s"
    )
    return bool(sums["equal"] == sums["streamed"] == len(found))


def _compare(client: onager.OnagerClient, compared: Compared, data: Path, runs: int, conf: Mapping[str, str]) -> None:
    results: dict[str, pa.Table] = {}
    for run in range(1 + runs):
        for exchange in EXCHANGES:
            timed: Timed = getattr(compared, exchange)
            results[exchange] = _run(client, compared, timed, data, {**conf, "onager.exchange": exchange}, run)
    compared.equal = difference(results["streaming"], results["durable"], query_text(compared.query)) is None


def _run(
    client: onager.OnagerClient,
    compared: Compared,
    timed: Timed,
    data: Path,
    conf: Mapping[str, str],
    run: int,
) -> pa.Table:
    start_s = time.perf_counter()
    job = client.sql(query_text(compared.query), views=views(data), conf=conf, name=f"q{compared.query}")
    batches, first_s = [], 0.0
    for batch in job.batches():
        first_s = first_s or time.perf_counter() - start_s
        batches.append(batch)
    total_s = time.perf_counter() - start_s
    progress = job.progress()
    compared.stages = sum(stage.work == "query" for stage in progress.stages)
    timed.given_up = timed.given_up or progress.durable_because
    if run and (not timed.runs or total_s < timed.total_s):
        timed.first_row_s, timed.total_s = round(first_s or total_s, 3), round(total_s, 3)
    timed.runs += bool(run)
    return pa.Table.from_batches(batches) if batches else job.to_arrow()


def _line(q: Compared) -> str:
    each = "  ".join(
        f"{name} {getattr(q, name).first_row_s:.2f} s to the first row, {getattr(q, name).total_s:.2f} s in all"
        for name in EXCHANGES
    )
    given_up = f"  (given up: {q.streaming.given_up})" if q.streaming.given_up else ""
    return f"q{q.query}: {q.stages} stages, {'equal' if q.equal else 'NOT EQUAL'}; {each}{given_up}"
