import pytest

from tests.unit.scheduler.pair import Pair


@pytest.fixture
async def pair(clock):
    made = Pair(clock)
    await made.start()
    yield made
    for replica in made.replicas.values():
        await replica.close()
