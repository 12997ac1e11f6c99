"""Python data sources that give their partitions bit by bit: planned when the first ones are there, and read alike."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from onager.executor.spark import failures
from onager.executor.spark.planning import plan_job
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.python_jobs import as_before, query_of, source
from tests.integration.planning.test_data_sources import body
from tests.support.spark.adaptive_run import run_adaptively
from tests.support.spark.one_executor import CUT, OneExecutor, as_multiset, rows_of

# Two partitions are a portion, since each of them holds two mebibytes.
PAGES = """
import os
from dataclasses import dataclass
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition
@dataclass
class Page(InputPartition):
    number: int
    held: bytes
class Pages(DataSource):
    @classmethod
    def name(cls):
        return "pages"
    def schema(self):
        return "n long, page int"
    def reader(self, schema):
        return Filtered(self.options) if self.options.get("filtered") else Reader(self.options)
class Reader(DataSourceReader):
    def __init__(self, options):
        self.count = int(options.get("count", 5))
        self.notes = options.get("notes", "")
        self.bad = options.get("bad", "")
        self.only = None
    def note(self, text):
        if self.notes:
            with open(self.notes, "a") as notes:
                notes.write(text + "\\n")
    def was_noted(self, text):
        return os.path.exists(self.notes) and text in open(self.notes).read().splitlines()
    def partitions(self):
        self.note("all")
        return list(self.pages(0))
    def partitions_after(self, last):
        self.note("begin" if last is None else f"after {last.number}")
        return self.pages(0 if last is None or self.bad == "anew" else last.number + 1)
    def pages(self, start):
        for i in range(start, self.count):
            if i == 3:
                self.go_wrong()
            if self.only is None or i == self.only:
                yield Page(i, bytes(2 * 2**20)) if (self.bad, i) != ("kind", 3) else i
    def go_wrong(self):
        if self.bad == "once" and not self.was_noted("failed"):
            self.note("failed")
            raise ConnectionError("page 3 does not come")
        if self.bad == "unread" and not self.was_noted("read 0"):
            raise ValueError("nobody has read page 0")
    def read(self, partition):
        self.note(f"read {partition.number}")
        for i in range(25):
            yield (25 * partition.number + i, partition.number)
class Filtered(Reader):
    def pushFilters(self, filters):
        for each in filters:
            if isinstance(each, EqualTo) and each.attribute == ("page",):
                self.only = each.value
            else:
                yield each
