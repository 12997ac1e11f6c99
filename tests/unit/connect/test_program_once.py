"""Functions of programs: what came of them is recorded as that of a call."""

import base64

import pytest

from onager.protocol.spark_connect import ConfigRequest, ConfigResponse
from onager.state_backend import Keyspace
from tests.unit.connect.recorded_program import PROGRAM, RefusedError, again, record_of

LARGE = base64.b64encode(bytes(1024 * 1024)).decode()


def asking(name="draw"):
    request = ConfigRequest()
    request.operation.get_option.keys.append(f"onager.once:{name}")
    return request


def recording(value, name="draw"):
    request = ConfigRequest()
    request.operation.set.pairs.add(key=f"onager.once:{name}", value=value)
    return request


async def value_of(attempt, request, **more):
    (answer,) = await attempt.ask("Config", request=request, number=1, **more)
    return [pair.value for pair in ConfigResponse.FromString(answer).pairs]


@pytest.mark.parametrize("value", ["abc", LARGE])
async def test_an_outcome_is_there_once_it_is_recorded(first, program_pair, spark, value):
    assert await value_of(first, asking()) == []
    assert await record_of(first, 1) is None
    assert await value_of(first, recording(value)) == [value]
    record = await record_of(first, 1)
    assert (record.kind, record.target, record.is_done, bool(record.file)) == ("once", "draw", True, value == LARGE)
    second = await again(first)
    assert await value_of(second, asking(), at=program_pair.there) == [value]
    assert not spark.asked
    backend = program_pair.here._backend
    assert not await backend.scan_keys(Keyspace.ConnectSessions, limit=10), "it needs no session"


async def test_the_outcome_that_was_recorded_first_stands(first):
    await value_of(first, recording("first"))
    assert await value_of(first, recording("second")) == ["first"]


async def test_an_attempt_that_does_not_count_records_none(first):
    await again(first)
    for request in (asking(), recording("late")):
        with pytest.raises(RefusedError, match="does not count any more"):
            await value_of(first, request)
    assert not await first.pair.here._backend.scan_keys(Keyspace.ProgramCalls, f"%/{PROGRAM}/", limit=10)


async def test_another_function_or_another_call_in_its_place_is_refused(first):
    await value_of(first, recording("abc"))
    with pytest.raises(RefusedError, match=r"was once to draw at .* is once to other"):
        await value_of(first, asking("other"))
    with pytest.raises(RefusedError, match="was once to draw"):
        await first.analyze(number=1)


async def test_a_setting_of_that_name_is_none_outside_of_programs(first):
    with pytest.raises(RefusedError, match=r"onager\.once"):
        await first.ask("Config", request=recording("abc"), number=0)
