"""Keys, values, listings and snapshots."""

import asyncio
import random  # noqa: TID251 seeded
import time

import pytest

from onager.errors import InvalidRequestError, LimitExceededError
from onager.state_backend import Delete, KeyRange, Keyspace, KeyValue, Put, StateBackendClient, split_value
from tests.support.selection import IS_ALL
from tests.support.waiting import HANGS_S

LOG, HEADS, PLANS = Keyspace.JobLog, Keyspace.JobHeads, Keyspace.Plans

ODD_KEYS = [
    "a",
    "a/",
    "a/b",
    "a//b",
    "/",
    "\0",
    "a\0b",
    "a\0",
    "ü",
    "日本/語",
    "\U0001f42b",
    "\uffff",
    "~",
    "0",
    "A",
    " ",
]


async def task_keys(backend: StateBackendClient, keyspace: Keyspace, prefix: str = "") -> list[str]:
    return [item.key for item in await backend.get_from_prefix(keyspace, prefix)]


async def test_a_missing_key_is_none(backend):
    assert await backend.get(HEADS, "job1") is None
    assert len(await backend.get_from_prefix(HEADS, "job1/")) == 0
    assert not await backend.delete(HEADS, "job1")


async def test_a_key_comes_back_as_given_with_its_revision(backend):
    first = await backend.put(HEADS, "job1", b"one")
    assert await backend.get(HEADS, "job1") == KeyValue("job1", b"one", first)
    second = await backend.put(HEADS, "job1", b"two")
    assert second > first > 0
    assert await backend.get(HEADS, "job1") == KeyValue("job1", b"two", second)


async def test_a_deleted_key_is_gone_and_may_come_again(backend):
    first = await backend.put(HEADS, "job1", b"one")
    assert await backend.delete(HEADS, "job1")
    assert await backend.get(HEADS, "job1") is None
    assert await backend.put(HEADS, "job1", b"one") > first + 1


async def test_an_empty_value_is_not_a_missing_key(backend):
    await backend.put(HEADS, "job1", b"")
    found = await backend.get(HEADS, "job1")
    assert found is not None
    assert found.value == b""


async def test_a_value_of_1_mib_and_every_byte(backend):
    value = bytes(range(256)) * 4096
    await backend.put(PLANS, "digest/0", value)
    assert (await backend.get(PLANS, "digest/0")).value == value


async def test_odd_keys_are_kept_and_ordered_by_their_bytes(backend):
    for key in random.Random(7).sample(ODD_KEYS, len(ODD_KEYS)):
        await backend.put(HEADS, key, key.encode())
    page = await backend.get_from_prefix(HEADS, "")
    assert [item.key for item in page] == sorted(ODD_KEYS, key=str.encode)
    assert all(item.value == item.key.encode() for item in page)
    for key in ODD_KEYS:
        assert (await backend.get(HEADS, key)).value == key.encode()


async def test_job1_does_not_mean_job10(backend):
    for key in ["job1", "job1/1", "job1/2", "job10", "job10/1", "job1\0/1", "job0/1"]:
        await backend.put(LOG, key, b"")
    assert await task_keys(backend, LOG, "job1/") == ["job1/1", "job1/2"]
    assert await backend.delete_range(LOG, "job1/") == 2
    assert await task_keys(backend, LOG) == ["job0/1", "job1", "job1\0/1", "job10", "job10/1"]


@pytest.mark.parametrize(
    "call",
    [
        lambda backend: backend.get_from_prefix(LOG, "job1"),
        lambda backend: backend.delete_range(LOG, "job1"),
        lambda backend: backend.scan(LOG, "job1", limit=1),
        lambda backend: backend.read_txn(ranges=[KeyRange(LOG, "job1")]),
    ],
)
async def test_a_prefix_that_could_mean_another_job_is_refused(backend, call):
    with pytest.raises(InvalidRequestError, match="'job1' must be empty or end with '/'"):
        await call(backend)


async def test_keyspaces_do_not_leak_into_each_other(backend):
    for keyspace in Keyspace:
        await backend.put(keyspace, "k", keyspace.encode())
    for keyspace in Keyspace:
        assert [(item.key, item.value) for item in await backend.get_from_prefix(keyspace, "")] == [
            ("k", keyspace.encode())
        ]
    assert await backend.delete_range(LOG, "") == 1
    assert await backend.get(HEADS, "k") is not None


