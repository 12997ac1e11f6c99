import functools
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from onager.state_backend import StateBackendClient
from tests.contract.stores import KINDS, Harness, Kind


@pytest.fixture(params=KINDS)
def store_kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def new_harness(store_kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Harness]:
    """Return a factory of empty stores, which the caller stops."""
    numbers = itertools.count()
    match store_kind.needs:
        case None:
            return store_kind.harness
        case "directory":
            return lambda: store_kind.harness(tmp_path / f"state{next(numbers)}")
        case cluster:
            return functools.partial(store_kind.harness, request.getfixturevalue(cluster))


@pytest.fixture
async def harness(new_harness: Callable[[], Harness]) -> AsyncIterator[Harness]:
    harness = new_harness()
    yield harness
    await harness.stop()


@pytest.fixture
async def backend(harness: Harness) -> StateBackendClient:
    return await harness.connect()
