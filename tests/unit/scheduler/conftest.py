import pytest

from onager.clock import ManualClock
from state_backend.memory import MemoryBackend, MemoryStore


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def backend(clock):
    async with MemoryBackend(MemoryStore(clock)) as backend:
        yield backend
