"""The agent, and what lies in the exchange directory: it tells of it, cleans up, and waits for space."""

import threading

import grpc
import pytest

from onager.executor.exchange import Contents, JobFiles
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorStub
from tests.support.fakes.scripted_gateway import key, rig, task_set
from tests.support.waiting import HANGS_S, eventually


async def test_what_lies_in_the_exchange_is_reported_and_what_the_dead_left_goes_without_an_end_of_the_job():
    contents = Contents(files=1, bytes=7, free_bytes=1, total_bytes=2, jobs={"job-1": JobFiles(files=1)})
    async with rig(contents=contents, heartbeat_interval_ms=20, exchange_look_ms=100) as r:
        r.gateway.clean_ups = [pb.CleanUp(job_id="job-1", dead_writers=["life-0"])]
        await eventually(lambda: r.worker.cleaned == ["job-1"])
        request = next(request for request in r.gateway.heartbeats if request.exchange_files)
        assert request.exchange.bytes == 7
        assert [each.job_id for each in request.exchange_files] == ["job-1"]
        count = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) > count + 5)
        assert not r.gateway.heartbeats[-1].exchange_files
        assert not any(poll.cleaned_up for poll in r.gateway.polls)
    assert not any(request.cleaned_up for request in r.gateway.heartbeats)


@pytest.mark.parametrize("mode", ["pull", "push"])
async def test_what_is_kept_of_jobs_is_reported_and_forgotten_without_an_end_of_the_job(mode):
    async with rig(mode=mode, heartbeat_interval_ms=20) as r:
        r.worker.kept = {"job-2", "job-1"}
        await eventually(lambda: any(request.kept_jobs == ["job-1", "job-2"] for request in r.gateway.heartbeats))
        r.gateway.forgotten = ["job-1"]
        await eventually(lambda: r.worker.cleaned == ["job-1"])
        count = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) > count + 2)
        assert r.gateway.heartbeats[-1].kept_jobs == ["job-2"]
    assert not any(request.cleaned_up for request in [*r.gateway.heartbeats, *r.gateway.polls])


async def test_a_job_is_cleaned_up_and_that_is_acknowledged_once():
    async with rig() as r:
        r.gateway.clean_ups = [pb.CleanUp(job_id="job-1")]
        await r.gateway.launches.put(task_set(0, job="job-2"))
        await eventually(lambda: r.worker.cleaned == ["job-1"])
        await eventually(lambda: any(poll.cleaned_up for poll in r.gateway.polls))
        await eventually(lambda: not r.gateway.polls[-1].cleaned_up)
        assert sum(list(poll.cleaned_up) == ["job-1"] for poll in r.gateway.polls) == 1


async def test_an_executor_whose_slots_are_always_taken_cleans_up_all_the_same():
    async with rig(slots=1, poll_wait_ms=60_000, heartbeat_interval_ms=20) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.gateway.clean_ups = [pb.CleanUp(job_id=f"job-{n}") for n in range(2, 500)]
        await eventually(lambda: len(r.worker.cleaned) == 498)
        count = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) > count + 2)
    cleaned_up = [job_id for request in r.gateway.heartbeats for job_id in request.cleaned_up]
    assert sorted(cleaned_up) == sorted(r.worker.cleaned)


@pytest.mark.parametrize("mode", ["pull", "push"])
async def test_an_exchange_that_a_task_found_full_is_reported_until_there_is_space(mode):
    async with rig(mode=mode, heartbeat_interval_ms=60_000) as r:
        await eventually(lambda: r.gateway.heartbeats)
        r.worker.full = "exchange directory /x is full: free space there"
        if mode == "pull":
            await r.gateway.launches.put(task_set(0))
        else:
            async with grpc.aio.insecure_channel(r.address) as channel:
                answer = pb.PollWorkResponse(task_sets=[task_set(0)])
                request = pb.AnswerPollRequest(executor_id="e-1", incarnation="life-1", answer=answer)
                await OnagerExecutorStub(channel).AnswerPoll(request)
        await eventually(lambda: r.worker.started)
        assert not r.gateway.heartbeats[-1].no_space, "nobody has noticed"
        r.worker.fail(key(0), "io_error", cause="no_space")
        await eventually(lambda: r.gateway.heartbeats[-1].no_space == r.worker.full)
        r.worker.full = ""
        await eventually(lambda: not r.gateway.heartbeats[-1].no_space)


async def test_a_task_that_found_another_disk_full_takes_nothing_from_the_executor():
    async with rig(heartbeat_interval_ms=20) as r:
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started)
        r.worker.fail(key(0), "io_error", cause="no_space")
        await eventually(lambda: r.gateway.reports)
        count = len(r.gateway.heartbeats)
        await eventually(lambda: len(r.gateway.heartbeats) > count + 5)
        assert not any(request.no_space for request in r.gateway.heartbeats)


async def test_clean_ups_that_take_long_keep_nothing_else_waiting():
    """As on a network disk: more removals than threads, each requested again and again."""
    may_end, begun, looks = threading.Event(), [], []

    def clean_up(request):
        begun.append(request.job_id)
        assert may_end.wait(HANGS_S)

    def is_alive():
        looks.append(1)
        return True

    async with rig(heartbeat_interval_ms=20) as r:
        r.worker.clean_up, r.worker.is_alive = clean_up, is_alive
        for _ in range(2):
            r.gateway.forgotten = [f"old-{i}" for i in range(40)]
            await eventually(lambda: not r.gateway.forgotten)
        await eventually(lambda: len(begun) >= 4)
        seen = len(looks)
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.worker.started == [key(0)])
        r.gateway.cancels = [key(0)]
        await eventually(lambda: r.worker.cancelled == [key(0)])
        await eventually(lambda: len(looks) > seen)
        may_end.set()
        await eventually(lambda: len(begun) >= 40)
        assert sorted(begun) == sorted(f"old-{i}" for i in range(40)), "one was removed twice at once"
