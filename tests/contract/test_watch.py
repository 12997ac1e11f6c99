"""Watches: their start, the order of events, and lost events."""

import asyncio

import pytest

from onager.errors import InvalidRequestError, StateUnavailableError, WatchCompactedError
from onager.state_backend import Delete, DeleteRange, EventKind, KeyRange, Keyspace, LeaseId, Put
from onager.state_backend.model import WatchEvent
from tests.support.waiting import HANGS_S

HEADS, LOG, BEATS = Keyspace.JobHeads, Keyspace.JobLog, Keyspace.Heartbeats
PUT, DELETE = EventKind.PUT, EventKind.DELETE


async def take(events, count):
    async with asyncio.timeout(HANGS_S):
        return [await anext(events) for _ in range(count)]


async def first(events):
    async for event in events:
        return event
    return None


async def test_a_watch_receives_what_comes_after_its_entry(backend):
    await backend.put(HEADS, "before", b"")
    async with backend.watch(HEADS) as events:
        put = await backend.put(HEADS, "job", b"1")
        await backend.put(LOG, "job/1", b"another keyspace")
        await backend.delete(HEADS, "never there")
        await backend.delete(HEADS, "job")
        one, two = await take(events, 2)
    assert one == WatchEvent(PUT, HEADS, "job", b"1", put)
    assert two[:4] == (DELETE, HEADS, "job", b"")
    assert two.mod_revision > put


@pytest.mark.parametrize("how", ["get_from_prefix", "scan", "scan_keys", "read_txn", "get"])
async def test_a_reading_and_a_watch_from_the_next_revision_miss_nothing(harness, how):
    writer, reader = await harness.connect(), await harness.connect()

    are_some_written = asyncio.Event()

    async def write():
        for n in range(300):
            if n == 20:
                are_some_written.set()
            await writer.put(HEADS, f"job{n % 7}", b"%d" % n)
            if n % 5 == 0:
                await writer.delete(HEADS, f"job{n % 3}")
        await writer.put(HEADS, "last", b"")

    async def read():
        """Return the keys (of a look at single keys: only these) and the revision of that."""
        match how:
            case "get_from_prefix":
                page = await reader.get_from_prefix(HEADS, "")
                return {item.key for item in page}, page.revision
            case "scan":
                page = await reader.scan(HEADS, limit=100)
                return {item.key for item in page}, page.revision
            case "scan_keys":
                page = await reader.scan_keys(HEADS, limit=100)
                return set(page), page.revision
            case "read_txn":
                seen = await reader.read_txn([(HEADS, "job1")], [KeyRange(HEADS), KeyRange(LOG)])
                return {item.key for item in seen.ranges[0]}, seen.revision
            case _:
                seen = await reader.read_txn([(HEADS, "job1"), (HEADS, "last")])
                return {key for (_, key), item in seen.values.items() if item is not None}, seen.revision

    writing = asyncio.create_task(write())
    await are_some_written.wait()
    keys, revision = await read()
    async with reader.watch(HEADS, from_revision=revision + 1) as events:
        while "last" not in keys:
            (event,) = await take(events, 1)
            assert event.mod_revision > revision
            if how == "get" and event.key not in {"job1", "last"}:
                continue
            assert event.kind is PUT or event.key in keys  # a delete of what was never reported would be a miss
            (keys.add if event.kind is PUT else keys.discard)(event.key)
    await writing
    now = {item.key for item in await reader.get_from_prefix(HEADS, "")}
    assert keys == (now & {"job1", "last"} if how == "get" else now)


async def test_a_watch_starts_at_an_earlier_revision(backend):
    revisions = [await backend.put(HEADS, "job", b"%d" % n) for n in range(10)]
    async with backend.watch(HEADS, from_revision=revisions[4]) as events:
        assert [event.value for event in await take(events, 6)] == [b"%d" % n for n in range(4, 10)]


async def test_a_watch_from_a_later_revision_passes_over_what_comes_before(backend):
    start = await backend.put(HEADS, "a", b"") + 3
    async with backend.watch(HEADS, from_revision=start) as events:
        revisions = {key: await backend.put(HEADS, key, b"") for key in "bcdefg"}
        expected = [key for key, revision in revisions.items() if revision >= start]
        assert "b" not in expected
        assert [event.key for event in await take(events, len(expected))] == expected


