"""Programs whose jobs have ended are closed, whichever scheduler dies meanwhile."""

from types import SimpleNamespace

import pytest

from onager.ids import JobId
from onager.scheduler.api.hosted_programs import HostedPrograms

JOB = JobId("nightly")


class Programs:
    def __init__(self):
        self.closed = []

    async def close(self, key, job_id, why):
        self.closed.append((key.program_id, job_id, why))
        return True


class Heads(dict):
    async def known(self, job_id):
        return self.get(job_id)


@pytest.fixture
def hosted():
    heads = Heads({JOB: SimpleNamespace(principal="", program_id="", is_program=True, is_active=False)})
    owner = SimpleNamespace(is_mine=lambda _: owner.drives, drives=False)

    async def interrupt(path):
        assert path

    return HostedPrograms(Programs(), None, heads, owner, interrupt, lambda _: True)


async def test_a_program_whose_driver_dies_before_it_closes_it_is_closed_by_the_next_one(hosted):
    hosted.on_head(JOB, hosted.heads[JOB])
    await hosted.close_ended()
    assert not hosted.programs.closed, "its driver does so"
    hosted.ownership.drives = True
    await hosted.close_ended()
    await hosted.close_ended()
    assert hosted.programs.closed == [("nightly", JOB, "its job has ended")]


async def test_a_job_that_is_removed_is_forgotten(hosted):
    hosted.on_head(JOB, hosted.heads.pop(JOB))
    hosted.on_head(JOB, None)
    hosted.ownership.drives = True
    await hosted.close_ended()
    assert not hosted.programs.closed
