"""Scripts of SQL (BEGIN … END) that clients give as a query: by ``spark.sql``, and by ``onager submit``."""

import json
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from onager.errors import InvalidRequestError, JobFailedError
from tests.e2e.test_connect import remote, start
from tests.e2e.test_programs import printed
from tests.integration.planning.sql_scripts_beside_spark import cases
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S, until

SCRIPT = Path(__file__).with_name("inserting_script.sql")
INSERTS = 50
KILLED = ["program", "scheduler", "program", "executor"]
BEGINNING = """
import json, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
def show(*values):
    print(json.dumps(values, default=str), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(make_module_cluster) -> Cluster:
    """A cluster of one executor, with two slots for tasks and two for programs."""
    made = make_module_cluster()
    made.start_scheduler()
    start_executor(made)
    return made


def start_executor(cluster: Cluster) -> None:
    cluster.start_executor("e-1", ONAGER_EXECUTOR_PROGRAM_SLOTS="2")


def client(cluster: Cluster, text: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return start("-c", BEGINNING + text, remote(cluster), *arguments)


def shown(process: subprocess.Popen[str]) -> list[list]:
    """Return what a client has shown, once it has ended."""
    out, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == 0, out
    return [json.loads(line) for line in out.splitlines()]


def test_spark_sql_runs_a_script_in_its_session_and_gives_the_rows_of_its_last_query(cluster):
    text = '''
spark.range(3).createOrReplaceTempView("given")
spark.sql("DECLARE seen INT DEFAULT 5")
frame = spark.sql("""BEGIN
  DECLARE n BIGINT;
  SET n = (SELECT count(*) FROM given);
  SELECT 'not the last one';
  SET seen = seen + n;
  CREATE OR REPLACE TEMPORARY VIEW made AS SELECT id * 10 AS tens FROM given;
  EXECUTE IMMEDIATE 'SET spark.sql.shuffle.partitions = 7';
  SELECT n, seen, :day AS day, CAST(1.5 AS DECIMAL(5, 2)) AS price, array(n) AS all, INTERVAL '1' DAY AS gap;
END""", args={"day": "2026-11-30"})
show(frame.schema.simpleString(), *map(tuple, frame.collect()), frame.count())
show([row.tens for row in spark.table("made").collect()], spark.sql("SELECT seen").collect()[0][0])
show(spark.conf.get("spark.sql.shuffle.partitions"), spark.sql("BEGIN DECLARE x INT; END").columns)
show(spark.sql("BEGIN SELECT id, repeat('x', 1000) AS text FROM range(5000); END").selectExpr(
    "count(*)", "sum(id)", "sum(length(text))").collect()[0])
spark.stop()
'''
    found = shown(client(cluster, text))
    schema = "struct<n:bigint,seen:int,day:string,price:decimal(5,2),all:array<bigint>,gap:interval day to second>"
    assert found == [
        [schema, [3, 8, "2026-11-30", "1.50", [3], "1 day, 0:00:00"], 1],
        [[0, 10, 20], 8],
        ["7", []],
        [[5000, sum(range(5000)), 5_000_000]],
    ]


def test_errors_of_a_script_are_those_of_spark(cluster):
    text = """
for script, named in [
    ("BEGIN SELECT 1;\\n\\nSELECT 1 / 0; END", {}),
    ("BEGIN SELECT * FROM nowhere; END", {}),
    ("BEGIN SELECT 1;", {}),
    ("BEGIN LEAVE nowhere; END", {}),
    ("BEGIN IF 1 THEN SELECT 1; END IF; END", {}),
    ("BEGIN SELECT :nowhere; END", {}),
    ("BEGIN SELECT * FROM {frame}; END", {"frame": spark.range(1)}),
    ("BEGIN SELECT ?; END", {"args": [1]}),
]:
    try:
        spark.sql(script, **named)
        show("nothing was wrong")
    except PySparkException as error:
        show(error.getCondition(), error.getSqlState(), str(error)[:200])
"""
    found = shown(client(cluster, text))
    assert [each[:2] for each in found] == [
        ["DIVIDE_BY_ZERO", "22012"],
        ["TABLE_OR_VIEW_NOT_FOUND", "42P01"],
        ["PARSE_SYNTAX_ERROR", "42601"],
        ["INVALID_LABEL_USAGE.DOES_NOT_EXIST", "42K0L"],
        ["INVALID_BOOLEAN_STATEMENT", "22546"],
        ["UNBOUND_SQL_PARAMETER", "42P02"],
        ["UNSUPPORTED_FEATURE", "0A000"],
        ["UNSUPPORTED_FEATURE", "0A000"],
    ], found


def test_a_script_is_a_job_whose_calls_have_its_lines_and_its_session_is_left_open(cluster):
    text = '''
show(spark.session_id)
spark.sql("""BEGIN
  DECLARE n INT DEFAULT 0;
  CREATE TABLE IF NOT EXISTS lined (n INT) USING parquet;
  WHILE n < 3 DO
    INSERT INTO lined SELECT n;
    SET n = n + 1;
  END WHILE;
