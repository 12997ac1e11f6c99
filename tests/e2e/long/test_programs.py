"""Programs that the cluster runs, when executors and their JVMs end."""

import os
import signal
from pathlib import Path

from tests.e2e import test_programs
from tests.e2e.test_programs import cluster, host_of, printed, process_of, run, start_executor, wait_for
from tests.e2e.test_recorded_programs import IDS
from tests.support.waiting import HANGS_S, until

__all__ = ["cluster"]
PROGRAM = Path(test_programs.__file__).with_name("recorded_program.py")


def test_the_program_of_the_local_tests_goes_on_here_too(cluster, tmp_path):
    program = cluster.client.run(PROGRAM, args=["hosted"])
    for line in ("days [", "sampled True"):
        wait_for(program, line)
        process_of(cluster, program).kill()
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert printed(program).splitlines()[-1] == f"ids {IDS}"


def test_a_jvm_that_dies_ends_no_program_and_an_executor_passes_it_on(cluster, tmp_path):
    text = """
import time
spark.sql("CREATE TABLE lasting(n INT)")
for n in range(16):
    spark.sql(f"INSERT INTO lasting VALUES ({n})")
    print("done", n)
    time.sleep(0.1)
print(spark.table("lasting").count())
"""
    program = run(cluster, tmp_path, text)
    wait_for(program, "done 3")
    before = process_of(cluster, program)
    cluster.executors["e-1"].jvm().kill()
    wait_for(program, "done 6")
    assert process_of(cluster, program) == before, "the end of a JVM ends no program"
    cluster.executors["e-1"].kill()
    start_executor(cluster)
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert printed(program).splitlines()[-1] == "16"


def test_an_executor_that_is_drained_passes_its_programs_on_before_its_tasks_end(cluster, tmp_path):
    text = """
import os, sys, time
spark.sql("CREATE TABLE drained(n INT)")
for n in range(10):
    spark.sql(f"INSERT INTO drained VALUES ({n})")
    print("done", n)
    while n == 3 and not os.path.exists(sys.argv[1]):
        time.sleep(0.1)
print(sorted(row.n for row in spark.table("drained").collect()))
"""
    program = run(cluster, tmp_path, text, str(tmp_path / "go-on"))
    wait_for(program, "done 3")
    host = host_of(cluster)
    cluster.start_executor("e-2", ONAGER_EXECUTOR_PROGRAM_SLOTS="2")
    held = cluster.client.sql("SELECT count(*) FROM range(0, 100000000000, 1, 1) WHERE crc32(string(id)) = 1")
    until(lambda: (1, 0) in cluster.tasks(held.id) and cluster.tasks(held.id)[1, 0]["state"] == "running", "a task")
    here = cluster.tasks(held.id)[1, 0]["executor_id"]
    answer = cluster.cli("executors", "drain", "e-1")
    assert "1 program beside its tasks goes on elsewhere" in answer.stdout
    (tmp_path / "go-on").touch()
    until(lambda: not host.is_running(), "the end of the process that ran programs")
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert printed(program).splitlines()[-1] == str(list(range(10)))
    assert (cluster.executors["e-1"].popen.poll() is None) == (here == "e-1"), "it leaves when its task has ended"
    held.cancel()
    assert cluster.executors["e-1"].popen.wait(HANGS_S) == 0
    assert set(cluster.executor_states()) == {"e-1", "e-2"}
    start_executor(cluster)
    cluster.executors["e-2"].terminate()


def test_an_executor_that_leaves_passes_its_programs_on(cluster, tmp_path):
    text = "import time\nprint('begun', spark.range(3).count())\ntime.sleep(3)\nprint('ended', spark.range(4).count())"
    program = run(cluster, tmp_path, text)
    wait_for(program, "begun")
    os.kill(cluster.executors["e-1"].pid, signal.SIGTERM)
    cluster.executors["e-1"].popen.wait(HANGS_S)
    start_executor(cluster)
    assert program.wait(HANGS_S) == 0
    assert printed(program) in ("begun 3\nended 4\n", "begun 3\nbegun 3\nended 4\n")
