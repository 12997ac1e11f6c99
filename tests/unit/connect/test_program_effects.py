"""Calls of programs that change a session: the change and the record of the call are one write, wherever one dies."""

import asyncio
import uuid
import zlib
from contextlib import suppress

import pytest

from onager.errors import StateUnavailableError
from onager.protocol.spark_connect import (
    AddArtifactsResponse,
    AnalyzePlanResponse,
    CloneSessionResponse,
    ConfigRequest,
    InterruptResponse,
    request_of,
)
from onager.scheduler.connect.records import SessionKey
from onager.state_backend import Keyspace
from tests.unit.connect.recorded_program import (
    KEY,
    RefusedError,
    again,
    doing,
    finish,
    job_of,
    operation,
    record_of,
    submitted,
)

CLONE = str(uuid.UUID(int=0xC10))


async def unset(attempt, **more):
    request = ConfigRequest()
    request.operation.unset.keys.append("mode")
    return await attempt.ask("Config", request=request, **more)


async def set_mode(attempt, **more):
    request = ConfigRequest()
    request.operation.set.pairs.add(key="mode", value="static")
    return await attempt.ask("Config", request=request, **more)


async def persist(attempt, **more):
    request = request_of("AnalyzePlan")()
    request.persist.relation = b"relation"
    return await attempt.ask("AnalyzePlan", request=request, **more)


async def unpersist(attempt, **more):
    request = request_of("AnalyzePlan")()
    request.unpersist.relation = b"relation"
    return await attempt.ask("AnalyzePlan", request=request, **more)


async def add_file(attempt, content=b"import this", **more):
    request = request_of("AddArtifacts")()
    added = request.batch.artifacts.add(name="pyfiles/tool.py")
    added.data.data, added.data.crc = content, zlib.crc32(content)
    return await attempt.ask("AddArtifacts", request=request, **more)


async def clone(attempt, **more):
    return await attempt.ask("CloneSession", new_session_id=CLONE, **more)


EFFECTS = {each.__name__: each for each in (set_mode, unset, persist, unpersist, add_file, clone)}


class Dying:
    """Lets a scheduler's writes fail from one on: the request is lost, or the answer."""

    def __init__(self, backend, monkeypatch):
        self.put_txn, self.writes, self.dies_at, self.is_written = backend.put_txn, 0, None, False
        monkeypatch.setattr(backend, "put_txn", self)

    async def __call__(self, *given, **named):
        self.writes += 1
        if self.dies_at is None or self.writes < self.dies_at:
            return await self.put_txn(*given, **named)
        if self.is_written and self.writes == self.dies_at:
            await self.put_txn(*given, **named)
        raise StateUnavailableError("dead")

    def die(self, at, *, is_written):
        self.writes, self.dies_at, self.is_written = 0, at, is_written


async def state(pair):
    """Return what is stored of the session and of its clone."""
    sessions = pair.there.spark_connect.sessions
    found = [await sessions.find(KEY), await sessions.find(SessionKey("ann", CLONE))]
    return [
        None if each is None or not each.record.is_made else (each.record.revision, each.record.server_side_session_id)
        for each in found
    ]


@pytest.mark.parametrize("act", [persist, unpersist])
async def test_a_recorded_answer_says_what_it_is_an_answer_to(first, act):
    """Of one that says nothing else, PySpark says: no analyze result found."""
    await (unpersist if act is persist else persist)(first)
    (answer,) = await act(first)
    assert AnalyzePlanResponse.FromString(answer).WhichOneof("result") == act.__name__
    second = await again(first)
    second.number = first.number - 1
    assert await act(second) == [answer]


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("name", EFFECTS)
async def test_a_change_is_there_if_and_only_if_its_call_is_recorded(
    first, program_pair, monkeypatch, name, at, is_written
):
    """The scheduler dies at the write *at*; then another task changes the session, and the next attempt goes on."""
    await first.set(mode="dynamic", other="1")
    await (unpersist if name == "persist" else persist)(first)
    act, number = EFFECTS[name], 3
    dying = Dying(program_pair.here._backend, monkeypatch)
    before = await state(program_pair)
    dying.die(at, is_written=is_written)
    with suppress(RefusedError):
        await act(first, number=number)
    assert dying.writes or at > 1
    record, now = await record_of(first, number), await state(program_pair)
    assert (now != before) == (record is not None and record.is_done)
    dying.die(None, is_written=False)
    first.number = number
    await first.set(mode="of another task")
    second = await again(first)
    known = await act(second, number=number, at=program_pair.there)
    after = await state(program_pair)
    assert after[0][0] - before[0][0] == (1 if name == "clone" else 2), "each change is made once"
    assert (after[1] is not None) == (name == "clone")
    assert await act(second, number=number) == known
    assert await state(program_pair) == after