END""")
show(spark.table("lined").count(), spark.session_id)
'''
    (first,), (count, again) = shown(client(cluster, text))
    assert (count, again) == (3, first)
    jobs = [job for job in cluster.client.jobs(limit=1000) if job.labels.get("connect.session") == first]
    (job,) = [job for job in jobs if job.name == "spark connect script"]
    assert len(jobs) == 2, "the jobs of its statements are not listed"
    program = cluster.client.program(job.job_id)
    inserts = [call for call in program.calls() if call.target == "insert into lined"]
    assert [call.line for call in inserts] == ["script.sql:5"] * 3
    assert "script.sql:5" in cluster.cli("calls", job.job_id).stdout
    assert "calls: " in cluster.cli("job", job.job_id).stdout


def test_submit_prints_the_rows_of_a_script_and_its_errors(cluster, tmp_path):
    text = (
        "-- nightly\n/* of /* all */ */ BEGIN DECLARE n INT DEFAULT :n; SELECT 0; SELECT n * 2 AS twice, :day day; END"
    )
    parameters = ("--param", "n=21", "--param", "day=2026-11-30")
    done = cluster.cli("submit", "-e", text, *parameters, "-o", "csv")
    assert (done.returncode, done.stdout) == (0, "twice,day\n42,2026-11-30\n"), done.stderr
    (tmp_path / "script.sql").write_text(text)
    assert cluster.cli("submit", "-f", str(tmp_path / "script.sql"), *parameters).stdout.split()[-2:] == [
        "42",
        "2026-11-30",
    ]
    job = cluster.client.sql("BEGIN DECLARE x INT; EXECUTE IMMEDIATE 'SET spark.sql.ansi.enabled = false'; END")
    assert job.to_arrow().num_columns == 0
    rows = cluster.client.sql("BEGIN SELECT id, repeat('x', 1000) AS text FROM range(5000); END").to_arrow()
    assert (rows.num_rows, rows.schema.names) == (5000, ["id", "text"])
    with pytest.raises(JobFailedError, match=r"Division by zero(.|\n)*in line 2 of the script") as raised:
        cluster.client.sql("BEGIN SELECT 1;\nSELECT 1 / 0; END").wait()
    assert (raised.value.error_class, raised.value.sql_state) == ("DIVIDE_BY_ZERO", "22012")
    with pytest.raises(JobFailedError, match="end of input"):
        cluster.client.sql("BEGIN SELECT 1;").wait()
    for options in ({"views": {"v": str(tmp_path)}}, {"output": str(tmp_path / "out")}, {"params": [1]}):
        with pytest.raises(InvalidRequestError, match="a script with control flow"):
            cluster.client.sql("BEGIN SELECT 1; END", **options)


def test_values_of_any_type_reach_a_script(cluster):
    values = {
        "flag": True,
        "whole": 7,
        "large": 10**20,
        "half": 0.5,
        "price": Decimal("1.50"),
        "day": date(2026, 11, 30),
        "at": datetime(2026, 11, 30, 12, tzinfo=UTC),
        "name": "it's",
        "nothing": None,
    }
    text = f"BEGIN SELECT {', '.join(f':{name} AS {name}' for name in values)}; END"
    (row,) = cluster.client.sql(text, params=values).to_arrow().to_pylist()
    assert row == values


def test_a_script_that_is_interrupted_or_whose_session_ends_writes_nothing_more(cluster):
    text = '''
import threading, time
spark.sql("CREATE TABLE stopped (n INT) USING parquet")
def run():
    try:
        spark.sql("""BEGIN
          DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
          LOOP INSERT INTO stopped VALUES (1); END LOOP; END""")
    except PySparkException as error:
        show(error.getCondition())
spark.conf.set("spark.sql.scripting.continueHandlerEnabled", "true")
for end in (spark.interruptAll, spark.client.release_session):
    thread = threading.Thread(target=run)
    thread.start()
    before = spark.table("stopped").count()
    while spark.table("stopped").count() < before + 2:
        time.sleep(0.2)
    end()
    thread.join()
    show("ended")
'''
    found = shown(client(cluster, text))
    assert found == [["OPERATION_CANCELED"], ["ended"], ["OPERATION_CANCELED"], ["ended"]], found
    count = cluster.client.sql("SELECT count(*) AS n FROM stopped").to_arrow().to_pylist()
    assert cluster.client.sql("SELECT count(*) AS n FROM stopped").to_arrow().to_pylist() == count
    assert not [job for job in cluster.client.jobs(limit=1000) if not job.state.is_final]


WITHIN = '''
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE TABLE within (n INT, drawn DOUBLE) USING parquet")
for n in range(3):
    print("begun", n)
    rows = spark.sql("""BEGIN
      DECLARE i INT DEFAULT 0;
      WHILE i < 4 DO
        INSERT INTO within SELECT :n * 4 + i, rand();
        SET i = i + 1;
      END WHILE;
      SELECT count(*) AS n FROM within;
    END""", {"n": n}).collect()
    print("rows", rows[0].n)
try:
    spark.sql("BEGIN SELECT 1 / 0; END")
except Exception as error:
    print(error.getCondition())
'''


def test_a_script_in_a_program_is_walked_by_the_program_and_goes_on_when_that_is_killed(cluster, tmp_path):
    program = tmp_path / "app.py"
    program.write_text(WITHIN)
    handle = cluster.client.run(program)
    for n in range(3):
        until(lambda n=n: f"begun {n}" in printed(handle), f"script {n}")
        time.sleep(0.3)
        cluster.executors["e-1"].program().kill()
    assert handle.wait(HANGS_S) == 0, printed(handle, errors=True)
    lines = [line for line in dict.fromkeys(printed(handle).splitlines()) if not line.startswith("begun")]
    assert lines == ["rows 4", "rows 8", "rows 12", "DIVIDE_BY_ZERO"]
    found = cluster.client.sql("SELECT n, drawn FROM within ORDER BY n").to_arrow().to_pylist()
    assert [row["n"] for row in found] == list(range(12))
    assert len({row["drawn"] for row in found}) == 12
    assert {call.line for call in handle.calls() if call.target == "insert into within"} == {"app.py:7"}


def test_scripts_give_what_they_give_in_plain_spark(cluster):
    names = [case.name for case in cases()][::30]
    at_cluster = start("-m", "tests.e2e.scripts_program", remote(cluster), *names)
    found = dict(shown(at_cluster))
    in_plain_spark = start("-m", "tests.e2e.scripts_program", "plain", *names)
    assert found == dict(shown(in_plain_spark))
    assert len(found) == len(names)


def rows_of_notes(cluster: Cluster) -> int:
    try:
        return cluster.client.sql("SELECT id FROM scripted.notes").to_arrow().num_rows
    except JobFailedError:
        return 0  # the script has not made the table yet


def kill(cluster: Cluster, what: str) -> None:
    match what:
        case "program":
            until(cluster.executors["e-1"].program, "the process of the script").kill()
        case "scheduler":
            cluster.scheduler.kill()
            cluster.start_scheduler()
        case "executor":
            cluster.executors["e-1"].kill()
            start_executor(cluster)


def killed_again_and_again(cluster: Cluster, inserts: int, what: Sequence[str]) -> None:
    """Have a client send a script of *inserts* INSERTs, and kill *what*, each time behind at least one more row."""
    text = """
rows = spark.sql(open(sys.argv[2]).read(), {"most": int(sys.argv[3])})
show(list(rows.collect()[0]))
"""
    process = client(cluster, text, SCRIPT, str(inserts))
    inserted = 0
    for number, each in enumerate(what):
        inserted = until(lambda before=inserted: (now := rows_of_notes(cluster)) > before and now, "another row")
        time.sleep(number * 7_919 % 300 / 1_000)
        kill(cluster, each)
    assert inserted < inserts, "it was killed while it ran"
    assert shown(process) == [[[inserts, inserts, 2 * inserts, inserts]]]
    notes = cluster.client.sql("SELECT id, drawn FROM scripted.notes").to_arrow().to_pylist()
    assert sorted(note["id"] for note in notes) == list(range(inserts))
    assert len({note["drawn"] for note in notes}) == inserts
    cluster.client.sql("DROP DATABASE scripted CASCADE").wait()


def test_a_script_that_a_client_waits_for_inserts_each_row_once_whatever_is_killed(cluster):
    killed_again_and_again(cluster, INSERTS, KILLED)