@pytest.mark.parametrize("key", ["", "\ud800"])
async def test_keys_that_cannot_be_are_refused(backend, key):
    with pytest.raises(InvalidRequestError):
        await backend.put(HEADS, key, b"")
    with pytest.raises(InvalidRequestError):
        await backend.get(HEADS, key)


async def test_acknowledged_writes_are_seen_by_every_client(harness):
    clients = [await harness.connect() for _ in range(3)]
    for n in range(60):
        revision = await clients[n % 3].put(HEADS, "job", b"%d" % n)
        for reader in clients:
            assert await reader.get(HEADS, "job") == KeyValue("job", b"%d" % n, revision)
            assert (await reader.get_from_prefix(HEADS, "")).items[0].value == b"%d" % n
            assert (await reader.scan_keys(HEADS, limit=1)).revision >= revision


async def test_no_two_commits_share_a_revision(harness):
    clients = [await harness.connect() for _ in range(4)]
    before = (await clients[0].get_from_prefix(HEADS, "")).revision
    revisions = await asyncio.gather(*(clients[n % 4].put(HEADS, f"{n}", b"") for n in range(200)))
    assert len(set(revisions)) == 200
    assert min(revisions) > before
    assert (await clients[0].get_from_prefix(HEADS, "")).revision >= max(revisions)
    stored = {item.key: item.mod_revision for item in await clients[0].get_from_prefix(HEADS, "")}
    assert stored == {f"{n}": revision for n, revision in enumerate(revisions)}


async def test_a_long_listing_is_at_one_revision(harness):
    """First and last key are always put by one commit: a listing that saw two commits' would show it."""
    reader, writer = await harness.connect(), await harness.connect()
    await writer.put_all(Put(LOG, f"job/{n:05}", bytes(100)) for n in range(2_000))
    done = False

    async def write() -> None:
        number = 0
        while not done:
            number += 1
            await writer.put_txn([Put(LOG, f"job/{place}", b"%d" % number) for place in ("", "00999", "~")])

    writing = asyncio.create_task(write())
    seen, reads = set(), 0
    end_s = time.monotonic() + HANGS_S
    try:
        while reads < 15 or (len(seen) <= 5 and time.monotonic() < end_s):
            reads += 1
            page = await reader.get_from_prefix(LOG, "job/")
            places = page.items[0], next(item for item in page if item.key == "job/00999"), page.items[-1]
            if places[0].key == "job/":
                assert len({(item.value, item.mod_revision) for item in places}) == 1
                assert max(item.mod_revision for item in page) <= page.revision
                assert (len(page), page.has_more) == (2_002, False)
                seen.add(page.revision)
    finally:
        done = True
        await writing
    assert len(seen) > 5


async def test_a_listing_of_many_megabytes_comes_whole(backend):
    values = {f"digest/{n}": random.Random(n).randbytes(1_000_000) for n in range(9)}
    for key, value in values.items():
        await backend.put(PLANS, key, value)
    assert {item.key: item.value for item in await backend.get_from_prefix(PLANS, "digest/")} == values
    snapshot = await backend.read_txn([(PLANS, key) for key in values], [KeyRange(PLANS, "digest/")])
    assert {key: item.value for (_, key), item in snapshot.values.items()} == values
    assert {item.key: item.value for item in snapshot.ranges[0]} == values


async def test_a_start_outside_of_the_prefix_is_only_a_bound(backend):
    for key in ("a/1", "job/1", "job/2", "job0", "z"):
        await backend.put(LOG, key, b"")
    for start, expected in {"a": 2, "job": 2, "job/": 2, "job/1": 1, "job/2": 0, "job0": 0, "zzz": 0}.items():
        assert len(await backend.scan(LOG, "job/", limit=9, start_after=start)) == expected
        page = await backend.scan_keys(LOG, "job/", limit=9, start_after=start)
        assert (len(page), page.has_more) == (expected, False)
    with pytest.raises(InvalidRequestError):
        await backend.scan(LOG, limit=1, start_after="")


async def test_pages_cover_a_scan_once_and_in_order(backend):
    keys = [f"job/{n:05}" for n in range(1000)]
    await backend.put_all(Put(LOG, key, b"v") for key in keys)
    await backend.put(LOG, "job0", b"outside")
    seen: list[str] = []
    seen_keys: list[str] = []
    after = None
    while True:
        page = await backend.scan(LOG, "job/", limit=300, start_after=after)
        only_keys = await backend.scan_keys(LOG, "job/", limit=300, start_after=after)
        seen += [item.key for item in page]
        seen_keys += only_keys.items
        assert page.has_more == only_keys.has_more == (len(seen) < 1000)
        if not page.has_more:
            break
        after = page.items[-1].key
    assert seen == seen_keys == keys