async def test_a_setting_that_two_schedulers_are_asked_for_is_set_once(first, program_pair, spark):
    await first.sql("SET a b")
    before = await state(program_pair)

    async def meanwhile():
        await set_mode(first, number=2, at=program_pair.there)

    spark.before_answer = meanwhile
    answer = await set_mode(first, number=2)
    assert answer == await set_mode(first, number=2)
    assert (await state(program_pair))[0][0] == before[0][0] + 1


async def test_files_of_which_the_session_has_another_one_are_an_error_in_the_same_write(first, program_pair):
    await add_file(first)
    with pytest.raises(RefusedError, match="ARTIFACT_ALREADY_EXISTS") as raised:
        await add_file(first, b"import that")
    assert raised.value.is_recorded
    before = await state(program_pair)
    second = await again(first)
    (answer,) = await add_file(second, at=program_pair.there)
    assert AddArtifactsResponse.FromString(answer).artifacts[0].is_crc_successful
    with pytest.raises(RefusedError, match="ARTIFACT_ALREADY_EXISTS"):
        await add_file(second, b"import that", at=program_pair.there)
    assert await state(program_pair) == before


async def test_a_clone_of_a_recorded_call_has_one_name_for_all_attempts(first, program_pair):
    (answer,) = await clone(first)
    await first.set(mode="later")
    (same,) = await clone(await again(first), number=1, at=program_pair.there)
    assert same == answer
    found = await program_pair.there.spark_connect.sessions.find(SessionKey("ann", CLONE))
    made = CloneSessionResponse.FromString(answer)
    assert made.new_server_side_session_id == found.record.server_side_session_id
    assert found.record.program == "%/nightly"


# ------------------------------------------------------------------------- interrupts


async def interrupt(attempt, **more):
    (answer,) = await attempt.ask("Interrupt", interrupt_type=1, **more)
    return list(InterruptResponse.FromString(answer).interrupted_ids)


async def running(attempt, number):
    asked = asyncio.ensure_future(attempt.query(number=number))
    await submitted(attempt.pair, number)
    return asked


async def is_active(pair, number):
    return await pair.here._backend.get(Keyspace.ActiveJobs, job_of(number)) is not None


async def cancelled(*asked):
    for each in asked:
        with pytest.raises(RefusedError, match="OPERATION_CANCELED"):
            await each


async def test_an_interrupt_is_answered_again_and_cancels_nothing_that_runs_then(first, program_pair):
    asked = await running(first, 1)
    known = await interrupt(first, number=2)
    assert known == [operation(1)]
    await cancelled(asked)
    second = await again(first)
    later = await running(second, 3)
    assert await interrupt(second, number=2, at=program_pair.there) == known
    assert await is_active(program_pair, 3)
    await finish(program_pair, 3)
    await later


async def test_an_interrupt_of_an_earlier_attempt_cancels_nothing(first, program_pair):
    asked = await running(first, 1)
    found = program_pair.here.spark_connect.running.found

    async def late(*given, **named):
        ids = await found(*given, **named)
        await again(first)
        return ids

    program_pair.here.spark_connect.running.found = late
    with pytest.raises(RefusedError, match="does not count any more"):
        await interrupt(first, number=2)
    assert await is_active(program_pair, 1)
    assert await record_of(first, 2) is None
    await finish(program_pair, 1)
    await asyncio.gather(asked, return_exceptions=True)


@pytest.mark.parametrize("dies_after", [0, 1])
async def test_an_interrupt_that_has_begun_is_finished_by_whoever_finds_it(first, program_pair, dies_after):
    both = [await running(first, 1), await running(first, 2)]
    connect = program_pair.here.spark_connect
    cancel = connect.running.cancel

    async def dying(key, ids):
        await cancel(key, ids[:dies_after])
        raise StateUnavailableError("dead")

    connect.running.cancel = dying
    with pytest.raises(RefusedError, match="dead"):
        await interrupt(first, number=3)
    connect.running.cancel = cancel
    assert (await record_of(first, 3)).interrupts == (operation(1), operation(2))
    second = await again(first)
    later = await running(second, 4)
    assert await interrupt(second, number=3, at=program_pair.there) == [operation(1), operation(2)]
    assert [await is_active(program_pair, number) for number in (1, 2, 4)] == [False, False, True]
    await asyncio.gather(*both, return_exceptions=True)
    await finish(program_pair, 4)
    await later


async def test_what_ends_before_its_interrupt_is_not_interrupted(first, program_pair):
    await doing(first, first.query(), 1)
    assert await interrupt(first, number=2) == []
