"""Network faults: each is reported as the right error, and nothing is lost or done twice."""

import asyncio

import pytest

from onager.errors import OutcomeUnknownError, StateUnavailableError
from onager.state_backend import ABSENT, Committed, Keyspace, OutcomeUnknown, Put, StateBackendClient
from onager.state_backend.etcd import EtcdBackend
from tests.support.etcd import EtcdCluster
from tests.support.processes.tcp_proxy import TcpProxy
from tests.support.waiting import HANGS_S

HEADS, LOG = Keyspace.JobHeads, Keyspace.JobLog


@pytest.fixture
async def backend(proxy: TcpProxy, etcd: EtcdCluster, namespace: str):
    """Return a client that goes through the proxy."""
    url = etcd.url(namespace, endpoints=[proxy.address], timeout="3s")
    async with await EtcdBackend.open(url) as backend:
        yield backend


@pytest.fixture
async def witness(etcd: EtcdCluster, namespace: str):
    """Return a client that goes straight to the store."""
    async with await EtcdBackend.open(etcd.url(namespace, timeout=f"{HANGS_S:g}s")) as backend:
        yield backend


async def values(backend: StateBackendClient) -> list[bytes]:
    return [item.value for item in await backend.get_from_prefix(LOG, "")]


async def test_a_write_whose_answer_is_lost_is_unknown_and_done(backend, witness, proxy):
    await backend.put(HEADS, "connected", b"")
    proxy.drop_next_answer()
    result = await backend.put_txn([Put(LOG, "job/1", b"one")], expect={(LOG, "job/1"): ABSENT})
    assert isinstance(result, OutcomeUnknown)
    assert proxy.counts["dropped answers"] == 1
    assert await values(witness) == [b"one"]
    assert await values(backend) == [b"one"]
    proxy.drop_next_answer()
    with pytest.raises(OutcomeUnknownError):
        await backend.put(LOG, "job/2", b"two")
    assert await values(backend) == [b"one", b"two"]


async def test_a_write_that_is_lost_on_its_way_is_unknown_and_not_done(backend, witness, proxy):
    await backend.put(HEADS, "connected", b"")
    proxy.drop_next_request()
    result = await backend.put_txn([Put(LOG, "job/1", b"one")], expect={(LOG, "job/1"): ABSENT})
    assert isinstance(result, OutcomeUnknown)
    assert proxy.counts["dropped requests"] == 1
    assert await values(backend) == []
    # The very same write may be tried again: its expectation lets only one of both through.
    assert isinstance(await backend.put_txn([Put(LOG, "job/1", b"one")], expect={(LOG, "job/1"): ABSENT}), Committed)
    assert await values(witness) == [b"one"]


async def test_a_write_that_is_held_up_is_unknown_until_the_same_is_written_again(backend, witness, proxy):
    await backend.put(HEADS, "connected", b"")
    proxy.up.hold()
    result = await backend.put_txn([Put(LOG, "job/1", b"held up")], expect={(LOG, "job/1"): ABSENT})
    assert isinstance(result, OutcomeUnknown)
    assert await values(witness) == []
    # Now it comes through together with its cancellation, and etcd heeds the one or the other.
    proxy.up.release()
    again = await backend.put_txn([Put(LOG, "job/1", b"again")], expect={(LOG, "job/1"): ABSENT})
    if isinstance(again, Committed):
        assert await values(witness) == [b"again"]
    else:
        assert again.found[LOG, "job/1"].value == b"held up"
        assert await values(witness) == [b"held up"]


@pytest.mark.parametrize("fault", ["cut", "drop_next_answer", "drop_next_request"])
async def test_reads_are_repeated_over_lost_connections(backend, proxy, fault):
    await backend.put(LOG, "job/1", b"one")
    for _ in range(10):
        getattr(proxy, fault)()
        assert await values(backend) == [b"one"]
    assert sum(proxy.counts.values()) >= 10


async def test_a_write_goes_out_once_the_store_can_be_reached(backend, proxy):
    await backend.put(HEADS, "connected", b"")
    proxy.refuse()
    proxy.cut()
    writing = asyncio.create_task(backend.put_txn([Put(LOG, "job/1", b"one")], expect={(LOG, "job/1"): ABSENT}))
    await asyncio.sleep(0.3)
    await proxy.accept()
    result = await writing
    # It may have gone out just before the connection was known to be cut; else it waited, and was written.
    assert isinstance(result, Committed | OutcomeUnknown)
    assert await values(backend) == ([b"one"] if isinstance(result, Committed) else [])


