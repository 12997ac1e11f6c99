"""A store in memory, and a clock that stands still."""

import pytest

from onager.clock import ManualClock
from onager.state_backend.memory import MemoryBackend, MemoryStore


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def backend(clock):
    async with MemoryBackend(MemoryStore(clock)) as backend:
        yield backend
