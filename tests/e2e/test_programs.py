"""Programs that the cluster runs: ``onager run``."""

import hashlib
import json
import os
import sys
import tarfile
from pathlib import Path

import psutil
import pytest

from onager.client.program import ProgramHandle, given_program
from onager.client.spec import job_spec
from onager.errors import InvalidRequestError, JobCancelledError, JobFailedError
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until


@pytest.fixture(scope="module")
def cluster(make_module_cluster) -> Cluster:
    """A cluster of one executor, with two slots for tasks and four for programs."""
    made = make_module_cluster()
    made.start_scheduler()
    start_executor(made)
    return made


def start_executor(cluster: Cluster) -> None:
    settings = {"SLOTS": "4", "MEMORY_BYTES": str(512 << 20)}
    cluster.start_executor("e-1", **{f"ONAGER_EXECUTOR_PROGRAM_{name}": value for name, value in settings.items()})


def run(cluster: Cluster, folder: Path, text: str, *args: str, **options) -> ProgramHandle:
    program = folder / "app.py"
    program.write_text("from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n" + text)
    return cluster.client.run(program, args=args, **options)


def printed(program: ProgramHandle, *, errors: bool = False) -> str:
    return b"".join(each.text for each in program.output() if each.is_error == errors).decode()


def wait_for(program: ProgramHandle, text: str) -> None:
    """Wait until a program has printed *text*."""

    def is_there() -> bool:
        is_going_on = not program.job.progress().state.is_final
        if text in printed(program):
            return True
        assert is_going_on, f"it ended without {text!r}:\n{printed(program, errors=True)}"
        return False

    until(is_there, f"{text!r} of {program.id}")


def process_of(cluster: Cluster, program: ProgramHandle) -> psutil.Process:
    """Return the process of a program."""

    return until(cluster.executors["e-1"].program, f"the process of {program.id}")


def test_a_large_archive_is_there_in_each_attempt(cluster, tmp_path):
    size = 40 << 20
    (tmp_path / "large.bin").write_bytes(os.urandom(size))
    (tmp_path / "small.txt").write_text("small")
    with tarfile.open(tmp_path / "data.tar.gz", "w:gz", compresslevel=0) as archive:
        archive.add(tmp_path / "large.bin", "large.bin")
    text = """
import hashlib, time
print(hashlib.sha256(open("env/large.bin", "rb").read()).hexdigest(), len(open("large.bin", "rb").read()), flush=True)
while spark.range(1).count() and not __import__("os").path.exists(__import__("sys").argv[1]):
    time.sleep(0.1)
print(open("small.txt").read(), open("env/large.bin", "rb").read(1) == open("large.bin", "rb").read(1))
"""
    given = {"archives": [f"{tmp_path / 'data.tar.gz'}#env"], "files": [tmp_path / "large.bin", tmp_path / "small.txt"]}
    program = run(cluster, tmp_path, text, str(tmp_path / "go-on"), **given)
    digest = hashlib.sha256((tmp_path / "large.bin").read_bytes()).hexdigest()
    wait_for(program, f"{digest} {size}")
    sent = [path for path in (cluster.exchange_dir / ".connect").iterdir() if path.stat().st_size >= size]
    assert len(sent) == 2
    for path in sent:
        path.unlink()  # as a day after it was sent
    process_of(cluster, program).kill()
    (tmp_path / "go-on").touch()
    assert program.wait(HANGS_S) == 0
    assert set(printed(program).splitlines()) == {f"{digest} {size}", "small True"}  # a last line may come twice
    assert program.info().attempt == 2


def test_a_file_that_was_never_sent_is_named(cluster, tmp_path):
    (tmp_path / "app.py").write_text("print(1)\n")
    given = given_program(tmp_path / "app.py", [])
    given.spec.files.add(name="env.zip", use="archive", alias="env", digest="0" * 64)
    spec = job_spec(program=given.spec, name="app", views={}, conf={}, labels=None, deadline=None)
    job = cluster.client.submit(spec)
    with pytest.raises(JobFailedError, match=r"the file env\.zip of the program is not there any more"):
        cluster.client.program(job.id).wait(HANGS_S)


