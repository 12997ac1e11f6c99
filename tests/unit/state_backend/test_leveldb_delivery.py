"""Callers of LevelDB's thread are answered even if watches cannot be notified."""

import asyncio

from onager.clock import SystemClock
from onager.state_backend import Keyspace
from onager.state_backend.leveldb import LevelDBBackend
from tests.support.waiting import HANGS_S


async def test_a_write_is_acknowledged_though_watches_cannot_be_notified(tmp_path, monkeypatch):
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with await LevelDBBackend.open(tmp_path, clock=SystemClock()) as backend:
        monkeypatch.setattr(backend._hub, "publish", lambda _: 1 / 0)
        async with asyncio.timeout(HANGS_S):
            await backend.put(Keyspace.JobHeads, "a", b"1")
        monkeypatch.undo()
        assert await backend.get(Keyspace.JobHeads, "a") is not None
