"""A job's target is checked, although its file system may never answer."""

import asyncio
import threading

import pytest

from onager.errors import DiskError, InvalidRequestError
from onager.private_paths import NO_PATHS, PrivatePaths
from onager.scheduler import timing
from onager.scheduler.disk import EXCHANGE, OUTPUTS
from onager.scheduler.jobs.places import check_place_apart
from tests.support.waiting import HANGS_S, eventually


class Dead(PrivatePaths):
    """A file system that answers no call until it comes back."""

    def __init__(self):
        super().__init__(())
        self.is_back = threading.Event()

    def meets(self, path):  # noqa: ARG002
        self.is_back.wait(HANGS_S)


@pytest.fixture
def dead(monkeypatch):
    monkeypatch.setattr(timing, "DISK_S", 0.2)
    made = Dead()
    yield made
    made.is_back.set()


async def test_a_place_that_is_ours_is_refused(tmp_path):
    await check_place_apart(str(tmp_path / "out"), PrivatePaths([tmp_path / "state"]))
    with pytest.raises(InvalidRequestError, match="files of its own"):
        await check_place_apart(str(tmp_path / "state" / "out"), PrivatePaths([tmp_path / "state"]))


async def test_a_file_system_that_does_not_answer_holds_up_nothing_else(dead):
    asked = [check_place_apart("/dead/out", dead) for _ in range(8)]
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(error) for error in errors} == {InvalidRequestError}
    assert "no answer within 0.2 s" in str(errors[0])
    async with asyncio.timeout(HANGS_S):
        assert await asyncio.to_thread(lambda: "a piece of a result") == "a piece of a result"
    await check_place_apart("/alive/out", NO_PATHS)


async def test_a_request_while_all_threads_hang_may_be_retried(dead):
    asked = [check_place_apart("/dead/out", dead) for _ in range(OUTPUTS._most)]
    await asyncio.gather(*asked, return_exceptions=True)
    with pytest.raises(DiskError):
        await check_place_apart("/alive/out", NO_PATHS)
    dead.is_back.set()
    async with asyncio.timeout(HANGS_S):
        while True:
            try:
                await check_place_apart("/alive/out", NO_PATHS)
            except DiskError:
                continue
            break


async def test_where_the_exchange_directory_does_not_answer_either_another_scheduler_is_to_look(dead, monkeypatch):
    for _ in range(2):
        with pytest.raises(DiskError, match="the exchange directory"):
            await EXCHANGE.call(dead.meets, "/dead")
    monkeypatch.setattr(timing, "DISK_S", HANGS_S)
    monkeypatch.setattr(timing, "DISK_HANGS_S", 0.2)
    for _ in range(2):  # neither waits for long, now that it is known
        with pytest.raises(DiskError, match=r"within 0\.2 s"):
            await EXCHANGE.call(dead.meets, "/dead")
        with pytest.raises(DiskError, match=r"within 0\.2 s"):
            await check_place_apart("/dead/out", dead)
    dead.is_back.set()
    await eventually(lambda: not EXCHANGE.hangs)
    await check_place_apart("/dead/out", dead)
