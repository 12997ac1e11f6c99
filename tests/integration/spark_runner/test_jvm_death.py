"""When the JVM dies, its tasks are reported as failed, and the runner is not alive."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[3]


def test_running_tasks_are_reported_when_the_jvm_is_killed(tmp_path):
    script = Path(__file__).with_name("die.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-2:] == ["True False", "io_error the executor's JVM does not answer"]