async def test_a_batch_is_reported_in_the_order_of_its_operations(backend):
    await backend.put_txn([Put(HEADS, f"old/{n}", b"") for n in (2, 1, 3)])
    async with backend.watch(HEADS) as events:
        result = await backend.put_txn(
            [
                Put(HEADS, "z", b"1"),
                DeleteRange(HEADS, "old/"),
                Put(HEADS, "a", b"2"),
                Delete(HEADS, "x"),
                Put(HEADS, "m", b""),
            ]
        )
        got = await take(events, 6)
    assert [(event.kind, event.key) for event in got] == [
        (PUT, "z"),
        (DELETE, "old/1"),
        (DELETE, "old/2"),
        (DELETE, "old/3"),
        (PUT, "a"),
        (PUT, "m"),
    ]
    assert {event.mod_revision for event in got} == {result.revision}


async def test_a_watch_from_an_earlier_revision_keeps_the_order_inside_batches(backend):
    await backend.put_txn([Put(HEADS, f"old/{n}", b"") for n in (2, 1, 3)])
    keys = ["z", "\uffff", "a", "\U0001f42b", "m/0", "m"]
    first = await backend.put_txn([DeleteRange(HEADS, "old/"), *(Put(HEADS, key, b"1") for key in keys)])
    second = await backend.put_txn([Delete(HEADS, key) for key in reversed(keys)])
    for revision, expected in (
        (first.revision, ["old/1", "old/2", "old/3", *keys, *reversed(keys)]),
        (second.revision, [*reversed(keys)]),
    ):
        async with backend.watch(HEADS, from_revision=revision) as events:
            got = await take(events, len(expected))
        assert [event.key for event in got] == expected
        assert [event.mod_revision for event in got][-6:] == [second.revision] * 6


async def test_a_deleted_range_is_reported_key_by_key_of_one_revision(backend):
    keys = sorted((f"job/{n:04}" for n in range(1_000)), key=str.encode)
    await backend.put_all(Put(LOG, key, b"x") for key in keys)
    async with backend.watch(LOG, "job/") as events:
        assert await backend.delete_range(LOG, "job/") == 1_000
        got = await take(events, 1_000)
    assert [event.key for event in got] == keys
    assert {(event.kind, event.value) for event in got} == {(DELETE, b"")}
    assert len({event.mod_revision for event in got}) == 1


async def test_a_move_is_reported_in_both_keyspaces(backend):
    await backend.put(HEADS, "job", b"v")
    async with backend.watch(HEADS) as source, backend.watch(LOG) as target:
        result = await backend.mv(HEADS, "job", LOG)
        assert await take(source, 1) == [WatchEvent(DELETE, HEADS, "job", b"", result.revision)]
        assert await take(target, 1) == [WatchEvent(PUT, LOG, "job", b"v", result.revision)]


async def test_locks_and_leases_are_not_reported(backend):
    lease = await backend.lease(10 * HANGS_S)
    async with backend.watch(HEADS) as events:
        async with backend.lock(HEADS, "job", lease.id):
            await backend.put(HEADS, "inside", b"")
        await backend.revoke(lease.id)
        await backend.put(HEADS, "after", b"")
        assert [event.key for event in await take(events, 2)] == ["inside", "after"]


async def test_a_prefix_that_could_mean_another_job_is_refused(backend):
    with pytest.raises(InvalidRequestError, match="'job1' must be empty or end with '/'"):
        backend.watch(LOG, "job1")


async def test_a_prefix_watches_its_children_only(backend):
    async with backend.watch(LOG, "job1/") as events:
        for key in ("job1", "job10/1", "job1/1", "job2/1", "job1/2"):
            await backend.put(LOG, key, b"")
        assert [event.key for event in await take(events, 2)] == ["job1/1", "job1/2"]


async def test_the_end_of_a_lease_is_reported(harness):
    backend = await harness.connect()
    lease = await backend.lease(harness.ttl_s)
    await backend.put(BEATS, "e1", b"", lease=lease.id)
    async with backend.watch(BEATS) as events:
        await harness.let_pass(lease.ttl_s + 1)
        (event,) = await take(events, 1)
    assert event[:4] == (DELETE, BEATS, "e1", b"")


async def test_refused_writes_are_not_reported(backend):
    async with backend.watch(HEADS) as events:
        await backend.put_txn([Put(HEADS, "a", b"")], expect={(HEADS, "a"): 17})
        await backend.put(HEADS, "b", b"")
        assert [event.key for event in await take(events, 1)] == ["b"]


async def test_several_watches_and_clients_receive_the_same(harness):
    one, other = await harness.connect(), await harness.connect()
    async with one.watch(HEADS) as first, other.watch(HEADS) as second:
        for n in range(20):
            await (one, other)[n % 2].put(HEADS, f"{n}", b"")
        assert await take(first, 20) == await take(second, 20)