async def test_a_page_that_ends_exactly_has_no_more(backend):
    await backend.put(LOG, "job/1", b"")
    await backend.put(LOG, "job/2", b"")
    assert not (await backend.scan(LOG, "job/", limit=2)).has_more
    assert (await backend.scan(LOG, "job/", limit=1)).has_more
    assert len(await backend.scan(LOG, "job/", limit=1, start_after="job/2")) == 0
    assert [i.key for i in await backend.scan(LOG, "job/", limit=9, start_after="job/1\0")] == ["job/2"]
    assert [i.key for i in await backend.scan(LOG, "job/", limit=9, start_after="a")] == ["job/1", "job/2"]
    with pytest.raises(InvalidRequestError):
        await backend.scan(LOG, limit=0)


async def test_very_many_keys_in_pages(backend):
    many = 100_000 if IS_ALL else 20_000
    await backend.put_all(Put(LOG, f"{n:06}", b"") for n in range(many))
    seen: list[str] = []
    after = None
    while True:
        page = await backend.scan_keys(LOG, limit=many // 10, start_after=after)
        seen += page.items
        if not page.has_more:
            break
        after = page.items[-1]
    assert seen == [f"{n:06}" for n in range(many)]
    middle = await backend.scan(LOG, limit=1_000, start_after="009999")
    assert [item.key for item in middle] == seen[10_000:11_000]
    assert middle.has_more
    assert await backend.delete_range(LOG, "") == many
    assert len(await backend.scan_keys(LOG, limit=1)) == 0


async def test_read_txn_sees_one_revision(harness):
    reader, writer = await harness.connect(), await harness.connect()
    await writer.put_txn([Put(HEADS, "job", b"0"), Put(LOG, "job/0", b"0")])
    done = False

    async def write() -> None:
        nonlocal done
        for n in range(1, 60):
            number = b"%d" % n
            await writer.put_txn(
                [Put(HEADS, "job", number), Put(LOG, f"job/{n:03}", number), Delete(LOG, f"job/{n - 1:03}")]
            )
        done = True

    writing = asyncio.create_task(write())
    while not done:
        seen = await reader.read_txn([(HEADS, "job"), (HEADS, "none")], [KeyRange(LOG, "job/"), KeyRange(PLANS)])
        assert seen.values[HEADS, "none"] is None
        assert seen.values[HEADS, "job"].value == seen.ranges[0].items[-1].value
        assert seen.values[HEADS, "job"].mod_revision <= seen.revision
        assert len(seen.ranges[1]) == 0
    await writing


async def test_read_txn_takes_ranges_with_start_and_limit(backend):
    for n in range(5):
        await backend.put(LOG, f"job/{n}", b"")
    seen = await backend.read_txn(
        ranges=[KeyRange(LOG, "job/", start_after="job/1", limit=2), KeyRange(LOG, "job/", limit=1)]
    )
    assert [[item.key for item in page] for page in seen.ranges] == [["job/2", "job/3"], ["job/0"]]
    assert [page.has_more for page in seen.ranges] == [True, True]
    assert {page.revision for page in seen.ranges} == {seen.revision}


async def test_a_read_of_128_keys_and_ranges_is_taken_and_no_larger_one(backend):
    await backend.put_txn([Put(LOG, f"{n:03}", b"%d" % n) for n in range(100)])
    keys = [(LOG, f"{n:03}") for n in range(120)]
    seen = await backend.read_txn(keys, [KeyRange(LOG, limit=n + 1) for n in range(8)])
    assert [None if item is None else int(item.value) for item in seen.values.values()] == [*range(100)] + [None] * 20
    assert [len(page) for page in seen.ranges] == list(range(1, 9))
    with pytest.raises(LimitExceededError, match="129 keys and ranges"):
        await backend.read_txn(keys, [KeyRange(LOG)] * 9)
    nothing = await backend.read_txn()
    assert (dict(nothing.values), nothing.ranges) == ({}, ())


async def test_a_large_value_travels_in_pieces(backend):
    value = random.Random(1).randbytes(3_000_000)
    pieces = split_value(value)
    await backend.put_all(Put(PLANS, f"digest/{n:04}", piece) for n, piece in enumerate(pieces))
    assert b"".join(item.value for item in await backend.get_from_prefix(PLANS, "digest/")) == value
