"""The memory adapter: the whole contract except durability, for tests and simulations."""

import asyncio
from typing import TypeVar

from onager.clock import Clock, SystemClock
from onager.state_backend.local import Command, DictTable, Engine, LocalBackend, WatchHub

T = TypeVar("T")


class MemoryStore:
    """The state that the clients of one store in memory share; it lives as long as it is referenced."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = SystemClock() if clock is None else clock
        self.clients: set[MemoryBackend] = set()
        self._table = DictTable()
        self._engine = Engine(self._table, self.clock)

    @property
    def revision(self) -> int:
        """The revision of the last commit; 0 when there was none."""
        return self._engine.revision

    def run(self, command: Command[T]) -> T:
        """Run *command* after expired leases have ended, and deliver its changes to all clients."""
        self._engine.run(Engine.expire)
        try:
            return self._engine.run(command)
        finally:
            group = self._engine.take()
            self._table.apply(group.writes)
            for client in self.clients:
                client.deliver(group)


class MemoryBackend(LocalBackend):
    """A client of *store*, or of a new store; closing it does not affect the store's other clients."""

    def __init__(self, store: MemoryStore | None = None, *, hub: WatchHub | None = None) -> None:
        self._store = MemoryStore() if store is None else store
        super().__init__(self._store.clock, WatchHub(self._store.revision) if hub is None else hub)
        self._store.clients.add(self)

    async def close(self) -> None:
        """Leave the store."""
        self._store.clients.discard(self)
        await super().close()

    async def _run(self, command: Command[T]) -> T:
        # As with every other store, the call can be cancelled or overtaken here, before anything happens.
        await asyncio.sleep(0)
        self._check_open()
        return self._store.run(command)

    async def _query(self, command: Command[T]) -> T:
        return await self._run(command)
