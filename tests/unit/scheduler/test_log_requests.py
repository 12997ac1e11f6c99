"""Requests for logs go to the executors that wait, and what they answer is collected."""

import asyncio

import pytest

from onager.errors import UnknownExecutorError
from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors import log_requests as module
from onager.scheduler.executors.executor_requests import ExecutorRequests, RequestKind
from onager.scheduler.executors.log_requests import request_logs
from tests.unit.scheduler.small_graphs import session_of

pytestmark = pytest.mark.virtual_time

ASK = pb.LogsAsk(job_id="job-1", tail_bytes=100)


class Executors:
    def __init__(self):
        self.gone = set()

    def is_alive(self, executor_id, _):
        return executor_id not in self.gone

    def session(self, executor_id):
        return None if executor_id in self.gone else session_of(executor_id)

    def require(self, executor_id, _):
        if executor_id in self.gone:
            raise UnknownExecutorError(executor_id)
        return session_of(executor_id)


@pytest.fixture
def requests():
    return ExecutorRequests(Executors(), share_percent=75)


def log(text):
    return pb.AttemptLog(task=pb.TaskId(job_id="job-1"), text=text.encode(), end=len(text))


async def wait(requests, name="e1", *, answers=(), wait_ms=60_000):
    request = pb.AwaitRequestsRequest(executor_id=name, incarnation="life", wait_ms=wait_ms, answers=answers)
    task = asyncio.create_task(requests.wait(request))
    await asyncio.sleep(0)
    return task


def answer_to(request, *logs, left_out=0):
    return pb.RequestAnswer(number=request.number, logs=pb.LogsAnswer(logs=logs, left_out=left_out))


async def requested(task):
    """Return the only request that a call brings."""
    (request,) = (await task).requests
    return request


async def test_those_that_wait_are_asked_and_their_answers_are_collected(requests):
    waits = {name: await wait(requests, name) for name in ("e1", "e2")}
    asked = asyncio.create_task(request_logs(requests, ASK, 5))
    first, second = [await requested(task) for task in waits.values()]
    assert first.logs == second.logs == ASK
    await wait(requests, "e1", answers=[answer_to(first, log("one"), left_out=2)])
    assert not asked.done()
    await wait(requests, "e2", answers=[answer_to(second)])
    answer = await asked
    assert ([each.executor_id for each in answer.logs], sorted(answer.answered)) == (["e1"], ["e1", "e2"])
    assert answer.left_out == 2


async def test_only_those_that_are_named_are_asked(requests):
    first, second = await wait(requests, "e1"), await wait(requests, "e2")
    asked = asyncio.create_task(request_logs(requests, ASK, 5, ["e2", "e3"]))
    request = await requested(second)
    await wait(requests, "e1x", answers=[answer_to(request, log("of another"))])
    await wait(requests, "e2", answers=[answer_to(request, log("two"))])
    assert [each.text for each in (await asked).logs] == [b"two"]
    assert not first.done()


async def test_nobody_waits_for_one_that_does_not_answer(requests):
    waiting = await wait(requests)
    answer = await request_logs(requests, ASK, 0.01)
    assert (list(answer.answered), list(answer.logs)) == ([], [])
    await wait(requests, answers=[answer_to(await requested(waiting), log("late"))])
    assert not requests._lanes[RequestKind.LOGS]["e1"].in_hand


async def test_one_that_was_just_answered_is_asked_when_it_is_back(requests):
    assert not (await (await wait(requests, wait_ms=0))).requests
    asked = asyncio.create_task(request_logs(requests, ASK, 5))
    await asyncio.sleep(0)
    request = await requested(await wait(requests))
    await wait(requests, answers=[answer_to(request)])
    assert list((await asked).answered) == ["e1"]


async def test_one_whose_call_broke_is_asked_when_it_is_back(requests):
    broken = await wait(requests)
    broken.cancel()
    await asyncio.gather(broken, return_exceptions=True)
    asked = asyncio.create_task(request_logs(requests, ASK, 5))
    await asyncio.sleep(0)
    request = await requested(await wait(requests))
    await wait(requests, answers=[answer_to(request)])
    assert list((await asked).answered) == ["e1"]


async def test_one_that_stays_away_is_not_asked(requests):
    await (await wait(requests, wait_ms=0))
    await asyncio.sleep(10)
    assert list((await request_logs(requests, ASK, 5)).answered) == []
    assert not requests._lanes[RequestKind.LOGS]


async def test_a_later_call_takes_the_place_of_one_that_still_waits(requests):
    first = await wait(requests)
    second = await wait(requests)
    assert not (await first).requests
    asked = asyncio.create_task(request_logs(requests, ASK, 0.1))
    assert (await second).requests
    await asked


async def test_a_call_that_was_replaced_takes_no_request(requests):
    first = await wait(requests)
    second = asyncio.create_task(
        requests.wait(pb.AwaitRequestsRequest(executor_id="e1", incarnation="life", wait_ms=9))
    )
    asked = asyncio.create_task(request_logs(requests, ASK, 0.1))
    assert not (await first).requests
    assert (await second).requests
    await asked


async def test_an_answer_to_an_earlier_life_of_the_scheduler_answers_nothing(requests):
    before = ExecutorRequests(Executors(), share_percent=75)
    numbers = []
    for each in (before, requests):
        waiting = await wait(each)
        asked = asyncio.create_task(request_logs(each, ASK, 0.1))
        numbers.append((await requested(waiting)).number)
        await asked
    assert numbers[0] != numbers[1]


async def test_what_is_gone_is_forgotten(requests):
    waiting = await wait(requests)
    requests._executors.gone.add("e1")
    requests.note_change("e1")
    await waiting
    assert not requests._lanes[RequestKind.LOGS]
    with pytest.raises(UnknownExecutorError):
        await (await wait(requests))


async def test_more_requests_than_may_wait_for_one_executor_leave_it_out(requests):
    await (await wait(requests, wait_ms=0))
    asked = [asyncio.create_task(request_logs(requests, ASK, 5)) for _ in range(65)]
    await asyncio.sleep(0)
    assert [each.done() for each in asked] == [False] * 64 + [True]
    taken = (await (await wait(requests))).requests
    assert len(taken) == 64, "one call takes all"
    await wait(requests, answers=[answer_to(request) for request in taken])
    assert [list((await each).answered) for each in asked] == [["e1"]] * 64 + [[]]


async def test_requests_of_spark_connect_do_not_hold_up_those_for_logs(requests):
    connect = pb.AwaitRequestsRequest(executor_id="e1", incarnation="life", connect=True)
    await requests.wait(connect)
    requests.add(RequestKind.CONNECT, "e1", pb.ExecutorRequest(connect=pb.ConnectCall()))
    assert (await requests.wait(connect)).requests
    waiting = await wait(requests)
    asked = asyncio.create_task(request_logs(requests, ASK, 5))
    await wait(requests, answers=[answer_to(await requested(waiting), log("one"))])
    assert list((await asked).answered) == ["e1"]


async def test_text_beyond_the_limit_is_left_out(requests, monkeypatch):
    monkeypatch.setattr(module, "_MAX_BYTES", 5)
    waiting = await wait(requests)
    asked = asyncio.create_task(request_logs(requests, ASK, 5))
    await wait(requests, answers=[answer_to(await requested(waiting), log("1234"), log("56"))])
    answer = await asked
    assert ([each.text for each in answer.logs], answer.left_out) == ([b"1234"], 1)
