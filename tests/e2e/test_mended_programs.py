"""Programs that have failed, and that a mended program goes on with: ``onager retry ID --with FILE``."""

import json
from pathlib import Path

import pytest

from onager.client.program import ProgramHandle
from onager.errors import InvalidRequestError, JobFailedError
from tests.e2e.test_programs import cluster, count, printed, process_of, run, wait_for
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S

__all__ = ["cluster"]
BEGIN = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"


def mended(folder: Path, text: str) -> Path:
    path = folder / "mended.py"
    path.write_text(BEGIN + text)
    return path


def failed(cluster: Cluster, folder: Path, text: str) -> ProgramHandle:
    program = run(cluster, folder, text)
    assert program.wait(HANGS_S) == 1, printed(program, errors=True)
    return program


def ran(program: ProgramHandle, since_ms: int) -> list[tuple[str, str]]:
    """Return the lines and kinds of the calls of a program that ran after a moment, but for settings."""
    return [
        (call.line, call.kind)
        for call in sorted(program.calls(), key=lambda call: call.number)
        if call.at_ms > since_ms and not call.kind.startswith("Config")
    ]


LONG = """
spark.sql("CREATE TABLE long_written(n INT)")
for n in range(26):
    spark.sql(f"INSERT INTO long_written VALUES ({n})")
print("begun", spark.range(7).count())
for n in range(26, 88):
    spark.sql(f"INSERT INTO long_written VALUES ({n})")
for n in range(14):
    spark.range(n, n + 1).collect()
print("cast", spark.range(5).selectExpr("CAST(id AS STRING) AS x").collect()[0].x)
for n in range(14):
    spark.range(n, n + 2).collect()
print(spark.table("of_tomorrow").collect())
spark.sql("INSERT INTO long_written VALUES (88)")
print(sorted(row.n for row in spark.table("long_written").collect()) == list(range(89)))
"""


def test_a_program_that_failed_at_call_150_is_mended_where_that_fits_what_it_has_written(cluster, tmp_path):
    program = failed(cluster, tmp_path, LONG)
    calls = sorted(program.calls(), key=lambda call: call.number)
    (broken,) = [call for call in calls if call.error]
    assert (broken.number, broken.line) == (150, "app.py:15")
    assert (calls[89].line, calls[89].target) == ("app.py:9", "insert into long_written")
    changed = len([call for call in calls[:89] if call.target == "insert into long_written"])
    ended_ms = program.info().ended_ms
    text = LONG.replace("of_tomorrow", "long_written")

    other = text.replace("VALUES ({n})", f"VALUES ({{n if n != {changed} else -n}})")
    shown = cluster.cli("retry", program.id, "--with", str(mended(tmp_path, other)))
    assert shown.returncode == 1, shown
    assert "the retry is refused: a write that is done differs, or is missing" in shown.stderr
    recorded = f"recorded: app.py:9  INSERT INTO long_written VALUES ({changed}): spark.sql(f"
    assert recorded in shown.stderr
    assert f"mended:   mended.py:9  INSERT INTO long_written VALUES (-{changed}): spark.sql(f" in shown.stderr
    assert count(cluster, "long_written") == 88
    info = program.info()
    assert (info.ended, info.exit_code, info.job_id, info.calls) == (True, 1, program.id, 149)

    text = text.replace("CAST(id AS STRING)", "CAST(id AS INT)")
    text = text.replace('print("begun"', 'print("added", spark.table("long_written").count())\nprint("begun"')
    shown = cluster.cli("retry", program.id, "--with", str(mended(tmp_path, text)))
    assert shown.returncode == 0, shown.stderr
    again = cluster.client.program(shown.stdout.strip())
    assert "149 recorded calls of program" in shown.stderr
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert printed(again).splitlines()[-5:-2] == ["added 88", "begun 7", "cast 0"]
    assert printed(again).splitlines()[-1] == "True"
    lines = [line for line, kind in ran(again, ended_ms) if kind == "ExecutePlan relation"]
    assert lines[0] == "mended.py:7", "the count that was added"
    assert lines[1] == "mended.py:13", "the cast"
    assert lines[2:16] == ["mended.py:15"] * 14, "all reads behind it"
    assert set(lines[16:]) == {"mended.py:16", "mended.py:18"}
    assert count(cluster, "long_written") == 89


