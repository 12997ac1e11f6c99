"""Attempts of programs: the last one counts, and a call of an earlier one changes nothing."""

import grpc
import pytest

from onager.errors import InvalidRequestError, NotFoundError
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import (
    ExecutePlanRequest,
)
from onager.protocol.status import ERROR_KEY
from onager.scheduler.connect.call_names import CALL_HEADER, PROGRAM_HEADER, call_name
from onager.scheduler.connect.program_targets import target_of
from onager.scheduler.program_records import ProgramKey, knows
from onager.scheduler.programs import MAX_LOST
from onager.state_backend import Keyspace
from tests.unit.connect.recorded_program import PROGRAM, Attempt, RefusedError, again, conf, doing

# ------------------------------------------------------------------------- which attempt counts


CALLS = {
    "a question": lambda attempt: attempt.analyze(),
    "a setting": lambda attempt: attempt.set(late="yes"),
    "a command": lambda attempt: attempt.sql("SET late yes"),
    "an error": lambda attempt: attempt.sql("FAIL sales"),
    "a write": lambda attempt: attempt.sql("INSERT INTO t VALUES (1)"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("when", ["before it", "while Spark answers"])
async def test_a_call_of_an_earlier_attempt_has_no_effect(first, program_pair, spark, name, when):
    await first.sql("SET a b")

    async def begin():
        await again(first)

    if when == "before it":
        await begin()
    else:
        spark.before_answer = begin
    with pytest.raises(
        RefusedError, match="program nightly is at attempt 2: attempt 1 does not count any more"
    ) as raised:
        await CALLS[name](first)
    assert raised.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert b"AttemptSupersededError" in raised.value.metadata[ERROR_KEY]
    assert await conf(program_pair) == {"a": "b"}
    backend = program_pair.here._backend
    assert not await backend.scan_keys(Keyspace.ActiveJobs, limit=10)
    assert len(await backend.scan_keys(Keyspace.ProgramCalls, limit=10)) == 1


async def test_a_query_of_an_earlier_attempt_is_not_submitted(first, program_pair):
    submissions = program_pair.here.spark_connect.operations.submissions
    submit = submissions.submit

    async def late(*args, **kwargs):
        await again(first)
        return await submit(*args, **kwargs)

    submissions.submit = late
    with pytest.raises(RefusedError, match="does not count any more"):
        await first.query()
    assert not await program_pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)


async def test_a_program_that_has_ended_makes_no_calls(first):
    await first.end(code=3)
    with pytest.raises(RefusedError, match="has ended"):
        await first.analyze()
    begun = (await again(first)).begun
    assert (begun.ended, begun.exit_code, begun.attempt) == (True, 3, 1)


async def test_a_beginning_that_is_asked_for_twice_is_one_attempt(first):
    same = await Attempt(first.pair, first.spark, first.secret).begin()
    assert same.begun == first.begun
    second = await again(first)
    assert second.begun.attempt == 2
    assert second.begun.seed == first.begun.seed


async def test_an_id_is_of_one_program_with_its_arguments(program_pair, spark):
    given = {"digest": "d", "arguments": '["2026-11-30"]'}
    await Attempt(program_pair, spark, "a" * 32).begin(**given)
    assert (await Attempt(program_pair, spark, "b" * 32).begin(**given)).begun.attempt == 2
    with pytest.raises(InvalidRequestError, match=r"with the arguments \[\"2026-11-30\"\], and these are \[\]"):
        await Attempt(program_pair, spark, "c" * 32).begin(digest="d", arguments="[]")
    with pytest.raises(InvalidRequestError, match="another content of its file"):
        await Attempt(program_pair, spark, "c" * 32).begin(**given | {"digest": "e"})


async def test_an_attempt_that_lived_for_a_while_was_not_in_vain(first, clock):
    for letter in "bcdefb":
        clock.advance(61_000)
        assert not (await again(first, letter)).begun.ended


async def test_four_attempts_in_a_row_that_record_nothing_end_a_program(first):
    await first.sql("SET a b")
    attempts = [(await again(first, letter)).begun for letter in "bcdef"]
    assert [begun.attempt for begun in attempts] == [2, 3, 4, 5, 5]
    assert attempts[-1].ended
    assert "4 attempts in a row" in attempts[-1].why_ended


async def test_attempts_whose_executor_is_gone_end_no_program(program_pair):
    """As when all executors of a cluster are restarted, one after the other, while a program waits for one query."""

    async def begin(letter, host, *there):
        request = pb.BeginProgramRequest(program_id=PROGRAM, secret=letter * 32, user="ann")
        return await program_pair.here.programs.begin("", request, host=host, is_there=lambda life: life in there)

    for letter in "abcdefabcdef":
        assert not (await begin(letter, f"life-{letter}", f"life-{letter}")).ended
    begun = [await begin(letter, "one", "one", "life-f") for letter in "12345"]
    assert [each.ended for each in begun] == [False, False, False, True, True], "its process alone died"


async def test_a_program_that_ends_what_runs_it_each_time_is_ended(program_pair):
    async def begin(number):
        request = pb.BeginProgramRequest(program_id=PROGRAM, secret=f"{number:032}", user="ann")
        return await program_pair.here.programs.begin("", request, host=f"life-{number}", is_there=lambda _: False)

    attempts = [(await begin(number)).ended for number in range(MAX_LOST + 2)]
    assert attempts == [False] * MAX_LOST + [True, True]
    assert "does the program end that process?" in (await begin(99)).why_ended


async def test_a_host_that_has_lost_the_task_supersedes_no_later_attempt(program_pair):
    """It held the task when it asked, and the next one begins before what it has asked for is written."""
    key = ProgramKey("", "nightly")

    def begin(pair, letter, **more):
        request = pb.BeginProgramRequest(program_id=key.program_id, secret=letter * 32, user="u")
        return pair.programs.begin("", request, **more)

    async def loses_it():
        if (await program_pair.there.programs.read(key))[0] is not None:
            raise NotFoundError("it goes on elsewhere")
        await begin(program_pair.there, "b")

    with pytest.raises(NotFoundError, match="it goes on elsewhere"):
        await begin(program_pair.here, "a", check=loses_it)
    record, _ = await program_pair.here.programs.read(key)
    assert record.attempt == 1
    assert knows(record, "b" * 32)


# ------------------------------------------------------------------------- a program that is not deterministic


async def test_another_call_under_a_recorded_name_is_refused_with_both(first):
    await doing(first, first.sql("INSERT INTO shop.sales VALUES (1)"), 1)
    second = await again(first)
    with pytest.raises(RefusedError) as raised:
        await second.sql("INSERT INTO shop.other VALUES (1)")
    assert not raised.value.is_recorded
    assert "call 1 of task 0 was ExecutePlan sql_command to insert into shop.sales at app.py:1" in str(raised.value)
    assert "is ExecutePlan sql_command to insert into shop.other" in str(raised.value)
    with pytest.raises(RefusedError, match=r"is AnalyzePlan tree_string at app\.py:1"):
        await second.analyze(number=1)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("INSERT INTO t SELECT 1", "insert into t"),
        ("insert  overwrite TABLE `a b`.t PARTITION (d) SELECT 1", "insert overwrite ab.t"),
        ("/* x */ INSERT OVERWRITE DIRECTORY '/out/a' USING csv SELECT 1", "directory /out/a"),
        ("CREATE TABLE IF NOT EXISTS a.b AS SELECT 1", "create a.b"),
        ("-- x\nCREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", "create or replace temporary view v"),
        ("DROP TABLE IF EXISTS t", "drop t"),
        ("TRUNCATE TABLE t", "truncate t"),
        ("SELECT 1", ""),
        ("SET a = 1", ""),
    ],
)
def test_what_a_statement_writes_to(text, target):
    request = ExecutePlanRequest()
    request.plan.command.sql_command.sql = text
    assert target_of(request) == target


