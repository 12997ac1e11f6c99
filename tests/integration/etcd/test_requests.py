"""How many requests the adapter sends, by etcd's own count: one where one will do, more where answers would be huge."""

import re
from collections import Counter

from onager.state_backend import ABSENT, Keyspace, Put, open_backend
from tests.support.etcd import EtcdCluster


def handled(cluster: EtcdCluster) -> Counter[str]:
    """Return how many requests of each method etcd has answered."""
    metrics = cluster.members[0].ask("/metrics")
    assert metrics is not None
    line = re.compile(r'^grpc_server_handled_total\{grpc_code="OK",grpc_method="(\w+)".*\} (\d+)$', re.MULTILINE)
    return Counter({method: int(count) for method, count in line.findall(metrics)})


async def test_a_single_write_is_no_transaction(etcd):
    async with await open_backend(etcd.url("requests-write")) as backend:
        before = handled(etcd)
        await backend.put(Keyspace.Sessions, "a", b"1")
        await backend.put_txn([Put(Keyspace.Sessions, "b", b"1")])
        await backend.delete(Keyspace.Sessions, "a")
        await backend.delete_range(Keyspace.Sessions, "")
        assert handled(etcd) - before == {"Put": 2, "DeleteRange": 2}
        before = handled(etcd)
        await backend.put_txn([Put(Keyspace.Sessions, "a", b"1")], expect={(Keyspace.Sessions, "a"): ABSENT})
        await backend.put_txn([Put(Keyspace.Sessions, "b", b"1"), Put(Keyspace.Sessions, "c", b"1")])
        assert handled(etcd) - before == {"Txn": 2}


async def test_a_page_is_one_request_once_sizes_are_known(etcd):
    keys = [f"{number:04}" for number in range(2000)]
    async with await open_backend(etcd.url("requests-page")) as backend:
        await backend.put_all(Put(Keyspace.Sessions, key, bytes(200)) for key in keys)
        assert [found.key for found in await backend.scan(Keyspace.Sessions, limit=1000)] == keys[:1000]
        before = handled(etcd)
        page = await backend.scan(Keyspace.Sessions, limit=1000, start_after=keys[899])
        assert [found.key for found in page] == keys[900:1900]
        assert handled(etcd) - before == {"Range": 1}
        before = handled(etcd)
        assert [found.key for found in await backend.get_from_prefix(Keyspace.Sessions, "")] == keys
        assert handled(etcd) - before == {"Range": 2}


async def test_large_values_come_in_parts_although_small_ones_were_read_in_between(etcd):
    async with await open_backend(etcd.url("requests-large")) as backend:
        await backend.put_all(Put(Keyspace.Sessions, f"small/{number:04}", b"") for number in range(600))
        large = [f"large/{number:04}" for number in range(40)]
        for key in large:
            await backend.put(Keyspace.Sessions, key, key.encode() * 100_000)
        await backend.scan(Keyspace.Sessions, "large/", limit=3)
        for _ in range(5):
            assert len(await backend.get_from_prefix(Keyspace.Sessions, "small/")) == 600
        before = handled(etcd)
        found = await backend.get_from_prefix(Keyspace.Sessions, "large/")
        assert [(one.key, len(one.value)) for one in found] == [(key, 1_000_000) for key in large]
        # 40 MB, of which about 4 MiB at once.
        assert (handled(etcd) - before)["Range"] >= 9
