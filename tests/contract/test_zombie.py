"""A lock holder that is paused past its lease, and wakes up when another has gone on: its late write is refused.

The same without the fence ends in the late write over the other's, which is what the fence is there for: the
assertion that holds with it must fail without it.
"""

import asyncio
import itertools
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from onager.state_backend import Committed, Delete, DeleteRange, Keyspace, Put, open_backend
from onager.state_backend.model import Fenced
from tests.support.waiting import HANGS_S, eventually

JOBS, SWEEPS = Keyspace.JobHeads, Keyspace.ActiveJobs
ROOT = Path(__file__).parents[2]
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Ending:
    """The outcome of the zombie's write, and the final value in the store."""

    answer: str
    value: bytes


def assert_the_zombie_was_kept_out(ending: Ending) -> None:
    assert ending.value == b"successor", f"the zombie overwrote its successor's: {ending.value!r}"
    assert ending.answer == "Fenced"


async def late_write(backend, token, *, is_fenced: bool) -> str:
    """Write as a holder that believes it still has the lock; *fenced* is an option of this test, not of stores."""
    result = await backend.put_txn([Put(JOBS, "job", b"zombie")], fence=[token] if is_fenced else [])
    return type(result).__name__


# -- in one process, on every store: the pause is time that passes


async def pause_past_the_lease(harness, *, is_fenced: bool) -> Ending:
    zombie, successor = await harness.connect(), await harness.connect()
    async with AsyncExitStack() as stack:
        lease = await zombie.lease(harness.ttl_s)
        stale = await stack.enter_async_context(zombie.lock(SWEEPS, "job", lease.id))
        await harness.let_pass(lease.ttl_s + 1)
        other = await successor.lease(10 * HANGS_S)
        async with successor.lock(SWEEPS, "job", other.id, timeout_s=HANGS_S) as token:
            assert token.revision > stale.revision
            done = await successor.put_txn([Put(JOBS, "job", b"successor")], fence=[token])
            assert isinstance(done, Committed)
            answer = await late_write(zombie, stale, is_fenced=is_fenced)
            found = await successor.get(JOBS, "job")
            # Whatever the zombie did, it has not taken the lock from under its successor.
            again = await successor.put_txn([], fence=[token])
            assert isinstance(again, Committed)
    return Ending(answer, found.value)


async def test_a_holder_past_its_lease_is_kept_out(harness):
    assert_the_zombie_was_kept_out(await pause_past_the_lease(harness, is_fenced=True))


async def test_without_its_fence_it_is_not(harness):
    ending = await pause_past_the_lease(harness, is_fenced=False)
    with pytest.raises(AssertionError, match="overwrote its successor's: b'zombie'"):
        assert_the_zombie_was_kept_out(ending)


# -- as a process of its own, which SIGSTOP pauses

HOLDER = """
    import asyncio, ctypes, signal, sys
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with the test
    from onager.clock import SystemClock
    from onager.state_backend import keep_lease, open_backend
    from tests.contract.test_zombie import SWEEPS, late_write
    from tests.support.waiting import HANGS_S

    async def main(url, is_fenced):
        async with await open_backend(url) as backend, keep_lease(backend, 2, SystemClock()) as kept:
            async with backend.lock(SWEEPS, "job", kept.id) as token:
                print("holder:", token.revision, flush=True)
                await asyncio.to_thread(sys.stdin.readline)
                print("holder:", await late_write(backend, token, is_fenced=is_fenced == "fenced"), flush=True)
                async with asyncio.timeout(HANGS_S):
                    await kept.wait_lost()
                print("holder: reported", flush=True)

    asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def holder(url: str, fence: str):
    """Start a process that holds the lock, and writes late when it is sent a line."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import textwrap; exec(textwrap.dedent(" + repr(HOLDER) + "))", url, fence),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def answer_of(process, within_s: float = HANGS_S) -> str:
    """Return what the holder tells next, past the lines of its log."""
    async with asyncio.timeout(within_s):
        while line := (await process.stdout.readline()).decode():
            if line.startswith("holder:"):
                return line.removeprefix("holder:").strip()
    raise AssertionError("the holder ended")


async def stop_past_the_lease(url: str, *, is_fenced: bool) -> Ending:
    async with holder(url, "fenced" if is_fenced else "unfenced") as zombie, await open_backend(url) as successor:
        held_revision = int(await answer_of(zombie))
        zombie.send_signal(signal.SIGSTOP)
        await eventually(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED)
        lease = await successor.lease(10 * HANGS_S)
        async with successor.lock(SWEEPS, "job", lease.id, timeout_s=HANGS_S) as token:
            assert token.revision > held_revision
            done = await successor.put_txn([Put(JOBS, "job", b"successor")], fence=[token])
            assert isinstance(done, Committed)
            zombie.stdin.write(b"go on\n")  # waits for it in the pipe
            zombie.send_signal(signal.SIGCONT)
            answer = await answer_of(zombie)
            assert await answer_of(zombie) == "reported"
            found = await successor.get(JOBS, "job")
            assert isinstance(await successor.put_txn([], fence=[token]), Committed)
        assert await asyncio.wait_for(zombie.wait(), HANGS_S) == 0
    return Ending(answer, found.value)


@pytest.fixture(params=["etcd", "etcd3"])
def url(request):
    return request.getfixturevalue(request.param).url(f"zombie{next(_NUMBERS)}", timeout=f"{HANGS_S:g}s")


async def test_a_holder_that_was_stopped_past_its_lease_is_kept_out(url, tell):
    ending = await stop_past_the_lease(url, is_fenced=True)
    tell(f"with the fence the late write was answered {ending.answer}, and the store has {ending.value!r}")
    assert_the_zombie_was_kept_out(ending)


async def test_a_stopped_holder_without_its_fence_is_not(url, tell):
    ending = await stop_past_the_lease(url, is_fenced=False)
    tell(f"without the fence the late write was answered {ending.answer}, and the store has {ending.value!r}")
    assert ending == Ending("Committed", b"zombie")
    with pytest.raises(AssertionError, match="overwrote its successor's: b'zombie'"):
        assert_the_zombie_was_kept_out(ending)


async def test_a_late_holder_may_not_delete_or_move_either(harness):
    backend = await harness.connect()
    lease = await backend.lease(10 * HANGS_S)
    async with backend.lock(SWEEPS, "job", lease.id) as token:
        await backend.put(JOBS, "job", b"1")
    for result in (
        await backend.put_txn([Delete(JOBS, "job")], fence=[token]),
        await backend.put_txn([DeleteRange(JOBS, "")], fence=[token]),
        await backend.mv(JOBS, "job", Keyspace.CompletedJobs, fence=[token]),
        await backend.put_txn([], fence=[token]),
    ):
        assert result == Fenced(token)
    assert (await backend.get(JOBS, "job")).value == b"1"
