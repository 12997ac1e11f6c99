"""Limits of etcd: compacted history, a full database, the size of requests."""

import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest

from onager.errors import (
    LimitExceededError,
    OutcomeUnknownError,
    StateFullError,
    StateUnavailableError,
    WatchCompactedError,
)
from onager.state_backend import ABSENT, MAX_REQUEST_BYTES, MAX_TXN_OPS, Committed, Keyspace, Put, split_value
from onager.state_backend.etcd import EtcdBackend
from onager.state_backend.limits import split_ops
from tests.support.etcd import EtcdCluster
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
HEADS, LOG, PLANS = Keyspace.JobHeads, Keyspace.JobLog, Keyspace.Plans
_QUOTA_BYTES = 16 << 20
_VALUE = bytes(512 * 1024)


# -- compaction


async def test_a_watch_that_was_cut_off_while_history_was_compacted_says_so_and_listing_goes_on(etcd, proxy, namespace):
    watched = etcd.url(namespace, endpoints=[proxy.address], timeout="20s")
    async with (
        await EtcdBackend.open(watched) as backend,
        await EtcdBackend.open(etcd.url(namespace, timeout=f"{HANGS_S:g}s")) as writer,
    ):
        async with backend.watch(LOG) as events, asyncio.timeout(HANGS_S):
            await writer.put(LOG, "job/1", b"1")
            assert (await anext(events)).value == b"1"
            proxy.refuse()
            proxy.cut()
            await writer.put(LOG, "job/1", b"2")
            revision = await writer.put(LOG, "job/1", b"3")
            etcd.etcdctl("compaction", str(revision))
            await proxy.accept()
            with pytest.raises(WatchCompactedError, match="list again"):
                await anext(events)
        page = await backend.get_from_prefix(LOG, "")
        assert [item.value for item in page] == [b"3"]
        async with backend.watch(LOG, from_revision=page.revision + 1) as events, asyncio.timeout(HANGS_S):
            await writer.put(LOG, "job/1", b"4")
            assert (await anext(events)).value == b"4"


async def test_a_watch_that_keeps_up_is_not_hurt_by_compaction(etcd, namespace):
    async with (
        await EtcdBackend.open(etcd.url(namespace, timeout=f"{HANGS_S:g}s")) as backend,
        backend.watch(LOG) as events,
        asyncio.timeout(HANGS_S),
    ):
        for n in range(20):
            revision = await backend.put(LOG, "job/1", b"%d" % n)
            if n % 5 == 4:
                etcd.etcdctl("compaction", str(revision))
            assert (await anext(events)).value == b"%d" % n


async def test_history_is_compacted_by_one_of_many_clients(namespace):
    """Each period moves the bound; current readers and watchers are not affected."""
    with EtcdCluster(1) as cluster:
        url = cluster.url(namespace, compact_history="1s", timeout=f"{HANGS_S:g}s")
        async with (
            await EtcdBackend.open(url) as one,
            await EtcdBackend.open(url) as other,
            one.watch(LOG) as events,
            asyncio.timeout(HANGS_S),
        ):
            first = await one.put(LOG, "job/1", b"0")
            received, n = [(await anext(events)).value], 0
            while not compacted_revision(cluster) > first:
                n += 1
                await other.put(LOG, "job/1", b"%d" % n)
                received.append((await anext(events)).value)
                await asyncio.sleep(0.2)
            assert received == [b"%d" % m for m in range(n + 1)]
            with pytest.raises(WatchCompactedError):
                async with other.watch(LOG, from_revision=first) as late:
                    await anext(late)


def compacted_revision(cluster: EtcdCluster) -> int:
    metrics = cluster.members[0].ask("/metrics") or ""
    found = re.search(r"^etcd_debugging_mvcc_compact_revision (\S+)$", metrics, re.MULTILINE)
    return int(float(found[1])) if found else 0


# -- a full database


async def fill(backend: EtcdBackend) -> int:
    """Put until etcd is full; return how many were acknowledged."""
    for n in range(200):
        try:
            await backend.put(PLANS, f"digest/{n:03}", _VALUE)
        except OutcomeUnknownError as error:
            # The put that exceeds the quota is done, although it is answered with an error.
            assert "quota" in str(error)  # noqa: PT017
            return n
        except StateFullError:
            return n
    raise AssertionError("it takes everything")


def documented(revision: int) -> list[list[str]]:
    """Return what docs/operations.md gives to etcdctl to make room."""
    section = (ROOT / "docs" / "operations.md").read_text().partition("### When etcd is full")[2].partition("\n## ")[0]
    given = re.findall(r"(?m)^\$ etcdctl (.+)$", section)
    return [shlex.split(re.sub(r"\$\(.*\)", str(revision), line), comments=True) for line in given]


