"""Each kind of damage in a sound store gives its finding, and does not stop other checks."""

import json
import zlib

import pytest

from onager.catalog_records import MARK_KEY
from onager.protocol.security import Caller
from onager.scheduler.executors.loads import ExecutorLoadRecord
from onager.scheduler.jobs.audit import Audit
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_log import JobHeader
from onager.scheduler.records import pack
from onager.state_admin.checking import check_everything
from onager.state_admin.contents import read_contents
from onager.state_admin.restoring import new_mark
from onager.state_backend import Keyspace
from tests.support.catalogs import T_ID, database, make, page_keys, partitions, put, table, view
from tests.unit.scheduler.sound_store import LIFE, SoundStore, plan_of, spec_of

SPEC, PLAN = digest_of(spec_of("active")), digest_of(plan_of("active"))
NEWER = b'{"schema_version":"2.0"}'
LOG = "active/00000000/00000000000"


@pytest.fixture
async def store(backend, clock):
    found = SoundStore(backend, clock)
    await found.fill()
    return found


async def findings(store):
    return list(check_everything(await read_contents(store.backend)))


async def found_by(store):
    return {(f.kind, f"{f.keyspace}/{f.key}", f.is_warning) for f in await findings(store)}


async def key_below(store, keyspace, prefix):
    (key,) = (await store.backend.scan_keys(keyspace, prefix, limit=10)).items
    return key


async def change(store, keyspace, key, edit):
    found = await store.backend.get(keyspace, key)
    fields = json.loads(found.value)
    edit(fields)
    await store.backend.put(keyspace, key, json.dumps(fields, separators=(",", ":")).encode())


async def test_what_schedulers_leave_is_sound(store):
    assert await findings(store) == []
    counts = (await read_contents(store.backend)).count()
    assert counts["JobLog"] == 5
    assert (counts["ActiveJobs"], counts["CompletedJobs"], counts["FailedJobs"]) == (1, 1, 1)


async def test_an_empty_store_is_sound(backend):
    assert list(check_everything(await read_contents(backend))) == []


@pytest.mark.parametrize(
    ("keyspace", "key"),
    [
        (Keyspace.Executors, "e1"),
        (Keyspace.ExecutorLoads, "e1"),
        (Keyspace.JobHeads, "active"),
        (Keyspace.JobHeads, "done"),
        (Keyspace.ActiveJobs, "active"),
        (Keyspace.CompletedJobs, "done"),
        (Keyspace.FailedJobs, "cancelled"),
        (Keyspace.JobLog, f"{LOG}2"),
        (Keyspace.Plans, f"{PLAN}/meta"),
        (Keyspace.Results, "done/00000001/n1"),
        (Keyspace.Schedulers, "s1"),
        (Keyspace.Sessions, "s"),
    ],
)
async def test_a_record_that_cannot_be_read(store, keyspace, key):
    await store.backend.put(
        keyspace, key, b'{"schema_version":"%s.0","cut of' % (b"11" if keyspace is Keyspace.JobLog else b"1")
    )
    assert ("undecodable", f"{keyspace}/{key}", False) in await found_by(store)


@pytest.mark.parametrize(
    ("keyspace", "key"),
    [
        (Keyspace.Executors, "e1"),
        (Keyspace.JobHeads, "active"),
        (Keyspace.ActiveJobs, "active"),
        (Keyspace.Plans, f"{PLAN}/meta"),
    ],
)
async def test_a_record_of_a_newer_version(store, keyspace, key):
    await store.backend.put(keyspace, key, NEWER)
    assert ("newer", f"{keyspace}/{key}", False) in await found_by(store)


async def test_one_bad_record_does_not_stop_the_rest(store):
    await store.backend.put(Keyspace.ActiveJobs, "active", b"{")
    await store.backend.put(Keyspace.CompletedJobs, "done", b"{")
    await store.backend.put(Keyspace.JobLog, f"{LOG}1", b"{")
    found = {key for kind, key, _ in await found_by(store) if kind == "undecodable"}
    assert found == {"ActiveJobs/active", "CompletedJobs/done", f"JobLog/{LOG}1"}


async def test_a_missing_head_and_a_head_without_its_job(store):
    await store.backend.delete(Keyspace.JobHeads, "active")
    await store.backend.delete(Keyspace.CompletedJobs, "done")
    found = await found_by(store)
    assert ("missing", "JobHeads/active", False) in found
    assert ("missing", "JobHeads/done", False) in found
    assert ("orphan", "GraphChunks/done/", True) in found


