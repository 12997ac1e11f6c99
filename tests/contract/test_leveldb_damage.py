"""A damaged state directory is refused with an error; it never silently loses keys."""

import asyncio
import random  # noqa: TID251 seeded
import re
import shutil
from collections import Counter
from pathlib import Path

import plyvel
import pytest

from onager.errors import SchemaVersionError, StateCorruptError
from onager.state_backend.leveldb import LevelDBBackend
from tests.contract.leveldb_directories import LOG, files, fill, read_all


@pytest.mark.parametrize("version", [1, 3])
async def test_another_schema_is_refused_and_the_directory_released_as_it_was(tmp_path, version):
    await fill(tmp_path, 1)

    def content() -> list[tuple[bytes, bytes]]:
        db = plyvel.DB(str(tmp_path))
        db.put(b"mschema_version", b"%d" % version)
        found = list(db)
        db.close()
        return found

    before = content()
    for _ in range(2):
        with pytest.raises(SchemaVersionError, match=f"schema version {version}, and Onager .* reads 2"):
            await LevelDBBackend.open(tmp_path)
    assert content() == before


async def test_a_database_of_another_program_is_refused(tmp_path):
    db = plyvel.DB(str(tmp_path), create_if_missing=True)
    db.put(b"theirs", b"1")
    db.close()
    with pytest.raises(StateCorruptError, match="without Onager's schema version"):
        await LevelDBBackend.open(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A directory with records both in tables and in a log of more than one block."""
    path = tmp_path_factory.mktemp("written")
    asyncio.run(fill(path, 150))
    asyncio.run(fill(path, 150, start=150))
    assert files(path, ".ldb")
    assert files(path, ".log")[-1].stat().st_size > 16 * 1024
    return path


def flip(file: Path, bit: int) -> None:
    """Turn one bit of *file* over, where it lies."""
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        [byte] = opened.read(1)
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("suffix", [".log", ".ldb", "MANIFEST"])
async def test_a_flipped_bit_is_refused_or_harmless_but_never_fewer_keys(written, tmp_path, tell, suffix):
    whole = {f"job/{n:06}": b"%d" % n * 50 for n in range(300)}
    rng = random.Random(20)
    counts: Counter[str] = Counter()
    refused: list[str] = []
    for n in range(100):
        path = tmp_path / f"{n}"
        shutil.copytree(written, path)
        file = rng.choice([f for f in sorted(path.iterdir()) if f.suffix == suffix or f.name.startswith(suffix)])
        flip(file, rng.randrange(file.stat().st_size * 8))
        counts["flips"] += 1
        try:
            stored = await read_all(path)
        except StateCorruptError as error:
            refused.append(str(error))
        else:
            counts["harmless"] += 1
            assert stored == whole
        shutil.rmtree(path)
    tell(f"{suffix}: {counts['flips']} bits, {len(refused)} refused, {counts['harmless']} harmless, 0 with fewer keys")
    assert len(refused) > 50
    for message in refused:
        assert re.match(r"state directory \S+/\d+ is damaged: .+ Restore it from a backup, or move it away", message)


async def test_damage_while_it_is_open_is_reported_by_reads(tmp_path, tell):
    """A read returns the written value, or an error that says what to do; never nothing or another value."""
    values = {f"job/{n:06}": random.Random(n).randbytes(3_000) for n in range(400)}
    async with await LevelDBBackend.open(tmp_path) as backend:
        for key, value in values.items():
            await backend.put(LOG, key, value)
    rng = random.Random(4)
    counts: Counter[str] = Counter()
    async with await LevelDBBackend.open(tmp_path) as backend:
        for table in files(tmp_path, ".ldb"):
            for _ in range(10):
                flip(table, rng.randrange(table.stat().st_size * 8))
                counts["flips"] += 1
        for key, value in values.items():
            try:
                found = await backend.get(LOG, key)
            except StateCorruptError as error:
                counts["refused" if "Restore it from a backup" in str(error) else "reported badly"] += 1
            else:
                assert found is not None
                assert found.value == value
                counts["read"] += 1
        with pytest.raises(StateCorruptError, match="is damaged"):
            await backend.get_from_prefix(LOG, "")
    with pytest.raises(StateCorruptError, match="is damaged"):
        await LevelDBBackend.open(tmp_path)
    tell(str(dict(counts)))
    assert counts["refused"] > 0
    assert counts["read"] > 0
    assert counts["reported badly"] == 0


async def test_every_flipped_bit_in_the_last_records_lengths_is_seen(written, tmp_path):
    """LevelDB takes a length that runs past the end for a torn write, and drops what follows without a word."""
    path = tmp_path / "state"
    shutil.copytree(written, path)
    log = files(path, ".log")[-1]
    data = log.read_bytes()
    offset, headers = len(data) // 32768 * 32768, []
    while len(data) - offset >= 7:
        headers.append(offset)
        offset += 7 + int.from_bytes(data[offset + 4 : offset + 6], "little")
    assert len(headers) > 3
    for header in (headers[0], headers[-2], headers[-1]):
        for bit in range(16):
            broken = bytearray(data)
            broken[header + 4 + bit // 8] ^= 1 << bit % 8
            log.write_bytes(broken)
            with pytest.raises(StateCorruptError):
                await LevelDBBackend.open(path)


@pytest.mark.parametrize("missing", [".log", ".ldb", "MANIFEST", "CURRENT"])
async def test_a_missing_file_is_refused(written, tmp_path, missing):
    path = tmp_path / "state"
    shutil.copytree(written, path)
    next(f for f in sorted(path.iterdir()) if f.suffix == missing or f.name.startswith(missing)).unlink()
    with pytest.raises(StateCorruptError, match="is damaged"):
        await LevelDBBackend.open(path)


@pytest.mark.parametrize("current", ["", "\0", "MANIFEST-999999", "../../etc/passwd"])
async def test_a_damaged_pointer_is_refused(written, tmp_path, current):
    path = tmp_path / "state"
    shutil.copytree(written, path)
    (path / "CURRENT").write_text(current)
    with pytest.raises(StateCorruptError, match="CURRENT names"):
        await LevelDBBackend.open(path)


async def test_a_torn_tail_is_cut_off_and_what_comes_before_is_there(written, tmp_path, tell):
    kept: Counter[int] = Counter()
    rng = random.Random(3)
    log = files(written, ".log")[-1]
    size = log.stat().st_size
    for n in range(20):
        path = tmp_path / f"{n}"
        shutil.copytree(written, path)
        torn = rng.randrange(size - 3000, size)
        (path / log.name).write_bytes(log.read_bytes()[:torn])
        stored = await read_all(path)
        assert 150 < len(stored) < 300  # the first fill is in tables
        assert list(stored) == [f"job/{n:06}" for n in range(len(stored))]
        assert await read_all(path) == stored
        kept[len(stored)] += 1
    tell(f"keys kept of 300, and how often: {dict(sorted(kept.items()))}")
    assert len(kept) > 5


async def test_a_first_opening_that_was_killed_can_be_repeated(tmp_path):
    db = plyvel.DB(str(tmp_path), create_if_missing=True)
    db.close()
    await fill(tmp_path, 3)
    assert len(await read_all(tmp_path)) == 3
