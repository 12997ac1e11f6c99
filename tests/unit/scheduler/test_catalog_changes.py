"""What a planner reports about the catalog is checked before it is kept: nothing else ever gets there."""

from types import SimpleNamespace

import pytest

from onager.errors import PlanningError, StateCorruptError, UnsupportedPlanError
from onager.execution_graph import (
    ExecutorSlot,
    FailureCause,
    FailureKind,
    JobPlanned,
    TaskFailed,
)
from onager.private_paths import PrivatePaths
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_key
from onager.scheduler.catalog.changes import decoded, encoded
from onager.scheduler.engine.reports import ReportReader
from onager.scheduler.jobs.blobs import BlobStore, blobs_of
from tests.support.catalogs import changes, database, message, partitions, put, table, view
from tests.support.fakes.scripted_executor import plan_outcome
from tests.unit.execution_graph.builder import Job
from tests.unit.scheduler.parts import executors

T = "tables/default/t"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "tables",
        "tables/default",
        "tables/default/",
        "tables//t",
        "tables/a/b/c",
        "databases/a/b",
        "pages/00000000000000aa/" + "c" * 32,
        "marks/pages",
        "JobHeads/job-1",
        "../Plans/x",
        "tables/default/a b",
        "tables/default/%61",
        "tables/default/%2f",
        "tables/default/ä",
        "tables/default/%C3",
        "tables/default/" + "n" * 256,
        "views/default/v",
    ],
)
def test_a_key_that_no_record_of_the_catalog_has_is_refused(key):
    for change in (message(put(key, table())), message(put(key, None, 3)), message(put(T, table()), reads={key: 1})):
        with pytest.raises(PlanningError, match="which is no record of"):
            changes(*change.puts, reads={read.key: read.revision for read in change.reads})
    with pytest.raises(PlanningError, match="which is no record of tables"):
        changes(partitions({"k=1": {}}, key=key))


@pytest.mark.parametrize("name", ["a%20b", "%C3%A4", "a%2Fb", "%2E.", "T", "..", "n" * 255])
def test_any_name_can_stand_percent_encoded(name):
    if name == "%2E.":
        name = ".."
    assert changes(put(f"tables/{name}/{name}", table())).puts[0].key == f"tables/{name}/{name}"


@pytest.mark.parametrize(
    "value",
    [
        b"no json",
        b"[]",
        b"17",
        b"{",
        b'{"kind": "table"}',
        b"\xff\xfe",
        b'{"a": NaN}',
        b"[" * 100_000,
        b'{"kind": "table", "version": 2, "id": "00000000000000aa", "spark": {}}',
        b'{"kind": "table", "version": true, "id": "00000000000000aa", "spark": {}}',
        b'{"kind": "database", "version": 1, "spark": {}}',
        b'{"kind": "table", "version": 1, "id": "AA", "spark": {}}',
        b'{"kind": "table", "version": 1, "id": "00000000000000aa", "spark": []}',
        b'{"kind": "table", "version": 1, "id": "00000000000000aa", "spark": {}, "pages": ["../x"]}',
        b'{"kind": "table", "version": 1, "id": "00000000000000aa", "spark": {}, "pages": 7}',
        b'{"kind": "table", "version": 1, "id": "00000000000000aa", "spark": {}, "merged": "x"}',
        b'{"kind": "table", "version": 1, "id": "00000000000000aa", "spark": {"x": "\\ud800"}}',
        b'{"kind": "table", "version": 1, "id": "00000000000000aa", "spark": {"x": 1e999}}',
    ],
)
def test_a_value_that_is_no_record_is_refused(value):
    with pytest.raises(PlanningError, match="the planner returned"):
        changes(pb.CatalogPut(key=T, value=value))


@pytest.mark.parametrize(
    ("path", "text"),
    [("", "{}"), ("k", "{}"), ("k=1/", "{}"), ("/k=1", "{}"), ("k=1", "[]"), ("k=1", "x"), ("k=" + "1" * 5000, "")],
)
def test_what_is_no_partition_is_refused(path, text):
    change = partitions({})
    change.set[path] = text
    with pytest.raises(PlanningError, match="the planner returned"):
        changes(change)


def test_changes_that_contradict_themselves_are_refused():
    for parts, reads in (
        ([put(T, table()), put(T, None)], {}),
        ([partitions({"k=1": {}}), partitions({"k=2": {}})], {}),
        ([put(T, table(), 3)], {T: 4}),
        ([put("databases/a", database(), removes=("00000000000000aa",))], {}),
        ([put(T, None, 3, removes=("x",))], {}),
        ([partitions({}, table_id="x")], {}),
    ):
        with pytest.raises(PlanningError, match="the planner returned"):
            changes(*parts, reads=reads)


