"""The examples run as their users run them, against one cluster, and print what they are for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRINTED = {
    "sql_output.py": r"state: successful\n0 16830\n1 16170\n2 16500\n",
    "partition_by.sh": r"(?s).*day=mon\nday=tue\nday,n\ntue,2\n",
    "final_plan.py": r"\[\{'k': 0, 'n': 2000\}, .*\]\nstage 0 \(.*\): 1 tasks, \d+ rows\n(stage \d+ \(.*\n){3,}",
    "streaming_exchange.py": r"\[\{'k': 0, 'n': 250\}, .*\]\nexchange: streaming\n",
    "python_function.py": r"(state: \w+\n)*state: successful\n0 0\n1 1\n2 4\n3 9\n4 16\n",
    "steps.py": r"\[\{'country': 'DE', 'amount': 20\}, \{'country': 'FR', 'amount': 25\}\]\norders: successful\n",
    "tables.py": r"mon 30\ntue 5\nview by_day\ntable sales\npartition day=mon\npartition day=tue\n",
    "spark_connect.py": r"(?s).*customer\|amount.*\|\s+1\|\s+25\|.*\[\(1, 19.5\), \(2, 7.5\)\]\n",
    "program.py": r"(round \d is written\n){5}5000 rows, 5000 different ones\n",
    "events.py": r"(\w+\n)*task_succeeded\n(\w+\n)*\[\{'n': 1000\}\]\n",
    "rest.py": r"submitted: 201\nagain: 200 True\nstate: successful\nfirst event: \w+\n",
    "retry.py": r"same job: True\nfailed: PATH_NOT_FOUND\nretry: \[\{'n': 3\}\]\nretry of this job: True\n",
    "admin.sh": r"(?s).*JobHeads/.*state\.backup\n",
}
"""What each example prints, from its first line to its last."""


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_what_it_is_for(shared_cluster: Cluster, name, tmp_path):
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ONAGER_SCHEDULER": shared_cluster.address,
        "ONAGER_HTTP": f"http://{shared_cluster.environment['ONAGER_SCHEDULER_HTTP_LISTEN']}",
        "SPARK_REMOTE": f"sc://{shared_cluster.address}",
    }
    command = [sys.executable, EXAMPLES / name] if name.endswith(".py") else [EXAMPLES / name]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=HANGS_S
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTED[name], done.stdout), done.stdout


def test_every_example_is_tested_and_listed():
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh"}}
    assert files == PRINTED.keys()
    assert set(re.findall(r"\]\((\w+\.\w+)\)", (EXAMPLES / "README.md").read_text())) == files
