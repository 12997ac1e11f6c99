"""``make demo [BACKEND=…]``: TPC-H data, a standalone cluster, three queries with live progress, where the time went.

It ends with a job whose scheduler and executor are killed, a picture of what happened to it, and a small script of
steps and a program of PySpark that are treated likewise.

``BACKEND=etcd`` starts an etcd of its own for the state; ``BACKEND=etcd://…`` uses one that is there.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import onager
from benchmarks import program_under_fire, under_fire
from benchmarks.cluster import Cluster, free_address
from benchmarks.etcd_server import EtcdServer
from benchmarks.tpch import query_text
from benchmarks.tpch.data import generate, views
from onager.cli.live import progress_view
from onager.cli.output import print_table
from onager.errors import OnagerError

SCALE_FACTOR = 0.1
QUERIES = (1, 3, 18)
ROWS_SHOWN = 10
PICTURE = Path("var/demo-timeline.svg")
# Inputs this small would run as a single stage, at plain Spark's speed; cut them, to show how a large query runs.
CONF = {"onager.fusion.maxBytes": "0"}


class Timing(NamedTuple):
    """Where one query's time went, in seconds."""

    query: str
    waiting: float
    planning: float
    stages: float
    fetch: float
    total: float
    stage_count: int
    task_count: int


def main() -> None:
    """Run the demo; exit code 0 when every query gave its result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--backend", default="leveldb", metavar="leveldb|etcd|URL", help="where the state is")
    options = parser.parse_args()
    began_s = time.monotonic()
    data = generate(SCALE_FACTOR)
    _say(f"TPC-H at scale factor {SCALE_FACTOR:g} is in {data} ({_seconds_since(began_s)})")
    with _store(options.backend) as backend:
        timings, stopping_s = _queries(data, backend)
    _say(f"stopped ({_seconds_since(stopping_s)})")
    print("\nWhere the time went, in seconds (the first query also warms up the executor's JVM):\n")
    headers = ("QUERY", "WAITING", "PLANNING", "STAGES", "FETCH", "TOTAL", "STAGE COUNT", "TASK COUNT")
    print_table(headers, [[v if isinstance(v, str | int) else f"{v:.2f}" for v in timing] for timing in timings])
    print(f"\nAll of it took {_seconds_since(began_s)}.")


@contextmanager
def _store(backend: str) -> Iterator[str | None]:
    """Yield the URL of the store, `None` for a directory of the cluster's own; start an etcd if that is asked for."""
    if backend == "leveldb":
        yield None
        return
    if backend != "etcd":
        yield backend
        return
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onager-demo-") as directory, ExitStack() as stack:
        try:
            server = stack.enter_context(EtcdServer(Path(directory)))
        except FileNotFoundError as error:
            sys.exit(f"demo: {error}")
        _say(f"etcd serves at {server.address} ({_seconds_since(started_s)})")
        yield server.url


def _queries(data: Path, backend: str | None) -> tuple[list[Timing], float]:
    """Run the queries on a cluster; return how long they took, and when the cluster was asked to stop."""
    started_s = time.monotonic()
    kind = "leveldb" if backend is None else backend.partition(":")[0]
    _say(f"starting onager standalone: a scheduler on {kind}, an executor with two slots")
    page = free_address()
    with Cluster((2,), is_standalone=True, backend=backend, http_address=page) as cluster:
        _say(f"ready at {cluster.address} ({_seconds_since(started_s)}); to watch it: http://{page}")
        with onager.connect(cluster.address) as client:
            tables = views(data)
            try:
                timings = [_run(client, number, tables) for number in QUERIES]
                print("\n--- The same without a scheduler and an executor, for a while ---", flush=True)
                under_fire.run(client, cluster.pids["standalone"], PICTURE)
                print("\n--- A script of steps, likewise ---", flush=True)
                under_fire.run_steps(client, cluster.pids["standalone"], tables)
                print("\n--- A program of PySpark, whose process is killed, and what runs it ---", flush=True)
                program_under_fire.run(client, cluster.pids["standalone"])
            except OnagerError as error:
                sys.exit(f"demo: {error}")
        return timings, time.monotonic()


def _run(client: onager.OnagerClient, number: int, tables: dict[str, str]) -> Timing:
    print(f"\n--- TPC-H query {number} ---", flush=True)
    start_s = time.monotonic()
    job = client.sql(query_text(number), views=tables, conf=CONF, name=f"TPC-H q{number}")
    with progress_view() as view:
        progress = job.wait(on_progress=view.show)
    fetch_s = time.monotonic()
    result = job.to_arrow()
    end_s = time.monotonic()
    _show(result)
    plan, *stages = progress.stages
    planning_s = (plan.ended_ms - plan.started_ms) / 1000
    # A stage that another one took over has not begun.
    stages_s = (max(s.ended_ms for s in stages) - min(s.started_ms for s in stages if s.started_ms)) / 1000
    return Timing(
        query=f"q{number}",
        waiting=max(0.0, fetch_s - start_s - planning_s - stages_s),
        planning=planning_s,
        stages=stages_s,
        fetch=end_s - fetch_s,
        total=end_s - start_s,
        stage_count=len(stages),
        task_count=sum(stage.partitions for stage in stages),
    )


def _show(result: pa.Table) -> None:
    head = result.slice(0, ROWS_SHOWN)
    rows = list(zip(*(column.to_pylist() for column in head.columns), strict=True))
    print_table(result.schema.names, rows)
    if result.num_rows > ROWS_SHOWN:
        print(f"… {result.num_rows - ROWS_SHOWN:,} more rows")
    sys.stdout.flush()


def _seconds_since(moment_s: float) -> str:
    return f"{time.monotonic() - moment_s:.1f} s"


def _say(text: str) -> None:
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    main()
