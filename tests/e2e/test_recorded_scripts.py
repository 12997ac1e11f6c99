"""Scripts of SQL with control flow that go on where they were killed: ``onager run --local script.sql``."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import onager
from tests.support.processes.cluster import Cluster
from tests.support.selection import IS_ALL
from tests.support.waiting import HANGS_S

SCRIPT = Path(__file__).with_name("inserting_script.sql")
INSERTS = 50
KILLS = 50 if IS_ALL else 4
DRAWN_MS = [n * 7_919 % 300 for n in range(50)]
"""How long after a row came each attempt is killed."""


@pytest.fixture
def cluster(lone_cluster):
    yield lone_cluster
    with onager.connect(lone_cluster.address) as client:
        client.sql("DROP DATABASE IF EXISTS scripted CASCADE").wait()


def start(cluster: Cluster, program_id: str, script: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onager", "run", "--local", "--scheduler", cluster.address, "--id", program_id]
    return subprocess.Popen(
        [*command, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        out, errors = process.communicate(timeout=HANGS_S)
    return process.returncode, out, errors


def rows_of_notes(cluster: Cluster) -> int:
    with onager.connect(cluster.address) as client:
        try:
            return client.sql("SELECT id FROM scripted.notes").to_arrow().num_rows
        except onager.JobFailedError:
            return 0  # the script has not made the table yet


def test_a_loop_of_inserts_that_is_killed_again_and_again_inserts_each_row_once(cluster):
    """It is killed at drawn moments, each behind at least one more row, since four attempts in vain would end it."""
    inserted = 0
    for drawn in DRAWN_MS[:KILLS]:
        process = start(cluster, "e2e-inserts", SCRIPT, f"most={INSERTS}")
        deadline = time.monotonic() + HANGS_S
        while (now := rows_of_notes(cluster)) <= inserted:
            assert process.poll() is None, finish(process)
            assert time.monotonic() < deadline, "no row came"
        time.sleep(drawn / 1_000)
        os.killpg(process.pid, signal.SIGKILL)
        finish(process)
        inserted = now
        if inserted >= INSERTS:
            break
    code, out, errors = finish(start(cluster, "e2e-inserts", SCRIPT, f"most={INSERTS}"))
    assert code == 0, errors
    assert out.split()[-4:] == [str(INSERTS), str(INSERTS), str(2 * INSERTS), str(INSERTS)]
    with onager.connect(cluster.address) as client:
        notes = client.sql("SELECT id, drawn FROM scripted.notes").to_arrow().to_pylist()
    assert sorted(note["id"] for note in notes) == list(range(INSERTS))
    assert len({note["drawn"] for note in notes}) == INSERTS


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("BEGIN SELECT 1;\n\nSELECT 1 / 0; END", 1, ["script.sql:3: [DIVIDE_BY_ZERO]"]),
        ("BEGIN\n  LEAVE nowhere;\nEND", 1, ["[INVALID_LABEL_USAGE.DOES_NOT_EXIST]", "LINE:2"]),
        ("BEGIN\n  SELECT 1;\n", 1, ["[PARSE_SYNTAX_ERROR]", "end of input"]),
        ("SELECT 1", 1, ["this is no script", "onager submit"]),
        ("BEGIN\nDECLARE x INT;\nl: LOOP\n  ITERATE l;\nEND LOOP; END", 1, ["a LOOP does nothing, again and again"]),
        (f"BEGIN {'SELECT 1; ' * 30_000} END", 2, ["300,010 bytes, and may have 262,144", "split it"]),
        ("BEGIN SELECT :nowhere; END", 1, ["UNBOUND_SQL_PARAMETER"]),
    ],
    ids=lambda given: "" if isinstance(given, int | list) else given[:30].split("\n")[0],
)
def test_a_script_that_cannot_be_carried_out_ends_with_its_reason(text, code, says, cluster, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(text)
    ended, _, errors = finish(start(cluster, f"e2e-bad-{abs(hash(text))}", script))
    assert ended == code
    for part in says:
        assert part in errors


def test_arguments_of_a_script_are_names_with_values(cluster, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text("BEGIN SELECT :day AS day, :n + 1 AS n; END")
    code, out, _ = finish(start(cluster, "e2e-arguments", script, "day=2026-11-30", "n=4"))
    assert code == 0
    assert out.split()[-2:] == ["2026-11-30", "5"]
    code, _, errors = finish(start(cluster, "e2e-arguments-2", script, "day"))
    assert code == 2
    assert "'day' is no NAME=VALUE" in errors
