"""The shortest of `make machines`, with the tests."""

import os
import subprocess
import sys

from tests.machines.cluster import ROOT


def test_a_scheduler_that_hangs_and_a_machine_that_is_cut_off_harm_no_client(tmp_path):
    report = tmp_path / "machines.json"
    command = [sys.executable, "-m", "tests.machines", "--few", "--json", str(report)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
