"""Whoever waits in vain says for what."""

import asyncio
from pathlib import Path

import pytest

from tests.support.waiting import eventually, until


def test_what_never_comes_true_is_named(tmp_path):
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: until\(lambda: Path"):
        until(lambda: Path(tmp_path, "marks").exists(), within_s=0.01)
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: exists"):
        until((tmp_path / "marks").exists, within_s=0.01)
    states = []
    with pytest.raises(AssertionError, match=r": an end, after \['x'"):
        until(lambda: states.append("x"), lambda: f"an end, after {states}", within_s=0.1)


@pytest.mark.virtual_time
async def test_a_condition_may_wait_itself_and_is_cut_when_the_time_is_over():
    async def is_so():
        await asyncio.sleep(5)
        return "so"

    assert await eventually(is_so, within_s=10) == "so"
    with pytest.raises(AssertionError, match="not within 4 s: an answer"):
        await eventually(is_so, "an answer", within_s=4)


async def test_a_timeout_of_the_conditions_own_is_not_that_of_the_wait():
    def gives_up():
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await eventually(gives_up)
