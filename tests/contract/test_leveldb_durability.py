"""What a state directory survives, and what it refuses: kill -9, restarts, other owners, full disks."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from onager.clock import ManualClock
from onager.errors import (
    InvalidSettingError,
    LeaseExpiredError,
    LockTimeoutError,
    StateLockedError,
    StateNotWritableError,
    WatchCompactedError,
)
from onager.state_backend import ABSENT, Committed, Keyspace, Put, open_backend
from onager.state_backend.leveldb import LevelDBBackend
from onager.state_backend.model import Fenced
from tests.contract.leveldb_directories import LOG, fill, read_all
from tests.support.waiting import HANGS_S

HEADS, BEATS = Keyspace.JobHeads, Keyspace.Heartbeats
ROOT = Path(__file__).parents[2]


def python(code: str, *args: object, **kwargs) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


async def output_of(code: str, *args: object) -> tuple[str, str]:
    """Return what a process that runs *code* wrote, to its output and as errors."""
    with python(code, *args) as process:
        try:
            return await asyncio.to_thread(process.communicate, timeout=HANGS_S)
        finally:
            process.kill()


# -- restarts


async def test_everything_is_there_after_a_restart_and_revisions_go_on(tmp_path):
    await fill(tmp_path, 10)
    async with await LevelDBBackend.open(tmp_path) as backend:
        before = await backend.get(LOG, "job/000009")
        assert before is not None
        assert before.value == b"9" * 50
        assert await backend.put(LOG, "job/000010", b"") > before.mod_revision
        result = await backend.put_txn([Put(HEADS, "job", b"")], expect={(LOG, "job/000009"): before.mod_revision})
        assert isinstance(result, Committed)
        with pytest.raises(WatchCompactedError):
            async with backend.watch(LOG, from_revision=1):
                pass


async def test_a_restart_gives_leases_one_ttl_to_be_kept_alive(tmp_path):
    clock = ManualClock()
    async with await LevelDBBackend.open(tmp_path, clock=clock) as backend:
        kept, lost = await backend.lease(10), await backend.lease(10)
        await backend.put(BEATS, "kept", b"", lease=kept.id)
        await backend.put(BEATS, "lost", b"", lease=lost.id)
        clock.advance(9_000)
    clock.advance(3_600_000)
    async with await LevelDBBackend.open(tmp_path, clock=clock) as backend:
        clock.advance(9_000)
        await backend.keep_alive(kept.id)
        assert len(await backend.get_from_prefix(BEATS, "")) == 2
        clock.advance(2_000)
        assert [item.key for item in await backend.get_from_prefix(BEATS, "")] == ["kept"]
        with pytest.raises(LeaseExpiredError):
            await backend.keep_alive(lost.id)
        assert (await backend.lease(1)).id not in (kept.id, lost.id)


async def test_a_lock_of_an_earlier_life_is_free_when_its_lease_ends_and_then_its_token_is_refused(tmp_path):
    clock = ManualClock()
    backend = await LevelDBBackend.open(tmp_path, clock=clock)
    lease = await backend.lease(60)
    lock = backend.lock(HEADS, "sweep", lease.id)
    token = await lock.__aenter__()
    clock.advance(50_000)
    await backend.close()  # the process ends without leaving the block
    async with await LevelDBBackend.open(tmp_path, clock=clock) as backend:
        other = await backend.lease(3_600)
        clock.advance(50_000)  # an opening gives each lease its whole time again
        with pytest.raises(LockTimeoutError):
            async with backend.lock(HEADS, "sweep", other.id, timeout_s=0):
                pass
        assert isinstance(await backend.put_txn([Put(HEADS, "a", b"")], fence=[token]), Committed)
        clock.advance(11_000)
        assert await backend.put_txn([Put(HEADS, "a", b"")], fence=[token]) == Fenced(token)
        async with backend.lock(HEADS, "sweep", other.id, timeout_s=0) as again:
            assert again.revision > token.revision
            assert await backend.put_txn([Put(HEADS, "a", b"")], fence=[token]) == Fenced(token)
    await lock.__aexit__(None, None, None)


# -- kill -9

ROUNDS = 8
WRITER = """
    import asyncio, sys
    from pathlib import Path
    from onager.state_backend import Keyspace, Put, ABSENT
    from onager.state_backend.leveldb import LevelDBBackend

    async def main(path, name):
        async with await LevelDBBackend.open(Path(path)) as backend:
            async def write(task):
                for seq in range(1_000_000):
                    key = f"{name}/{task}/{seq:07}"
                    await backend.put_txn(
                        [
                            Put(Keyspace.JobLog, key, key.encode() * 300),
                            Put(Keyspace.JobHeads, f"{name}/{task}", b"%d" % seq),
                        ]
                    )
                    print(task, seq, flush=True)
            await asyncio.gather(*(write(task) for task in range(8)))

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_kill_9_loses_no_acknowledged_write(tmp_path, tell):
    acknowledged: dict[str, int] = {}
    for round_ in range(ROUNDS):
        writer = python(WRITER, tmp_path, round_)
        assert writer.stdout is not None
        for count, line in enumerate(writer.stdout):
            task, seq = line.split()
            acknowledged[f"{round_}/{task}"] = int(seq)
            if count == 100 + 200 * round_:
                writer.send_signal(signal.SIGKILL)
                break
        for line in writer.stdout:
            if len(parts := line.split()) == 2 and line.endswith("\n"):
                acknowledged[f"{round_}/{parts[0]}"] = int(parts[1])
        writer.wait()
        writer.stdout.close()
        assert writer.stderr is not None
        writer.stderr.close()
    async with await LevelDBBackend.open(tmp_path) as backend:
        stored = {item.key: item.value for item in await backend.get_from_prefix(LOG, "")}
        heads = {item.key: int(item.value) for item in await backend.get_from_prefix(HEADS, "")}
    assert len(heads) == len(acknowledged) == ROUNDS * 8
    counts = {"kills": ROUNDS, "acknowledged": sum(last + 1 for last in acknowledged.values()), "stored": len(stored)}
    keys = (f"{name}/{seq:07}" for name, last in acknowledged.items() for seq in range(last + 1))
    tell(str(counts | {"lost": sum(key not in stored for key in keys)}))
    assert sum(map(len, stored.values())) > 8 << 20  # tables were written and merged on the way
    for name, last in acknowledged.items():
        assert heads[name] >= last
        for seq in range(heads[name] + 1):
            key = f"{name}/{seq:07}"
            assert stored[key] == key.encode() * 300
        assert f"{name}/{heads[name] + 1:07}" not in stored  # both keys of a transaction, or none


