import asyncio

import pytest

from onager.errors import WatchCompactedError
from onager.state_backend import EventKind, Keyspace
from onager.state_backend.local import WatchHub
from onager.state_backend.model import WatchEvent

HEADS, LOG = Keyspace.JobHeads, Keyspace.JobLog


def event(revision, keyspace=HEADS, size=0):
    return WatchEvent(EventKind.PUT, keyspace, f"{revision}", bytes(size), revision)


async def test_history_is_bounded_by_events_and_by_bytes():
    hub = WatchHub(0, history_events=3, history_bytes=100)
    hub.publish([event(n) for n in range(1, 6)])
    with pytest.raises(WatchCompactedError) as lost:
        async with hub.watch(HEADS, "", 2):
            pass
    assert (lost.value.revision, lost.value.compacted) == (2, 2)
    async with hub.watch(HEADS, "", 3) as events:
        assert [(await anext(events)).mod_revision for _ in range(3)] == [3, 4, 5]
    hub.publish([event(6, size=90), event(7, size=90)])
    with pytest.raises(WatchCompactedError):
        async with hub.watch(HEADS, "", 6):
            pass


async def test_a_busy_keyspace_does_not_push_out_the_history_of_another():
    hub = WatchHub(0, history_events=3)
    hub.publish([event(1)])
    hub.publish([event(n, LOG) for n in range(2, 100)])
    async with hub.watch(HEADS, "", 1) as events:
        assert (await anext(events)).mod_revision == 1


async def test_a_slow_watch_is_reported_and_a_quick_one_is_not():
    hub = WatchHub(0, history_events=2)
    async with hub.watch(HEADS, "", None) as slow, hub.watch(HEADS, "", None) as quick:
        for revision in range(1, 10):
            hub.publish([event(revision)])
            assert (await anext(quick)).mod_revision == revision
        with pytest.raises(WatchCompactedError):
            await anext(slow)


async def test_lost_events_are_reported_to_a_watch_that_had_seen_all():
    hub = WatchHub(0)
    async with hub.watch(HEADS, "", None) as events:
        hub.publish([event(1)])
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        hub.lose(2)
        with pytest.raises(WatchCompactedError):
            await waiting
    with pytest.raises(WatchCompactedError):
        async with hub.watch(HEADS, "", 2):
            pass
    async with hub.watch(HEADS, "", 3) as events:
        hub.publish([event(3)])
        assert (await anext(events)).mod_revision == 3