async def test_a_head_that_contradicts_its_graph(store):
    await change(store, Keyspace.JobHeads, "active", lambda head: head.update(stages_done=2, has_runnable_work=True))
    (first, second) = await findings(store)
    assert {first.kind, second.kind} == {"inconsistent"}
    assert {first.message, second.message} == {
        "says has_runnable_work True, but the graph says False",
        "says stages_done 2, but the graph says 1",
    }


async def test_a_head_that_was_marked_as_damaged(store):
    await change(store, Keyspace.JobHeads, "active", lambda head: head.update(broken="no chunks"))
    (found,) = await findings(store)
    assert (found.kind, found.key) == ("marked", "active")
    assert "no chunks" in found.message


async def test_a_job_with_two_headers(store):
    header = await store.backend.get(Keyspace.ActiveJobs, "active")
    await store.backend.put(Keyspace.FailedJobs, "active", header.value)
    assert await found_by(store) == {("inconsistent", "FailedJobs/active", False)}


async def test_an_active_graph_among_the_completed(store):
    await store.backend.mv(Keyspace.ActiveJobs, "active", Keyspace.CompletedJobs)
    found = await found_by(store)
    assert ("misplaced", "CompletedJobs/active", False) in found
    assert ("orphan", f"JobLog/{LOG}1", True) not in found, "the log of its own generation is read all the same"


async def test_a_record_under_another_s_key(store):
    for keyspace in (Keyspace.JobHeads, Keyspace.CompletedJobs, Keyspace.Executors):
        key = "e1" if keyspace is Keyspace.Executors else "done"
        found = await store.backend.get(keyspace, key)
        await store.backend.put(keyspace, "other", found.value)
    found = await found_by(store)
    assert {key for kind, key, _ in found if kind == "misplaced"} == {
        "JobHeads/other",
        "CompletedJobs/other",
        "Executors/other",
    }


async def test_a_missing_chunk_of_a_snapshot(store):
    key = await key_below(store, Keyspace.GraphChunks, "done/")
    await store.backend.delete(Keyspace.GraphChunks, key)
    assert await found_by(store) == {("missing", f"GraphChunks/{key}", False)}


async def test_a_damaged_snapshot(store):
    key = await key_below(store, Keyspace.GraphChunks, "done/")
    await store.backend.put(Keyspace.GraphChunks, key, b"\x01 no zstd frame")
    assert await found_by(store) == {("undecodable", f"GraphChunks/{key}", False)}


async def test_chunks_that_no_header_names(store):
    await store.backend.put(Keyspace.GraphChunks, "done/00000009-aaaaaaaa/0000", b"{}")
    await store.backend.put(Keyspace.GraphChunks, "gone/00000001-aaaaaaaa/0000", b"{}")
    assert await found_by(store) == {
        ("orphan", "GraphChunks/done/00000009-aaaaaaaa/0000", True),
        ("orphan", "GraphChunks/gone/", True),
    }


async def test_a_gap_in_the_log(store):
    await store.backend.delete(Keyspace.JobLog, f"{LOG}2")
    (found,) = await findings(store)
    assert (found.kind, found.key) == ("gap", f"{LOG}2")
    assert found.message == "the log goes from position 1 to 3"


async def test_a_log_that_begins_too_late(store):
    header = JobHeader.decoded((await store.backend.get(Keyspace.ActiveJobs, "active")).value, "header")
    await store.backend.put(Keyspace.ActiveJobs, "active", header.model_copy(update={"seq": 3}).encoded())
    found = await found_by(store)
    assert {("misplaced", f"JobLog/{LOG}{n}", False) for n in (1, 2, 3)} <= found


async def test_the_generation_before_is_no_orphan_and_others_are(store):
    await store.backend.put(Keyspace.JobLog, "active/00000009/000000000001", b'{"schema_version":"1.0",bad')
    entry = await store.backend.get(Keyspace.JobLog, f"{LOG}1")
    await store.backend.put(Keyspace.JobLog, "active/00000009/000000000001", entry.value)
    await store.backend.put(Keyspace.JobLog, "done/00000000/000000000001", entry.value)
    assert await found_by(store) == {
        ("orphan", "JobLog/active/00000009/000000000001", True),
        ("orphan", "JobLog/done/00000000/000000000001", True),
    }


