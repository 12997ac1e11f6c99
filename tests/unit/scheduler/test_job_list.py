"""The list of jobs: which ones, in which order, page by page."""

from random import Random  # noqa: TID251 - seeded

import pytest

from onager.errors import InvalidRequestError
from onager.execution_graph import JobState
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.job_list import listed
from onager.scheduler.jobs.job_heads import JobHead


def head(number, *, at_ms=0, state=JobState.SUCCESSFUL, name="", **more):
    return JobHead(
        job_id=f"job-{number:03d}", name=name, client_id="c", state=state, submitted_ms=at_ms or number, **more
    )


async def ids(heads, **wanted):
    return [int(job.job_id[4:]) for job in (await listed(heads, pb.ListJobsRequest(**wanted))).jobs]


async def test_the_newest_come_first_and_equal_times_by_id():
    heads = [head(1, at_ms=5), head(3, at_ms=5), head(2, at_ms=9)]
    assert await ids(heads) == [2, 3, 1]


async def test_conditions_hold_together():
    heads = [
        head(1, name="Nightly ETL", session="a", principal="ann"),
        head(2, name="nightly etl", session="a", principal="bob", state=JobState.FAILED),
        head(3, name="report", session="b", principal="ann"),
        head(4, name="report", session="b"),
    ]
    assert await ids(heads, name="LY E") == [2, 1]
    assert await ids(heads, name="nightly", principal="ann") == [1]
    assert await ids(heads, session="b") == [4, 3]
    assert await ids(heads, state="FAILED") == [2]
    assert await ids(heads, since_ms=2, until_ms=4) == [3, 2]
    assert await ids(heads, name="nothing") == []


@pytest.mark.parametrize("seed", range(3))
async def test_pages_add_up_although_jobs_come_and_go(seed):
    draw = Random(seed)
    heads = {n: head(n, at_ms=draw.randrange(1, 20)) for n in range(200)}
    expected = await ids(list(heads.values()), limit=1000)
    seen, cursor, added = [], "", 500
    while True:
        answer = await listed(list(heads.values()), pb.ListJobsRequest(limit=17, cursor=cursor))
        seen += [int(job.job_id[4:]) for job in answer.jobs]
        cursor = answer.next
        if not cursor:
            break
        heads.pop(seen[-1])  # the very job that the cursor names
        heads[added] = head(added, at_ms=1000)
        added += 1
    assert seen == expected


async def test_a_last_page_that_is_full_has_no_next_one():
    answer = await listed([head(1), head(2)], pb.ListJobsRequest(limit=2))
    assert (len(answer.jobs), answer.next) == (2, "")


async def test_a_head_tells_what_it_knows_of_its_stages():
    (job,) = (
        await listed([head(1, stages=4, stages_done=3, retry_of="job-0", session="s")], pb.ListJobsRequest())
    ).jobs
    assert (job.stages_total, job.stages_done, job.retry_of, job.session) == (4, 3, "job-0", "s")


NAME = "SET a.password = hunter2; SELECT"


async def test_a_name_of_an_earlier_version_shows_no_secret():
    (job,) = (await listed([head(1, name=NAME)], pb.ListJobsRequest())).jobs
    assert ("hunter2" in job.name, "a.password" in job.name) == (False, True)
    assert not (await listed([head(1, name=NAME)], pb.ListJobsRequest(name="hunter"))).jobs, "nor by a search"


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"state": "walking"}, "'walking' is not a job state; use queued, planning"),
        ({"cursor": "5"}, "'5' is no cursor of a list of jobs: give `next` of the page before"),
        ({"cursor": "5./etc"}, "is no cursor"),
        ({"cursor": "\u0665.job-1"}, "is no cursor"),
        ({"cursor": "-5.job-1"}, "is no cursor"),
        ({"since_ms": 9, "until_ms": 9}, "no job can be submitted between 9 (since) and 9 (until, not included)"),
    ],
)
async def test_what_makes_no_sense_is_refused(wanted, why):
    with pytest.raises(InvalidRequestError) as caught:
        await listed([], pb.ListJobsRequest(**wanted))
    assert why in str(caught.value)


async def test_calls_of_programs_that_are_jobs_are_listed_when_they_are_asked_for():
    heads = [
        head(1, is_program=True),
        head(2, labels={"connect.program": "ann/job-001"}),
        head(3, labels={"connect.program": "%/of-another-machine"}),
    ]
    assert await ids(heads) == [3, 1]
    assert await ids(heads, steps=True) == [3, 2, 1]
    assert await ids(heads, labels={"connect.program": "ann/job-001"}) == [2]
