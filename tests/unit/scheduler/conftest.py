import pytest

from onager.clock import ManualClock
from state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.pair import Pair


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def backend(clock):
    async with MemoryBackend(MemoryStore(clock)) as backend:
        yield backend


@pytest.fixture
async def pair(clock):
    made = Pair(clock)
    await made.start()
    yield made
    for replica in made.replicas.values():
        await replica.close()
