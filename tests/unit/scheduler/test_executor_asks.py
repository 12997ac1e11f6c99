"""Executors that wait for what is asked of them: who is asked, who answers, and what is forgotten."""

import asyncio

import pytest

from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors import asks as module
from onager.scheduler.executors.asks import ExecutorAsks
from tests.unit.scheduler.small_graphs import session_of

ASK = pb.LogsAsk(job_id="job-1", tail_bytes=100)


class Executors:
    def __init__(self):
        self.gone = set()

    def is_alive(self, executor_id, _):
        return executor_id not in self.gone


@pytest.fixture
def asks(clock):
    return ExecutorAsks(Executors(), clock)


def log(text):
    return pb.AttemptLog(task=pb.TaskId(job_id="job-1"), text=text.encode(), end=len(text))


async def wait(asks, name="e1", *, answers=(), wait_ms=60_000):
    request = pb.AwaitAsksRequest(executor_id=name, incarnation="life", wait_ms=wait_ms, answers=answers)
    task = asyncio.create_task(asks.wait(session_of(name), request))
    await asyncio.sleep(0)
    return task


async def test_those_that_wait_are_asked_and_their_answers_are_collected(asks):
    first, second = await wait(asks, "e1"), await wait(asks, "e2")
    asked = asyncio.create_task(asks.ask(ASK, 5))
    numbers = [(await task).logs[0].number for task in (first, second)]
    assert numbers[0] == numbers[1]
    await wait(asks, "e1", answers=[pb.LogsAnswer(number=numbers[0], logs=[log("one")], left_out=2)])
    assert not asked.done()
    await wait(asks, "e2", answers=[pb.LogsAnswer(number=numbers[0])])
    answer = await asked
    assert ([each.executor_id for each in answer.logs], sorted(answer.answered)) == (["e1"], ["e1", "e2"])
    assert answer.left_out == 2


async def test_only_those_that_are_named_are_asked(asks):
    first, second = await wait(asks, "e1"), await wait(asks, "e2")
    asked = asyncio.create_task(asks.ask(ASK, 5, ["e2", "e3"]))
    number = (await second).logs[0].number
    await wait(asks, "e1x", answers=[pb.LogsAnswer(number=number, logs=[log("of another")])])
    await wait(asks, "e2", answers=[pb.LogsAnswer(number=number, logs=[log("two")])])
    assert [each.text for each in (await asked).logs] == [b"two"]
    assert not first.done()


async def test_nobody_waits_for_one_that_does_not_answer(asks):
    waiting = await wait(asks)
    answer = await asks.ask(ASK, 0.01)
    assert (list(answer.answered), list(answer.logs)) == ([], [])
    late = pb.LogsAnswer(number=(await waiting).logs[0].number, logs=[log("late")])
    await wait(asks, answers=[late])
    assert not asks._asked


async def test_one_that_was_just_answered_is_asked_when_it_is_back(asks, clock):
    assert not (await (await wait(asks, wait_ms=0))).logs
    asked = asyncio.create_task(asks.ask(ASK, 5))
    await asyncio.sleep(0)
    number = (await (await wait(asks))).logs[0].number
    await wait(asks, answers=[pb.LogsAnswer(number=number)])
    assert list((await asked).answered) == ["e1"]


async def test_one_that_stays_away_is_not_asked(asks, clock):
    await (await wait(asks, wait_ms=0))
    clock.advance(10_000)
    assert list((await asks.ask(ASK, 5)).answered) == []
    assert not asks._waits


async def test_a_later_call_takes_the_place_of_one_that_still_waits(asks):
    first = await wait(asks)
    second = await wait(asks)
    assert not (await first).logs
    asked = asyncio.create_task(asks.ask(ASK, 0.1))
    assert (await second).logs
    await asked


async def test_what_is_gone_is_forgotten(asks):
    waiting = await wait(asks)
    asks._executors.gone.add("e1")
    asks.changed("e1")
    await waiting
    assert not asks._waits


async def test_text_beyond_the_limit_is_left_out(asks, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 5)
    waiting = await wait(asks)
    asked = asyncio.create_task(asks.ask(ASK, 5))
    number = (await waiting).logs[0].number
    await wait(asks, answers=[pb.LogsAnswer(number=number, logs=[log("1234"), log("56")])])
    answer = await asked
    assert ([each.text for each in answer.logs], answer.left_out) == ([b"1234"], 1)
