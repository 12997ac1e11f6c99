"""The benchmarks of Spark Connect run, with real processes and kills, and leave nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.connect_kill import KINDS
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[2]


def run(tmp_path: Path, module: str, *options: str) -> dict:
    report = tmp_path / "report.json"
    ran = subprocess.run(
        [sys.executable, "-m", module, *options, "--json", str(report)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(report.read_text())


def test_requests_are_measured_on_both_sides(tmp_path):
    rows = run(tmp_path, "benchmarks.connect_latency", "--runs", "2")["rows"]
    assert len(rows) == 7
    assert all(row["spark_ms_p50"] > 0 and row["onager_ms_p50"] > 0 for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_every_kind_of_kill_leaves_rows_and_session_whole(tmp_path):
    found = run(tmp_path, "benchmarks.connect_kill", "--runs", str(len(KINDS)), "--rows", "60000")
    assert {entry["kind"] for entry in found["list"]} == set(KINDS)
    assert all(entry["killed"] for entry in found["list"])
    assert (found["summary"]["any"]["wrong"], found["summary"]["any"]["lost"]) == (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_recorded_calls_are_answered_again(tmp_path):
    (row,) = run(tmp_path, "benchmarks.program_replay", "--calls", "40")["rows"]
    assert row["calls"] == 40
    assert 0 < row["replayed_ms_p10"] < row["first_ms_p10"]
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
