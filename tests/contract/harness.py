"""A running store for the contract suite: who wants a client, or time to pass, asks here."""

from abc import ABC, abstractmethod
from pathlib import Path

from onager.clock import ManualClock
from state_backend import Keyspace, StateBackendClient
from state_backend.leveldb import LevelDBBackend
from state_backend.memory import MemoryBackend, MemoryStore


class Harness(ABC):
    @abstractmethod
    async def connect(self) -> StateBackendClient:
        """Return a client; where the store has only one, the same again."""

    @abstractmethod
    async def let_pass(self, seconds: float) -> None:
        """Return when the store's clock is *seconds* further, and it has acted on that."""

    @abstractmethod
    async def stop(self) -> None: ...


class _OnManualClock(Harness):
    def __init__(self) -> None:
        self.clock = ManualClock()

    async def let_pass(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))
        await (await self.connect()).get(Keyspace.Sessions, "nothing")


class MemoryHarness(_OnManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(self.clock)
        self.clients: list[MemoryBackend] = []

    async def connect(self) -> StateBackendClient:
        self.clients.append(MemoryBackend(self.store))
        return self.clients[-1]

    async def stop(self) -> None:
        for client in self.clients:
            await client.close()


class LevelDBHarness(_OnManualClock):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.client: LevelDBBackend | None = None

    async def connect(self) -> StateBackendClient:
        if self.client is None:
            self.client = await LevelDBBackend.open(self.path, clock=self.clock)
        return self.client

    async def stop(self) -> None:
        if self.client is not None:
            await self.client.close()
            self.client = None
