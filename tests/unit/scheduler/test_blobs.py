import os

import pytest

from onager.errors import NotFoundError, StateCorruptError
from onager.ids import JobId
from scheduler.jobs.blobs import BlobStore, digest_of
from state_backend import Keyspace
from tests.unit.scheduler.world import keys

A, B = JobId("a"), JobId("b")


@pytest.mark.parametrize("content", [b"", b"plan", b"x" * 5_000_000, os.urandom(3_000_000)], ids=len)
async def test_what_is_put_is_got(backend, content):
    blobs = BlobStore(backend)
    await blobs.put(A, [content, b"another"])
    assert await blobs.get(digest_of(content)) == content


async def test_many_blobs_at_once(backend):
    contents = [f"plan {n}".encode() for n in range(100)]
    await BlobStore(backend).put(A, contents)
    assert [await BlobStore(backend).get(digest_of(c)) for c in contents] == contents


async def test_a_blob_goes_with_the_last_job_that_names_it(backend):
    blobs = BlobStore(backend)
    digest = digest_of(b"plan")
    await blobs.put(A, [b"plan"])
    await blobs.put(B, [b"plan"])
    await blobs.put(B, [b"plan"])
    await blobs.release(A, [digest])
    await blobs.release(A, [digest])
    assert await blobs.get(digest) == b"plan"
    await blobs.release(B, [digest])
    with pytest.raises(NotFoundError, match="no job names it"):
        await blobs.get(digest)
    assert await keys(backend) == set()


async def test_a_blob_that_somebody_begins_to_name_is_not_collected(backend):
    """The reference comes between the collector's look and its delete."""
    blobs = BlobStore(backend)
    digest = digest_of(b"plan")
    await blobs.put(A, [b"plan"])
    read = backend._read
    is_first = True

    async def read_then_named(*args):
        nonlocal is_first
        found = await read(*args)
        if is_first:
            is_first = False
            await BlobStore(backend).put(B, [b"plan"])
        return found

    backend._read = read_then_named
    await blobs.release(A, [digest])
    assert await blobs.get(digest) == b"plan"


@pytest.mark.parametrize("value", [None, b"\x01rubbish", b"\x00other"])
async def test_damage_is_found(backend, value):
    blobs = BlobStore(backend)
    digest = digest_of(b"plan")
    await blobs.put(A, [b"plan"])
    if value is None:
        await backend.delete(Keyspace.Plans, f"{digest}/0")
    else:
        await backend.put(Keyspace.Plans, f"{digest}/0", value)
    with pytest.raises(StateCorruptError, match="damaged"):
        await blobs.get(digest)


async def test_a_new_blob_takes_one_round_trip_and_a_known_one_is_named_all_the_same(backend, monkeypatch):
    blobs = BlobStore(backend)
    reads, commits = [], []
    read, commit = backend._read, backend._commit

    async def counted_read(*args):
        reads.append(args)
        return await read(*args)

    async def counted_commit(*args):
        commits.append(args)
        return await commit(*args)

    monkeypatch.setattr(backend, "_read", counted_read)
    monkeypatch.setattr(backend, "_commit", counted_commit)
    await blobs.put(A, [b"plan"])
    assert (len(reads), len(commits)) == (0, 1)
    await blobs.put(B, [b"plan"])
    assert (len(reads), len(commits)) == (0, 2)
    elsewhere = BlobStore(backend)
    await elsewhere.put(B, [b"plan"])
    assert (len(reads), len(commits)) == (0, 4)
    await blobs.put(B, [b"plan"])
    assert (len(reads), len(commits)) == (0, 6)
    await elsewhere.release(A, [digest_of(b"plan")])
    assert await blobs.get(digest_of(b"plan")) == b"plan"
    await elsewhere.release(B, [digest_of(b"plan")])
    await blobs.put(A, [b"plan"])
    assert await blobs.get(digest_of(b"plan")) == b"plan", "it was removed since it was named here"
