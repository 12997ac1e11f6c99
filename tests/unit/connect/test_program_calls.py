"""Calls of programs: what came of one is recorded, and answered again to a later attempt."""

import asyncio

import pytest

from onager.protocol.spark_connect import (
    ConfigRequest,
    ConfigResponse,
    ExecutePlanResponse,
    FetchErrorDetailsResponse,
    request_of,
)
from onager.state_backend import Keyspace
from tests.unit.connect.recorded_program import (
    Attempt,
    RefusedError,
    again,
    answers,
    conf,
    doing,
    finish,
    forget,
    job_of,
    left,
    operation,
    submitted,
)

# ------------------------------------------------------------------------- what is answered again


async def test_settings_that_a_recorded_call_set_are_not_set_again(first, program_pair):
    await first.set(mode="static")
    await first.sql("SET mode dynamic")
    assert await conf(program_pair) == {"mode": "dynamic"}
    second = await again(first)
    await second.set(mode="static")
    assert await conf(program_pair) == {"mode": "dynamic"}, "a live INSERT OVERWRITE would delete the other partitions"
    await second.sql("SET mode dynamic")
    assert await second.get("mode") == ["dynamic"]


async def test_what_spark_said_of_a_plan_is_said_again(first, spark):
    known = [await first.analyze() for _ in range(3)]
    assert len(set(known)) == 3
    second = await again(first)
    assert [await second.analyze(at=first.pair.there) for _ in range(3)] == known
    assert spark.asked == 3
    assert await second.analyze() not in known


async def test_an_error_that_was_caught_is_raised_again_and_what_came_after_it_is_not_done_twice(first, spark):
    async def run(attempt):
        with pytest.raises(RefusedError, match="no sales") as raised:
            await attempt.sql("FAIL sales")
        assert raised.value.is_recorded, "with many parameters, whose order is no part of it"
        await attempt.sql("SET made yes")
        return str(raised.value), raised.value.code

    error = await run(first)
    asked = spark.asked
    second = await again(first)
    assert await run(second) == error
    assert spark.asked == asked


async def test_another_scheduler_knows_all_of_a_recorded_error(first, program_pair):
    with pytest.raises(RefusedError):
        await first.sql("FAIL sales")
    second = await again(first)
    with pytest.raises(RefusedError) as raised:
        await second.sql("FAIL sales", at=program_pair.there)
    assert b"call/0/1" in raised.value.metadata["grpc-status-details-bin"]
    (answer,) = await second.ask("FetchErrorDetails", at=program_pair.there, number=0, error_id="call/0/1")
    details = FetchErrorDetailsResponse.FromString(answer)
    assert "no sales" in details.errors[details.root_error_idx].message


async def test_an_error_that_passes_is_no_outcome(first, spark):
    with pytest.raises(RefusedError) as raised:
        await first.sql("BUSY disk")
    assert not raised.value.is_recorded
    first.number -= 1
    assert await first.sql("SHOW disk")


async def test_a_command_that_changes_nothing_is_answered_again(first):
    (known, _) = await first.sql("SHOW TABLES")
    second = await again(first)
    assert (await second.sql("SHOW TABLES"))[0] == known


async def test_a_query_runs_once_and_its_rows_outlive_its_job(first, program_pair):
    known = await doing(first, first.query(), 1)
    await forget(program_pair, 1)
    second = await again(first)
    rows = await second.query(b"the same relation, with other ids", at=program_pair.there)
    assert rows == answers(known)
    (cut,) = await second.ask(
        "ReattachExecute",
        number=1,
        operation_id=operation(1),
        last_response_id=ExecutePlanResponse.FromString(rows[-2]).response_id,
    )
    assert cut == rows[-1]


async def test_a_query_that_an_attempt_has_left_is_waited_for_by_the_next(first, program_pair):
    await left(first, first.query(), 1)
    second = await again(first)
    await doing(second, second.query(at=program_pair.there), 1)
    assert len(await program_pair.here._backend.scan_keys(Keyspace.JobHeads, limit=10)) == 1


async def test_a_write_is_carried_out_once(first, program_pair):
    known = await doing(first, first.sql("INSERT INTO t VALUES (1)"), 1)
    await forget(program_pair, 1)
    second = await again(first)
    assert await second.sql("INSERT INTO t VALUES (2)", at=program_pair.there) == known[-2:]
    assert not await program_pair.here._backend.scan_keys(Keyspace.JobHeads, limit=10)


@pytest.mark.parametrize("act", [Attempt.query, lambda attempt: attempt.sql("INSERT INTO t VALUES (1)")])
async def test_what_has_begun_and_whose_job_is_gone_is_never_run_again(first, program_pair, act):
    await left(first, act(first), 1)
    await forget(program_pair, 1)
    second = await again(first)
    with pytest.raises(RefusedError, match="OPERATION_ABANDONED"):
        await act(second)
    assert not await program_pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)


async def test_sessions_and_operations_of_a_program_are_not_released(first, program_pair):
    await first.sql("SET a b")
    asked = asyncio.ensure_future(first.query())
    await submitted(program_pair, 2)
    release = request_of("ReleaseExecute")(operation_id=operation(2))
    release.release_all.SetInParent()
    await first.ask("ReleaseExecute", request=release, number=0)
    await first.ask("ReleaseSession", number=3)
    assert (await program_pair.here.jobs.load(job_of(2))).graph.is_active
    await finish(program_pair, 2)
    await asked
    assert await conf(program_pair) == {"a": "b"}


async def test_another_user_of_a_later_attempt_has_the_same_sessions(first, program_pair):
    await first.sql("SET a b")
    second = await again(first)
    second.number = 1
    request = ConfigRequest()
    request.operation.get_option.keys.append("a")
    (answer,) = await second.ask("Config", request=request, user="bob")
    assert [each.value for each in ConfigResponse.FromString(answer).pairs] == ["b"]
