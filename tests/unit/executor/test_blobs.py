"""The blob cache: each blob is fetched once, size is bounded, and failures are not cached."""

import asyncio

import pytest

from onager.errors import NotFoundError
from onager.executor.agent.blobs import BlobCache
from onager.ids import BlobDigest

A, B, C = BlobDigest("a"), BlobDigest("b"), BlobDigest("c")


class Source:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, digest: BlobDigest) -> bytes:
        self.asked.append(digest)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return digest.encode() * 10


async def test_concurrent_readers_share_one_fetch():
    source = Source()
    cache = BlobCache(source.fetch, 100)
    assert await asyncio.gather(*(cache.get(A) for _ in range(5))) == [b"a" * 10] * 5
    assert source.asked == ["a"]


async def test_the_longest_unused_goes_first():
    source = Source()
    cache = BlobCache(source.fetch, 20)
    for digest in (A, B, A, C, A, B):
        await cache.get(digest)
    assert source.asked == ["a", "b", "c", "b"]
    assert cache.size_bytes == 20


async def test_no_more_than_so_many_small_ones_are_kept(monkeypatch):
    monkeypatch.setattr("onager.executor.agent.blobs._MAX_BLOBS", 2)
    source = Source()
    cache = BlobCache(source.fetch, 1_000)
    for digest in (A, B, C, B, A):
        await cache.get(digest)
    assert source.asked == ["a", "b", "c", "a"]
    assert cache.size_bytes == 20


async def test_what_is_larger_than_the_cache_is_given_but_not_kept():
    source = Source()
    cache = BlobCache(source.fetch, 5)
    assert await cache.get(A) == b"a" * 10
    assert cache.size_bytes == 0


async def test_a_failed_fetch_is_tried_anew():
    source = Source()
    source.error = NotFoundError("gone")
    cache = BlobCache(source.fetch, 100)
    with pytest.raises(NotFoundError):
        await cache.get(A)
    source.error = None
    assert await cache.get(A) == b"a" * 10


async def test_a_reader_that_stops_waiting_does_not_stop_the_others():
    source = Source()
    source.gate.clear()
    cache = BlobCache(source.fetch, 100)
    first, second = asyncio.create_task(cache.get(A)), asyncio.create_task(cache.get(A))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    source.gate.set()
    assert await second == b"a" * 10
