"""Commits of the catalog where answers are lost, pages are many, or records are damaged; and orphaned pages."""

from collections.abc import Mapping

import pytest

from onager.catalog_records import MARK_KEY, MAX_PAGES
from onager.errors import CatalogConflictError, PlanningError, StateCorruptError, UnsupportedPlanError
from onager.execution_graph import FailureKind, JobState
from onager.scheduler.catalog.collecting import OrphanedPages
from onager.scheduler.catalog.committing import MAX_BYTES, MAX_OPS, CatalogCommits
from onager.scheduler.jobs.blobs import digest_of
from onager.state_backend import Committed, Conflict, Delete, Keyspace, Put, request_bytes
from onager.state_backend.memory import MemoryStore
from tests.contract.test_catalog_commit import TABLE, Job
from tests.support.catalogs import (
    T_ID,
    WHERE,
    changes,
    database,
    make,
    page_keys,
    partitions,
    partitions_of,
    put,
    record_of,
    table,
    view,
)
from tests.unit.scheduler.small_graphs import UnsureBackend

CATALOG = Keyspace.Catalog


def many(count):
    """Return partitions that do not compress to nothing."""
    return {
        f"k={n}": {"storage": {"location": f"{WHERE}/k={n}"}, "parameters": {"of": digest_of(b"%d" % n)}}
        for n in range(count)
    }


# ---------------------------------------------------------------- the outcome of a write is not known


@pytest.fixture
def unsure(clock):
    return UnsureBackend(MemoryStore(clock))


@pytest.mark.parametrize("script", [["done"], ["lost"], ["lost", "done"], ["lost", "lost", "lost"]])
async def test_a_write_of_unknown_outcome_is_settled_and_its_changes_are_made_once(unsure, script):
    await make(unsure, put(TABLE, table()))
    job = Job(unsure)
    await job.plan(changes(partitions({"k=1": {"n": 1}}, {"k=1": None})))
    unsure.script = script
    received = []
    job.jobs.on_tables_changed = lambda *change: received.append(change)
    assert (await job.end()).state is JobState.SUCCESSFUL
    assert [list(keys) for _, keys in received] == [[TABLE]], "for the audit, once"
    assert await partitions_of(unsure) == {"k=1": {"n": 1}}
    assert len((await record_of(unsure, TABLE))["pages"]) == 1


@pytest.mark.parametrize("script", [["done"], ["done", "lost"], ["lost", "done"]])
async def test_changes_that_were_made_with_an_unknown_outcome_do_not_conflict_with_themselves(unsure, script):
    """The write is done, but that is not found at once: what it has changed would be a conflict."""
    job = Job(unsure)
    await job.plan(changes(put(TABLE, table())))
    unsure.script = script
    assert (await job.end()).state is JobState.SUCCESSFUL
    assert unsure.script == []
    assert (await record_of(unsure, TABLE))["id"] == table()["id"]


async def test_a_table_that_changes_while_the_outcome_is_unknown_is_a_conflict(unsure):
    job = Job(unsure)
    await job.plan(changes(put(TABLE, table())))

    async def another():
        unsure.before_answer = None
        await make(unsure, put(TABLE, table("00000000000000cc")))

    unsure.script, unsure.before_answer = ["lost"], another
    after = await job.end()
    assert after.state is JobState.FAILED
    assert (await record_of(unsure, TABLE))["id"] == "00000000000000cc"


# ---------------------------------------------------------------- limits


def fits(writes):
    return len(writes.ops) <= MAX_OPS and request_bytes(writes.ops, writes.expect) <= MAX_BYTES + 64 * 1024


async def test_large_changes_leave_room_for_the_end_of_the_job(backend):
    writes = await CatalogCommits(backend).prepare(changes(put(TABLE, table()), partitions(many(16_000))))
    assert fits(writes)
    assert len(await page_keys(backend)) > 1
    assert MARK_KEY in {op.key for op in writes.ops}
    assert isinstance(await backend.put_txn(writes.ops, expect=writes.expect), Committed)
    assert len(await partitions_of(backend)) == 16_000


async def test_too_many_or_too_large_records_are_refused_with_advice(backend):
    wide = [put(f"tables/default/t{n}", table(f"{n:016x}", comment="x" * 200_000)) for n in range(4)]
    with pytest.raises(UnsupportedPlanError, match=r"a change of the catalog of [\d,]+ bytes.*jobs of their own"):
        await CatalogCommits(backend).prepare(changes(*wide))
    with pytest.raises(UnsupportedPlanError, match="60 records of the catalog, more than 54"):
        changes(*(put(f"tables/default/t{n}", table(f"{n:016x}")) for n in range(60)))
    with pytest.raises(UnsupportedPlanError, match=r"table default\.t, whose description has [\d,]+ bytes"):
        changes(put(TABLE, table(comment="x" * 300_000)))


async def test_a_job_whose_changes_fit_no_transaction_fails_at_once(backend):
    wide = [put(f"tables/default/t{n}", table(f"{n:016x}", comment="x" * 200_000)) for n in range(4)]
    job = Job(backend)
    after = await job.plan(changes(*wide), is_ddl=True)
    assert after.state is JobState.FAILED
    assert after.outcome.failure.kind is FailureKind.USER_ERROR
    assert "make fewer changes in one job" in after.outcome.failure.message


