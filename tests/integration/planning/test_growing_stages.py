"""Directories with many files: planned when some of them are listed; the feed finds the others, each once."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onager.errors import InvalidSettingError
from onager.protocol import onager_pb2 as pb
from tests.support.selection import some
from tests.support.spark.adaptive_run import replans_of, run_adaptively
from tests.support.spark.one_executor import CUT, OneExecutor, as_multiset, rows_of

FILES = 250
FROM_FILES = 100
FEW_TASKS = {"spark.sql.files.maxPartitionBytes": "1g"}


def write(path: Path, n: int) -> None:
    pq.write_table(pa.table({"n": [n, n + 1], "g": [n % 7, n % 5], "text": ["odd" if n % 2 else "even"] * 2}), path)


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory with some hundred files, one of them empty, some that Spark does not see, and one below it."""
    made = tmp_path_factory.mktemp("flat")
    for n in range(FILES):
        write(made / f"part-{n * 7919 % FILES:05}.parquet", n)
    (made / "part-00100-empty.parquet").touch()
    (made / "_SUCCESS").touch()
    write(made / "_part-hidden.parquet", 1)
    write(made / ".hidden.parquet", 1)
    (made / "zz-archive").mkdir()
    write(made / "zz-archive" / "old.parquet", 1)
    return made


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("partitioned")
    for k in range(30, 54):
        directory = made / f"k={k}" / f"day=2026-01-{1 + k % 28:02}"
        directory.mkdir(parents=True)
        for n in range(10):
            write(directory / f"part-{n}.parquet", 10 * k + n)
    return made


@pytest.fixture
def plan(executor, flat, partitioned):
    """Plan a query whose views may grow."""
    views = [pb.View(name=path.name[:-1], path=str(path), format="parquet") for path in (flat, partitioned)]
    for view in views:
        executor.spark.read.parquet(view.path).createOrReplaceTempView(view.name)

    def planned(text: str, *, may_grow: bool = True, **conf: str) -> pb.PlanOutcome:
        settings = (
            CUT
            | FEW_TASKS
            | {"onager.feed.fromFiles": str(FROM_FILES)}
            | {k.replace("_", "."): v for k, v in conf.items()}
        )
        spec = pb.JobSpec(sql=pb.SqlScript(text=text), views=views, conf=settings)
        return executor.plan(spec, may_grow=may_grow)

    return planned


def growing(outcome: pb.PlanOutcome) -> list[pb.PlannedStage]:
    return [stage for stage in outcome.stages if stage.feed_stage_id]


def rows_grown(executor: OneExecutor, outcome: pb.PlanOutcome) -> list[tuple[Any, ...]]:
    """Run a query with growing stages."""
    return run_adaptively(executor, outcome, mode="", slots=1_000)[0]


class Found(NamedTuple):
    files: int
    partitions: int
    is_last: bool
    names: list[bytes]


def found_by(executor: OneExecutor, outcome: pb.PlanOutcome, stage: pb.PlannedStage) -> list[Found]:
    """Return all that the feed of a growing *stage* finds, portion after portion."""
    blobs = {blob.digest: blob.content for blob in outcome.blobs}
    task = pb.TaskSet(plan_digest=outcome.stages[stage.feed_stage_id - 1].plan_digest, portion=stage.portions[0])
    found: list[Found] = []
    while not found or not found[-1].is_last:
        success = executor.find_more(task, blobs)
        (portion,) = success.blobs
        names = re.findall(rb"/(part-[\w-]+\.parquet)", portion.content)
        found.append(Found(success.output.rows, success.feed.added, success.feed.ended, names))
        blobs[portion.digest] = portion.content
        task.portion.digest = portion.digest
    return found


def names(found: list[Found]) -> list[bytes]:
    return [name for each in found for name in each.names]


