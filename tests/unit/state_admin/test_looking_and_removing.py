"""Looking at records, watching and removing them, over a store such as schedulers leave it."""

import asyncio
import contextlib
import json
import threading
from functools import partial

import pytest

from onager.errors import InvalidRequestError, NotFoundError, StateCorruptError, StateUnavailableError
from onager.executor.spark import plan_codec
from onager.executor.spark.stage_plan import ResultOutput, StagePlan
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import Caller
from onager.scheduler.jobs.audit import Audit
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.records import pack, pack_blob
from onager.state_admin import looking
from onager.state_admin.admin import StateAdmin, without_credentials
from onager.state_admin.decoding import content, decoded
from onager.state_backend import VALUE_CHUNK_BYTES, Delete, Keyspace, Put, split_value
from onager.state_backend.local import WatchHub
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.sound_store import SoundStore, plan_of, result_stream, spec_of

CALLER = Caller("ann", "10.0.0.7")
SPEC, PLAN = digest_of(spec_of("active")), digest_of(plan_of("active"))


@pytest.fixture
async def store(backend, clock):
    found = SoundStore(backend, clock)
    await found.fill()
    return found


@pytest.fixture
async def admin(store, clock):
    return StateAdmin(store.backend, clock, "memory:", Audit(store.backend, clock, "s1"))


async def get(admin, path):
    return json.loads((await admin.get(pb.GetStateRequest(key=path))).json)


async def listed(admin, prefix, limit=0):
    response = await admin.list(pb.ListStateRequest(prefix=prefix, limit=limit))
    return [entry.key for entry in response.entries], response.more


# ---------------------------------------------------------------- looking


async def test_listing_by_keyspace_by_directory_and_by_the_beginning_of_a_key(admin):
    assert await listed(admin, "JobHeads") == (["JobHeads/active", "JobHeads/cancelled", "JobHeads/done"], False)
    assert await listed(admin, "JobHeads/ca") == (["JobHeads/cancelled"], False)
    assert await listed(admin, "Results/done/") == (
        ["Results/done/00000000/n0", "Results/done/00000001/n1"],
        False,
    )
    assert await listed(admin, "Results/done/00000001") == (["Results/done/00000001/n1"], False)
    assert len((await listed(admin, ""))[0]) > 20
    assert await listed(admin, "JobHeads", 2) == (["JobHeads/active", "JobHeads/cancelled"], True)
    assert await listed(admin, "JobHeads", 3) == (["JobHeads/active", "JobHeads/cancelled", "JobHeads/done"], False)
    with pytest.raises(InvalidRequestError, match="'Moons' is not a keyspace; use one of Executors, "):
        await listed(admin, "Moons/a")


async def test_every_record_of_a_store_decodes(admin):
    keys, _ = await listed(admin, "")
    for key in keys:
        assert "unreadable" not in await get(admin, key), key


async def test_what_records_of_each_kind_say(admin, store):
    assert (await get(admin, "Executors/e1"))["slots"] == 2
    assert await get(admin, "Heartbeats/e1") == {"incarnation": "life-1"}
    assert (await get(admin, "JobHeads/done"))["state"] == "successful"
    events = (await get(admin, "JobLog/active/00000000/000000000001"))["events"]
    assert [event["type"] for event in events] == ["stages_started", "tasks_launched"]
    assert (await get(admin, f"Plans/{SPEC}/0"))["sql"] == {"text": "SELECT 1"}
    assert (await get(admin, f"Plans/{SPEC}/meta"))["chunks"] == 1
    assert await get(admin, f"Plans/{SPEC}/ref/active") == {"job_id": "active"}
    assert set(await get(admin, f"Plans/{PLAN}/0")) == {"size_bytes", "base64"}
    result = await get(admin, "Results/done/00000001/n1")
    assert (result["columns"], result["row_count"], result["first_rows"]) == (["n: int64"], 1, [[1]])
    (chunk,) = (await listed(admin, "GraphChunks/done"))[0]
    graph = await get(admin, chunk)
    assert [stage["state"] for stage in graph["graph"]["stages"]] == ["successful", "successful"]
    assert await get(admin, chunk.rpartition("/")[0]) == graph, "a snapshot's name stands for its chunks"
    assert (await get(admin, f"Plans/{SPEC}"))["sql"] == {"text": "SELECT 1"}, "a digest stands for the blob"