def host_of(cluster: Cluster) -> psutil.Process:
    """Return the process that runs programs beside the executor."""
    (found,) = [
        process
        for process in psutil.Process(cluster.executors["e-1"].pid).children()
        if "onager.executor.programs" in process.cmdline()
    ]
    return found


def test_a_program_prints_reads_its_arguments_and_files_and_ends_with_its_code(cluster, tmp_path):
    (tmp_path / "beside.txt").write_text("beside")
    (tmp_path / "own.py").write_text("def double(x): return 2 * x\n")
    text = """
import os, subprocess, sys
from own import double
print(sys.argv[1:], open("beside.txt").read(), os.environ["COLOUR"], double(spark.range(4).count()))
print("to standard error", file=sys.stderr)
subprocess.run(["echo", "from a child"], check=True)
print(spark.conf.get("spark.sql.shuffle.partitions"))
sys.exit(7)
"""
    program = run(
        cluster,
        tmp_path,
        text,
        "a",
        "b c",
        files=[tmp_path / "beside.txt"],
        py_files=[tmp_path / "own.py"],
        environment={"COLOUR": "blue"},
        conf={"spark.sql.shuffle.partitions": 3},
    )
    assert program.wait(HANGS_S) == 7
    assert printed(program) == "['a', 'b c'] beside blue 8\nfrom a child\n3\n"
    assert printed(program, errors=True) == "to standard error\n"
    job = program.job.progress()
    assert (job.state, job.failure.error_class) == ("failed", "ONAGER_PROGRAM_EXIT")


def test_a_program_that_is_killed_goes_on_and_each_line_is_shown_once(cluster, tmp_path):
    text = """
import time
spark.sql("CREATE TABLE counted(n INT)")
for n in range(8):
    spark.sql(f"INSERT INTO counted VALUES ({n})")
    print("done", n)
    time.sleep(0.1)
print(sorted(row.n for row in spark.table("counted").collect()))
"""
    program = run(cluster, tmp_path, text)
    for n in (1, 4):
        wait_for(program, f"done {n}")
        process_of(cluster, program).kill()
    assert program.wait(HANGS_S) == 0
    lines = printed(program).splitlines()
    assert list(dict.fromkeys(lines)) == [*(f"done {n}" for n in range(8)), str(list(range(8)))]
    assert len(lines) <= 9 + 2
    assert program.info().attempt == 3
    calls = list(program.calls())
    assert {call.line for call in calls if call.target.endswith(" counted")} == {"app.py:5", "app.py:7"}, calls
    assert all(call.done for call in calls)
    assert {call.attempt for call in calls} == {1, 2, 3}
    shown = cluster.cli("job", program.id).stdout
    for line in ("attempts: 3", f"calls: {len(calls)} (onager calls {program.id})", "last call: app.py:10, "):
        assert line in shown, shown
    assert "exit code: 0" in shown
    table = cluster.cli("calls", program.id).stdout.splitlines()
    assert table[0].split() == ["TIME", "LINE", "CALL", "TARGET", "ATTEMPT", "STATE", "JOB"]
    assert len(table) == len(calls) + 2, "two lines of headers"
    listed = json.loads(cluster.cli("calls", program.id, "-o", "json").stdout)
    assert [call["at_ms"] for call in listed] == sorted(call.at_ms for call in calls)
    mine = {call.job_id for call in calls if call.job_id}
    assert len(mine) > 9
    assert not mine & {job.job_id for job in cluster.client.jobs(limit=1000)}, "they are listed when they are asked for"
    assert mine <= {job.job_id for job in cluster.client.jobs(limit=1000, steps=True)}


