"""``python -m benchmarks.failover [--kills 30] [--mode push] [--task-ms 100] [--tasks 160] --json FILE``."""

import argparse
import json
import os
import random  # noqa: TID251 seeded
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bare_cluster import BareCluster, store
from benchmarks.bare_executor import BareJob
from benchmarks.failover import EXECUTOR_SLOTS, SCHEDULERS, TASK_MS, TASKS, UNDISTURBED_EVERY
from benchmarks.failover.disturbed import ROLES, Run, run_job, wait_until_listed
from benchmarks.state.machine import describe

_WARM_UPS: Final = 2
_EARLIEST, _LATEST = 0.25, 0.75
"""When in a job's time the scheduler is killed."""


def main() -> None:
    """Measure, print each kill, write the JSON."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="onager-bench-", dir=options.dir) as directory:
        try:
            header = describe(Path(directory))
        except ValueError as error:
            sys.exit(f"benchmarks.failover: {error}")
        print(" ".join(f"{name}={value}" for name, value in header.items()))
        report = _measure(options, Path(directory))
    print(" ".join(f"{name}={value}" for name, value in report.items() if name != "list"))
    report = {**report, "machine": {**header, "load_at_end": round(os.getloadavg()[0], 2)}}
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def summary(undisturbed: Sequence[Run], killed: Sequence[tuple[str, Run]]) -> dict[str, Any]:
    """Return the figures of jobs left alone and of those in which the scheduler of a role was killed."""
    job_s = statistics.median(run.job_s for run in undisturbed)
    reported_s = statistics.median(run.reported_s for run in undisturbed)
    extra_s = [run.job_s - job_s for _, run in killed]
    reported_extra_s = [run.reported_s - reported_s for _, run in killed]
    runs = [*undisturbed, *(run for _, run in killed)]
    return {
        "kills": len(killed),
        "extra_s_p50": round(statistics.median(extra_s), 3),
        "extra_s_max": round(max(extra_s), 3),
        "reported_extra_s_p50": round(statistics.median(reported_extra_s), 3),
        "reported_extra_s_max": round(max(reported_extra_s), 3),
        "finished_tasks_rerun": sum(run.rerun for run in runs),
        "wrong_results": sum(run.is_wrong for run in runs),
        "undisturbed_s_p50": round(job_s, 3),
        "undisturbed_s_spread": round(max(run.job_s for run in undisturbed) - job_s, 3),
        "list": [
            {
                "killed": role,
                "extra_s": round(extra, 3),
                "reported_extra_s": round(reported, 3),
                "rerun": run.rerun,
                "why": run.why,
            }
            for (role, run), extra, reported in zip(killed, extra_s, reported_extra_s, strict=True)
        ],
    }


def _measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    rng = random.Random(options.seed)  # noqa: S311 no secret
    job = BareJob(options.tasks, task_ms=options.task_ms, has_rows=True)
    expected_s = options.task_ms / 1000 * -(-options.tasks // sum(options.slots))
    with (
        store("etcd", directory) as found,
        BareCluster(
            found.url, schedulers=SCHEDULERS, executor_slots=options.slots, mode=options.mode, directory=directory
        ) as cluster,
        cluster.connect() as client,
    ):
        wait_until_listed(cluster)
        undisturbed, killed = [], []
        for _ in range(_WARM_UPS):
            run_job(cluster, client, job, None, "", 0)
        for number in range(options.kills):
            if number % UNDISTURBED_EVERY == 0:
                undisturbed.append(run_job(cluster, client, job, None, "", 0))
            role = ROLES[number % len(ROLES)]
            after_s = expected_s * rng.uniform(_EARLIEST, _LATEST)
            run = run_job(cluster, client, job, after_s, role, rng.randrange(SCHEDULERS))
            killed.append((role, run))
            print(f"{number + 1:3} {role:15} {run.job_s:7.3f} s  rerun {run.rerun}  {run.why}", flush=True)
        return summary(undisturbed, killed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--mode", choices=("pull", "push"), default="pull", help="of the executors")
    parser.add_argument("--tasks", type=int, default=TASKS, help="of a job")
    parser.add_argument("--task-ms", type=int, default=TASK_MS, help="how long each takes")
    parser.add_argument("--slots", type=_numbers, default=list(EXECUTOR_SLOTS), help="of each executor; with commas")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--dir", type=Path, default=None, help="a directory on the disk to measure on")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
