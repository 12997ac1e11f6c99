"""The benchmark of small jobs runs, with real processes, and so does its soak."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.small_jobs import COLUMNS
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--jobs", "24", "--repeats", "1"], [("distinct", 0), ("identical", 0)]),
        (["--soak", "40", "--retention", "1"], [(10, 0), (20, 0), (40, 0)]),
    ],
    ids=["samples", "soak"],
)
def test_every_row_is_there_and_no_job_fails(tmp_path, options, rows):
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.small_jobs", "--backends", "leveldb", "--schedulers", "1"]
    ran = subprocess.run(
        [*command, "--submitters", "4", *options, "--dir", str(tmp_path), "--json", str(report)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(report.read_text())["rows"]
    assert [(row["jobs"], row["failed"]) for row in found] == rows
    if "--soak" in options:
        assert {row["jobs_known"] for row in found} == {0}, "all that is past its retention is gone"
    else:
        assert set(found[0]) == set(COLUMNS)
        assert all(row["jobs_per_s"] > 0 and row["conflicts"] <= 1 for row in found)