async def test_events_that_were_compacted_away_are_reported_as_lost(harness):
    backend = await harness.connect()
    first = await backend.put(HEADS, "job", b"1")
    await backend.put(HEADS, "job", b"2")
    await harness.compact(HEADS)
    with pytest.raises(WatchCompactedError, match="list again"):
        async with backend.watch(HEADS, from_revision=first) as events:
            await take(events, 1)
    page = await backend.get_from_prefix(HEADS, "")
    async with backend.watch(HEADS, from_revision=page.revision + 1) as events:
        await backend.put(HEADS, "job", b"3")
        assert (await take(events, 1))[0].value == b"3"


async def test_a_watch_that_falls_behind_receives_every_change_or_learns_that_it_lost_some(backend):
    values = [b"%d" % n + bytes(700_000) for n in range(10)]
    async with backend.watch(HEADS) as events:
        for value in values:
            await backend.put(HEADS, "job", value)
        try:
            received = [event.value for event in await take(events, len(values))]
        except WatchCompactedError:
            received = values
        assert received == values


async def test_a_watch_cancelled_while_it_waits_ends(backend):
    async with backend.watch(HEADS) as events:
        task = asyncio.create_task(first(events))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_watcher_that_stops_waiting_misses_no_event(backend):
    """A wait may end at any moment, such as just when the event arrives."""
    received = []
    async with backend.watch(HEADS) as events, asyncio.timeout(HANGS_S):
        writing = asyncio.gather(*(backend.put(HEADS, f"{n}", b"") for n in range(100)))
        turns = 0
        while len(received) < 100:
            turns += 1
            waiting = asyncio.ensure_future(anext(events))
            for _ in range(turns % 7):
                await asyncio.sleep(0)
            waiting.cancel()
            try:
                received.append(await waiting)
            except asyncio.CancelledError:
                await asyncio.sleep(0.001 * (turns % 3))
        await writing
    assert sorted(int(event.key) for event in received) == list(range(100))
    assert [event.mod_revision for event in received] == sorted(event.mod_revision for event in received)


async def test_leaving_the_block_ends_iterations(backend):
    async with backend.watch(HEADS) as events:
        waiting = asyncio.create_task(first(events))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(waiting, HANGS_S) is None


async def enter(context):
    async with context:
        pass


CALLS = {
    "get": lambda backend: backend.get(HEADS, "a"),
    "get_from_prefix": lambda backend: backend.get_from_prefix(HEADS, ""),
    "scan": lambda backend: backend.scan(HEADS, limit=1),
    "scan_keys": lambda backend: backend.scan_keys(HEADS, limit=1),
    "read_txn": lambda backend: backend.read_txn([(HEADS, "a"), (LOG, "a")], [KeyRange(HEADS)]),
    "put": lambda backend: backend.put(HEADS, "a", b""),
    "delete": lambda backend: backend.delete(HEADS, "a"),
    "delete_range": lambda backend: backend.delete_range(HEADS, ""),
    "put_txn": lambda backend: backend.put_txn([Put(HEADS, "a", b"")], expect={(HEADS, "a"): 0}),
    "mv": lambda backend: backend.mv(HEADS, "a", LOG),
    "lease": lambda backend: backend.lease(10),
    "keep_alive": lambda backend: backend.keep_alive(LeaseId(1)),
    "revoke": lambda backend: backend.revoke(LeaseId(1)),
    "lock": lambda backend: enter(backend.lock(HEADS, "a", LeaseId(1))),
    "watch": lambda backend: enter_and_wait(backend.watch(HEADS)),
    "watch from a revision": lambda backend: enter_and_wait(backend.watch(HEADS, from_revision=1_000_000_000)),
}


async def enter_and_wait(watch):
    async with watch as events:
        await anext(events)


async def test_closing_ends_watches_and_refuses_calls(harness):
    backend = await harness.connect()
    async with backend.watch(HEADS) as events:
        waiting = asyncio.create_task(take(events, 1))
        await asyncio.sleep(0)
        await backend.close()
        with pytest.raises(StateUnavailableError, match="closed"):
            await waiting
    for call in CALLS.values():
        with pytest.raises(StateUnavailableError, match="closed"):
            await asyncio.wait_for(call(backend), HANGS_S)
    await backend.close()


async def test_leaving_the_clients_block_closes_it(harness):
    backend = await harness.connect()
    async with backend as same:
        assert same is backend
        await backend.put(HEADS, "a", b"")
    with pytest.raises(StateUnavailableError, match="closed"):
        await backend.get(HEADS, "a")


async def test_a_watch_from_before_the_first_revision_is_refused(backend):
    with pytest.raises(InvalidRequestError):
        backend.watch(HEADS, from_revision=0)