def test_a_program_goes_on_when_what_runs_it_or_the_scheduler_dies(cluster, tmp_path):
    text = """
import time
spark.sql("CREATE TABLE lasting(n INT)")
for n in range(12):
    spark.sql(f"INSERT INTO lasting VALUES ({n})")
    print("done", n)
    time.sleep(0.1)
print(spark.table("lasting").count())
"""
    program = run(cluster, tmp_path, text)
    wait_for(program, "done 3")
    before = process_of(cluster, program)
    host_of(cluster).kill()
    wait_for(program, "done 6")
    assert not before.is_running()
    cluster.scheduler.kill()
    cluster.start_scheduler()
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert printed(program).splitlines()[-1] == "12"


def test_slots_of_programs_take_no_tasks_when_a_program_ends(cluster, tmp_path):
    """A report of an executor brings it more work at once, if there is some of its kind."""
    waiting = [cluster.client.sql(f"SELECT count(*) FROM range({n}, 200000, 1, 4) WHERE id % 7 = 1") for n in range(16)]
    programs = [run(cluster, tmp_path, f"print({n})") for n in range(4)]
    assert [program.wait(HANGS_S) for program in programs] == [0] * 4
    assert any(not job.progress().state.is_final for job in waiting), "tasks were waiting when programs ended"
    for job in waiting:
        job.wait(HANGS_S)
        tasks = [task for stage in job.detail().progress.stages for task in stage.tasks]
        assert not [task for task in tasks if task.failures or "programs" in task.executor_id]


def test_a_cancelled_program_is_killed_and_does_nothing_more(cluster, tmp_path):
    text = """
import time
spark.sql("CREATE TABLE cancelled(n INT)")
print("made")
for n in range(1000):
    spark.sql(f"INSERT INTO cancelled VALUES ({n})")
"""
    program = run(cluster, tmp_path, text)
    wait_for(program, "made")
    process = process_of(cluster, program)
    program.cancel("enough")
    count = cluster.client.sql("SELECT count(*) AS n FROM cancelled").to_arrow()["n"][0].as_py()
    until(lambda: not process.is_running(), "the end of the process")
    with pytest.raises(JobCancelledError, match="enough"):
        program.wait(HANGS_S)
    assert cluster.client.sql("SELECT count(*) AS n FROM cancelled").to_arrow()["n"][0].as_py() == count


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("import os\nos._exit(9)", 9, ""),
        ("import nothing_like_that", 1, "No module named 'nothing_like_that'"),
        ("spark.sparkContext", 1, 'app.py", line 3'),
        ("raise SystemExit('no more')", 1, "no more"),
    ],
)
def test_a_program_that_ends_by_itself_ends_with_its_code(cluster, tmp_path, text, code, says):
    program = run(cluster, tmp_path, text)
    assert program.wait(HANGS_S) == code
    assert says in printed(program, errors=True)


def test_a_program_that_takes_too_much_memory_fails_by_name(cluster, tmp_path):
    program = run(cluster, tmp_path, "held = bytearray(600 << 20)\nimport time\ntime.sleep(60)")
    with pytest.raises(JobFailedError, match="may use 536,870,912"):
        program.wait(HANGS_S)


