"""Concurrent clients seem to take turns while connections misbehave, and while members are killed and paused."""

import asyncio
import contextlib
import random  # noqa: TID251 seeded
from collections.abc import Awaitable, Callable, Sequence

import pytest

from onager.state_backend.etcd import EtcdBackend
from tests.support.etcd import EtcdCluster
from tests.support.etcd.known_bugs import STALE_READS, about
from tests.support.etcd.programs import etcd_version
from tests.support.histories import REGISTERS, History, RecordingClient, run_clients
from tests.support.linearizability import Kind, NotLinearizableError, check
from tests.support.selection import some

CLIENTS = 5
OPERATIONS = 250
KEYS = ["a", "b", "c"]


async def history_of(
    urls: Sequence[str], seed: int, nemesis: Callable[[], Awaitable[None]], honest_url: str, pause_s: float
) -> tuple[History, int]:
    """Return what clients of *urls* did while *nemesis* was at work, and one that read what was left behind it.

    And how many calls were refused as unavailable.
    """
    history = History()
    async with contextlib.AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(await EtcdBackend.open(url)) for url in urls]
        hurting = asyncio.ensure_future(nemesis())
        try:
            clients = await run_clients(backends, history, seed, keys=KEYS, operations=OPERATIONS, pause_s=pause_s)
        finally:
            hurting.cancel()
            await asyncio.gather(hurting, return_exceptions=True)
    async with await EtcdBackend.open(honest_url) as backend:
        auditor = RecordingClient(backend, history, CLIENTS)
        for key in KEYS:
            assert await auditor.read(key) == await backend.get(REGISTERS, key)
    return history, sum(client.unavailable for client in clients)


@pytest.mark.parametrize("seed", some(range(2)))
async def test_while_connections_misbehave(etcd, proxy, namespace, tell, tmp_path, seed):
    url = etcd.url(namespace, endpoints=[proxy.address], timeout="2s")
    history, unavailable = await history_of(
        [url] * CLIENTS, seed, lambda: proxy.misbehave(random.Random(seed)), etcd.url(namespace), pause_s=0.02
    )
    check(history.operations, tmp_path)
    counts = history.counts()
    tell(f"{dict(sorted(counts.items()))}, {unavailable} unavailable; faults {dict(proxy.counts)}")
    assert sum(proxy.counts.values()) > 10
    assert counts["cas ok"] > 50


async def hurt(cluster: EtcdCluster, fault: str, seed: int, done: list[int]) -> None:
    """Kill (or pause) one member after the other, the leader more often than not, until cancelled; then heal."""
    draw = random.Random(seed)
    try:
        while True:
            await asyncio.sleep(draw.uniform(0.3, 1.0))
            leader = await asyncio.to_thread(cluster.leader)
            member = draw.choice([leader, draw.randrange(cluster.size)])
            await asyncio.to_thread(getattr(cluster, fault), member)
            done.append(member)
            await asyncio.sleep(draw.uniform(0.5, 3.0))
            await asyncio.to_thread(cluster.heal)
    finally:
        await asyncio.to_thread(cluster.heal)


@pytest.mark.parametrize("fault", some(["kill", "pause"]))
async def test_while_members_come_and_go(three, namespace, tell, tmp_path, fault):
    urls = [
        three.url(namespace, endpoints=three.endpoints[n % 3 :] + three.endpoints[: n % 3], timeout="3s")
        for n in range(CLIENTS)
    ]
    done: list[int] = []
    history, unavailable = await history_of(
        urls, 7, lambda: hurt(three, fault, 7, done), three.url(namespace), pause_s=0.03
    )
    counts = history.counts()
    summary = f"{dict(sorted(counts.items()))}, {unavailable} unavailable; faults {len(done)}"
    # What is decided by transactions is in order with every version.
    check([operation for operation in history.operations if operation.kind is not Kind.READ], tmp_path / "writes")
    try:
        check(history.operations, tmp_path)
    except NotLinearizableError as error:
        if fault != "pause" or not STALE_READS.affects(etcd_version()):
            raise
        summary += f"; A STALE READ was met: {error}"
    tell(f"{summary}; {about(STALE_READS)}")
    assert len(done) > 2
    assert counts["cas ok"] > 50
