"""What executors report about the exchange directory, and how often."""

import asyncio
from collections.abc import Sequence

import pytest

from onager.clock import ManualClock
from onager.executor.agent.exchange_watch import ExchangeWatch
from onager.executor.exchange import Contents, JobFiles
from onager.ids import Incarnation
from onager.protocol import onager_pb2 as pb
from tests.support.waiting import HANGS_S

ME, STRANGER = Incarnation("1" * 16), "2" * 16


def contents(**jobs: JobFiles) -> Contents:
    return Contents(files=1, bytes=2, free_bytes=3, total_bytes=4, jobs=jobs)


def reported(
    watch: ExchangeWatch, *, is_answered: bool = True, again: Sequence[str] = ()
) -> list[tuple[str, list[str]]]:
    request = pb.HeartbeatRequest()
    watch.add_to(request)
    if is_answered:
        watch.note_answered(pb.HeartbeatResponse(tell_again=again))
    return [(each.job_id, list(each.writers)) for each in request.exchange_files]


async def nothing() -> None:
    """See nothing."""


@pytest.fixture
def watch():
    return ExchangeWatch(nothing, ME, ManualClock(), every_s=1)


def test_use_is_reported_once_the_directory_was_scanned(watch):
    request = pb.HeartbeatRequest()
    watch.add_to(request)
    assert not request.exchange.looked_ms
    watch.take(contents())
    watch.add_to(request)
    use = request.exchange
    assert (use.bytes, use.files, use.free_bytes, use.total_bytes) == (2, 1, 3, 4)
    assert use.looked_ms


def test_a_job_is_reported_again_only_when_its_files_change(watch):
    watch.take(contents(a=JobFiles(files=1)))
    assert reported(watch, is_answered=False) == [("a", [])]
    assert reported(watch) == [("a", [])]
    assert reported(watch) == []
    watch.take(contents(a=JobFiles(files=1)))
    assert reported(watch) == []
    watch.take(contents(a=JobFiles(files=2), b=JobFiles()))
    assert reported(watch) == [("a", []), ("b", [])]
    watch.take(contents())
    watch.take(contents(a=JobFiles(files=2)))
    assert reported(watch) == [("a", [])]


def test_what_is_seen_while_a_heartbeat_is_under_way_is_reported_with_the_next(watch):
    watch.take(contents(a=JobFiles(files=1)))
    watch.add_to(pb.HeartbeatRequest())
    watch.take(contents(a=JobFiles(files=2)))
    watch.note_answered(pb.HeartbeatResponse())
    assert reported(watch) == [("a", [])]
    assert reported(watch) == []


def test_a_job_is_reported_again_when_the_scheduler_says_so(watch):
    watch.take(contents(a=JobFiles(files=1), b=JobFiles(files=1)))
    assert reported(watch, again=["a", "gone"]) == [("a", []), ("b", [])]
    assert reported(watch) == [("a", [])]
    assert reported(watch) == []


def test_writers_are_reported_when_they_stay_and_after_each_look(watch):
    job = JobFiles(files=1, writers={STRANGER, ME})
    watch.take(contents(a=job))
    assert reported(watch) == [("a", [])]
    for _ in range(2):
        watch.take(contents(a=job))
        assert reported(watch) == [("a", [STRANGER])]
        assert reported(watch) == []
    watch.take(contents(a=JobFiles(files=1)))
    assert reported(watch) == []


def test_a_heartbeat_stays_small(watch):
    watch.take(contents(**{f"j{i}": JobFiles() for i in range(20)}))
    assert [len(reported(watch)) for _ in range(3)] == [16, 4, 0]


async def test_a_directory_that_cannot_be_looked_through_is_left_alone():
    looks = []

    async def look():
        looks.append(1)
        if len(looks) == 1:
            raise PermissionError("no")

    watch = ExchangeWatch(look, ME, ManualClock(), every_s=0.01)
    await asyncio.wait_for(watch.run(), HANGS_S)
    assert len(looks) == 2