async def test_a_graph_that_cannot_be(store):
    key = await key_below(store, Keyspace.GraphChunks, "done/")

    def lose_an_output(graph):
        del graph["outputs"]["1"][0]["1"]

    await change(store, Keyspace.GraphChunks, key, lose_an_output)
    (found,) = [f for f in await findings(store) if f.kind == "invariant"]
    assert (found.keyspace, found.key) == (Keyspace.CompletedJobs, "done")
    assert found.message == "stage 1 is successful with 1 of 2 outputs"


async def test_a_missing_blob(store):
    await store.backend.delete_range(Keyspace.Plans, f"{SPEC}/")
    (found,) = await findings(store)
    assert (found.kind, found.key) == ("missing", f"{SPEC}/")
    assert "job active needs" in found.message


async def test_a_blob_with_a_missing_chunk_or_without_its_description(store):
    await store.backend.delete(Keyspace.Plans, f"{SPEC}/0")
    await store.backend.delete(Keyspace.Plans, f"{PLAN}/meta")
    assert await found_by(store) == {
        ("missing", f"Plans/{SPEC}/0", False),
        ("missing", f"Plans/{PLAN}/meta", False),
    }


async def test_a_blob_with_another_content(store):
    await store.backend.put(Keyspace.Plans, f"{SPEC}/0", pack(b'{"name":"another"}'))
    assert await found_by(store) == {("undecodable", f"Plans/{SPEC}/", False)}


async def test_a_blob_that_is_not_kept_for_its_job(store):
    await store.backend.delete(Keyspace.Plans, f"{SPEC}/ref/active")
    assert await found_by(store) == {
        ("missing", f"Plans/{SPEC}/ref/active", False),
        ("orphan", f"Plans/{SPEC}/", True),
    }


async def test_blobs_that_nobody_needs(store):
    await store.blobs.put("gone", [b"a blob of nobody"])
    digest = digest_of(b"a blob of nobody")
    await store.backend.put(Keyspace.Plans, "cut/0", b"\x00half")
    await store.backend.put(Keyspace.Plans, f"{SPEC}/strange", b"")
    assert await found_by(store) == {
        ("orphan", f"Plans/{digest}/ref/gone", True),
        ("orphan", "Plans/cut/", True),
        ("misplaced", f"Plans/{SPEC}/strange", False),
    }


async def test_missing_results(store):
    await store.backend.delete(Keyspace.Results, "done/00000001/n1")
    await store.backend.delete(Keyspace.Results, "active/00000000/n0")
    await store.backend.delete(Keyspace.Results, "cancelled/00000000/n0")
    assert await found_by(store) == {
        ("missing", "Results/done/00000001/n1", False),
        ("missing", "Results/active/00000000/n0", False),
    }, "nobody fetches the result of a cancelled job"


async def test_results_past_their_retention_are_not_missed(store):
    await change(store, Keyspace.JobHeads, "done", lambda head: head.update(has_result=False))
    await store.backend.delete_range(Keyspace.Results, "done/")
    assert await findings(store) == []


async def test_a_result_of_a_job_that_is_not_there(store):
    value = (await store.backend.get(Keyspace.Results, "done/00000000/n0")).value
    await store.backend.put(Keyspace.Results, "gone/00000000/n0", value)
    assert await found_by(store) == {("orphan", "Results/gone/00000000/n0", True)}


async def test_an_executor_without_a_heartbeat(store):
    await store.backend.delete(Keyspace.Heartbeats, "e1")
    assert await found_by(store) == {("missing", "Executors/e1", True)}


async def test_heartbeats_that_belong_to_nobody(store):
    await store.backend.put(Keyspace.Heartbeats, "e1", b"another life")
    await store.backend.put(Keyspace.Heartbeats, "e2", b"life")
    assert await found_by(store) == {
        ("inconsistent", "Heartbeats/e1", False),
        ("orphan", "Heartbeats/e2", True),
    }


async def test_loads_that_belong_to_nobody(store):
    def load(executor_id, incarnation):
        return ExecutorLoadRecord(executor_id=executor_id, incarnation=incarnation, at_ms=1).encoded()

    await store.backend.put(Keyspace.ExecutorLoads, "e1", load("e1", LIFE))
    assert await found_by(store) == set()
    await store.backend.put(Keyspace.ExecutorLoads, "e1", load("e1", "another life"))
    await store.backend.put(Keyspace.ExecutorLoads, "e2", load("e3", LIFE))
    assert await found_by(store) == {
        ("orphan", "ExecutorLoads/e1", True),
        ("misplaced", "ExecutorLoads/e2", False),
        ("orphan", "ExecutorLoads/e2", True),
    }


