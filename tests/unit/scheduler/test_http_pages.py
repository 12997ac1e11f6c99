"""Pages of a history are read once for all who ask at about the same time."""

import asyncio

from onager.scheduler.http import pages
from onager.scheduler.http.pages import PAGE_EVENTS, Kept, Pages


class Log:
    """A log with batches of 100 events, and what was read of it."""

    def __init__(self, batches):
        self.batches = batches
        self.read = []

    async def page(self, job_id, after):
        assert job_id == "job-1"
        self.read.append(after)
        await asyncio.sleep(0)
        last = min(after + PAGE_EVENTS // 100, self.batches)
        return [Kept(position, [b"{}"] * 100, 200) for position in range(after + 1, last + 1)]


async def test_many_read_a_page_once():
    log = Log(25)
    shared = Pages(log.page)
    found = await asyncio.gather(*(shared.get("job-1", 0) for _ in range(50)))
    assert all(page is found[0] for page in found)
    assert await shared.get("job-1", 0) is found[0]
    assert log.read == [0]


async def test_the_end_of_a_log_is_read_again():
    log = Log(25)
    shared = Pages(log.page)
    assert len(await shared.get("job-1", 20)) == 5
    log.batches = 26
    assert len(await shared.get("job-1", 20)) == 6


async def test_few_pages_are_kept(monkeypatch):
    monkeypatch.setattr(pages, "KEPT_BYTES", 5_000)
    log = Log(40)
    shared = Pages(log.page)
    for after in (0, 10, 20, 20, 10, 0):
        await shared.get("job-1", after)
    assert log.read == [0, 10, 20, 0]
