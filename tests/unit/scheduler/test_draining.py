"""Executors that are drained on request: the record tells all schedulers, and the executor learns of it at once."""

import asyncio

import pytest

from onager.errors import InvalidRequestError, NotFoundError
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.state_backend import OutcomeUnknown
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.pair import FakeContext, register

CONTEXT = FakeContext()


async def drain(scheduler, executor_id="e1", reason="disk"):
    return await scheduler.service.DrainExecutor(
        pb.DrainExecutorRequest(executor_id=executor_id, reason=reason), CONTEXT
    )


def wait_for_requests(scheduler, **more):
    request = pb.AwaitRequestsRequest(executor_id="e1", incarnation="life", wait_ms=60_000, **more)
    return asyncio.create_task(scheduler.gateway.AwaitRequests(request, CONTEXT))


async def test_the_executor_learns_of_it_where_it_waits_whichever_scheduler_was_asked(pair):
    await register(pair)
    waiting = wait_for_requests(pair.here)
    await asyncio.sleep(0)
    answer = await drain(pair.there)
    assert (answer.was_leaving, answer.others) == (False, 0)
    await pair.here.executors.refresh()  # what the watch brings
    assert (await asyncio.wait_for(waiting, HANGS_S)).drain
    assert [e.state for e in pair.here.executors.infos()] == ["draining"]
    assert pair.here.executors.taking_work() == frozenset()
    assert (await wait_for_requests(pair.here)).drain, "it may not have got the answer"


async def test_one_that_leaves_already_is_not_reported_again(pair):
    await register(pair)
    await drain(pair.here)
    waiting = wait_for_requests(pair.here, draining=True)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    pair.here.release_polls()
    assert not (await asyncio.wait_for(waiting, HANGS_S)).drain


async def register_beside(pair):
    await register(pair)
    await register(pair, "e1.programs", runs_programs=True)
    assert pair.here.executors.taking_work(programs=True) == {"e1.programs"}


async def test_what_runs_programs_beside_it_leaves_too_and_at_once(pair):
    await register_beside(pair)
    pair.here.executors.session("e1.programs").held = {TaskKey("p", 0, 0, 0, 0): 0.0}
    request = pb.AwaitRequestsRequest(executor_id="e1.programs", incarnation="life", wait_ms=60_000)
    waiting = asyncio.create_task(pair.here.gateway.AwaitRequests(request, CONTEXT))
    await asyncio.sleep(0)
    answer = await drain(pair.here)
    assert (answer.running, answer.programs, answer.others) == (0, 1, 0)
    assert (await asyncio.wait_for(waiting, HANGS_S)).drain
    assert pair.here.executors.taking_work(programs=True) == frozenset()
    await pair.there.executors.refresh()
    assert pair.there.executors.taking_work(programs=True) == frozenset()
    listed = await pair.here.service.ListExecutors(pb.ListExecutorsRequest(), CONTEXT)
    assert [(e.executor_id, e.state, e.program_slots) for e in listed.executors] == [("e1", "draining", 0)]


async def test_an_executor_that_leaves_by_itself_takes_no_programs_either(pair):
    await register_beside(pair)
    beat = pb.HeartbeatRequest(executor_id="e1", incarnation="life", draining=True)
    await pair.here.gateway.Heartbeat(beat, CONTEXT)
    assert pair.here.executors.taking_work(programs=True) == frozenset()
    await register(pair, "e1.programs", runs_programs=True)  # it was started again, knowing nothing
    await pair.here.gateway.Heartbeat(beat, CONTEXT)
    assert pair.here.executors.taking_work(programs=True) == frozenset()


async def test_what_runs_programs_is_drained_with_its_executor_only(pair):
    await register_beside(pair)
    with pytest.raises(NotFoundError, match=r"there is no executor e1\.programs"):
        await pair.here.service.draining.drain("e1.programs", "")
    assert pair.here.executors.taking_work(programs=True) == {"e1.programs"}


async def test_a_repeated_call_says_so_and_everything_is_audited(pair):
    await register(pair)
    await drain(pair.here)
    assert (await drain(pair.there, reason="again")).was_leaving
    entries = (await pair.here.service.ListAudit(pb.ListAuditRequest(action="drain"), CONTEXT)).entries
    assert [(e.target, e.detail, e.outcome) for e in entries] == [
        ("e1", "disk", "done"),
        ("e1", "again", "it was leaving before"),
    ]


async def test_a_drain_whose_write_got_no_answer_is_the_one_that_drained(pair, monkeypatch):
    await register(pair)
    commit = pair.here._backend._commit

    async def loses_the_answer(ops, expect):
        monkeypatch.undo()
        await commit(ops, expect)
        return OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(pair.here._backend, "_commit", loses_the_answer)
    assert not (await pair.here.service.draining.drain("e1", "disk")).was_leaving
    assert [e.state for e in pair.here.executors.infos()] == ["draining"]


async def test_an_unknown_executor_and_one_that_is_gone_are_refused(pair):
    with pytest.raises(NotFoundError, match="there is no executor e1: onager executors lists them"):
        await pair.here.service.draining.drain("e1", "")
    await register(pair)
    await pair.here.executors.deregister("e1", "life", "it crashed")
    with pytest.raises(InvalidRequestError, match=r"executor e1 is lost \(it crashed\): there is nothing to drain"):
        await pair.here.service.draining.drain("e1", "")


async def test_after_its_farewell_it_has_left(pair):
    await register(pair)
    await drain(pair.here)
    await pair.here.executors.deregister("e1", "life", "drained")
    assert [e.state for e in pair.here.executors.infos()] == ["left"]
    with pytest.raises(InvalidRequestError, match="executor e1 has left"):
        await pair.here.service.draining.drain("e1", "")


async def test_the_next_life_takes_work(pair):
    await register(pair)
    await drain(pair.here)
    await pair.here.executors.deregister("e1", "life", "drained")
    await register(pair)
    assert pair.here.executors.taking_work() == {"e1"}