async def test_a_snapshot_of_several_chunks_is_shown_whole_by_each_of_them(admin, store):
    packed = pack(json.dumps({"schema_version": "1.0", "long": "ab" * 100_000}).encode())
    half = len(packed) // 2
    await store.backend.put(Keyspace.GraphChunks, "j/00000001-x/0000", packed[:half])
    await store.backend.put(Keyspace.GraphChunks, "j/00000001-x/0001", packed[half:])
    whole = await get(admin, "GraphChunks/j/00000001-x")
    assert len(whole["long"]) == 200_000
    for n in (0, 1):
        assert await get(admin, f"GraphChunks/j/00000001-x/000{n}") == whole


async def test_a_blob_of_several_chunks_is_joined_in_their_order(admin, store):
    pieces = [f"{n:02d}," for n in range(12)]
    for n, piece in enumerate(pieces):
        await store.backend.put(Keyspace.Plans, f"abc/{n}", pack_blob(piece.encode()))
    await store.backend.put(Keyspace.Plans, "abc/meta", b'{"schema_version":"1.0","chunks":12,"size_bytes":36}')
    assert (await get(admin, "Plans/abc"))["text"] == "".join(pieces)


async def test_what_is_not_there_or_no_record(admin):
    with pytest.raises(NotFoundError, match="JobHeads/nothing is not in the store; onager state ls JobHeads lists"):
        await get(admin, "JobHeads/nothing")
    with pytest.raises(InvalidRequestError, match="'JobHeads' does not name a record: give Keyspace/key"):
        await get(admin, "JobHeads")


async def test_an_unreadable_record_says_why(admin, store):
    await store.backend.put(Keyspace.JobHeads, "bad", b"\x01 no frame")
    assert "is damaged" in (await get(admin, "JobHeads/bad"))["unreadable"]
    await store.backend.put(Keyspace.Results, "bad/0/n", b"\x00no arrow")
    assert "not a whole Arrow stream" in (await get(admin, "Results/bad/0/n"))["unreadable"]
    cut = pack_blob(result_stream([1, 2, 3])[:-30])
    await store.backend.put(Keyspace.Results, "bad/0/n", cut)
    assert "not a whole Arrow stream" in (await get(admin, "Results/bad/0/n"))["unreadable"]


def test_content_that_is_text_bytes_or_json():
    assert json.loads(content(b"[1]")) == [1]
    assert json.loads(content("a plan\nü".encode())) == {"size_bytes": 9, "text": "a plan\nü"}
    assert json.loads(content(b"\xff\x00")) == {"size_bytes": 2, "base64": "/wA="}
    assert json.loads(content(b"")) == {"size_bytes": 0, "base64": ""}
    assert json.loads(content(b'{"cut'))["text"] == '{"cut'


def test_a_stage_plan_shows_its_header_as_the_executor_writes_it():
    plan = StagePlan(
        fragment=b"java", inputs=(), output=ResultOutput(), partitions=3, column_names=("n",), conf={"spark.x": "y"}
    )
    shown = json.loads(decoded(Keyspace.Plans, "digest/0", pack_blob(plan_codec.encode(plan))))
    assert shown["stage_plan_version"] == plan_codec.VERSION
    assert (shown["header"]["partitions"], shown["header"]["conf"]) == (3, {"spark.x": "y"})


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("leveldb:/var/lib/state", "leveldb:/var/lib/state"),
        ("etcd://user@h:1,g:2/ns?password_file=/p", "etcd://h:1,g:2/ns"),
        ("etcd://u:secret@h:1", "etcd://h:1"),
        ("memory:", "memory:"),
    ],
)
def test_where_a_backup_came_from_is_reported_without_credentials(url, reported):
    assert without_credentials(url) == reported


# ---------------------------------------------------------------- watching


@contextlib.asynccontextmanager
async def watching(admin, prefix="", **from_revisions):
    stream = admin.watch(pb.WatchStateRequest(prefix=prefix, from_revisions=from_revisions))
    async with asyncio.timeout(HANGS_S), contextlib.aclosing(stream):
        first = await anext(stream)
        assert first.kind == "watching"
        yield stream


async def take(stream, count):
    return [(change.kind, change.key) for change in [await anext(stream) for _ in range(count)]]


async def test_changes_of_all_keyspaces_are_reported_with_their_values(admin, store):
    async with watching(admin) as changes:
        await store.backend.put(Keyspace.Sessions, "s", b'{"a":1}')
        change = await anext(changes)
        assert (change.kind, change.key, change.json, change.size_bytes) == ("put", "Sessions/s", '{"a":1}', 7)
        await store.backend.delete(Keyspace.Sessions, "s")
        change = await anext(changes)
        assert (change.kind, change.key, change.json) == ("delete", "Sessions/s", "")
        assert change.mod_revision == (await store.backend.scan_keys(Keyspace.Sessions, limit=1)).revision