def test_the_failing_call_alone_is_mended_and_everything_before_is_replayed(cluster, tmp_path):
    text = """
from pyspark.sql.functions import udf, col, rand
class Times:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, n):
        return n * self.factor
@udf("long")
def twice(n):
    return Times(2)(n)
spark.range(10).createOrReplaceTempView("of_ten")
spark.sql("SET spark.sql.shuffle.partitions=3")
frame = spark.table("of_ten").withColumn("r", rand()).sample(0.5).select(twice(col("id")).alias("t"), "r")
frame.write.saveAsTable("from_udf")
print(spark.table("from_udf").count() == frame.count(), frame.columns)
spark.sql("SELECT nothing_there").collect()
print(spark.conf.get("spark.sql.shuffle.partitions"), spark.table("of_ten").count())
"""
    program = failed(cluster, tmp_path, text)
    ended_ms = program.info().ended_ms
    other = "# a line more\nimport uuid\n\n" + text.replace("SELECT nothing_there", "SELECT 1")
    again = program.retry(program=mended(tmp_path, other))
    again.wait_until_matched(HANGS_S)
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    lines = {
        line for line, kind in ran(again, ended_ms) if kind in ("ExecutePlan relation", "ExecutePlan write_operation")
    }
    assert lines == {"mended.py:21", "mended.py:22"}
    assert printed(again).splitlines()[-2:] == ["True ['t', 'r']", "3 10"]


WRITES = """
import time
spark.sql("CREATE TABLE {table}(n INT)")
first = spark.range(3).count()
for n in range(4):
    spark.sql(f"INSERT INTO {table} VALUES ({{n}})")
print("matched")
{then}
"""


def writes(table: str, then: str) -> str:
    return WRITES.format(table=table, then=then)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("range(3)", "range(4)"), "comes behind a read that differs"),
        (("range(4):", "range(3):"), "mended:   it makes no such call"),
        (("    spark.sql(f", "    if n != 2: spark.sql(f"), "INSERT INTO refused VALUES (3)"),
    ],
    ids=["read", "missing at the end", "missing"],
)
def test_a_write_that_is_missing_or_behind_a_read_that_differs_is_refused_unless_the_record_stands(
    cluster, tmp_path, change, says
):
    table = "refused"
    cluster.client.sql(f"DROP TABLE IF EXISTS {table}").wait(HANGS_S)
    program = failed(cluster, tmp_path, writes(table, "spark.table('not_there').count()"))
    text = writes(table, "print('end')").replace(*change)
    refused = program.retry(program=mended(tmp_path, text))
    with pytest.raises(JobFailedError, match="the retry is refused") as error:
        refused.wait(HANGS_S)
    assert says in str(error.value)
    assert count(cluster, table) == 4
    again = refused.retry(program=mended(tmp_path, text), keep=True)
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert count(cluster, table) == 4
    with pytest.raises(InvalidRequestError, match="has succeeded"):
        program.retry(program=mended(tmp_path, text))


def test_a_mended_program_goes_on_where_it_was_killed_and_is_retried_with_its_own_text(cluster, tmp_path):
    program = failed(cluster, tmp_path, writes("killed", "spark.table('not_there').count()"))
    then = """
spark.sql("INSERT INTO killed VALUES (4)")
print("new write")
time.sleep(1)
spark.sql("INSERT INTO killed VALUES (5)")
spark.table("not_there_yet").count()
spark.sql("INSERT INTO killed VALUES (6)")
"""
    text = writes("killed", then).replace("range(4):", "range(4):\n    spark.range(n).count()\n    time.sleep(0.3)")
    again = program.retry(program=mended(tmp_path, text))
    process_of(cluster, again).kill()
    cluster.scheduler.kill()
    cluster.start_scheduler()
    wait_for(again, "matched")
    process_of(cluster, again).kill()
    wait_for(again, "new write")
    process_of(cluster, again).kill()
    assert again.wait(HANGS_S) == 1, printed(again, errors=True)
    assert count(cluster, "killed") == 6
    cluster.client.sql("CREATE TABLE not_there_yet AS SELECT 1 AS n").wait(HANGS_S)
    third = program.retry()
    assert third.wait(HANGS_S) == 0, printed(third, errors=True)
    assert count(cluster, "killed") == 7
    assert {call.line.partition(":")[0] for call in third.calls()} == {"mended.py"}


def test_a_mended_program_may_have_threads(cluster, tmp_path):
    text = """
from concurrent.futures import ThreadPoolExecutor
import time
spark.sql("CREATE TABLE threaded(n INT)")
def write(n):
    if n == 2:
        spark.table("not_there_for_threads").count()
    if n == 3:
        time.sleep(1.5)
    spark.sql(f"INSERT INTO threaded VALUES ({n})")
with ThreadPoolExecutor(4) as pool:
    for done in [pool.submit(write, n) for n in range(4)]:
        done.result()
spark.sql("INSERT INTO threaded VALUES (4)")
"""
    program = failed(cluster, tmp_path, text)
    assert count(cluster, "threaded") == 3
    again = program.retry(program=mended(tmp_path, text.replace("not_there_for_threads", "threaded")))
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert count(cluster, "threaded") == 5


