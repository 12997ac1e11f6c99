"""Programs that do their worst: each ends by name, or with what it is due, and nobody else is slowed much."""

import os
import re
import tarfile
import time
import venv

import pytest

from onager.errors import JobFailedError
from tests.e2e.test_programs import cluster, printed, run, wait_for
from tests.support.waiting import HANGS_S

__all__ = ["cluster"]
_LONG_S = 1800.0
_BESIDE_S = 10.0
"""What a small query may take beside such a program, on a machine that does other work."""


def seconds_of_a_query(cluster) -> float:
    began_s = time.monotonic()
    assert cluster.client.sql("SELECT count(*) AS n FROM range(1000)").to_arrow()["n"][0].as_py() == 1000
    return time.monotonic() - began_s


def test_a_program_that_kills_what_runs_it_each_time_ends_and_its_executor_goes_on(cluster, tmp_path):
    text = """
import os, signal, psutil
host = next(each for each in psutil.Process().parents() if "onager.executor.programs" in each.cmdline())
os.kill(host.pid, signal.SIGKILL)
spark.range(1).count()
"""
    executor = cluster.executors["e-1"].pid
    program = run(cluster, tmp_path, text)
    with pytest.raises(JobFailedError, match="16 attempts in a row were lost with the process that ran them"):
        program.wait(_LONG_S)
    assert cluster.executors["e-1"].pid == executor
    assert run(cluster, tmp_path, "print(spark.range(3).count())").wait(HANGS_S) == 0
    seconds_of_a_query(cluster)


def test_a_program_that_never_ends_has_a_deadline(cluster, tmp_path):
    program = run(cluster, tmp_path, "import time\nwhile True: time.sleep(1)", deadline="5s")
    with pytest.raises(JobFailedError, match="deadline"):
        program.wait(HANGS_S)


def test_of_ten_gigabytes_that_a_program_prints_the_beginning_and_the_end_are_kept(cluster, tmp_path):
    text = """
print("the beginning")
line = "x" * (1 << 20)
for _ in range(10 * 1024):
    print(line)
print("the end")
"""
    program = run(cluster, tmp_path, text)
    wait_for(program, "the beginning")
    assert seconds_of_a_query(cluster) < _BESIDE_S
    assert program.wait(_LONG_S) == 0
    shown = printed(program)
    assert shown.startswith("the beginning\n")
    assert shown.endswith("the end\n")
    assert len(shown) < 256 << 20


def test_a_thousand_threads_ask_at_once(cluster, tmp_path):
    text = """
import threading
counts = []
threads = [threading.Thread(target=lambda n=n: counts.append(spark.range(n).count())) for n in range(1000)]
print("began", flush=True)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(counts) == list(range(1000)))
"""
    log = cluster.directory / "e-1.log"
    started = log.read_text().count("program_started")
    program = run(cluster, tmp_path, text)
    wait_for(program, "began")
    time.sleep(2.0)
    assert seconds_of_a_query(cluster) < _LONG_S / 10
    assert program.wait(_LONG_S) == 0, printed(program, errors=True)
    assert printed(program).splitlines() == ["began", "True"]
    assert log.read_text().count("program_started") == started + 1


def test_a_python_that_cannot_run_programs_is_named(cluster, tmp_path):
    venv.create(tmp_path / "env", with_pip=False)
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "env", ".")
    given = {"archives": [f"{tmp_path / 'env.tar.gz'}#env"], "environment": {"PYSPARK_PYTHON": "./env/bin/python"}}
    program = run(cluster, tmp_path, "print(1)", **given)
    assert program.wait(HANGS_S) == 1
    says = printed(program, errors=True)
    assert re.search(
        r"\./env/bin/python, Python 3\.\d+, cannot run a program: No module named '\w+'; it needs", says
    ), says
    assert "pyspark[connect]==" in says


def test_a_hundred_thousand_calls_are_the_most(cluster, tmp_path):
    text = """
for n in range(100_001):
    spark.conf.get("spark.sql.session.timeZone")
print("too far")
"""
    program = run(cluster, tmp_path, text)
    assert program.wait(_LONG_S) == 72
    assert "100,000 calls" in printed(program, errors=True)
    assert "too far" not in printed(program)
    assert seconds_of_a_query(cluster) < _BESIDE_S


def test_the_folder_of_output_does_not_grow(cluster):
    kept = sum(
        os.path.getsize(os.path.join(folder, name))  # noqa: PTH118, PTH202
        for folder, _, names in os.walk(cluster.exchange_dir)
        for name in names
    )
    assert kept < 1 << 30