QUERIES = [
    "SELECT g, count(*), sum(n), min(text) FROM flat GROUP BY g",
    "SELECT n, g FROM flat ORDER BY n, g",
    "SELECT count(DISTINCT id) FROM (SELECT monotonically_increasing_id() AS id FROM flat)",
    "SELECT a.g, count(*) FROM flat a JOIN (SELECT DISTINCT g FROM flat WHERE n < 3) b ON a.g = b.g GROUP BY a.g",
    "SELECT /*+ BROADCAST(b) */ a.n, b.x FROM flat a JOIN (VALUES (1, 'one'), (2, 'two')) b(g, x) ON a.g = b.g",
    "SELECT * FROM partitioned WHERE k BETWEEN 45 AND 51 AND day > DATE'2026-01-19'",
    "SELECT count(*) FROM partitioned WHERE k = 100",
]


@pytest.mark.parametrize("text", some(QUERIES, one_in=2))
def test_the_rows_are_those_of_plain_spark(executor, plan, text):
    outcome = plan(text)
    assert growing(outcome), "a stage grows"
    got = rows_grown(executor, outcome)
    expected = rows_of(executor.spark.sql(text).toArrow())
    assert as_multiset(got) == as_multiset(expected)
    if "ORDER BY" in text:
        assert got == expected


def test_a_feed_finds_every_other_file_once(executor, plan):
    outcome = plan("SELECT * FROM flat")
    (stage,) = growing(outcome)
    feed = outcome.stages[stage.feed_stage_id - 1]
    assert (feed.work, feed.partitions, feed.name) == (pb.FEED, 1, "list flat0")
    assert stage.name == "scan flat0"
    found = found_by(executor, outcome, stage)
    assert [(each.files, each.is_last) for each in found] == [(100, False), (50, True)]


def test_another_attempt_goes_on_at_the_same_place(executor, plan):
    outcome = plan("SELECT * FROM flat")
    (stage,) = growing(outcome)
    first, again = (found_by(executor, outcome, stage) for _ in range(2))
    assert [(each.files, each.partitions) for each in first] == [(each.files, each.partitions) for each in again]
    assert len(names(first)) == FILES - FROM_FILES
    assert set(names(first)) == set(names(again))
    assert max(Counter(names(first)).values()) == 1


def test_files_that_come_and_go_meanwhile_are_read_once_or_not_at_all(executor, plan, tmp_path):
    for n in range(300):
        write(tmp_path / f"part-{n:03}.parquet", n)
    view = pb.View(name="moving", path=str(tmp_path), format="parquet")
    conf = CUT | {"onager.feed.fromFiles": "100"}
    outcome = executor.plan(
        pb.JobSpec(sql=pb.SqlScript(text="SELECT n FROM moving"), views=[view], conf=conf), may_grow=True
    )
    write(tmp_path / "part-050-late.parquet", 9_000)
    write(tmp_path / "part-200-late.parquet", 8_000)
    (tmp_path / "part-099.parquet").rename(tmp_path / "gone")
    rows = Counter(n for (n,) in rows_of_feed(executor, outcome))
    assert rows[9_000] == 0, "its place was passed"
    assert rows[8_000] in (0, 1)
    assert rows[150] == 2


def rows_of_feed(executor, outcome):
    """Return the rows of the portions alone that a feed finds: the first one names a file that has gone."""
    (stage,) = growing(outcome)
    files = names(found_by(executor, outcome, stage))
    assert max(Counter(files).values()) == 1
    numbers = [int(name[5:8]) for name in files if b"late" not in name]
    late = [8_000 for name in files if b"part-200-late" in name] + [9_000 for name in files if b"part-050-late" in name]
    return [(n,) for n in late] + [(n + add,) for n in numbers for add in (0, 1)]


def test_a_directory_with_fewer_files_is_listed_as_always(executor, plan):
    outcome = plan("SELECT count(*) FROM partitioned", onager_feed_fromFiles="241")
    assert not growing(outcome)
    assert executor.run(outcome) == [(480,)]