"""
LOAD = "spark.read.format('pages')"


def pages(text: str) -> str:
    return body(f"return {text}" if "return" not in text else text, PAGES).replace("Numbers", "Pages")


def planned(executor: OneExecutor, text: str, *, may_grow: bool = True, **conf: str) -> pb.PlanOutcome:
    function = pb.PythonFunction(
        source=source(pages(text)).encode(), function="query", file_name="job.py", arguments_json="{}"
    )
    settings = CUT | {k.replace("_", "."): v for k, v in conf.items()}
    return executor.plan(pb.JobSpec(python=function, conf=settings), may_grow=may_grow)


def growing(outcome: pb.PlanOutcome) -> list[pb.PlannedStage]:
    return [stage for stage in outcome.stages if stage.feed_stage_id]


def rows_grown(executor: OneExecutor, outcome: pb.PlanOutcome, **how: bool) -> list[tuple[Any, ...]]:
    return run_adaptively(executor, outcome, mode="", slots=1_000, **how)[0]


def plain_rows(executor: OneExecutor, text: str) -> Sequence[tuple[Any, ...]]:
    with as_before(executor.spark):
        return rows_of(query_of(pages(text))(executor.spark, None).toArrow())


@pytest.mark.parametrize(
    "text",
    [
        f"{LOAD}.load().select('n', 'page', F.spark_partition_id(), F.monotonically_increasing_id())",
        f"{LOAD}.schema('n int, page string').load().orderBy('n')",
        f"one = {LOAD}.load()\n    return one.join(one.groupBy('page').agg(F.max('n').alias('n')), 'n').select('n')",
    ],
    ids=["numbered", "another schema", "twice"],
)
def test_the_rows_are_those_of_plain_spark(executor, text):
    outcome = planned(executor, text)
    assert growing(outcome), "a stage grows"
    got, expected = rows_grown(executor, outcome), plain_rows(executor, text)
    assert as_multiset(got) == as_multiset(expected)
    if "orderBy" in text:
        assert got == expected


def test_filters_are_pushed_down_once_and_hold_for_what_comes_later(executor):
    text = f"{LOAD}.option('filtered', 1).load().where('page = 4 and n > 101')"
    pushed = {"spark.sql.python.filterPushdown.enabled": "true"}
    outcome = planned(executor, text, **pushed)
    assert not growing(outcome), "one page is left, and the source has ended"
    assert executor.run(outcome) == [(n, 4) for n in range(102, 125)]
    text = f"{LOAD}.option('filtered', 1).load().where('n > 101')"
    outcome = planned(executor, text, **pushed)
    assert growing(outcome)
    assert rows_grown(executor, outcome) == [(n, 4) for n in range(102, 125)]
    with pytest.raises(Exception, match=r"DATA_SOURCE_PUSHDOWN_DISABLED\] Filtered implements pushFilters"):
        planned(executor, text)


def test_pages_are_read_before_the_source_has_ended(executor, tmp_path):
    text = f"{LOAD}.option('bad', 'unread').option('notes', '{tmp_path}/notes').load()"
    outcome = planned(executor, text)
    (stage,) = growing(outcome)
    feed = outcome.stages[stage.feed_stage_id - 1]
    assert (feed.name, feed.work, stage.name, stage.partitions) == ("list pages", pb.FEED, "scan pages", 2)
    assert "2 partitions and more" in feed.plan
    rows = rows_grown(executor, outcome, reads_first=True)
    assert sorted(n for n, _ in rows) == list(range(125))
    notes = (tmp_path / "notes").read_text().splitlines()
    assert [note for note in notes if "read" not in note] == ["begin", "after 1", "after 3"]
    assert notes.index("read 1") < notes.index("after 1") < notes.index("read 2")


def test_an_attempt_that_fails_in_the_middle_repeats_nothing(executor, tmp_path):
    text = f"{LOAD}.option('bad', 'once').option('notes', '{tmp_path}/notes').load()"
    outcome = planned(executor, text)
    (stage,) = growing(outcome)
    plan = outcome.stages[stage.feed_stage_id - 1].plan_digest
    with pytest.raises(Exception, match="ConnectionError: page 3 does not come") as failed:
        executor.find_more(
            pb.TaskSet(plan_digest=plan, portion=stage.portions[0]), {b.digest: b.content for b in outcome.blobs}
        )
    failure = failures.from_exception(executor.runner.kernel, failed.value)
    assert (failure.kind, failure.error_class) == ("user_error", "PYTHON_DATA_SOURCE_ERROR")
    rows = rows_grown(executor, outcome)
    assert sorted(n for n, _ in rows) == list(range(125))
    notes = (tmp_path / "notes").read_text().splitlines()
    assert [note for note in notes if "read" not in note] == [
        *("begin", "after 1", "failed"),
        *("after 1", "after 3"),
    ]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("kind", "Reader gave an object of type int as partition 1 of what partitions_after yields: let it yield"),
        ("anew", r"Reader.partitions_after gave Page\(number=0, .* again, which is the first one of all: let it yield"),
    ],
)
def test_what_is_wrong_with_a_source_is_reported(executor, bad, says):
    outcome = planned(executor, f"{LOAD}.option('bad', '{bad}').load()")
    with pytest.raises(Exception, match=says) as failed:
        rows_grown(executor, outcome)
    assert failures.from_exception(executor.runner.kernel, failed.value).kind == "user_error"


@pytest.mark.parametrize(
    "text",
    [
        f"one = {LOAD}.option('notes', '…').load()\n    return one.union(one)",
        f"{LOAD}.option('notes', '…').load().groupBy('page').count()",
    ],
    ids=["union", "not cut"],
)
def test_what_cannot_grow_has_all_partitions_from_the_start(executor, tmp_path, monkeypatch, text):
    text = text.replace("…", f"{tmp_path}/notes")
    if "union" not in text:
        monkeypatch.setattr(sys.modules[plan_job.__module__], "MAX_OUTPUTS", 3)
    outcome = planned(executor, text)
    assert not growing(outcome)
    assert outcome.HasField("fused_output") == ("union" not in text)
    got = executor.run(outcome)
    notes = (tmp_path / "notes").read_text().splitlines()
    assert [note for note in notes if "read" not in note] == ["begin", "all"]
    assert as_multiset(got) == as_multiset(plain_rows(executor, text))


def test_nothing_grows_where_some_scheduler_does_not_know_it(executor, tmp_path):
    outcome = planned(executor, f"{LOAD}.option('notes', '{tmp_path}/notes').load()", may_grow=False)
    assert [stage.partitions for stage in outcome.stages] == [5]
    assert (tmp_path / "notes").read_text() == "all\n"
