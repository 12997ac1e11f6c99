"""Watches: from where, in which order, and what is said when events were lost."""

import asyncio

import pytest

from onager.errors import InvalidRequestError, StateUnavailableError, WatchCompactedError
from state_backend import Delete, DeleteRange, EventKind, Keyspace, Put, WatchEvent

HEADS, LOG, BEATS = Keyspace.JobHeads, Keyspace.JobLog, Keyspace.Heartbeats
PUT, DELETE = EventKind.PUT, EventKind.DELETE


async def take(events, count):
    async with asyncio.timeout(5):
        return [await anext(events) for _ in range(count)]


async def first(events):
    async for event in events:
        return event
    return None


async def test_a_watch_hears_what_comes_after_its_entry(backend):
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


async def test_a_listing_and_a_watch_from_the_next_revision_miss_nothing(harness):
    writer, reader = await harness.connect(), await harness.connect()
    done = asyncio.Event()

    async def write():
        for n in range(300):
            await writer.put(HEADS, f"job{n % 7}", b"%d" % n)
            if n % 5 == 0:
                await writer.delete(HEADS, f"job{n % 3}")
        await writer.put(HEADS, "last", b"")
        done.set()

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.005)
    page = await reader.get_from_prefix(HEADS, "")
    state = {item.key: (item.value, item.mod_revision) for item in page}
    async with reader.watch(HEADS, from_revision=page.revision + 1) as events:
        while "last" not in state:
            (event,) = await take(events, 1)
            assert event.mod_revision > page.revision
            if event.kind is PUT:
                state[event.key] = event.value, event.mod_revision
            else:
                del state[event.key]
    await writing
    assert state == {i.key: (i.value, i.mod_revision) for i in await reader.get_from_prefix(HEADS, "")}


async def test_a_watch_starts_at_an_earlier_revision(backend):
    revisions = [await backend.put(HEADS, "job", b"%d" % n) for n in range(10)]
    async with backend.watch(HEADS, from_revision=revisions[4]) as events:
        assert [event.value for event in await take(events, 6)] == [b"%d" % n for n in range(4, 10)]


async def test_a_watch_from_a_later_revision_passes_over_what_comes_before(backend):
    revision = await backend.put(HEADS, "a", b"")
    async with backend.watch(HEADS, from_revision=revision + 3) as events:
        for key in "bcde":
            await backend.put(HEADS, key, b"")
        assert [event.key for event in await take(events, 2)] == ["d", "e"]


async def test_a_batch_is_told_in_the_order_of_its_operations(backend):
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


async def test_a_prefix_watches_its_children_only(backend):
    async with backend.watch(LOG, "job1/") as events:
        for key in ("job1", "job10/1", "job1/1", "job2/1", "job1/2"):
            await backend.put(LOG, key, b"")
        assert [event.key for event in await take(events, 2)] == ["job1/1", "job1/2"]


async def test_the_end_of_a_lease_is_told(harness):
    backend = await harness.connect()
    lease = await backend.lease(10)
    await backend.put(BEATS, "e1", b"", lease=lease.id)
    async with backend.watch(BEATS) as events:
        await harness.let_pass(11)
        (event,) = await take(events, 1)
    assert event[:4] == (DELETE, BEATS, "e1", b"")


async def test_refused_writes_are_not_told(backend):
    async with backend.watch(HEADS) as events:
        await backend.put_txn([Put(HEADS, "a", b"")], expect={(HEADS, "a"): 17})
        await backend.put(HEADS, "b", b"")
        assert [event.key for event in await take(events, 1)] == ["b"]


async def test_several_watches_and_clients_hear_the_same(harness):
    one, other = await harness.connect(), await harness.connect()
    async with one.watch(HEADS) as first, other.watch(HEADS) as second:
        for n in range(20):
            await (one, other)[n % 2].put(HEADS, f"{n}", b"")
        assert await take(first, 20) == await take(second, 20)


async def test_a_watch_that_falls_behind_is_told_that_it_lost_events(backend):
    first = await backend.put(HEADS, "job", b"")
    async with backend.watch(HEADS) as events:
        for _ in range(5):
            second = await backend.put(HEADS, "job", bytes(1024 * 1024))
        with pytest.raises(WatchCompactedError):
            await take(events, 1)
    assert second > first
    with pytest.raises(WatchCompactedError, match="list again"):
        async with backend.watch(HEADS, from_revision=first):
            pass
    page = await backend.get_from_prefix(HEADS, "")
    async with backend.watch(HEADS, from_revision=page.revision + 1) as events:
        await backend.put(HEADS, "job", b"3")
        assert (await take(events, 1))[0].value == b"3"


async def test_a_watch_cancelled_while_it_waits_ends(backend):
    async def follow():
        async with backend.watch(HEADS) as events:
            async for _ in events:
                pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_leaving_the_block_ends_whoever_still_iterates(backend):
    async with backend.watch(HEADS) as events:
        waiting = asyncio.create_task(first(events))
        await asyncio.sleep(0.01)
    assert await asyncio.wait_for(waiting, 5) is None


async def test_closing_ends_watches_and_refuses_calls(harness):
    backend = await harness.connect()
    async with backend.watch(HEADS) as events:
        waiting = asyncio.create_task(take(events, 1))
        await asyncio.sleep(0.01)
        await backend.close()
        with pytest.raises(StateUnavailableError, match="closed"):
            await waiting
    with pytest.raises(StateUnavailableError, match="closed"):
        await backend.get(HEADS, "a")
    with pytest.raises(StateUnavailableError, match="closed"):
        await backend.put(HEADS, "a", b"")
    await backend.close()


async def test_a_watch_from_before_the_first_revision_is_refused(backend):
    with pytest.raises(InvalidRequestError):
        backend.watch(HEADS, from_revision=0)
