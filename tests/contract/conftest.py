from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from state_backend import StateBackendClient
from tests.contract.harness import Harness, LevelDBHarness, MemoryHarness

BACKENDS = ["memory", "leveldb"]


@pytest.fixture(params=BACKENDS)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    harness = MemoryHarness() if request.param == "memory" else LevelDBHarness(tmp_path / "state")
    yield harness
    await harness.stop()


@pytest.fixture
async def backend(harness: Harness) -> StateBackendClient:
    return await harness.connect()