async def test_tasks_with_an_executor_that_is_gone(store):
    await store.backend.delete(Keyspace.Executors, "e1")
    await store.backend.delete(Keyspace.Heartbeats, "e1")
    assert await found_by(store) == {("inconsistent", "ActiveJobs/active", True)}


async def test_a_restore_that_was_not_finished(store, clock):
    await store.backend.put(Keyspace.Admin, "restore", new_mark(clock, "b.zst", 3).encoded())
    assert await found_by(store) == {("unfinished", "Admin/restore", False)}


async def test_records_of_the_audit_are_readable_and_in_their_places(store, clock):
    async with Audit(store.backend, clock, "s1").act(Caller("ann"), "cancel", "active"):
        pass
    assert await findings(store) == []
    key = (await store.backend.scan_keys(Keyspace.Audit, limit=1)).items[0]
    record = await store.backend.get(Keyspace.Audit, key)
    await store.backend.put(Keyspace.Audit, "000000000000007-s2-x", record.value)
    await store.backend.put(Keyspace.Audit, key, b"{")
    assert await found_by(store) == {
        ("misplaced", "Audit/000000000000007-s2-x", False),
        ("undecodable", f"Audit/{key}", False),
    }


# ---------------------------------------------------------------- the catalog


async def with_catalog(store):
    """Return the key of the only page of partitions of a table in a database of its own."""
    await make(
        store.backend,
        put("databases/a", database()),
        put("tables/a/t", table()),
        put("tables/default/v", view("b" * 16)),
    )
    await make(store.backend, partitions({"k=1": {"n": 1}}, key="tables/a/t"))
    assert await findings(store) == []
    (page,) = await page_keys(store.backend)
    return page


async def test_a_page_of_partitions_that_is_gone_or_damaged(store):
    page = await with_catalog(store)
    whole = await store.backend.get(Keyspace.Catalog, page)
    await store.backend.put(Keyspace.Catalog, page, whole.value[1:])
    assert await found_by(store) == {("undecodable", f"Catalog/{page}", False)}
    await store.backend.put(Keyspace.Catalog, page, zlib.compress(b'{"k=1":{"n":2}}'))
    assert await found_by(store) == {("undecodable", f"Catalog/{page}", False)}
    await store.backend.delete(Keyspace.Catalog, page)
    assert await found_by(store) == {("missing", f"Catalog/{page}", False)}


async def test_pages_of_partitions_that_no_table_names(store):
    page = await with_catalog(store)
    await change(store, Keyspace.Catalog, "tables/a/t", lambda fields: fields.pop("pages"))
    await store.backend.put(Keyspace.Catalog, f"pages/{'c' * 16}/{page.rpartition('/')[2]}", b"x")
    other = f"Catalog/pages/{'c' * 16}/{page.rpartition('/')[2]}"
    assert await found_by(store) == {
        ("orphan", f"Catalog/{page}", True),
        ("orphan", other, True),
        ("undecodable", other, False),
    }


async def test_records_of_the_catalog_that_are_damaged_newer_or_nowhere(store):
    await with_catalog(store)
    await store.backend.put(Keyspace.Catalog, "tables/default/v", b"{")
    await change(store, Keyspace.Catalog, "databases/a", lambda fields: fields.update(version=2))
    await store.backend.put(Keyspace.Catalog, "stray", b"{}")
    await store.backend.put(Keyspace.Catalog, MARK_KEY, b"{}")
    assert await found_by(store) == {
        ("undecodable", "Catalog/tables/default/v", False),
        ("newer", "Catalog/databases/a", False),
        ("misplaced", "Catalog/stray", False),
    }


async def test_a_table_in_no_database_and_two_of_one_id(store):
    await with_catalog(store)
    await store.backend.delete(Keyspace.Catalog, "databases/a")
    await change(store, Keyspace.Catalog, "tables/default/v", lambda fields: fields.update(id=T_ID))
    assert await found_by(store) == {
        ("missing", "Catalog/databases/a", False),
        ("inconsistent", "Catalog/tables/default/v", False),
    }
