"""A store in memory, a clock that stands still, and an event loop that may jump ahead."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from onager.clock import ManualClock
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.simulation.loop import VirtualLoop


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def backend(clock):
    async with MemoryBackend(MemoryStore(clock)) as backend:
        yield backend


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time"):
        return {"virtual time": partial(VirtualLoop, seed=0)}
    return {"real time": asyncio.new_event_loop}
