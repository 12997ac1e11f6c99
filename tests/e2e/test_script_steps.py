"""Scripts on a real cluster: SQL that writes several datasets, scripts made in Python, failures and retries."""

import json
import re
from pathlib import Path

import pytest

import onager
from tests.support.waiting import HANGS_S, until


def written(directory: Path) -> dict[str, int]:
    """Return the files of a dataset, and when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in directory.iterdir()}


def squares(spark, rows):
    return spark.range(rows).selectExpr("id", "id * id AS square")


def test_a_script_writes_one_dataset_after_the_other(shared_cluster, tmp_path):
    script = tmp_path / "nightly.sql"
    script.write_text(
        f"CREATE TEMP VIEW few AS SELECT id FROM range(:rows);\n"
        f"INSERT OVERWRITE DIRECTORY '{tmp_path}/a' USING parquet SELECT id FROM few;\n"
        f"INSERT OVERWRITE DIRECTORY '{tmp_path}/b' USING json SELECT sum(id) AS s FROM parquet.`{tmp_path}/a`;\n"
        f"SELECT s, count(*) AS n FROM json.`{tmp_path}/b`, few GROUP BY s"
    )
    done = shared_cluster.cli(
        "submit", "-f", str(script), "--param", "rows=5", "--label", "team=e2e", "--label", "run=1", "-o", "csv"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "s,n\n10,5\n"
    assert "step 2 statement 3, line 3: successful" in done.stderr
    listed = json.loads(shared_cluster.cli("jobs", "--label", "team=e2e", "-o", "json").stdout)
    assert [job["name"][:20] for job in listed] == ["CREATE TEMP VIEW few"]
    script_id = listed[0]["job_id"]
    assert listed[0]["labels"] == {"team": "e2e", "run": "1"}
    steps = json.loads(shared_cluster.cli("jobs", "--label", "team=e2e", "--steps", "-o", "json").stdout)
    assert {job["job_id"] for job in steps} == {script_id, *(f"{script_id}.{n}" for n in (1, 2, 3))}
    shown = shared_cluster.cli("job", script_id).stdout
    assert re.search(rf"2 +statement 3, line 3 +successful +[\d.]+ +1 +{script_id}\.2", shown), shown
    assert "labels: run=1, team=e2e" in shown


def test_a_script_that_failed_goes_on_where_it_failed(shared_cluster, tmp_path):
    insert = "INSERT OVERWRITE DIRECTORY '{}' USING parquet SELECT * FROM {}"
    text = ";\n".join(
        (
            insert.format(tmp_path / "a", "range(3)"),
            insert.format(tmp_path / "b", f"parquet.`{tmp_path}/late`"),
            insert.format(tmp_path / "c", f"parquet.`{tmp_path}/b`"),
        )
    )
    job = shared_cluster.client.sql(text)
    with pytest.raises(onager.JobFailedError, match=r"step 2 of 3 \(statement 2, line 2\): .*PATH_NOT_FOUND"):
        job.wait()
    first = written(tmp_path / "a")
    shared_cluster.client.sql("SELECT 7 AS seven", output=tmp_path / "late").wait()
    again = job.retry()
    assert again.wait().sink_path == str(tmp_path / "c")
    assert written(tmp_path / "a") == first
    assert shared_cluster.client.sql(f"SELECT seven FROM parquet.`{tmp_path}/c`").to_arrow().to_pylist() == [
        {"seven": 7}
    ]
    progress = again.progress()
    assert [stage.child_job_id for stage in progress.stages[1:]] == [f"{job.id}.1", f"{again.id}.2", f"{again.id}.3"]


def test_a_script_made_in_python(shared_cluster, tmp_path):
    script = shared_cluster.client.script(name="made", conf={"spark.sql.shuffle.partitions": 2})
    left = script.sql("SELECT :k AS k, 1 AS one", name="left", params={"k": 3}, output=tmp_path / "left")
    right = script.function(squares, name="right", args={"rows": 4}, output=tmp_path / "right")
    script.sql(
        f"SELECT k, square FROM parquet.`{tmp_path}/left` JOIN parquet.`{tmp_path}/right` ON k = id",
        after=[left, right],
        name="joined",
    )
    job = script.submit()
    assert job.to_arrow().to_pylist() == [{"k": 3, "square": 9}]
    assert job.step("right").progress().sink_path == str(tmp_path / "right")
    assert job.step("joined").to_arrow().num_rows == 1
    begun = {stage.name: (stage.started_ms, stage.ended_ms) for stage in job.progress().stages}
    assert begun["right"][0] < begun["left"][1], "both of them ran at once"
    assert begun["joined"][0] >= max(begun["left"][1], begun["right"][1])


TABLES = """\
CREATE TABLE sold AS SELECT id, id % 3 AS k FROM range(9);
INSERT INTO sold VALUES (100, 7);
CREATE VIEW sold_by AS SELECT k, count(*) AS n FROM sold GROUP BY k;
CREATE TABLE best USING csv AS SELECT * FROM sold_by WHERE n > 1;
INSERT OVERWRITE sold SELECT k, n FROM best;
SELECT * FROM sold ORDER BY id"""


def test_a_script_makes_and_writes_tables(shared_cluster):
    client = shared_cluster.client
    job = client.sql(TABLES, name="tables")
    expected = [{"id": k, "k": 3} for k in range(3)]
    assert job.to_arrow().to_pylist() == expected
    assert [stage.name for stage in job.progress().stages[1:]] == [
        f"statement {n}, line {n}" for n in (1, 2, 4, 5, 6)
    ], "the view belongs to the step after it"
    assert client.sql("SELECT * FROM sold ORDER BY id").to_arrow().to_pylist() == expected
    assert client.sql("SELECT n FROM sold_by WHERE k = 3").to_arrow().to_pylist() == [{"n": 3}], "the view goes on"
    with pytest.raises(onager.JobFailedError, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        client.sql("CREATE TABLE sold AS SELECT 1 AS a").wait()
    client.sql("DROP VIEW sold_by; DROP TABLE sold; DROP TABLE best").wait()
    assert client.sql("SHOW TABLES").to_arrow().num_rows == 0


DAYS = """\
CREATE TABLE days (v INT) USING parquet PARTITIONED BY (d STRING);
INSERT INTO days VALUES (1, 'mon'), (2, 'tue'), (3, 'wed');
INSERT INTO days PARTITION (d = 'tue') VALUES (4);
SET spark.sql.sources.partitionOverwriteMode = dynamic;
INSERT OVERWRITE days SELECT v * 10, 'mon' FROM days WHERE d = 'tue';
SELECT d, v FROM days ORDER BY d, v"""


def test_a_script_writes_partitions_of_a_table(shared_cluster):
    client = shared_cluster.client
    job = client.sql(DAYS, name="days")
    assert [tuple(row.values()) for row in job.to_arrow().to_pylist()] == [
        ("mon", 20),
        ("mon", 40),
        ("tue", 2),
        ("tue", 4),
        ("wed", 3),
    ]
    replacing = [client.sql(f"INSERT OVERWRITE days PARTITION (d = '{d}') SELECT 7") for d in ("tue", "wed", "thu")]
    for each in replacing:
        each.wait()
    assert client.sql("SELECT count(*) AS n FROM days WHERE v = 7").to_arrow().to_pylist() == [{"n": 3}]
    moved = "TRUNCATE TABLE days PARTITION (d = 'thu'); INSERT INTO days VALUES (0, 'thu')"
    client.sql(moved).wait()
    assert client.sql("SELECT v FROM days WHERE d = 'thu'").to_arrow().to_pylist() == [{"v": 0}]
    client.sql("TRUNCATE TABLE days PARTITION (d = 'mon'); ALTER TABLE days DROP PARTITION (d = 'tue')").wait()
    shown = client.sql("SHOW PARTITIONS days").to_arrow().to_pylist()
    assert [row["partition"] for row in shown] == ["d=mon", "d=thu", "d=wed"]
    assert client.sql("SELECT sum(v) AS s FROM days").to_arrow().to_pylist() == [{"s": 7}]
    client.sql("DROP TABLE days").wait()


def test_cancelling_a_script_and_a_deadline_stop_its_steps(shared_cluster, tmp_path):
    slow = "SELECT sum(crc32(sha2(repeat(CAST(id AS STRING), 200), 512))) AS s FROM range(2000000000)"
    client = shared_cluster.client
    cancelled = client.script()
    cancelled.sql(slow, name="slow")
    job = cancelled.submit()
    next(progress for progress in job.watch(60) if progress.stages[1].step_state == "running" or progress.fraction)
    job.cancel("enough")
    late = client.script(deadline="3s")
    late.sql(slow, name="slow")
    with pytest.raises(onager.JobFailedError, match=r"\(slow\): the job has not ended within 3 s, its deadline"):
        late.submit().wait(HANGS_S)
    until(lambda: client.job(f"{job.id}.1").progress().state == "cancelled", "the end of the step's job")
