"""What an executor tells of the clean-ups that it carries out."""

import asyncio

import pytest

from onager.clock import SystemClock
from onager.errors import PlaceNotSeenError
from onager.executor.agent.clean_ups import CleanUps
from onager.executor.exchange.seen_places import SeenPlaces
from onager.executor.spark import worker
from onager.executor.spark.worker import SparkWorker
from onager.ids import new_incarnation
from onager.place_files import EXCHANGE, make_id
from onager.protocol import onager_pb2 as pb

JOB = pb.CleanUp(job_id="job-1")


class Removal:
    """A removal of files that lasts until the test ends it."""

    def __init__(self):
        self.asked = 0
        self.may_end = asyncio.Event()
        self.is_to_be_reported = True
        self.tasks = []
        self.clean_ups = CleanUps(self.carry_out, lambda work: self.tasks.append(asyncio.create_task(work)))

    async def carry_out(self, _):
        self.asked += 1
        await self.may_end.wait()
        return self.is_to_be_reported

    async def done(self):
        self.clean_ups.take([JOB])
        self.may_end.set()
        await asyncio.gather(*self.tasks)


@pytest.fixture
async def removal():
    return Removal()


async def test_what_is_done_is_reported_until_a_request_is_answered(removal):
    await removal.done()
    jobs, number = removal.clean_ups.unreported()
    assert jobs == ["job-1"]
    assert removal.clean_ups.unreported() == (jobs, number), "the first request was lost"
    removal.clean_ups.note_answered(number)
    assert removal.clean_ups.unreported()[0] == []


async def test_what_is_done_again_is_reported_again_although_a_poll_still_tells_of_the_first_time(removal):
    await removal.done()
    _, by_poll = removal.clean_ups.unreported()
    _, by_heartbeat = removal.clean_ups.unreported()
    removal.clean_ups.note_answered(by_heartbeat)
    await removal.done()  # its result is too old by now: the heartbeat's answer asked for it
    removal.clean_ups.note_answered(by_poll)
    assert removal.clean_ups.unreported()[0] == ["job-1"]


async def test_a_long_clean_up_that_is_asked_for_again_goes_on_as_one(removal):
    removal.clean_ups.take([JOB])
    await asyncio.sleep(0)
    await removal.done()
    assert removal.asked == 1
    assert removal.clean_ups.unreported()[0] == ["job-1"]


async def test_what_is_not_to_be_reported_is_not(removal):
    removal.is_to_be_reported = False
    await removal.done()
    assert removal.clean_ups.unreported()[0] == []


def test_what_is_removed_while_the_directory_is_lost_is_not_reported_as_removed(tmp_path, monkeypatch):
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    places, place_id = SeenPlaces({EXCHANGE: str(exchange)}, new_incarnation(), SystemClock()), "a" * 16
    make_id(str(exchange), place_id)
    places.take([pb.PlaceVerdict(name=EXCHANGE, id=place_id)])
    places.look()
    (view,) = places.views()
    places.take([pb.PlaceVerdict(name=EXCHANGE, id=place_id, admitted=True, mark=view.mark)])
    made = object.__new__(SparkWorker)
    made._places, made._exchange_dir = places, str(exchange)
    unfinished = pb.CleanUp(job_id="job-1", dead_writers=["dead"])
    made.clean_up(unfinished)

    def remove(*_):
        exchange.rename(tmp_path / "away")
        exchange.mkdir()
        return 0

    monkeypatch.setattr(worker, "remove_unfinished", remove)
    with pytest.raises(PlaceNotSeenError):
        made.clean_up(unfinished)
