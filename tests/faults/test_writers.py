"""A thousand and more writes under faults of all kinds at once: none is lost, none is done twice."""

import asyncio
import contextlib
import itertools
import random  # noqa: TID251 seeded
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from onager.state_backend.etcd import EtcdBackend
from tests.faults.ledger import LOG, Ledger
from tests.support.etcd import EtcdCluster
from tests.support.etcd.known_bugs import STALE_READS, about
from tests.support.processes.tcp_proxy import TcpProxy
from tests.support.selection import IS_ALL, some
from tests.support.waiting import HANGS_S

_WRITES = 1_000 if IS_ALL else 500


async def hurt_members(cluster: EtcdCluster, rng: random.Random, counts: Counter[str]) -> None:
    """Kill and pause a follower, the leader, and a majority, in the order of *rng*, over and over."""
    for cycle in itertools.count(1):
        kinds = [(fault, who) for fault in ("kill", "pause") for who in ("follower", "leader", "majority")]
        for fault, who in rng.sample(kinds, len(kinds)):
            await asyncio.sleep(rng.uniform(0.2, 1.0))
            leader = await asyncio.to_thread(cluster.leader)
            others = rng.sample([n for n in range(cluster.size) if n != leader], cluster.size - 1)
            members = {"follower": others[:1], "leader": [leader], "majority": [leader, others[0]]}[who]
            if fault == "kill":
                await asyncio.to_thread(cluster.kill, *members)
                await asyncio.sleep(rng.uniform(0.1, 1.5))
                await asyncio.to_thread(cluster.restart, *members)
            else:
                await asyncio.to_thread(cluster.pause, *members)
                await asyncio.sleep(rng.uniform(0.1, 2.5))
                cluster.resume(*members)
            await asyncio.to_thread(cluster.wait_healthy)
            counts[f"{fault} of the {who}"] += 1
        counts["cycles"] = cycle


@contextlib.asynccontextmanager
async def running(*coroutines):
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", some([1, 2]))
async def test_no_write_is_lost_or_doubled_under_faults_of_network_and_members(three, namespace, tell, seed):
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(endpoint)) for endpoint in three.endpoints]
        addresses = [proxy.address for proxy in proxies]
        backends = [
            await stack.enter_async_context(
                await EtcdBackend.open(three.url(namespace, endpoints=addresses[n:] + addresses[:n], timeout="2s"))
            )
            for n in range(3)
        ]
        first = (await backends[0].get_from_prefix(LOG, "job/")).revision + 1
        misbehaving = [proxy.misbehave(random.Random(f"{seed}/{n}")) for n, proxy in enumerate(proxies)]
        following = asyncio.create_task(ledger.follow(backends[1], first))
        members: Counter[str] = Counter()
        async with running(*misbehaving, hurt_members(three, random.Random(seed), members)):
            await ledger.write_all(backends, lambda: ledger.counts["tried"] >= _WRITES and members["cycles"] > 0)
        await asyncio.to_thread(three.heal)
        await asyncio.wait_for(following, HANGS_S)
        async with await EtcdBackend.open(three.url(namespace, timeout=f"{HANGS_S:g}s")) as witness:
            await ledger.check(witness, about(STALE_READS))
        faults = sum((proxy.counts for proxy in proxies), members)
        tell(f"{ledger}; faults: {', '.join(f'{name} {n}' for name, n in faults.items())}; {about(STALE_READS)}")
        assert ledger.counts["acknowledged"] == ledger.counts["tried"] == ledger.counts["received"] + ledger.incremented
        assert ledger.counts["unknown"] >= 20
        assert ledger.counts["unknown, done"] >= 1
        assert {"cut", "dropped answers", "dropped requests"} <= faults.keys()


class Doubling(Ledger):
    """Treats an unknown outcome as a failure, like a driver that repeats failed calls."""

    async def settle_unknown(self, backend, batch, seq):  # noqa: ARG002 it does not look
        return False, seq + 1


class Losing(Ledger):
    """Treats an unknown outcome as a success."""

    async def settle_unknown(self, backend, batch, seq):  # noqa: ARG002 it does not look
        return True, seq


@pytest.mark.parametrize(
    ("writer", "fault", "loss"),
    [(Doubling, "drop_next_answer", "doubled: 1"), (Losing, "drop_next_request", "lost: 1")],
)
async def test_writers_that_do_not_settle_what_is_unknown_are_found_out(etcd, proxy, namespace, writer, fault, loss):
    async with await EtcdBackend.open(etcd.url(namespace, endpoints=[proxy.address], timeout="3s")) as backend:
        for kind in (Ledger, writer):
            ledger = kind()
            await backend.delete_range(LOG, "")
            for n in range(3):
                getattr(proxy, fault)()
                await ledger.append(backend, f"{n}", n)
                await backend.get(LOG, "in between")
                if kind is writer:
                    break
            assert ledger.counts["unknown"] >= 1
            if kind is Ledger:
                await ledger.check(backend)
        with pytest.raises(AssertionError, match=loss):
            await ledger.check(backend)
