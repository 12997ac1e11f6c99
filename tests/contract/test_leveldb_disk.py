"""LevelDB on disks of its own: full ones, and ones that cannot be written.

The disk is a small file system in memory, in a mount namespace that ends with the process. Where the kernel gives us
none (macOS, most containers) a limit on the size of files and a directory's mode stand for it, in
test_leveldb_durability.py.
"""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
_UNSHARE = ["unshare", "--mount", "--map-root-user"]


def _has_own_mounts() -> bool:
    try:
        done = subprocess.run([*_UNSHARE, "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


HAS_OWN_MOUNTS = _has_own_mounts()


def where_there_are_mounts(test):
    """Leave *test* out elsewhere: there is nothing to install for it."""
    return test if HAS_OWN_MOUNTS else None


async def on_small_disk(disk: Path, size: str, code: str) -> str:
    """Run *code* with *disk*, which is not there yet, as a file system of *size*, and return what it prints."""
    script = 'mkdir "$2" && mount -t tmpfs -o size="$1" none "$2" && exec "$3" -c "$4" "$2"'
    process = await asyncio.create_subprocess_exec(
        *(*_UNSHARE, "sh", "-c", script, "sh", size, str(disk), sys.executable, textwrap.dedent(code)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), HANGS_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    disk.rmdir()  # noqa: ASYNC240 it is empty: all was on the small disk
    return out.decode()


FULL = """
    import asyncio, os, sys
    from pathlib import Path
    from onager.errors import StateNotWritableError, StateUnavailableError
    from onager.state_backend import ABSENT, Committed, Keyspace, OutcomeUnknown, Put
    from onager.state_backend.leveldb import LevelDBBackend

    disk = Path(sys.argv[1])

    def fill(name):
        with open(disk / name, "wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError as error:
                assert "No space left" in str(error), error

    async def write(backend, start, counts, keys):
        for n in range(start, start + 300):
            key = Keyspace.JobLog, f"job/{n:04}"
            try:
                result = await backend.put_txn([Put(*key, b"%d" % n * 500)], expect={key: ABSENT})
            except StateUnavailableError as error:
                counts["refused"] += 1
                counts["said"] = str(error)
                if counts["refused"] > 20:
                    return
            else:
                if isinstance(result, OutcomeUnknown):
                    counts["unknown"] += 1
                    counts["said"] = result.why
                else:
                    assert isinstance(result, Committed)
                    counts["acknowledged"] += 1
                (keys[0] if isinstance(result, Committed) else keys[1]).add(key[1])

    async def main():
        (disk / "ballast").write_bytes(bytes(4 << 20))
        counts = {"acknowledged": 0, "refused": 0, "unknown": 0}
        acknowledged, unknown = set(), set()
        async with await LevelDBBackend.open(disk / "state") as backend:
            await write(backend, 0, counts, (acknowledged, unknown))
            assert not counts["refused"]
            fill("more ballast")
            await write(backend, 300, counts, (acknowledged, unknown))
            (disk / "ballast").unlink()
            before = len(acknowledged)
            await write(backend, 600, counts, (acknowledged, unknown))
            assert len(acknowledged) == before + 300, counts
            for attempt in ("the same client", "another life"):
                found = {i.key: i.value for i in await backend.get_from_prefix(Keyspace.JobLog, "job/")}
                assert acknowledged <= found.keys() <= acknowledged | unknown
                assert all(value == b"%d" % int(key[4:]) * 500 for key, value in found.items())
                if attempt == "the same client":
                    await backend.close()
                    backend = await LevelDBBackend.open(disk / "state")
            await backend.close()
        fill("all of it")
        try:
            await LevelDBBackend.open(disk / "state")
        except StateNotWritableError as error:
            print(error)
        for name in ("more ballast", "all of it"):
            (disk / name).unlink()
        async with await LevelDBBackend.open(disk / "state") as backend:
            lost = acknowledged - {i.key for i in await backend.get_from_prefix(Keyspace.JobLog, "job/")}
        print({"acknowledged": counts["acknowledged"], "refused": counts["refused"], "unknown": counts["unknown"],
               "lost": len(lost)})
        print(counts["said"])

    asyncio.run(main())
"""


@where_there_are_mounts
async def test_a_full_disk_loses_nothing_and_serves_again_with_space(tmp_path, tell):
    refused, counts, said = (await on_small_disk(tmp_path / "disk", "8m", FULL)).splitlines()
    tell(counts)
    assert "cannot be written" in refused
    assert "No space left on device" in refused
    assert "the space on its disk" in refused
    assert "'lost': 0" in counts
    assert "'refused': 0" not in counts
    assert "No space left on device" in said
    assert str(tmp_path / "disk" / "state") in said


READ_ONLY = """
    import asyncio, subprocess, sys
    from pathlib import Path
    from onager.errors import StateNotWritableError
    from onager.state_backend import Keyspace
    from onager.state_backend.leveldb import LevelDBBackend

    disk = Path(sys.argv[1])

    async def main():
        async with await LevelDBBackend.open(disk / "state") as backend:
            await backend.put(Keyspace.JobHeads, "job", b"1")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for path in (disk / "state", disk / "another"):
            try:
                await LevelDBBackend.open(path)
            except StateNotWritableError as error:
                print(error)
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        async with await LevelDBBackend.open(disk / "state") as backend:
            print(await backend.get(Keyspace.JobHeads, "job"))

    asyncio.run(main())
"""


@where_there_are_mounts
async def test_a_disk_that_is_mounted_read_only_is_refused_whoever_we_are(tmp_path):
    disk = tmp_path / "disk"
    existing, new, found = (await on_small_disk(disk, "2m", READ_ONLY)).splitlines()
    assert f"{disk / 'state'} cannot be written" in existing
    assert f"{disk / 'another'} cannot be made (Read-only file system)" in new
    assert "another path" in existing
    assert "another path" in new
    assert "value=b'1'" in found