async def test_more_partitions_than_a_table_may_have_are_refused_when_pages_are_merged(backend, monkeypatch):
    monkeypatch.setattr("onager.scheduler.catalog.merging.MAX_PARTITIONS", 10)
    await make(backend, put(TABLE, table()))
    for n in range(MAX_PAGES):
        await make(backend, partitions({f"k={n}": {}}))
    with pytest.raises(UnsupportedPlanError, match=r"table default\.t with 17 partitions, more than 10"):
        await make(backend, partitions({"k=more": {}}))


# ---------------------------------------------------------------- pages


async def test_many_small_pages_become_one(backend):
    await make(backend, put(TABLE, table()))
    for n in range(40):
        await make(backend, partitions({f"k={n % 30}": {"n": n}}))
        assert len((await record_of(backend, TABLE))["pages"]) <= MAX_PAGES + 1
    assert await partitions_of(backend) == {f"k={n % 30}": {"n": n} for n in range(40)}


async def test_merged_pages_are_not_merged_again_with_each_change(backend):
    await make(backend, put(TABLE, table()), partitions(many(8_000)))
    for n in range(MAX_PAGES - 4 + 1):
        await make(backend, partitions({f"k=a{n}": {}}))
    record = await record_of(backend, TABLE)
    assert record["merged"] == len(record["pages"]) > 4
    await make(backend, partitions({"k=b": {}}))
    assert (await record_of(backend, TABLE))["pages"][: record["merged"]] == record["pages"][: record["merged"]]


async def test_a_page_that_comes_again_counts_from_now_on(backend):
    await make(backend, put(TABLE, table()))
    for value in ({"n": 1}, None, {"n": 1}, None):
        await make(backend, partitions({"k=1": value}))
    assert await partitions_of(backend) == {}
    assert len(await page_keys(backend)) == 3


async def test_a_dropped_table_takes_its_partitions_along_and_a_renamed_one_keeps_them(backend):
    at = await make(backend, put(TABLE, table()), partitions(many(3)))
    record = await record_of(backend, TABLE)
    renamed = await make(backend, put(TABLE, None, at), put("tables/default/u", record))
    assert await partitions_of(backend, "tables/default/u") == many(3)
    await make(backend, put("tables/default/u", None, renamed, removes=(T_ID,)))
    assert await page_keys(backend) == set()


async def test_pages_of_others_can_be_neither_named_nor_removed(backend):
    await make(backend, put(TABLE, table()), partitions(many(3)))
    (page,) = (await record_of(backend, TABLE))["pages"]
    for stolen in (table(pages=(page,)), table("00000000000000bb", pages=(page,))):
        with pytest.raises(PlanningError, match="with partitions that it does not have"):
            await make(backend, put("tables/default/u", stolen))
    with pytest.raises(PlanningError, match="removes the partitions of"):
        await make(backend, put("tables/default/u", table("00000000000000bb"), removes=(T_ID,)))
    at = (await backend.get(CATALOG, TABLE)).mod_revision
    with pytest.raises(PlanningError, match="keeps the table"):
        await make(backend, put(TABLE, table(), at, removes=(T_ID,)))
    assert await partitions_of(backend) == many(3)


# ---------------------------------------------------------------- conflicts, by name


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda at: put(TABLE, None, at, removes=(T_ID,)), "it was removed"),
        (lambda at: put(TABLE, table("00000000000000bb"), at, removes=(T_ID,)), "it was removed, and made anew"),
        (lambda at: put(TABLE, view(), at), "it was removed, and made anew"),
        (lambda at: put(TABLE, table(location="file:/elsewhere"), at), "it lies at file:/elsewhere now"),
        (lambda _: partitions({"k=1": {"n": 2}}), "its partition k=1 was altered"),
        (lambda _: partitions({"k=1": None}), "its partition k=1 was removed"),
        (lambda _: partitions({"k=9": {}}), "its partition k=9 was added"),
    ],
)
async def test_a_conflict_about_partitions_says_what_happened(backend, change, why):
    at = await make(backend, put(TABLE, table()), partitions({"k=1": {"n": 1}}))
    planned = changes(partitions({"k=2": {}}, {"k=1": {"n": 1}, "k=9": None}))
    await make(backend, change(at))
    with pytest.raises(CatalogConflictError) as caught:
        await CatalogCommits(backend).prepare(planned)
    assert caught.value.why == why
    assert str(caught.value).startswith(("table default.t was changed", "view default.t was changed"))


async def test_what_a_job_has_only_read_must_be_unchanged_too(backend):
    at = await make(backend, put("databases/a", database()))
    planned = changes(put("tables/a/t", table()), reads={"databases/a": at})
    await make(backend, put("databases/a", None, at))
    with pytest.raises(CatalogConflictError, match="database a was changed by another job"):
        await CatalogCommits(backend).prepare(planned)


