"""Fixtures of tests about programs whose calls are recorded."""

import pytest

from onager.protocol.security.principal import note_principal
from tests.unit.connect.recorded_program import Attempt, Spark
from tests.unit.scheduler.pair import Pair


@pytest.fixture
def spark():
    return Spark()


@pytest.fixture
async def program_pair(clock, spark, tmp_path):
    """Two schedulers, whose Spark is *spark*."""
    note_principal("")
    made = Pair(clock, tmp_path)
    await made.start()
    for scheduler in made.schedulers.values():
        scheduler.spark_connect.operations.calls = spark
    return made


@pytest.fixture
async def first(program_pair, spark):
    """The first attempt of a program."""
    return await Attempt(program_pair, spark, "a" * 32).begin()