async def test_only_what_begins_with_the_prefix_is_reported(admin, store):
    async with watching(admin, "Sessions/a/x") as changes:
        await store.backend.put_txn(
            [Put(Keyspace.Sessions, key, b"") for key in ("a/w", "a/x1", "b/x")] + [Put(Keyspace.Admin, "a/x", b"")]
        )
        await store.backend.put(Keyspace.Sessions, "a/x2", b"")
        assert await take(changes, 2) == [("put", "Sessions/a/x1"), ("put", "Sessions/a/x2")]


async def test_a_watch_goes_on_at_given_revisions(admin, store):
    page = await store.backend.scan_keys(Keyspace.Sessions, limit=1)
    await store.backend.put(Keyspace.Sessions, "before", b"")
    await store.backend.put(Keyspace.Admin, "before", b"")
    async with watching(admin, Sessions=page.revision + 1) as changes:
        await store.backend.put(Keyspace.Admin, "after", b"")
        assert sorted(await take(changes, 2)) == [("put", "Admin/after"), ("put", "Sessions/before")]


async def test_lost_events_are_reported_and_what_is_there_listed(clock):
    memory = MemoryStore(clock)
    async with MemoryBackend(memory, hub=WatchHub(0, history_events=3)) as backend:
        admin = StateAdmin(backend, clock, "memory:", Audit(backend, clock))
        for n in range(3):
            await backend.put(Keyspace.Sessions, f"s{n}", b"{}")
        async with watching(admin, "Sessions") as changes:
            await backend.put(Keyspace.Sessions, "s3", b"{}")
            assert await take(changes, 1) == [("put", "Sessions/s3")]
            await backend.put_txn(
                [*(Put(Keyspace.Sessions, f"t{n}", b"{}") for n in range(5)), Delete(Keyspace.Sessions, "s0")]
            )
            assert await take(changes, 9) == [
                ("lost", "Sessions/"),
                *[("listed", f"Sessions/s{n}") for n in (1, 2, 3)],
                *[("listed", f"Sessions/t{n}") for n in range(5)],
            ]
            await backend.put(Keyspace.Sessions, "last", b"{}")
            assert await take(changes, 1) == [("put", "Sessions/last")]


async def test_a_chunk_of_many_is_reported_as_such_since_it_says_nothing_alone(admin, store):
    async with watching(admin, "GraphChunks") as changes:
        packed = b"\x01" + bytes(range(256)) * 3000
        for n, piece in enumerate(split_value(packed)):
            await store.backend.put(Keyspace.GraphChunks, f"j/00000001-x/{n:04d}", piece)
        for size in (VALUE_CHUNK_BYTES, len(packed) - VALUE_CHUNK_BYTES):
            reported = json.loads((await anext(changes)).json)
            assert reported == {"chunk_of": "GraphChunks/j/00000001-x", "size_bytes": size}


async def test_a_watch_ends_with_the_store_s_error(admin, store):
    async with watching(admin) as changes:
        await store.backend.close()
        with pytest.raises(StateUnavailableError):
            await anext(changes)


# ---------------------------------------------------------------- removing


async def remove(admin, path, **more):
    return await admin.remove(pb.RemoveStateRequest(path=path, **more), CALLER)


async def test_one_record_is_removed_and_only_that(admin, store):
    done = await remove(admin, "Results/done/00000000/n0")
    assert (done.removed, done.keys, list(done.sample)) == (True, 1, ["Results/done/00000000/n0"])
    assert await listed(admin, "Results/done/") == (["Results/done/00000001/n1"], False)


async def test_a_prefix_is_removed_in_one_operation(admin, store):
    before = (await store.backend.scan_keys(Keyspace.Results, limit=1)).revision
    done = await remove(admin, "Results/done/")
    assert (done.removed, done.keys) == (True, 2)
    after = await store.backend.scan_keys(Keyspace.Results, limit=10)
    assert after.revision == before + 3, "with the record of it, before and after"
    assert not [key for key in after if key.startswith("done/")]


async def test_a_dry_run_only_says_what_would_go(admin, store):
    found = await remove(admin, "Results/", dry_run=True)
    assert (found.removed, found.keys) == (False, 5)
    assert list(found.dangers) == ["job active is active, and without it its result is incomplete"]
    assert len((await listed(admin, "Results"))[0]) == 5


