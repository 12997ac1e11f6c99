"""Requests that need Spark: the session's executor gets them, and another one when it is gone."""

import asyncio
from types import SimpleNamespace

import pytest

from onager.errors import BusyError, ConnectGivenUpError, ConnectUnservedError
from onager.protocol import onager_pb2 as pb
from onager.protocol.security.principal import note_principal
from onager.scheduler.executors.connect_calls import ConnectCalls
from onager.scheduler.executors.executor_requests import ExecutorRequests

pytestmark = pytest.mark.virtual_time


class Executors(SimpleNamespace):
    def is_alive(self, executor_id, incarnation):
        return (executor_id, incarnation) not in self.dead


@pytest.fixture
def executors():
    return Executors(dead=set(), total_slots=2)


@pytest.fixture
def calls(executors):
    return ConnectCalls(ExecutorRequests(executors, share_percent=75))


async def wait(calls, executor_id, reply=None, incarnation="1"):
    """Wait as an executor does, with the answer to an earlier request; return the next one."""
    request = pb.AwaitRequestsRequest(
        executor_id=executor_id,
        incarnation=incarnation,
        wait_ms=1000,
        connect=True,
        answers=[] if reply is None else [reply],
    )
    requests = (await calls._requests.wait(request)).requests
    assert len(requests) <= 1
    return requests[0] if requests else None


def reply_to(request, **reply):
    return pb.RequestAnswer(number=request.number, connect=pb.ConnectReply(**reply))


async def serve(calls, executor_id, served):
    reply = None
    while True:
        request = await wait(calls, executor_id, reply)
        reply = None
        if request is not None:
            served.append((executor_id, request.connect.apply))
            reply = reply_to(request, analyzed=executor_id.encode())


async def ask(calls, text, key="session"):
    return (await calls.call(pb.ConnectCall(apply=text), key, 5)).analyzed


async def ask_as(calls, client, text):
    note_principal(client)
    return await ask(calls, text)


async def test_requests_of_a_session_go_to_one_executor(calls):
    served = []
    async with asyncio.TaskGroup() as tasks:
        lanes = [tasks.create_task(serve(calls, f"e{n}", served)) for n in range(4) for _ in range(2)]
        await asyncio.gather(*(ask(calls, b"%d" % n) for n in range(20)))
        of_others = {await ask(calls, b"", f"session {n}") for n in range(20)}
        for lane in lanes:
            lane.cancel()
    assert len({executor_id for executor_id, _ in served[:20]}) == 1
    assert len(of_others) > 1


async def test_a_request_whose_executor_is_gone_is_given_to_another(calls, executors):
    asked = asyncio.create_task(ask(calls, b"x"))
    begun = await wait(calls, "e1")
    assert begun.connect.apply == b"x"
    waits = asyncio.create_task(wait(calls, "e1"))
    await asyncio.sleep(0)
    waits.cancel()  # its connection breaks
    served = []
    other = asyncio.create_task(serve(calls, "e2", served))
    assert await asked == b"e2"
    other.cancel()
    executors.dead.add(("e1", "1"))
    assert await wait(calls, "e1", reply_to(begun, analyzed=b"e1"), incarnation="2") is None


async def test_a_request_waits_for_an_executor_that_starts_and_not_for_ever(calls):
    with pytest.raises(ConnectUnservedError):
        await calls.call(pb.ConnectCall(), "session", 60)
    asked = asyncio.create_task(ask(calls, b"x"))
    await asyncio.sleep(3)
    other = asyncio.create_task(serve(calls, "e1", []))
    assert await asked == b"e1"
    other.cancel()


async def test_an_executor_that_never_replies_costs_its_time_and_no_more(calls):
    waits = asyncio.create_task(wait(calls, "e1"))
    with pytest.raises(ConnectGivenUpError, match="more than 5 s") as given_up:
        await ask(calls, b"x")
    assert not given_up.value.retryable, "sent again, it would take as long again"
    assert (await waits).connect.deadline_ms == 5000


async def test_a_request_that_no_executor_takes_in_time_may_be_sent_again(calls):
    await wait(calls, "e1")  # that is all that this executor asks for
    with pytest.raises(ConnectUnservedError, match="took it within 5 s") as unserved:
        await ask(calls, b"x")
    assert unserved.value.retryable


async def test_requests_that_nobody_takes_are_limited(calls):
    await wait(calls, "e1")
    asked = [asyncio.create_task(ask_as(calls, f"client {n % 2}", b"x")) for n in range(64)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="64 requests"):
        await ask_as(calls, "client 2", b"x")
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert await wait(calls, "e1") is None, "who has given up is not served"