async def test_a_change_between_the_reading_and_the_transaction_conflicts_there(backend):
    at = await make(backend, put("databases/a", database()))
    writes = await CatalogCommits(backend).prepare(changes(put("tables/a/t", table()), reads={"databases/a": at}))
    await make(backend, put("databases/a", None, at))
    assert isinstance(await backend.put_txn(writes.ops, expect=writes.expect), Conflict)


# ---------------------------------------------------------------- damage


async def test_damaged_records_and_pages_are_reported_by_their_keys(backend):
    await make(backend, put(TABLE, table()), partitions(many(3)))
    (page,) = await page_keys(backend)
    planned = changes(partitions({"k=x": {}}, {"k=x": None}))
    whole = await backend.get(CATALOG, page)
    await backend.put(CATALOG, page, whole.value[:-3])
    with pytest.raises(StateCorruptError, match=f"Catalog/{page} cannot be read"):
        await CatalogCommits(backend).prepare(planned)
    await backend.delete(CATALOG, page)
    with pytest.raises(StateCorruptError, match=f"Catalog/{page} is missing"):
        await CatalogCommits(backend).prepare(planned)
    await backend.put(CATALOG, TABLE, b"{")
    with pytest.raises(StateCorruptError, match="Catalog/tables/default/t cannot be read"):
        await CatalogCommits(backend).prepare(planned)


async def test_a_job_whose_changes_are_gone_from_the_store_fails_and_says_so(backend):
    job = Job(backend)
    await job.plan(changes(put(TABLE, table())))
    digest = (await job.jobs.load(job.job_id)).graph.plan.catalog_digest
    job.blobs._at_hand.clear()
    await backend.delete_range(Keyspace.Plans, f"{digest}/")
    after = await job.end()
    assert after.state is JobState.FAILED
    assert "what the job changes in the catalog is not there" in after.outcome.failure.message


# ---------------------------------------------------------------- orphaned pages


async def test_pages_that_nobody_names_are_removed_at_the_second_look(backend):
    await make(backend, put(TABLE, table()))
    for n in range(MAX_PAGES + 1):
        await make(backend, partitions({f"k={n}": {}}))
    await backend.put(CATALOG, f"pages/{'b' * 16}/{'c' * 32}", b"of a table that was never made")
    named = set((await record_of(backend, TABLE))["pages"])
    pages = OrphanedPages(backend)
    assert await pages.collect() == 0
    assert await pages.collect() == MAX_PAGES + 1
    assert {key.rpartition("/")[2] for key in await page_keys(backend)} == named
    assert await pages.collect() == 0


class Meddled(OrphanedPages):
    """Something happens between its look at the tables and the removal."""

    meddle = None

    async def _remove(self, keys: list[str], guard: tuple[str, int], revisions: Mapping[str, int]) -> int:
        if self.meddle is not None:
            await self.meddle()
        return await super()._remove(keys, guard, revisions)


async def test_a_page_that_is_named_again_during_the_removal_stays(backend):
    at = await make(backend, put(TABLE, table()))
    await make(backend, partitions({"k=1": {"n": 1}}))
    (page,) = await page_keys(backend)
    at = (await backend.get(CATALOG, TABLE)).mod_revision
    await make(backend, put(TABLE, table(), at))
    pages = Meddled(backend)
    assert await pages.collect() == 0

    async def again():
        await make(backend, partitions({"k=1": {"n": 1}}))

    pages.meddle = again
    assert await pages.collect() == 0
    assert await page_keys(backend) == {page}


async def test_pages_stored_before_a_table_is_made_are_not_removed_while_it_is_made(backend):
    made = changes(put(TABLE, table()), partitions(many(16_000)))
    writes = await CatalogCommits(backend).prepare(made)
    before = await page_keys(backend)
    pages = Meddled(backend)
    assert await pages.collect() == 0

    async def commit():
        pages.meddle = None
        assert isinstance(await backend.put_txn(writes.ops, expect=writes.expect), Committed)

    pages.meddle = commit
    assert await pages.collect() == 0
    assert before <= await page_keys(backend)
    assert len(await partitions_of(backend)) == 16_000


async def test_a_commit_that_comes_after_the_removal_of_its_pages_stores_them_again(backend):
    made = changes(put(TABLE, table()), partitions(many(16_000)))
    writes = await CatalogCommits(backend).prepare(made)
    pages = OrphanedPages(backend)
    await pages.collect()
    assert await pages.collect() > 0
    assert isinstance(await backend.put_txn(writes.ops, expect=writes.expect), Conflict)
    writes = await CatalogCommits(backend).prepare(made)
    assert isinstance(await backend.put_txn(writes.ops, expect=writes.expect), Committed)
    assert len(await partitions_of(backend)) == 16_000


async def test_while_a_table_cannot_be_read_no_page_is_removed(backend):
    await backend.put(CATALOG, f"pages/{'b' * 16}/{'c' * 32}", b"x")
    await backend.put_txn([Put(CATALOG, TABLE, b"{")])
    pages = OrphanedPages(backend)
    assert [await pages.collect() for _ in range(3)] == [0, 0, 0]
    await backend.put_txn([Delete(CATALOG, TABLE)])
    assert [await pages.collect() for _ in range(2)] == [0, 1]
