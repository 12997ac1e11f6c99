"""The failover benchmark kills schedulers of a real cluster, and tells what that cost."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[2]


def test_schedulers_are_killed_and_nothing_is_left(tmp_path):
    report = tmp_path / "report.json"
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-m", "benchmarks.failover", "--kills", "2", "--tasks", "24", "--slots", "2,2"]
    ran = subprocess.run(
        [*command, "--dir", str(disk), "--json", str(report)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(report.read_text())
    assert found["kills"] == len(found["list"]) == 2
    assert found["finished_tasks_rerun"] == found["wrong_results"] == 0
    assert found["undisturbed_s_p50"] >= 0.6
    assert [entry["killed"] for entry in found["list"]] == ["first_for_job", "most_executors"]
    assert list(disk.iterdir()) == []