async def test_a_client_waits_for_no_more_than_one_request_of_each_other_client(calls):
    await wait(calls, "e1")
    flood = [asyncio.create_task(ask_as(calls, "mallory", b"mallory")) for _ in range(64)]
    await asyncio.sleep(0)
    refused = [each.exception() for each in flood if each.done()]
    assert len(refused) == 16
    assert all(isinstance(error, BusyError) and "48 requests" in str(error) for error in refused)
    others = [asyncio.create_task(ask_as(calls, name, name.encode())) for name in ("ann", "bob", "ann")]
    await asyncio.sleep(0)
    taken = [(await wait(calls, "e1")).connect.apply for _ in range(6)]
    assert taken == [b"mallory", b"ann", b"bob", b"mallory", b"ann", b"mallory"]
    for each in (*flood, *others):
        each.cancel()
    await asyncio.gather(*flood, *others, return_exceptions=True)


async def asked_as(calls, *clients):
    """Have each of the clients ask, in this order; return their tasks."""
    asked = []
    for client in clients:
        asked.append(asyncio.create_task(ask_as(calls, client, client.encode())))
        await asyncio.sleep(0)
    return asked


async def taken(calls, reply=None):
    return await wait(calls, "e1", reply)


async def end(asked):
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_what_an_executor_has_in_hand_counts_for_whose_turn_it_is(calls):
    await taken(calls)
    asked = await asked_as(calls, *["mallory"] * 6)
    lanes = [await taken(calls) for _ in range(4)]
    assert {request.connect.apply for request in lanes} == {b"mallory"}, "nobody else waits"
    asked += await asked_as(calls, "ann", "ann", "bob")
    nexts = [await taken(calls, reply_to(request, analyzed=b"done")) for request in lanes]
    assert [request.connect.apply for request in nexts] == [b"ann", b"bob", b"mallory", b"ann"]
    await end(asked)


async def test_what_nobody_waits_for_any_more_counts_while_it_is_in_hand(calls):
    await taken(calls)
    left = await asked_as(calls, "mallory", "mallory")
    lanes = [await taken(calls) for _ in range(2)]
    await end(left)
    asked = await asked_as(calls, "mallory", "ann")
    assert (await taken(calls)).connect.apply == b"ann"
    assert (await taken(calls, reply_to(lanes[0], analyzed=b"late"))).connect.apply == b"mallory"
    await end(asked)


async def test_what_an_executor_was_given_and_never_replies_to_counts_for_a_limited_time(calls):
    await taken(calls)
    left = await asked_as(calls, "mallory", "mallory")
    for _ in left:
        await taken(calls)
    assert await asyncio.gather(*left, return_exceptions=True)
    await asyncio.sleep(6)
    asked = await asked_as(calls, "mallory", "ann")
    assert (await taken(calls)).connect.apply == b"mallory"
    await end(asked)


async def test_a_request_that_ends_each_executor_is_not_given_to_all_of_them(calls, executors):
    asked = asyncio.create_task(ask(calls, b"x"))
    for number in range(3):
        assert (await wait(calls, f"e{number}")).connect.apply == b"x"
        executors.dead.add((f"e{number}", "1"))
        leaving = asyncio.create_task(wait(calls, f"e{number}"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
    with pytest.raises(ConnectGivenUpError, match="3 executors"):
        await asked


async def test_executors_that_leave_before_they_take_a_request_are_not_counted(calls):
    await wait(calls, "e1")
    asked = asyncio.create_task(ask(calls, b"x"))
    for life in range(2, 7):
        leaves = asyncio.create_task(wait(calls, "e1", incarnation=str(life)))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
    served = []
    other = asyncio.create_task(serve(calls, "e2", served))
    assert await asked == b"e2"
    other.cancel()


BLIND = pb.ConnectFailure(error_class="PlaceNotSeenError", message="the warehouse is not seen here")


async def answer_blindly(calls, executor_id, asked):
    reply = None
    while True:
        request = await wait(calls, executor_id, reply)
        reply = None
        if request is not None:
            asked.append(executor_id)
            reply = reply_to(request, failure=BLIND)


async def test_an_executor_without_the_tables_is_passed_over_unless_no_other_is_there(calls):
    asked, served = [], []
    lanes = [asyncio.create_task(answer_blindly(calls, executor_id, asked)) for executor_id in ("e1", "e2")]
    await asyncio.sleep(0)
    reply = await calls.call(pb.ConnectCall(apply=b"x"), "session", 5)
    assert reply.failure == BLIND
    assert sorted(asked) == ["e1", "e2"]
    lanes.append(asyncio.create_task(serve(calls, "e3", served)))
    await asyncio.sleep(0)
    assert {await ask(calls, b"x", f"session {n}") for n in range(20)} == {b"e3"}
    assert len(served) == 20
    for lane in lanes:
        lane.cancel()