# -- other owners


async def test_a_second_process_is_refused_by_name(tmp_path):
    open_it = """
        import asyncio, sys
        from onager.state_backend import open_backend
        from onager.errors import StateLockedError
        try:
            asyncio.run(open_backend("leveldb:" + sys.argv[1]))
        except StateLockedError as error:
            print(error)
    """
    path = tmp_path / "state"
    async with await LevelDBBackend.open(path) as backend:
        await backend.put(HEADS, "job", b"1")
        with pytest.raises(StateLockedError, match="open in this process"):
            await LevelDBBackend.open(path)
        (tmp_path / "link").symlink_to(path)
        with pytest.raises(StateLockedError, match="open in this process"):
            await LevelDBBackend.open(tmp_path / "link")
        # Refusing this process must not have let go of the lock that keeps the others out.
        for _ in range(2):
            out, err = await output_of(open_it, path)
            assert f"state directory {path} is open in another process: stop the Onager scheduler" in out, err
            assert "give this one a directory of its own" in out
        assert await backend.put(HEADS, "job", b"2")
    async with await LevelDBBackend.open(path) as backend:
        assert await backend.get(HEADS, "job") is not None


async def test_a_path_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StateNotWritableError, match="is not a directory"):
            await LevelDBBackend.open(path)


async def test_a_directory_that_may_not_be_written_is_refused():
    # pytest's own directories are closed to the user that this becomes
    home = Path(tempfile.mkdtemp(prefix="onager-state-"))
    home.chmod(0o755)  # noqa: ASYNC240
    path = home / "state"
    await fill(path, 1)
    path.chmod(0o555)
    uid = os.geteuid()
    if uid == 0:
        os.seteuid(65534)  # root may write everywhere
    try:
        with pytest.raises(StateNotWritableError, match=f"{path} cannot be written"):
            await LevelDBBackend.open(path)
        with pytest.raises(StateNotWritableError, match="cannot be made"):
            await LevelDBBackend.open(path / "below")
    finally:
        os.seteuid(uid)
        path.chmod(0o755)
    assert len(await read_all(path)) == 1
    shutil.rmtree(home)