def test_nothing_grows_where_nobody_asks_for_it_or_some_scheduler_does_not_know_it(executor, plan):
    for outcome in (
        plan("SELECT count(*) FROM flat", may_grow=False),
        plan("SELECT count(*) FROM flat", onager_feed_fromFiles="0"),
    ):
        assert not growing(outcome)
        assert executor.run(outcome) == [(2 * FILES,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM (SELECT n FROM flat UNION ALL SELECT n FROM partitioned)",
        "SELECT count(*) FROM (SELECT /*+ COALESCE(3) */ n FROM flat)",
    ],
)
def test_a_stage_whose_tasks_do_not_follow_from_one_scan_reads_what_is_listed_whole(executor, plan, text):
    outcome = plan(text)
    got = executor.run(outcome) if not growing(outcome) else rows_grown(executor, outcome)
    assert got == rows_of(executor.spark.sql(text).toArrow())


def test_a_query_that_runs_where_it_is_planned_reads_all_files(executor, plan):
    outcome = plan("SELECT count(*), sum(n) FROM flat", onager_fusion_maxBytes="1000g")
    assert outcome.HasField("fused_output")
    assert executor.run(outcome) == rows_of(executor.spark.sql("SELECT count(*), sum(n) FROM flat").toArrow())


def test_a_partition_of_another_type_than_those_before_is_refused_with_advice(executor, partitioned, tmp_path):
    shutil.copytree(partitioned, tmp_path / "mixed")
    (tmp_path / "mixed" / "k=zero" / "day=2026-01-01").mkdir(parents=True)
    write(tmp_path / "mixed" / "k=zero" / "day=2026-01-01" / "part-0.parquet", 1)
    view = pb.View(name="mixed", path=str(tmp_path / "mixed"), format="parquet")
    conf = CUT | {"onager.feed.fromFiles": "100"}
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT count(*) FROM mixed"), views=[view], conf=conf)
    outcome = executor.plan(spec, may_grow=True)
    with pytest.raises(Exception, match="give the schema, or list all of them first"):
        rows_grown(executor, outcome)


def test_the_number_of_files_is_checked(plan):
    with pytest.raises(InvalidSettingError, match=r"onager.feed.fromFiles.*whole number of files"):
        plan("SELECT 1", onager_feed_fromFiles="many")


ADAPTIVE = {"onager_adaptive": "on", "spark_sql_autoBroadcastJoinThreshold": "4k"}
FEW = """
    SELECT count(*), sum(s.n) FROM (SELECT id FROM range(0, 100000, 1, 2) WHERE concat('c', id) LIKE '%c7777%') o
    JOIN (SELECT g, count(*) AS n FROM flat GROUP BY g) s ON o.id = s.n + 7691"""


def test_a_new_plan_reads_what_a_growing_stage_gives_and_nobody_lists_its_files(executor, plan):
    outcome = plan(FEW, **ADAPTIVE)
    (stage,) = growing(outcome)
    (frame,) = [blob.content for blob in outcome.blobs if blob.digest == outcome.frame_digest]
    assert b"flat0" in frame
    assert not re.findall(rb"part-[\w-]+\.parquet", frame)
    got, job = run_adaptively(executor, outcome)
    assert got == rows_of(executor.spark.sql(FEW).toArrow())
    (found,) = job.graph.replans
    assert found.is_taken, replans_of(job)
    assert {stage.feed_stage_id, stage.stage_id}.isdisjoint(found.dropped)
    assert job.states()[stage.stage_id] == "successful"


@pytest.mark.parametrize("rows", ["%c7777%", "nothing like it"])
def test_any_new_plan_gives_the_right_rows(executor, plan, rows):
    text = FEW.replace("%c7777%", rows)
    outcome = plan(text, **ADAPTIVE | {"onager_adaptive": "force"})
    assert growing(outcome)
    got, job = run_adaptively(executor, outcome, mode="force")
    assert got == rows_of(executor.spark.sql(text).toArrow())
    assert job.graph.replans, replans_of(job)
