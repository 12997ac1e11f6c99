"""The orchestration benchmark runs, with real processes on a real etcd, and writes every row."""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.orchestration.__main__ import COLUMNS
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_is_there_and_nothing_is_left(tmp_path):
    report = tmp_path / "report.json"
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [
        sys.executable,
        "-m",
        "benchmarks.orchestration",
        "--backends",
        "etcd",
        "--schedulers",
        "2",
        "--no-spark",
    ]
    small = [
        "--metrics",
        "off,rows",
        "--tasks",
        "50,200",
        "--sample-tasks",
        "200",
        "--busy-tasks",
        "2000",
        "--repeats",
        "1",
        "--probes",
        "4",
    ]
    ran = subprocess.run(
        [*command, *small, "--dir", str(disk), "--json", str(report)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(report.read_text())["rows"]
    assert [(row["backend"], row["schedulers"], row["tasks"], row["metrics"]) for row in rows] == [
        ("etcd", 2, tasks, metrics) for tasks in (50, 200) for metrics in ("off", "rows")
    ]
    for row in rows:
        assert (0 < row["metrics_bytes_per_task"] <= 100) == (row["metrics"] == "rows")
    for row in rows:
        assert set(COLUMNS) <= set(row)
        assert row["tasks_per_s"] > 0
        assert 0 < row["store_writes_per_task"] < 2
        assert 0 < row["store_bytes_per_task"] < 5_000
        assert row["scheduler_cpu_us_per_task"] > 0
        assert 0 < row["first_task_ms_p50"] <= row["first_task_ms_p99"] < 10_000
    assert list(disk.iterdir()) == []