# -- full disk

FULL_DISK = """
    import asyncio, os, resource, signal, sys
    from pathlib import Path
    from onager.errors import StateUnavailableError, WatchCompactedError
    from onager.state_backend import Keyspace, Put, ABSENT, Committed, OutcomeUnknown
    from onager.state_backend.leveldb import LevelDBBackend

    async def main(path):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        async with await LevelDBBackend.open(Path(path)) as backend:
            lease = await backend.lease(60)
            await backend.put(Keyspace.Heartbeats, "e1", b"", lease=lease.id)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            done, refused, unknown = [], [], []
            for n in range(60):
                key = (Keyspace.JobLog, f"job/{n:03}")
                try:
                    result = await backend.put_txn([Put(*key, os.urandom(4000))], expect={key: ABSENT})
                except StateUnavailableError as error:
                    refused.append(key)
                    message = str(error)
                else:
                    (unknown if isinstance(result, OutcomeUnknown) else done).append(key)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await backend.keep_alive(lease.id)
            async with backend.watch(Keyspace.JobHeads) as events:
                # So full that the database cannot even be opened again: nobody can say what happened.
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
                result = await backend.put_txn([Put(Keyspace.JobHeads, "job", bytes(100_000))])
                assert isinstance(result, OutcomeUnknown), result
                try:
                    await backend.get(Keyspace.JobHeads, "job")
                except StateUnavailableError as error:
                    assert "free some space" in str(error), error
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                await backend.put(Keyspace.JobLog, "job/last", b"")
                try:
                    await anext(events)
                except WatchCompactedError:
                    pass
            stored = {(Keyspace.JobLog, item.key) for item in await backend.get_from_prefix(Keyspace.JobLog, "job/")}
            assert await backend.get(Keyspace.Heartbeats, "e1") is not None
        stored.discard((Keyspace.JobLog, "job/last"))
        assert set(done) <= stored <= set(done) | set(unknown), (done, stored, unknown)
        print(len(done), len(refused), len(unknown), message)

    asyncio.run(main(sys.argv[1]))
"""


async def test_a_full_disk_refuses_writes_and_serves_again_with_space(tmp_path):
    out, err = await output_of(FULL_DISK, tmp_path)
    assert out, err
    done, refused, _, message = out.split(maxsplit=3)
    assert int(done) >= 20
    assert int(refused) >= 1
    assert "File too large" in message
    assert str(tmp_path) in message


# -- urls


@pytest.mark.parametrize("url", ["", "redis:x", "leveldb:", "memory:x", "/some/dir"])
async def test_an_unknown_backend_is_refused_with_the_choices(url):
    with pytest.raises(InvalidSettingError, match="leveldb:DIR"):
        await open_backend(url)


async def test_a_url_opens_its_backend(tmp_path):
    for url in ("memory:", f"leveldb:{tmp_path}/a/b"):
        async with await open_backend(url) as backend:
            assert isinstance(await backend.put_txn([Put(HEADS, "a", b"")], expect={(HEADS, "a"): ABSENT}), Committed)
