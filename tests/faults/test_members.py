"""Members that are killed and paused while a log is written and followed."""

import asyncio
import contextlib
import itertools

import pytest

from onager.errors import StateUnavailableError
from onager.state_backend import ABSENT, Committed, Keyspace, OutcomeUnknown, Put
from onager.state_backend.etcd import EtcdBackend
from tests.faults.ledger import LOG, Ledger
from tests.support.etcd import EtcdCluster
from tests.support.etcd.known_bugs import LOST_WRITES, STALE_READS, about
from tests.support.processes.tcp_proxy import TcpProxy
from tests.support.selection import some
from tests.support.waiting import HANGS_S, eventually

HEADS = Keyspace.JobHeads


@contextlib.asynccontextmanager
async def written_and_followed(cluster: EtcdCluster, namespace: str, patience: str = "3s"):
    """Write and follow a log inside the block, and account for it behind; yield what is accounted.

    *patience* is how long a call may take.
    """
    ledger = Ledger()
    is_over = False
    async with await EtcdBackend.open(cluster.url(namespace, timeout=patience)) as backend:
        first = (await backend.get_from_prefix(LOG, "job/")).revision + 1
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ledger.follow(backend, first))
            tasks.create_task(ledger.write_all([backend], lambda: is_over, writers=4))
            await progress(ledger)
            yield ledger
            await progress(ledger)
            is_over = True
        await asyncio.to_thread(cluster.heal)
        await ledger.check(backend, about(LOST_WRITES, STALE_READS))


async def progress(ledger: Ledger, writes: int = 20, within_s: float = HANGS_S) -> None:
    """Return when *writes* more were acknowledged."""
    target = ledger.counts["acknowledged"] + writes
    await eventually(lambda: ledger.counts["acknowledged"] >= target, within_s=within_s)


@pytest.mark.parametrize(("fault", "who"), some(itertools.product(["kill", "pause"], ["the leader", "a follower"])))
async def test_a_minority_of_members_is_not_missed(three, namespace, tell, fault, who):
    async with written_and_followed(three, namespace) as ledger:
        for _ in range(2):
            leader = await asyncio.to_thread(three.leader)
            member = leader if who == "the leader" else (leader + 1) % three.size
            await asyncio.to_thread(getattr(three, fault), member)
            await progress(ledger, 50)
            assert not three.members[member].is_running or three.members[member].is_paused
            await asyncio.to_thread(three.heal)
            await progress(ledger)
    tell(f"{ledger}; {about(STALE_READS)}")


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_without_a_majority_nothing_is_written_and_with_it_all_goes_on(three, namespace, tell, fault):
    async with written_and_followed(three, namespace) as ledger:
        members = [await asyncio.to_thread(three.leader)]
        members.append((members[0] + 1) % three.size)
        await asyncio.to_thread(getattr(three, fault), *members)
        # What was under way has ended after this.
        await asyncio.sleep(4)
        before = ledger.counts["acknowledged"]
        async with asyncio.timeout(HANGS_S):
            with pytest.raises(StateUnavailableError) as refused:
                await EtcdBackend.open(three.url(f"{namespace}other", timeout="2s"))
        # Two paused ones take all of the time, so the third may not have been asked.
        assert all(f"{endpoint}: " in str(refused.value) for endpoint in three.endpoints)
        assert ledger.counts["acknowledged"] == before
        await asyncio.to_thread(three.heal)
    tell(str(ledger))


async def test_what_a_single_member_acknowledged_survives_being_killed(namespace, tell):
    """On a real disk, as kill -9 is all that happens to it; many times, at any point of a write."""
    with EtcdCluster(1, on_disk=True) as cluster:
        async with written_and_followed(cluster, namespace, patience="10s") as ledger:
            for _ in range(6):
                await asyncio.to_thread(cluster.kill, 0)
                await asyncio.to_thread(cluster.restart, 0)
                await progress(ledger, 30)
        tell(f"{ledger}; {about(LOST_WRITES)}")