@pytest.mark.parametrize(
    ("program", "call"),
    [
        ("nightly", "0/1"),
        ("nightly/0/" + "a" * 32, "0/1"),
        ("nightly/1/short", "0/1"),
        ("../x/1/" + "a" * 32, "0/1"),
        ("nightly/1/" + "a" * 32, "0"),
        ("nightly/1/" + "a" * 32, "0/0"),
        ("nightly/1/" + "a" * 32, "x/1"),
    ],
)
def test_names_that_are_none_are_refused(program, call):
    with pytest.raises(InvalidRequestError):
        call_name([(PROGRAM_HEADER, program), (CALL_HEADER, call)])


async def test_programs_and_their_sessions_stay_until_their_retention(first, program_pair, clock):
    await first.sql("SET a b")
    clock.advance(30 * 24 * 3_600_000)
    await program_pair.here.spark_connect.sweep(with_files=False)
    assert await conf(program_pair) == {"a": "b"}, "it goes on, however long it sleeps"
    await first.end()
    await program_pair.here.spark_connect.sweep(with_files=False)
    backend = program_pair.here._backend
    assert not await backend.scan_keys(Keyspace.ConnectSessions, limit=10), "the user may have as many of others"
    clock.advance(6 * 24 * 3_600_000)
    await program_pair.here.spark_connect.sweep(with_files=False)
    assert len(await backend.scan_keys(Keyspace.ProgramCalls, limit=10)) == 1
    clock.advance(2 * 24 * 3_600_000)
    await program_pair.here.spark_connect.sweep(with_files=False)
    for keyspace in (Keyspace.Programs, Keyspace.ProgramCalls, Keyspace.ConnectSessions):
        assert not await backend.scan_keys(keyspace, limit=10)
