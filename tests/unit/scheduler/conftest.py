import pytest

from onager.state_backend.memory import MemoryStore
from tests.unit.scheduler.executor_managers import made
from tests.unit.scheduler.pair import Pair
from tests.unit.scheduler.place_world import World


@pytest.fixture
async def pair(clock):
    made = Pair(clock)
    await made.start()
    yield made
    for scheduler in made.schedulers.values():
        await scheduler.close()


@pytest.fixture
async def world(tmp_path, clock):
    """Yield machines without mounts, and what they may mount."""
    shared = tmp_path / "shared"
    (shared / "exchange").mkdir(parents=True)
    (shared / "warehouse").mkdir()
    made = World(tmp_path, clock, MemoryStore(clock), shared)
    yield made
    for scheduler in made.schedulers:
        await scheduler.app.close()


@pytest.fixture
def lost():
    return []


@pytest.fixture
async def manager(backend, clock, lost):
    async def on_lost(event):
        lost.append(event)

    manager = made(backend, clock, on_lost)
    await manager.start()
    return manager