async def test_a_full_etcd_is_reported_reads_go_on_and_so_does_service_with_space(namespace, tell):
    with EtcdCluster(3, flags=["--quota-backend-bytes", str(_QUOTA_BYTES)]) as cluster:
        async with await EtcdBackend.open(cluster.url(namespace, timeout="10s")) as backend:
            await backend.put(HEADS, "job", b"before")
            stored = await fill(backend)
            assert stored * len(_VALUE) > _QUOTA_BYTES // 4
            for _ in range(2):
                with pytest.raises(StateFullError, match="--quota-backend-bytes") as full:
                    await backend.put(HEADS, "job", b"refused")
                with pytest.raises(StateFullError):
                    await backend.put_txn([Put(HEADS, "job", b"refused")], expect={(HEADS, "other"): ABSENT})
            for advice in ("etcdctl compact --physical", "etcdctl defrag", "etcdctl alarm disarm"):
                assert advice in str(full.value)
            assert isinstance(full.value, StateUnavailableError)
            assert (await backend.get(HEADS, "job")).value == b"before"
            assert len(await backend.scan_keys(PLANS, limit=1000)) in (stored, stored + 1)
            await check_that_who_comes_now_learns_of_it(cluster, namespace)

            # As the message and the documents say: delete what is not needed, compact, defragment, disarm.
            assert await backend.delete_range(PLANS, "") in (stored, stored + 1)
            revision = (await backend.get_from_prefix(HEADS, "")).revision
            assert "NOSPACE" in cluster.etcdctl("alarm", "list")
            for arguments in documented(revision):
                cluster.etcdctl(*arguments)
            members = json.loads(cluster.etcdctl("endpoint", "status", "-w", "json"))
            assert all(member["Status"]["dbSize"] < _QUOTA_BYTES / 2 for member in members), members
            await backend.put(HEADS, "job", b"after")
            assert (await backend.get(HEADS, "job")).value == b"after"
            assert isinstance(await backend.put_txn([Put(LOG, "job/1", _VALUE)]), Committed)
        tell(f"full after {stored} values of {len(_VALUE):,} bytes at a quota of {_QUOTA_BYTES:,}")


async def check_that_who_comes_now_learns_of_it(cluster: EtcdCluster, namespace: str) -> None:
    async with await EtcdBackend.open(cluster.url(namespace, timeout="10s")) as late:
        assert (await late.get(HEADS, "job")).value == b"before"
        with pytest.raises((StateFullError, OutcomeUnknownError), match="quota"):
            await late.put(HEADS, "job", b"refused")
        with pytest.raises(StateFullError, match="etcdctl alarm disarm"):
            await late.put(HEADS, "job", b"refused")
        assert (await late.get(HEADS, "job")).value == b"before"


# -- limits of a request


async def test_what_is_too_large_is_refused_before_anything_is_sent(etcd, proxy, namespace):
    async with await EtcdBackend.open(etcd.url(namespace, endpoints=[proxy.address], timeout="10s")) as backend:
        many = [Put(LOG, f"job/{n:03}", b"") for n in range(MAX_TXN_OPS + 1)]
        await backend.put_txn(many[:-1])
        sent = proxy.up.messages
        with pytest.raises(LimitExceededError, match=r"129 operations.*split_ops"):
            await backend.put_txn(many)
        with pytest.raises(LimitExceededError, match=r"split the transaction \(split_ops\) or the value"):
            await backend.put(PLANS, "digest", bytes(MAX_REQUEST_BYTES))
        with pytest.raises(LimitExceededError):
            await backend.read_txn([(LOG, f"{n}") for n in range(MAX_TXN_OPS + 1)])
        assert proxy.up.messages == sent
        await backend.get(LOG, "job/000")
        assert proxy.up.messages > sent


async def test_the_largest_request_that_we_let_through_is_taken_by_etcd(etcd, namespace):
    """Our reckoning of sizes is never below etcd's."""
    async with await EtcdBackend.open(etcd.url(namespace, timeout=f"{HANGS_S:g}s")) as backend:
        room = MAX_REQUEST_BYTES - 128 - len("digest")
        await backend.put(PLANS, "digest", bytes(room))
        with pytest.raises(LimitExceededError):
            await backend.put(PLANS, "digest", bytes(room + 1))
        key = "k" * 1000
        each = MAX_REQUEST_BYTES // MAX_TXN_OPS - 128 - 1004
        puts = [Put(PLANS, f"{key}/{n:03}", bytes(each)) for n in range(MAX_TXN_OPS)]
        assert isinstance(await backend.put_txn(puts), Committed)
        conditions = {(PLANS, put.key): ABSENT for put in puts}
        result = await backend.put_txn([Put(LOG, "job/1", b"")], expect=conditions)
        assert len(result.found) == MAX_TXN_OPS


async def test_large_work_goes_through_in_parts(etcd, namespace):
    async with await EtcdBackend.open(etcd.url(namespace, timeout=f"{HANGS_S:g}s")) as backend:
        value = bytes(range(256)) * 20_000
        ops = [Put(PLANS, f"digest/{n:04}", piece) for n, piece in enumerate(split_value(value))]
        ops += [Put(LOG, f"job/{n:04}", b"%d" % n) for n in range(1000)]
        batches = list(split_ops(ops))
        results = [await backend.put_txn(batch) for batch in batches]
        assert all(isinstance(result, Committed) for result in results)
        assert b"".join(item.value for item in await backend.get_from_prefix(PLANS, "digest/")) == value
        assert [item.value for item in await backend.get_from_prefix(LOG, "job/")] == [b"%d" % n for n in range(1000)]


@pytest.mark.parametrize(
    ("flag", "ops"),
    [
        ("--max-txn-ops=10", [Put(LOG, f"job/{n}", b"") for n in range(11)]),
        ("--max-request-bytes=10000", [Put(LOG, "job/1", bytes(20_000))]),
    ],
)
async def test_an_etcd_that_takes_less_than_it_should_is_reported_with_its_flag(namespace, flag, ops):
    with EtcdCluster(1, flags=[flag]) as cluster:
        async with await EtcdBackend.open(cluster.url(namespace, timeout="10s")) as backend:
            with pytest.raises(LimitExceededError, match=flag.partition("=")[0]):
                await backend.put_txn(ops)
            assert len(await backend.get_from_prefix(LOG, "")) == 0
