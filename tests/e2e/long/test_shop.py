"""A program of 300 lines, unmodified, beside plain Spark's ``spark-submit``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_programs import cluster, printed, process_of, wait_for
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S

__all__ = ["cluster"]
SHOP = Path(__file__).with_name("shop_program.py")
CONF = {"spark.sql.shuffle.partitions": "4"}
LOGGED = "shop: done"
ARGUMENTS = ("--orders", "120")


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> list[str]:
    """What it prints under ``spark-submit``."""
    folder = tmp_path_factory.mktemp("plain")
    conf = {**CONF, "spark.sql.warehouse.dir": folder / "warehouse", "spark.ui.enabled": "false"}
    flags = [flag for key, value in conf.items() for flag in ("--conf", f"{key}={value}")]
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [submit, "--master", "local[2]", *flags, SHOP, folder / "out", *ARGUMENTS],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # To standard output, spark-submit passes on what goes to standard error, too: also what PySpark logs.
    return [line for line in done.stdout.splitlines() if line != LOGGED and not line.startswith('{"ts": ')]


def test_it_prints_the_same(cluster: Cluster, expected, tmp_path):
    program = cluster.client.run(SHOP, args=[str(tmp_path), *ARGUMENTS], conf=CONF)
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert printed(program).splitlines() == expected
    assert printed(program, errors=True).splitlines()[-1] == LOGGED


def test_it_prints_the_same_when_it_is_killed(cluster: Cluster, expected, tmp_path):
    program = cluster.client.run(SHOP, args=[str(tmp_path), *ARGUMENTS, "--database", "killed"], conf=CONF)
    for section in ("== customers", "== ranks", "== publish"):
        wait_for(program, section)
        process_of(cluster, program).kill()
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert program.info().attempt == 4
    assert _without_repeated(printed(program).splitlines()) == _without_repeated(expected)


def _without_repeated(lines: list[str]) -> list[str]:
    """Return the lines without those that a lost attempt has printed last, and the next one again."""
    return list(dict.fromkeys(line for line in lines if line))