def test_what_a_session_holds_is_there_for_calls_that_were_added(cluster, tmp_path):
    (tmp_path / "helper.py").write_text("def tripled(n): return 3 * n\n")
    text = f"""
import onager
from pyspark.sql.functions import udf
spark.addArtifacts({str(tmp_path / "helper.py")!r}, pyfile=True)
spark.sql("CREATE TABLE staging AS SELECT 5 AS n")
spark.table("staging").createOrReplaceTempView("of_staging")
spark.range(3).createOrReplaceTempView("later")
@udf("long")
def triple(n):
    from helper import tripled
    return tripled(n)
kept = spark.table("of_staging").selectExpr("n * 2 AS n").checkpoint()
cached = spark.range(4).persist()
spark.sql("DECLARE most INT DEFAULT 0")
spark.sql("SET VAR most = (SELECT max(n) FROM staging)")
day = onager.once(lambda: "2026-11-30")
spark.sql("CREATE TABLE of_session AS SELECT n, most AS m FROM of_staging")
spark.sql("DROP TABLE staging")
HERE
spark.range(30).createOrReplaceTempView("later")
print(kept.collect(), cached.count(), day)
spark.table("of_nobody").collect()
"""
    program = failed(cluster, tmp_path, text.replace("HERE", ""))
    added = 'print(spark.table("later").count(), spark.table("later").select(triple("id").alias("t")).collect()[-1].t)'
    end = """
print(spark.table("later").count(), kept.union(kept).collect(), cached.count(), spark.sql("SELECT most").first())
kept.write.mode("append").insertInto("of_kept")
"""
    text = text.replace("HERE", added).replace('spark.table("of_nobody").collect()', end)
    cluster.client.sql("CREATE TABLE of_kept(n INT)").wait(HANGS_S)
    again = program.retry(program=mended(tmp_path, text))
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert printed(again).splitlines()[-3:] == [
        "3 6",
        "[Row(n=10)] 4 2026-11-30",
        "30 [Row(n=10), Row(n=10)] 4 Row(most=5)",
    ]
    assert count(cluster, "of_kept") == 1


def test_a_script_of_sql_is_mended(cluster, tmp_path):
    script = tmp_path / "script.sql"
    text = """BEGIN
  DECLARE n INT DEFAULT 0;
  CREATE TABLE of_script(n INT);
  WHILE n < 4 DO
    EXECUTE IMMEDIATE 'INSERT INTO of_script VALUES (?)' USING n;
    SET n = n + 1;
  END WHILE;
  SELECT count(*) FROM nothing_there;
END
"""
    script.write_text(text)
    program = cluster.client.run(script)
    assert program.wait(HANGS_S) == 1
    better = tmp_path / "better.sql"
    better.write_text(text.replace("nothing_there", "of_script"))
    again = program.retry(program=better)
    assert again.wait(HANGS_S) == 0, printed(again, errors=True)
    assert "4" in printed(again)
    assert count(cluster, "of_script") == 4


def test_what_cannot_go_on_is_said_at_once(cluster, tmp_path):
    program = failed(cluster, tmp_path, "raise SystemExit(1)")
    job = cluster.client.sql("SELECT 1")
    job.wait(HANGS_S)
    good, bad, script = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "script.sql"
    good.write_text("print('mended')\n")
    bad.write_text("if:\n")
    script.write_text("BEGIN SELECT 1; END")
    for arguments, says, code in (
        ([program.id, "--with", str(tmp_path / "none.py")], "No such file", 2),
        ([program.id, "--with", str(bad)], "bad.py, line 1: this is no program of Python", 2),
        ([program.id, "--with", str(script)], "give a file of the same kind", 2),
        ([program.id, "--keep"], "--keep is about the writes of a mended program", 2),
        ([job.id, "--with", str(good)], "is no program", 2),
        (["not-there", "--with", str(good)], "not-there", 2),
    ):
        shown = cluster.cli("retry", *arguments)
        assert shown.returncode == code, (arguments, shown)
        assert says in shown.stderr
    shown = cluster.cli("retry", program.id, "--with", str(good), "-o", "json")
    again = cluster.client.program(json.loads(shown.stdout)["job_id"])
    assert again.wait(HANGS_S) == 0
    assert printed(again) == "mended\n"
