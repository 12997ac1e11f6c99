"""A watch of etcd tells its reader why it ended."""

import asyncio

import pytest

from onager.errors import StateUnavailableError
from onager.state_backend.etcd.watch import EtcdWatch
from tests.support.waiting import HANGS_S


class Calls:
    """What gives no member, but raises *error*."""

    def __init__(self, error):
        self.error = error

    async def connected(self):
        await asyncio.sleep(0)
        raise self.error


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ValueError("a defect"), ValueError),
        (asyncio.CancelledError(), StateUnavailableError),  # a call whose channel was closed
    ],
)
async def test_nobody_waits_for_a_watch_that_is_over(error, reported):
    async with EtcdWatch(Calls(error), b"a", b"b", 1) as watch, asyncio.timeout(HANGS_S):
        for _ in range(2):
            with pytest.raises(reported):
                await anext(watch)
