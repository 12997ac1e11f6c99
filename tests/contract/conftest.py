import functools
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from onager.state_backend import StateBackendClient
from tests.contract.stores import EtcdHarness, Harness, LevelDBHarness, MemoryHarness, WrappedHarness

BACKENDS = ["memory", "wrapped", "leveldb", "etcd", "etcd3"]
"""The stores of the contract suite: etcd with one and with three members, and memory also with wrappers."""


@pytest.fixture(params=BACKENDS)
def new_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Harness]:
    """Return a factory of empty stores, which the caller stops."""
    numbers = itertools.count()
    match request.param:
        case "memory":
            return MemoryHarness
        case "wrapped":
            return WrappedHarness
        case "leveldb":
            return lambda: LevelDBHarness(tmp_path / f"state{next(numbers)}")
        case cluster:
            return functools.partial(EtcdHarness, request.getfixturevalue(cluster))


@pytest.fixture
async def harness(new_harness: Callable[[], Harness]) -> AsyncIterator[Harness]:
    harness = new_harness()
    yield harness
    await harness.stop()


@pytest.fixture
async def backend(harness: Harness) -> StateBackendClient:
    return await harness.connect()
