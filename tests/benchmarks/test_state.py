"""The state benchmark runs, on a real etcd and a real disk, and writes every row."""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.state import OPERATIONS
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[2]


def test_every_cell_is_there_and_nothing_is_left(tmp_path):
    report = tmp_path / "report.json"
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-m", "benchmarks.state", "--callers", "1,2", "--seconds", "0.1"]
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
    cells = {(row["backend"], row["operation"], row["callers"]) for row in found["rows"]}
    assert cells == {(b, o, c) for b in ("leveldb", "etcd") for o in OPERATIONS for c in (1, 2)}
    assert all(row["per_s"] > 0 and row["raw_per_s"] > 0 for row in found["rows"])
    assert set(found["median_cost"]) == {"leveldb", "etcd"}
    assert f"etcd: the port costs {found['median_cost']['etcd']:.2f} times the raw driver" in ran.stdout
    assert list(disk.iterdir()) == []
