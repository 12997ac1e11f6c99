"""The reporter, and those who wait for it."""

import asyncio
from typing import Any

import pytest

from executor.attempts import AttemptTable
from executor.gateway import SchedulerGateway
from executor.reporting import Reporter


class Silence(SchedulerGateway):
    """A scheduler that answers when it is told to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def report(self, *_: Any) -> Any:
        await self.answers.wait()


@pytest.mark.parametrize("steps", range(6))
async def test_who_waits_for_the_reporter_can_be_cancelled_in_the_moment_that_it_gets_idle(steps: int) -> None:
    gateway = Silence()
    reporter = Reporter(
        AttemptTable(1), gateway, executor_id="e", incarnation="i", on_answer=lambda _: None, on_unknown=lambda: None
    )
    sending = asyncio.create_task(reporter._send([]))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(reporter.wait_until_idle(timeout_s=60))
    for _ in range(3):
        await asyncio.sleep(0)
    gateway.answers.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    is_in_time = waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled() == is_in_time
    await asyncio.gather(sending, return_exceptions=True)
