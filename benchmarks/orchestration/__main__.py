"""``python -m benchmarks.orchestration [--backends leveldb,etcd] [--schedulers 1,2,3] [--tasks 100,…] --json FILE``."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bare_cluster import BareCluster, store
from benchmarks.bare_executor import METERS, BareJob, op_metrics
from benchmarks.orchestration import BUSY_TASKS, EXECUTOR_SLOTS, PROBES, SAMPLE_TASKS
from benchmarks.orchestration.measure import (
    Sample,
    busy_first_task_ms,
    first_task_ms,
    median_row,
    quantile,
    sample,
)
from benchmarks.state.machine import describe

COLUMNS: Final = (
    "backend",
    "mode",
    "schedulers",
    "tasks",
    "metrics",
    "tasks_per_s",
    "store_writes_per_task",
    "store_bytes_per_task",
    "scheduler_cpu_us_per_task",
    "conflicts",
    "first_task_ms_p50",
    "first_task_ms_p99",
    "spark_tasks_per_s",
)
_SPARK_TIMEOUT_S: Final = 900.0


def main() -> None:
    """Measure, print a table as it grows, write the JSON."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="onager-bench-", dir=options.dir) as directory:
        try:
            header = describe(Path(directory))
        except ValueError as error:
            sys.exit(f"benchmarks.orchestration: {error}")
        print(" ".join(f"{name}={value}" for name, value in header.items()))
        spark = {} if options.no_spark else _plain_spark(options)
        print(_line(COLUMNS))
        rows = []
        for row in _measure_all(options, Path(directory), spark):
            rows.append(row)
            print(_line([row[name] for name in COLUMNS]), flush=True)
    report = {
        "machine": {**header, "load_at_end": round(os.getloadavg()[0], 2)},
        "executor_slots": options.slots,
        "repeats": options.repeats,
        "rows": rows,
    }
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def configurations(
    backends: Sequence[str], modes: Sequence[str], schedulers: Sequence[int]
) -> Iterator[tuple[str, str, int]]:
    """Yield (backend, mode, schedulers): LevelDB belongs to one process, so only with one scheduler."""
    for backend in backends:
        for mode in modes:
            for count in schedulers:
                if count == 1 or backend != "leveldb":
                    yield backend, mode, count


def _measure_all(options: argparse.Namespace, directory: Path, spark: dict[str, float]) -> Iterator[dict[str, Any]]:
    for backend, mode, count in configurations(options.backends, options.modes, options.schedulers):
        own = directory / f"{backend}-{mode}-{count}"
        own.mkdir()
        with (
            store(backend, own) as found,
            BareCluster(
                found.url,
                schedulers=count,
                executor_slots=options.slots,
                mode=mode,
                store_pid=found.pid,
                directory=own,
            ) as cluster,
            cluster.connect() as client,
        ):
            client.submit(BareJob(options.sample_tasks).spec).wait()
            idle = first_task_ms(cluster, client, options.probes)
            busy = busy_first_task_ms(cluster, options.probes // 2, options.busy_tasks)
            for tasks in options.tasks:
                repeats = options.repeats if tasks <= 10 * options.sample_tasks else 1
                samples: dict[str, list[Sample]] = {metrics: [] for metrics in options.metrics}
                for _ in range(repeats):
                    for metrics, some in samples.items():  # in turns, so that what disturbs disturbs all
                        some.append(sample(cluster, client, tasks, options.sample_tasks, metrics=metrics))
                for metrics, some in samples.items():
                    yield {
                        "backend": backend,
                        "mode": mode,
                        "schedulers": count,
                        "tasks": tasks,
                        "metrics": metrics,
                        "metrics_bytes_per_task": len(op_metrics(metrics, 0)) if METERS[metrics] else 0,
                        **median_row(some),
                        "first_task_ms_p50": quantile(idle, 0.5),
                        "first_task_ms_p99": quantile(idle, 0.99),
                        "busy_first_task_ms_p50": quantile(busy, 0.5),
                        "busy_first_task_ms_p99": quantile(busy, 0.99),
                        "spark_tasks_per_s": spark.get(str(tasks)),
                    }


def _plain_spark(options: argparse.Namespace) -> dict[str, float]:
    numbers = (options.repeats, options.sample_tasks, *options.tasks)
    command = [sys.executable, "-m", "benchmarks.orchestration.plain_spark", *map(str, numbers)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_SPARK_TIMEOUT_S)
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.orchestration", description=__doc__)
    parser.add_argument("--backends", type=_names("leveldb", "etcd"), default=["leveldb", "etcd"], help="with commas")
    parser.add_argument("--modes", type=_names("pull", "push"), default=["pull"], help="with commas")
    parser.add_argument(
        "--metrics", type=_names(*METERS), default=["off"], help="what tasks report of operators, in turns; with commas"
    )
    parser.add_argument("--schedulers", type=_numbers, default=[1, 2, 3], help="how many; numbers with commas")
    parser.add_argument("--tasks", type=_numbers, default=[100, 1_000, 10_000, 100_000], help="of a job; with commas")
    parser.add_argument("--slots", type=_numbers, default=list(EXECUTOR_SLOTS), help="of each executor; with commas")
    parser.add_argument("--repeats", type=int, default=3, help="samples of a row")
    parser.add_argument("--probes", type=int, default=PROBES, help="jobs to measure the time to the first task by")
    parser.add_argument("--sample-tasks", type=int, default=SAMPLE_TASKS, help="a sample has at least so many")
    parser.add_argument("--busy-tasks", type=int, default=BUSY_TASKS, help="of the job that keeps slots busy")
    parser.add_argument("--no-spark", action="store_true", help="without plain Spark")
    parser.add_argument("--dir", type=Path, default=None, help="a directory on the disk to measure on")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args()


def _names(*known: str) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if not set(names) <= set(known):
            raise argparse.ArgumentTypeError(f"choose from {', '.join(known)}")
        return names

    return parse


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("give numbers from 1 on")
    return numbers


def _line(cells: Sequence[object]) -> str:
    widths = (8, 5, 11, 7, 8, 12, 22, 21, 26, 10, 18, 18, 18)
    return "".join(f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True))


if __name__ == "__main__":
    main()