def test_a_program_that_kills_its_process_each_time_ends_after_four_attempts(cluster, tmp_path):
    program = run(cluster, tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(JobFailedError, match="4 attempts in a row"):
        program.wait(HANGS_S)


def test_what_is_no_program_is_refused_before_it_is_sent(cluster, tmp_path):
    with pytest.raises(InvalidRequestError, match="No such file"):
        cluster.client.run(tmp_path / "none.py")
    bad = tmp_path / "bad.py"
    bad.write_text("x = 1\nif:\n")
    with pytest.raises(InvalidRequestError, match=r"bad\.py, line 2: this is no program of Python"):
        cluster.client.run(bad)


def test_the_command_shows_the_output_and_ends_with_the_code(cluster, tmp_path):
    program = tmp_path / "app.py"
    program.write_text("import sys\nprint('out', sys.argv[1])\nprint('err', file=sys.stderr)\nsys.exit(5)\n")
    shown = cluster.cli("run", "--id", "e2e-cli", str(program), "--flag")
    assert (shown.returncode, shown.stdout) == (5, "out --flag\n")
    assert "err\n" in shown.stderr
    again = cluster.cli("run", "--id", "e2e-cli", str(program), "--flag")
    assert (again.returncode, again.stdout) == (5, "out --flag\n")
    other = cluster.cli("run", "--id", "e2e-cli", str(program), "--other")
    assert other.returncode == 2
    assert "e2e-cli" in other.stderr


def test_the_output_of_a_program_is_its_log(cluster, tmp_path):
    program = run(cluster, tmp_path, "print('one line')")
    assert program.wait(HANGS_S) == 0
    assert cluster.cli("logs", program.id).stdout == "one line\n"


def test_a_script_of_sql_is_a_program(cluster, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text(
        "BEGIN\n  DECLARE total INT DEFAULT 0;\n"
        "  FOR row AS SELECT id FROM range(4) DO SET total = total + row.id; END FOR;\n"
        "  SELECT total + :more AS total;\nEND\n"
    )
    program = cluster.client.run(script, args=["more=10"])
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert "16" in printed(program)
    assert {call.line for call in program.calls()} >= {"script.sql:2", "script.sql:3", "script.sql:4"}
    with pytest.raises(InvalidRequestError, match="no NAME=VALUE"):
        cluster.client.run(script, args=["more"])


def count(cluster: Cluster, table: str) -> int:
    return cluster.client.sql(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"][0].as_py()


def test_a_program_whose_call_failed_goes_on_with_that_call_once_it_is_mended(cluster, tmp_path):
    text = """
spark.sql("CREATE TABLE before(n INT)")
for n in range(3):
    spark.sql(f"INSERT INTO before VALUES ({n})")
print("written")
try:
    rows = spark.table("made_by_hand").collect()
finally:
    spark.stop()
print("read", rows[0].n)
spark = SparkSession.builder.getOrCreate()
spark.sql("INSERT INTO before VALUES (3)")
print(spark.table("before").count())
"""
    program = run(cluster, tmp_path, text)
    assert program.wait(HANGS_S) == 1
    why = "app.py:9: AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The table or view `made_by_hand` cannot be found."
    says = printed(program, errors=True)
    assert "JVM stacktrace" in says
    assert says.splitlines()[-1].startswith(f"onager: {why}")
    failure = program.job.progress().failure
    assert (str(failure).startswith(why), failure.error_class) == (True, "TABLE_OR_VIEW_NOT_FOUND")
    cluster.client.sql("CREATE TABLE made_by_hand AS SELECT 7 AS n").wait()
    shown = cluster.cli("retry", program.id)
    again = cluster.client.program(shown.stdout.strip())
    assert "it goes on with the call that failed: ExecutePlan relation at app.py:9" in shown.stderr
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert printed(again).splitlines() == ["written", "read 7", "4"]
    assert printed(program) == printed(again)
    assert count(cluster, "before") == 4
    assert (again.info().program_id, again.info().attempt, again.info().retries) == (program.id, 2, 1)
    with pytest.raises(JobFailedError):
        program.wait(HANGS_S)
    with pytest.raises(InvalidRequestError, match="has succeeded"):
        again.retry()


def test_a_cancelled_program_goes_on_behind_its_last_call_when_it_is_retried(cluster, tmp_path):
    text = """
import time
spark.sql("CREATE TABLE stopped(n INT)")
for n in range(8):
    spark.sql(f"INSERT INTO stopped VALUES ({n})")
    print("done", n)
    time.sleep(0.2)
"""
    program = run(cluster, tmp_path, text)
    wait_for(program, "done 2")
    program.cancel()
    again = program.retry()
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert count(cluster, "stopped") == 8
    assert list(dict.fromkeys(printed(again).splitlines())) == [f"done {n}" for n in range(8)]


def test_a_thread_whose_call_failed_goes_on_while_the_others_stand(cluster, tmp_path):
    text = """
from concurrent.futures import ThreadPoolExecutor
spark.sql("CREATE TABLE of_threads(n INT)")
def write(n):
    if n == 2:
        spark.table("missing_for_threads").count()
    spark.sql(f"INSERT INTO of_threads VALUES ({n})")
with ThreadPoolExecutor(4) as pool:
    for done in [pool.submit(write, n) for n in range(4)]:
        done.result()
spark.sql("INSERT INTO of_threads VALUES (4)")
"""
    program = run(cluster, tmp_path, text)
    assert program.wait(HANGS_S) == 1
    assert count(cluster, "of_threads") == 3
    cluster.client.sql("CREATE TABLE missing_for_threads AS SELECT 7 AS n").wait()
    again = program.retry()
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert count(cluster, "of_threads") == 5


def test_a_function_that_is_killed_before_its_result_is_recorded_is_called_again_and_then_never(cluster, tmp_path):
    (tmp_path / "effects").touch()
    text = f"""
import os, signal, sys, time
import onager
PATH = {str(tmp_path / "effects")!r}
def effect(word):
    with open(PATH, "a") as file:
        file.write(word + " ")
    count = len(open(PATH).read().split())
    if count == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return count
spark.sql("CREATE TABLE effects(n INT)")
n = onager.once(effect, "done")
spark.sql(f"INSERT INTO effects VALUES ({{n}})")
print("effect", n, onager.program.id, onager.program.attempt)
time.sleep(1)
try:
    onager.once(lambda: 1 / 0)
except ZeroDivisionError as error:
    print("caught", error, onager.program.is_replaying)
"""
    program = run(cluster, tmp_path, text)
    wait_for(program, "effect 2")
    process_of(cluster, program).kill()
    assert program.wait(HANGS_S) == 0, printed(program, errors=True)
    assert (tmp_path / "effects").read_text() == "done done "
    lines = list(dict.fromkeys(printed(program).splitlines()))
    assert lines[0] == f"effect 2 {program.id} 2"
    assert lines[-1] == "caught division by zero False"
    assert count(cluster, "effects") == 1
    calls = [(call.kind, call.target, call.line) for call in program.calls() if call.kind == "once"]
    assert calls == [("once", "effect", "app.py:15"), ("once", "<lambda>", "app.py:20")]


def test_a_function_that_has_failed_is_called_again_by_a_retry(cluster, tmp_path):
    text = f"""
import onager
spark.sql("CREATE TABLE once_failed(n INT)")
spark.sql("INSERT INTO once_failed VALUES (1)")
def read():
    with open({str(tmp_path / "given")!r}) as file:
        return file.read(), spark.table("once_failed").count()
print(onager.once(read))
"""
    program = run(cluster, tmp_path, text)
    assert program.wait(HANGS_S) == 1
    (tmp_path / "given").write_text("given")
    again = program.retry()
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert printed(again) == "('given', 1)\n"
    assert count(cluster, "once_failed") == 1


@pytest.mark.parametrize("environment", [{}, {"PYSPARK_PYTHON": sys.executable}], ids=["warm", "own Python"])
def test_a_program_may_have_children_which_end_when_they_are_asked_to_and_print(cluster, tmp_path, environment):
    text = """
import multiprocessing, subprocess, sys
sleeping = subprocess.Popen(["sleep", "600"])
sleeping.terminate()
print(sleeping.wait(), spark.range(3).count())
def work(number):
    print("x" * 3000, number)
with multiprocessing.get_context("fork").Pool(3) as pool:
    pool.map(work, range(30))
sys.exit("the end")
"""
    program = run(cluster, tmp_path, text, environment=environment)
    assert program.wait(HANGS_S) == 1
    out = printed(program)
    assert "-15 3\n" in out
    assert out.count("x" * 3000) == 30
    assert printed(program, errors=True) == "the end\n"