@pytest.mark.parametrize(
    ("path", "danger"),
    [
        ("JobLog/active/00000000/000000000001", "job active is active, and without it what it did since its last"),
        ("JobLog/", "job active is active"),
        ("ActiveJobs/active", "nobody finds it any more"),
        ("JobHeads/active", "no scheduler works on it any more"),
        ("GraphChunks/active/", "it cannot be read any more"),
        (f"Plans/{SPEC}/", "job active is active, and needs this plan, specification or manifest"),
        ("Executors/e1", "executor e1 is alive, and what it runs would be run again"),
        ("Heartbeats/", "executor e1 is alive"),
    ],
)
async def test_what_running_jobs_and_executors_need_is_refused_unless_forced(admin, path, danger):
    with pytest.raises(InvalidRequestError, match="is in use") as refused:
        await remove(admin, path)
    assert danger in str(refused.value)
    assert "--force" in str(refused.value)
    keys, _ = await listed(admin, path)
    assert keys
    assert (await remove(admin, path, force=True)).removed
    assert await listed(admin, path) == ([], False)


async def test_what_ended_jobs_left_is_not_in_use(admin):
    for path in (
        "CompletedJobs/done",
        "JobHeads/done",
        "GraphChunks/done/",
        "FailedJobs/",
        f"Plans/{digest_of(spec_of('done'))}/",
    ):
        assert (await remove(admin, path)).removed


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("Results/nothing", NotFoundError, "Results/nothing is not in the store; say Results/nothing/ for all keys"),
        ("Results/nothing/", NotFoundError, "nothing to remove: Results/nothing/ is not in the store"),
        ("Results", InvalidRequestError, "'Results' names a whole keyspace: say Results/ to remove everything in it"),
        ("Moons/a", InvalidRequestError, "'Moons' is not a keyspace"),
        ("", InvalidRequestError, "'' is not a keyspace"),
    ],
)
async def test_what_cannot_be_removed(admin, path, error, message):
    with pytest.raises(error, match=message):
        await remove(admin, path)


async def test_a_removal_is_recorded_with_who_asked(admin):
    await remove(admin, "Results/done/")
    (entry,) = (await admin.audit(pb.ListAuditRequest())).entries
    assert (entry.principal, entry.address, entry.scheduler_id) == ("ann", "10.0.0.7", "s1")
    assert (entry.action, entry.target, entry.outcome) == ("remove_state", "Results/done/", "done: 2 removed")


# ---------------------------------------------------------------- checking


async def test_a_check_comes_in_parts_and_ends_with_a_summary(admin, store):
    await store.backend.put_txn([Put(Keyspace.Sessions, f"s{n:03d}", b"{") for n in range(100)])
    await store.backend.delete(Keyspace.Heartbeats, "e1")
    parts = [part async for part in admin.check(pb.CheckStateRequest())]
    assert parts[0].begins
    findings = [finding for part in parts for finding in part.findings]
    assert {f.key for f in findings} == {"Executors/e1", *(f"Sessions/s{n:03d}" for n in range(100))}
    summary = parts[-1].summary
    assert (summary.errors, summary.warnings, summary.records["Sessions"]) == (100, 1, 100)
    assert summary.revision == (await store.backend.scan_keys(Keyspace.Sessions, limit=1)).revision


@pytest.mark.parametrize("path", ["JobLog/j/00000000/000000000001", "GraphChunks/j/00000001-x", "Plans/abc"])
async def test_what_is_large_once_unpacked_is_looked_at_beside_the_event_loop(backend, admin, monkeypatch, path):
    keyspace, _, key = path.partition("/")
    packed = pack(b'{"text": "' + b"x" * 2_000_000 + b'"}')
    assert len(packed) < 10_000
    names = [key] if keyspace == "JobLog" else [f"{key}/0", f"{key}/1"]
    for name, value in zip(names, [packed] if len(names) == 1 else [packed[:100], packed[100:]], strict=True):
        await backend.put(Keyspace(keyspace), name, value)
    threads = []
    for name, act in [("shown", looking.shown), ("joined", looking.joined)]:
        monkeypatch.setattr(looking, name, partial(seen_in, threads, act))
    with contextlib.suppress(StateCorruptError):
        await get(admin, path)
    assert threads
    assert threading.current_thread() not in threads


def seen_in(threads, act, *args):
    threads.append(threading.current_thread())
    return act(*args)