def test_ten_thousand_changes_are_too_many_and_the_user_learns_it():
    many = message(*(put(f"tables/default/t{n}", table()) for n in range(10_000)))
    with pytest.raises(
        UnsupportedPlanError, match="a change of 10,000 records of the catalog, more than 54 in one job"
    ):
        changes(*many.puts)
    with pytest.raises(UnsupportedPlanError, match="depends on 101 records"):
        changes(put(T, table()), reads={f"databases/d{n}": 1 for n in range(100)})
    with pytest.raises(UnsupportedPlanError, match="50,001 partitions"):
        changes(partitions({f"k={n}": {} for n in range(50_001)}))


# ---------------------------------------------------------------- as a report


SLOT = ExecutorSlot("e1", "life", 1)


@pytest.fixture
def planning():
    job = Job()
    job.launch("e1")
    return job


async def read(backend, job, catalog, *, sink=None, **how):
    reader = ReportReader(BlobStore(backend), None, SimpleNamespace(now_ms=lambda: 9), executors(), **how)
    success = pb.TaskSuccess(plan=plan_outcome([(1, 1, "result")]))
    if catalog is not None:
        success.plan.catalog.CopyFrom(catalog)
    if sink is not None:
        success.plan.sink.CopyFrom(sink)
    task = pb.TaskId(job_id=job.graph.job_id, stage_id=0, stage_attempt=0, partition=0, task_attempt=0)
    (event,) = await reader.read_reports(job.graph, SLOT, by_key([pb.TaskReport(task=task, success=success)]))
    return event


async def test_a_plan_names_its_changes_which_are_kept_as_long_as_the_job(backend, planning):
    event = await read(backend, planning, message(put(T, table()), partitions({"k=1": {}})))
    assert isinstance(event, JobPlanned)
    planning.feed(event)
    digest = event.summary.catalog_digest
    assert digest in blobs_of(planning.graph)
    kept = decoded(await BlobStore(backend).get(digest))
    assert kept == changes(put(T, table()), partitions({"k=1": {}}))


async def test_a_plan_that_changes_nothing_is_as_before(backend, planning):
    event = await read(backend, planning, pb.CatalogChanges())
    assert event.summary.catalog_digest == ""


async def test_bad_changes_fail_the_attempt_and_too_many_the_job(backend, planning):
    event = await read(backend, planning, message(put("pages/x", table())))
    assert isinstance(event, TaskFailed)
    assert (event.failure.kind, event.failure.cause) == (FailureKind.IO_ERROR, FailureCause.INTERNAL_ERROR)
    assert "'pages/x', which is no record of the catalog" in event.failure.message
    event = await read(backend, planning, message(*(put(f"tables/default/t{n}", table()) for n in range(10_000))))
    assert event.failure.kind is FailureKind.USER_ERROR
    assert "make fewer changes in one job" in event.failure.message


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
async def test_no_table_database_or_partition_lies_where_the_cluster_keeps_its_own(backend, planning, tmp_path, prefix):
    private = PrivatePaths([tmp_path / "own state"])
    place = f"{prefix}{tmp_path}/own%20state/x" if prefix else f"{tmp_path}/own state/x"
    for catalog in (
        message(put(T, table(location=place))),
        message(put("databases/a", database(locationUri=place))),
        message(partitions({"k=1": {"storage": {"location": place}}}, location=f"{prefix}{tmp_path}/t")),
        message(partitions({"k=1": {"storage": {"location": f"{tmp_path}/t/../own state"}}}, location=f"{tmp_path}/t")),
    ):
        event = await read(backend, planning, catalog, private=private)
        assert event.failure.kind is FailureKind.USER_ERROR
        assert "is where Onager keeps files of its own" in event.failure.message
    for catalog in (
        message(put(T, table(location=f"{prefix}{tmp_path}/t"))),
        message(put(T, view())),
        message(partitions({"k=1": {"storage": {"location": f"file:{tmp_path}/t/k=1"}}}, location=f"{tmp_path}/t")),
    ):
        assert isinstance(await read(backend, planning, catalog, private=private), JobPlanned)


def test_columns_may_be_nested_as_deeply_as_spark_nests_them():
    schema = {"type": "long"}
    for _ in range(100):
        schema = {"type": "struct", "fields": [{"name": "a", "type": schema}]}
    given = changes(put(T, {**table(), "schema": schema}), partitions({"k=1": {"storage": {"x": "1"}}}))
    assert decoded(encoded(given)) == given


OTHER_VERSION = b'{"puts":[],"partitions":[],"reads":{},"version":2}'


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"puts":1}', b"[" * 100_000, OTHER_VERSION])
def test_damaged_changes_are_reported_as_such(content):
    with pytest.raises(StateCorruptError, match="changes of the catalog cannot be read"):
        decoded(content)