async def test_a_store_that_cannot_be_reached_is_named_with_the_reason(backend, proxy):
    await backend.put(LOG, "job/1", b"one")
    proxy.refuse()
    proxy.cut()
    with pytest.raises(StateUnavailableError, match=rf"{proxy.address}: .*refused"):
        await backend.get(LOG, "job/1")
    with pytest.raises(StateUnavailableError, match=rf"{proxy.address}: .*refused"):
        await backend.put(LOG, "job/2", b"two")
    await proxy.accept()
    assert await values(backend) == [b"one"]


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_partition_in_one_direction_ends_calls_and_is_over_when_it_heals(backend, witness, proxy, way):
    await backend.put(LOG, "job/1", b"one")
    getattr(proxy, way).hold()
    with pytest.raises(StateUnavailableError, match=proxy.address):
        await backend.get(LOG, "job/1")
    result = await backend.put_txn([Put(LOG, "job/2", b"two")], expect={(LOG, "job/2"): ABSENT})
    proxy.up.release()
    proxy.down.release()
    assert await values(backend) in ([b"one"], [b"one", b"two"])
    retried = await backend.put_txn([Put(LOG, "job/2", b"two")], expect={(LOG, "job/2"): ABSENT})
    assert isinstance(result, OutcomeUnknown) or isinstance(retried, Committed)
    assert await values(witness) == [b"one", b"two"]


async def test_slow_connections_only_take_time(backend, proxy):
    proxy.up.delay_s = proxy.down.delay_s = 0.05
    results = await asyncio.gather(*(backend.put(LOG, f"job/{n:02}", b"%d" % n) for n in range(20)))
    assert len(set(results)) == 20
    assert await values(backend) == [b"%d" % n for n in range(20)]


async def test_a_watch_goes_on_over_cuts_and_misses_nothing(backend, witness, proxy):
    page = await witness.get_from_prefix(LOG, "")
    written: list[bytes] = []
    received: list[bytes] = []
    async with backend.watch(LOG, from_revision=page.revision + 1) as events, asyncio.timeout(HANGS_S):
        for fault in [proxy.cut, proxy.drop_next_answer, proxy.drop_next_request] * 4:
            for n in range(30):
                if n == 10:
                    fault()
                written.append(b"%d" % len(written))
                await witness.put(LOG, "job/1", written[-1])
            # The next fault is to meet a watch that is connected again.
            received += [(await anext(events)).value for _ in range(30)]
    assert received == written
    assert proxy.counts["cut"] >= 4
    assert proxy.counts["dropped answers"] >= 4


async def test_a_lock_is_not_lost_or_taken_twice_when_the_answer_is_lost(backend, witness, proxy):
    lease, other = await backend.lease(10 * HANGS_S), await witness.lease(10 * HANGS_S)
    for fault in [proxy.drop_next_answer, proxy.drop_next_request, proxy.cut] * 3:
        fault()
        async with backend.lock(HEADS, "sweep", lease.id, timeout_s=HANGS_S) as token:
            fault()
            written = await backend.put_txn([Put(HEADS, "by", b"holder")], fence=[token])
            assert isinstance(written, Committed | OutcomeUnknown)
            fault()
        # Released in spite of the fault, or the next would wait for the lease's end.
        async with witness.lock(HEADS, "sweep", other.id, timeout_s=HANGS_S):
            pass


async def test_a_watch_that_is_turned_away_before_it_is_connected_goes_on(etcd, proxy, namespace):
    endpoints = [proxy.address, etcd.endpoints[0]]
    async with await EtcdBackend.open(etcd.url(namespace, endpoints=endpoints, timeout="10s")) as backend:
        left = backend._calls._endpoints.current
        open_stream = left.watch.Watch

        def open_and_leave(*args, **kwargs):
            asyncio.get_running_loop().call_soon(backend._calls.leave, left)
            return open_stream(*args, **kwargs)

        left.watch.Watch = open_and_leave
        async with backend.watch(LOG) as events, asyncio.timeout(HANGS_S):
            await backend.put(LOG, "job/1", b"one")
            assert (await anext(events)).value == b"one"
        assert backend._calls._endpoints.current is not left
