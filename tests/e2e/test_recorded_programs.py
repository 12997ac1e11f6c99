"""Programs that go on where they were killed: ``onager run --local``."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import onager
from tests.support.processes.cluster import Cluster
from tests.support.selection import IS_ALL
from tests.support.waiting import HANGS_S

PROGRAM = Path(__file__).with_name("recorded_program.py")
IDS = [0, *(n for n in range(10, 14) for _ in range(2)), 99]
MOMENTS = (0, 1, 3, 2, 6, 5, 8, 10) if IS_ALL else (3, 8)
"""After how many lines that the program prints it is killed, attempt by attempt; four in a row in vain would end it."""


@pytest.fixture
def cluster(lone_cluster) -> Iterator[Cluster]:
    yield lone_cluster
    with onager.connect(lone_cluster.address) as client:
        for statement in ("DROP DATABASE IF EXISTS recorded CASCADE", "DROP TABLE IF EXISTS one"):
            client.sql(statement).wait()


def start(cluster: Cluster, program: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onager", "run", "--local", "--scheduler", cluster.address]
    return subprocess.Popen(
        [*command, *arguments[:2], str(program), *arguments[2:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
        start_new_session=True,
    )


def read(process: subprocess.Popen[str], lines: int) -> tuple[list[str], list[str]]:
    """Return up to so many *lines* that a process prints, and its errors, which come in as it goes on."""
    errors: list[str] = []
    threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True).start()
    return list(itertools.islice(process.stdout, lines)), errors


def test_a_program_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(cluster, tmp_path):
    """Its process and the command are killed; each time it goes on in another folder, as another user."""
    seen: list[list[str]] = []
    for attempt, until in enumerate((*MOMENTS, 100)):
        folder = tmp_path / f"copy-{attempt}"
        folder.mkdir()
        program = Path(shutil.copy(PROGRAM, folder / "app.py"))
        with start(cluster, program, "--id", "e2e-recorded", "recorded", USER=f"user{attempt}") as process:
            lines, errors = read(process, until)
            if attempt < len(MOMENTS):
                os.killpg(process.pid, signal.SIGKILL)
        seen.append(lines)
    assert process.returncode == 0, "".join(errors)
    last = seen[-1]
    assert last[0] == "caught TABLE_OR_VIEW_NOT_FOUND\n"
    assert last[2] == "days [(1, 1), (3, 2)]\n"
    assert last[3].startswith("sampled True ")
    assert last[-1] == f"ids {IDS}\n"
    for lines in seen:
        assert lines == last[: len(lines)]
    with onager.connect(cluster.address) as client:
        rows = client.sql("SELECT id, what FROM recorded.notes").to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == IDS
    assert len({row["what"] for row in rows}) == len(IDS)


def test_a_program_whose_process_alone_is_killed_goes_on_by_itself_and_ends_with_its_code(cluster, tmp_path):
    program = tmp_path / "app.py"
    program.write_text("""
import os, signal, sys
import onager
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print(onager.once(os.urandom, 4).hex(), onager.program.id, flush=True)
print(spark.range(3).count(), flush=True)
if not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(spark.range(5).count())
""")
    with start(cluster, program, "--id", "e2e-by-itself", str(tmp_path / "was here")) as process:
        out, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 5, errors
    drawn, *_ = lines = out.splitlines()
    assert lines == [drawn, "3"] * 2
    assert drawn.endswith(" e2e-by-itself")
    assert "killed by SIGKILL" in errors
    assert "attempt 2 goes on behind" in errors
    with start(cluster, program, "--id", "e2e-by-itself", str(tmp_path / "was here")) as again:
        _, errors = again.communicate(timeout=HANGS_S)
    assert again.returncode == 5
    assert "has ended with 5" in errors


def test_another_call_than_was_recorded_ends_a_program_with_both(cluster, tmp_path):
    program = tmp_path / "app.py"
    program.write_text("""
import os, signal, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
first = not os.path.exists(sys.argv[1])
spark.range(1).write.mode("overwrite").saveAsTable("one" if first else "two")
open(sys.argv[1], "w").close()
os.kill(os.getpid(), signal.SIGKILL)
""")
    with start(cluster, program, "--id", "e2e-other", str(tmp_path / "was here")) as process:
        _, errors = process.communicate(timeout=HANGS_S)
    assert process.returncode == 70
    assert "not deterministic" in errors
    assert "to one at app.py:6" in errors
    assert "to two at app.py:6" in errors