async def test_a_member_that_was_paused_answers_with_what_was_written_meanwhile(three, namespace, tell):
    for n in range(2):
        leader = await asyncio.to_thread(three.leader)
        others = [endpoint for m, endpoint in enumerate(three.endpoints) if m != leader]
        paused_url = three.url(namespace, endpoints=[three.endpoints[leader]], timeout="10s")
        async with (
            await EtcdBackend.open(paused_url) as reader,
            await EtcdBackend.open(three.url(namespace, endpoints=others, timeout="10s")) as writer,
        ):
            await writer.put(HEADS, "job", b"before")
            assert (await reader.get(HEADS, "job")).value == b"before"
            await asyncio.to_thread(three.pause, leader)
            # Asked while it still believes that it leads: the answer may only come once it knows better.
            reading = asyncio.create_task(reader.get(HEADS, "job"))
            written = await writer.put_txn([Put(HEADS, "job", b"after %d" % n)])
            if isinstance(written, OutcomeUnknown):
                await writer.put(HEADS, "job", b"after %d" % n)
            three.resume(leader)
            assert (await reading).value in (b"before", b"after %d" % n)
            assert (await reader.get(HEADS, "job")).value == b"after %d" % n, f"a stale read; {about(STALE_READS)}"
    tell(f"no stale read in 2 pauses of the leader; {about(STALE_READS)}")


async def test_two_of_three_endpoints_that_nobody_serves_only_cost_a_look(three, namespace):
    dead = ["127.0.0.1:1", "127.0.0.1:2"]
    for endpoints in ([*dead, three.endpoints[0]], [three.endpoints[1], *dead]):
        async with await EtcdBackend.open(three.url(namespace, endpoints=endpoints, timeout="10s")) as backend:
            key = (LOG, endpoints[0])
            assert isinstance(await backend.put_txn([Put(*key, b"")], expect={key: ABSENT}), Committed)
            async with backend.watch(LOG) as events:
                await backend.put(*key, b"again")
                assert (await anext(events)).value == b"again"


async def test_a_watch_on_a_paused_member_goes_on_at_another(three, namespace):
    """Its connection stays open and silent, which is the hardest to notice."""
    leader = await asyncio.to_thread(three.leader)
    follower = (leader + 1) % three.size
    watching_url = three.url(namespace, endpoints=three.asked_first(follower), timeout="4s")
    writing_url = three.url(namespace, endpoints=[three.endpoints[leader]], timeout="10s")
    async with (
        await EtcdBackend.open(watching_url) as watcher,
        await EtcdBackend.open(writing_url) as writer,
        watcher.watch(LOG) as events,
        asyncio.timeout(HANGS_S),  # gRPC's own patience is a minute, ours some seconds
    ):
        await writer.put(LOG, "job/1", b"before")
        assert (await anext(events)).value == b"before"
        assert watcher._calls._endpoints.current.address == three.endpoints[follower]
        await asyncio.to_thread(three.pause, follower)
        await writer.put(LOG, "job/1", b"meanwhile")
        assert (await anext(events)).value == b"meanwhile"
        assert three.members[follower].is_paused


async def test_a_client_that_reaches_only_one_of_three_members_goes_on_there(three, namespace):
    async with contextlib.AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(endpoint)) for endpoint in three.asked_first(0)]
        url = three.url(namespace, endpoints=[proxy.address for proxy in proxies], timeout="8s")
        backend = await stack.enter_async_context(await EtcdBackend.open(url))
        revision = await backend.put(HEADS, "job", b"before")
        events = await stack.enter_async_context(backend.watch(HEADS, from_revision=revision + 1))
        reached = next(p for p in proxies if p.target == three.endpoints[2])
        for proxy in proxies:
            if proxy is not reached:
                proxy.up.hold()
                proxy.down.hold()
        assert (await backend.get(HEADS, "job")).value == b"before"
        assert isinstance(await backend.put_txn([Put(HEADS, "job", b"after")]), Committed)
        async with asyncio.timeout(HANGS_S):
            assert (await anext(events)).value == b"after"
