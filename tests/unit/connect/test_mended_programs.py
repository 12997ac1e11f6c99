"""Programs that a mended one goes on with: its calls are matched with the record before it writes."""

import asyncio

import pytest

from onager.errors import InvalidRequestError
from onager.ids import JobId
from onager.program_errors import ProgramDiffersError
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import caller_of
from onager.protocol.spark_connect import ExecutePlanRequest, FetchErrorDetailsResponse, Relation
from onager.scheduler.connect.program_targets import Effect, effect_of, effect_of_statement
from onager.state_backend import Keyspace
from tests.unit.connect.recorded_program import KEY as SESSION_KEY
from tests.unit.connect.recorded_program import RefusedError, answers, conf, doing
from tests.unit.connect.test_program_retries import KEY, Hosted, end_job, hosted, info, retry
from tests.unit.scheduler.pair import FakeContext

__all__ = ["hosted"]
DAY_MS = 24 * 3_600_000
FAILED = pb.FailedCall(task="0", number=6)


async def mend(pair, *, new="again", job_id="nightly", source=b"print(1)\nprint(2)", keep=False, name="app.py"):
    mended = pb.MendedProgram(file_name=name, source=source, keep=keep)
    request = pb.RetryJobRequest(job_id=job_id, new_job_id=new, mended=mended)
    answer = await pair.here.service.retries.retry(request, caller_of(FakeContext()))
    await pair.settle()
    return answer


async def fail(attempt):
    """Make six calls of which the last one fails, and end with its error."""
    await attempt.set(a="1")
    read = await attempt.analyze()
    await doing(attempt, attempt.sql("INSERT INTO t VALUES (1)"), 3)
    rows = answers(await doing(attempt, attempt.query(b"rows"), 4, [[1, 2], [3]]))
    await attempt.sql("SET b 2")
    with pytest.raises(RefusedError):
        await attempt.sql("FAIL sales")
    await attempt.fail(FAILED)
    return read, rows


async def goes_on(hosted, job_id="again", letter="b"):
    return await Hosted(hosted.pair, hosted.spark, letter * 32).begin(job_id=job_id)


async def refused(asked):
    with pytest.raises(RefusedError) as error:
        await asked
    assert not error.value.is_recorded
    return str(error.value)


async def fail_job(attempt, job_id):
    """End the job of an attempt that cannot go on."""
    await end_job(attempt.pair, job_id)


async def test_calls_stand_where_they_are_and_those_that_were_added_run(hosted, program_pair, spark, clock):
    read, rows = await fail(hosted)
    clock.advance(DAY_MS)
    await mend(program_pair)
    assert (await info(program_pair, "again")).matching
    new = await goes_on(hosted)
    assert (new.begun.calls, new.begun.retries) == (5, 1)
    assert await conf(program_pair) == {}
    await new.set(a="1")
    assert await new.analyze() == read
    assert await new.get("a") == ["1"]
    asked = spark.asked
    await new.sql("INSERT INTO t VALUES (1)", line=40)
    assert answers(await new.query(b"rows")) == rows
    assert spark.asked == asked, "nothing of that asks Spark"
    assert not (await info(program_pair, "again")).matching
    assert await conf(program_pair) == {"a": "1"}, "as it is at that place"
    await new.sql("SET b 2")
    assert await conf(program_pair) == {"a": "1", "b": "2"}
    await doing(new, new.sql("INSERT INTO t VALUES (2)"), 7)
    shown = await program_pair.there.service.of_programs.calls(pb.ListProgramCallsRequest(program_id="nightly"))
    assert [(call.number, call.line, call.attempt, call.done) for call in shown.calls] == [
        (number, f"app.py:{40 if number == 4 else number}", 2, True) for number in range(1, 8)
    ]
    assert (await info(program_pair, "again")).calls == 7
    await new.end()
    assert (await info(program_pair, "again")).exit_code == 0


async def test_an_attempt_that_was_killed_finds_the_matching_where_it_was(hosted, program_pair, spark):
    read, rows = await fail(hosted)
    await mend(program_pair)
    new = await goes_on(hosted)
    await new.set(a="1")
    await new.analyze()
    added = await new.analyze(plan=b"added")
    for letter, at in (("c", program_pair.there), ("d", program_pair.here)):
        new = await goes_on(hosted, letter=letter)
        asked = spark.asked
        await new.set(a="1")
        assert await new.analyze(at=at) == read
        assert await new.analyze(plan=b"added", at=at) == added
        assert spark.asked == asked
        await new.sql("INSERT INTO t VALUES (1)", at=at)
        assert answers(await new.query(b"rows", at=at)) == rows


async def test_after_a_read_that_differs_all_run_again_and_a_write_that_is_done_is_refused(hosted, program_pair, spark):
    await fail(hosted)
    before = await record(program_pair)
    await mend(program_pair)
    new = await goes_on(hosted)
    await new.set(a="1", c="3")
    asked = spark.asked
    await new.analyze()
    assert spark.asked == asked + 1
    why = await refused(new.sql("INSERT INTO t VALUES (1)"))
    assert "a write that is done comes behind a read that differs" in why
    assert await conf(program_pair) == {"a": "1", "c": "3"}
    await fail_job(new, "again")
    assert await conf(program_pair) == {"a": "1", "b": "2"}, "the session is as it was"
    after = await record(program_pair)
    same = before.model_copy(update={"attempt": 2, "texts": 1})
    fields = {"retried", "secret_digest", "attempt_ms", "barren", "calls_before", "store_bytes_before"}
    assert after.model_dump(exclude=fields) == same.model_dump(exclude=fields)
    left = await program_pair.here._backend.scan_keys(Keyspace.ProgramCalls, limit=99)
    assert list(left) == [f"%/nightly/0/{number:06d}" for number in range(1, 6)]
    with pytest.raises(RefusedError, match="has ended"):
        await new.analyze()


async def record(pair):
    return (await pair.here.programs.read(KEY))[0]


@pytest.mark.parametrize("end", ["fails", "is cancelled", "is killed four times"])
async def test_a_mended_program_that_ends_before_it_writes_is_put_back(hosted, program_pair, end):
    await fail(hosted)
    await mend(program_pair)
    new = await goes_on(hosted)
    await new.set(a="1")
    if end == "fails":
        await new.fail()
    elif end == "is cancelled":
        await end_job(program_pair, "again")
    else:
        for letter in "cdef":
            await goes_on(hosted, letter=letter)
        begun = await goes_on(hosted, letter="0")
        assert begun.begun.ended
        await end_job(program_pair, "again")
    now = await record(program_pair)
    assert (now.text, now.job_id, now.exit_code, now.failed.number) == (0, "nightly", 1, 6)
    assert (await info(program_pair, "again")).calls == 5
    assert (await retry(program_pair, "third")).job_id == "third"
    third = await goes_on(hosted, "third", "9")
    assert third.begun.calls == 5
    await third.set(a="1")


async def test_a_retry_without_a_text_goes_on_with_the_one_that_has_written(hosted, program_pair):
    await fail(hosted)
    await mend(program_pair, source=b"print('second text')")
    new = await goes_on(hosted)
    await new.set(a="1")
    await new.analyze()
    await new.sql("INSERT INTO t VALUES (1)")
    await doing(new, new.sql("INSERT INTO t VALUES (2)", number=10), 10)
    await new.fail()
    await retry(program_pair, "third")
    third = await goes_on(hosted, "third", "c")
    assert third.begun.retries == 2
    await third.set(a="1")
    await third.analyze()
    await third.sql("INSERT INTO t VALUES (1)")
    await third.sql("INSERT INTO t VALUES (2)", number=10)
    await third.fail()
    await mend(program_pair, new="fourth", source=b"print('third text')")
    fourth = await goes_on(hosted, "fourth", "d")
    await fourth.set(a="1")
    await fourth.analyze()
    await fourth.sql("INSERT INTO t VALUES (1)")
    await fourth.sql("INSERT INTO t VALUES (2)")
    assert not (await info(program_pair, "fourth")).matching


async def test_what_is_done_stands_if_its_user_says_so_and_no_write_that_is_done_is_done_again(hosted, program_pair):
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (1)"), 1)
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (2)"), 2)
    await hosted.fail()
    await mend(program_pair, keep=True)
    new = await goes_on(hosted)
    await new.sql("INSERT INTO t VALUES (0)")
    await new.sql("INSERT INTO t VALUES (1)")
    why = await refused(new.sql("INSERT INTO t VALUES (2)"))
    assert "this write is done, and what was recorded of it stands for another one" in why
    await fail_job(new, "again")
    await mend(program_pair, keep=True, new="third")
    third = await goes_on(hosted, "third", "c")
    await third.sql("INSERT INTO t VALUES (2)")
    await refused(third.sql("INSERT INTO t VALUES (1)"))
    await doing(third, third.sql("INSERT INTO t VALUES (3)"), 3)


async def test_a_write_waits_for_those_of_other_tasks_and_not_for_ever(hosted, program_pair, clock):
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (1)", number=1, task="0.0"), 1)
    await hosted.fail()
    await mend(program_pair)
    new = await goes_on(hosted)
    why = await refused(new.sql("INSERT INTO u VALUES (1)", number=2))
    assert "waits until other tasks have made their writes again: app.py:1  INSERT" in why
    clock.advance(61_000)
    assert "it makes no such call" not in why
    why = await refused(new.sql("INSERT INTO u VALUES (1)", number=2))
    assert "a write that is done differs, or is missing" in why
    await new.sql("INSERT INTO t VALUES (1)", number=1, task="0.0")
    await doing(new, new.sql("INSERT INTO u VALUES (1)", number=2), 2)


async def test_a_call_of_another_task_that_was_added_makes_reads_run_again_and_refuses_writes(
    hosted, program_pair, spark
):
    read = await hosted.analyze(number=1)
    await hosted.analyze(number=1, task="0.0")
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (1)", number=2), 2)
    await hosted.fail()
    await mend(program_pair)
    new = await goes_on(hosted)
    await new.analyze(number=1, task="0.1", plan=b"of a task without a record")
    assert await new.analyze(number=1) == read
    new = await goes_on(hosted, letter="c")
    await new.analyze(number=1, task="0.0", plan=b"added")
    await new.analyze(number=2, task="0.0")
    assert await new.analyze(number=1) == read, "it is recorded by now"
    why = await refused(new.sql("INSERT INTO t VALUES (1)", number=2))
    assert "while another task has made a call that is not in the record" in why


async def test_a_setting_that_cannot_be_made_again_stands(hosted, program_pair, spark):
    await hosted.sql("SET a b")
    await hosted.fail()
    await mend(program_pair)
    new = await goes_on(hosted)
    carried_out, spark._carried_out = spark._carried_out, gone
    answer = answers(await new.sql("SET a b"))
    spark._carried_out = carried_out
    assert answer
    assert await conf(program_pair) == {}
    assert (await info(program_pair, "again")).calls == 1


def gone(call, applied):
    failure = pb.ConnectFailure(error_class="TABLE_OR_VIEW_NOT_FOUND", message="it is gone")
    return pb.ConnectReply(failure=failure)


async def test_a_program_that_ends_without_a_write_that_is_done_is_refused(hosted, program_pair):
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (1)"), 1)
    await hosted.fail()
    await mend(program_pair)
    await goes_on(hosted)
    with pytest.raises(ProgramDiffersError, match="it makes no such call"):
        await program_pair.here.hosted.check_end(KEY)


async def test_of_a_write_and_the_end_of_its_attempt_one_counts(hosted, program_pair):
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (1)"), 1)
    await hosted.fail()
    await mend(program_pair)
    new = await goes_on(hosted)
    await new.sql("INSERT INTO t VALUES (1)")
    writing = asyncio.ensure_future(new.sql("INSERT INTO t VALUES (2)"))
    closing = asyncio.ensure_future(program_pair.there.hosted.close(JobId("again"), "cancelled"))
    await closing
    now = await record(program_pair)
    found = await program_pair.here._backend.get(Keyspace.ProgramCalls, "%/nightly/v1/0/000002")
    assert (now.text == 1) == (found is not None)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_what_cannot_be_mended_is_refused(hosted, program_pair):
    await fail(hosted)
    with pytest.raises(InvalidRequestError, match="give a file of the same kind"):
        await mend(program_pair, name="app.sql")
    key = "%/nightly/0/000001"
    backend = program_pair.here._backend
    found = await backend.get(Keyspace.ProgramCalls, key)
    await backend.put(Keyspace.ProgramCalls, key, found.value.replace(b'"effect":"setting"', b'"effect":""'))
    with pytest.raises(InvalidRequestError, match="recorded by a version of Onager"):
        await mend(program_pair)
    assert (await record(program_pair)).text == 0


async def test_the_session_at_hand_is_that_of_the_program(hosted, program_pair):
    await fail(hosted)
    await mend(program_pair)
    session = await program_pair.there.spark_connect.sessions.find(SESSION_KEY)
    assert (session.record.conf, session.record.program) == ({}, "%/nightly")


@pytest.mark.parametrize(
    ("said", "effect"),
    [
        (b'{"ask": "parse", "frames": []}', Effect.SETTING),
        (b'{"ask": "change", "frames": []}', Effect.READ),
        (b'{"ask": "", "frames": []}', Effect.WRITE),
        (b"no JSON", Effect.WRITE),
        (b"[]", Effect.WRITE),
    ],
)
def test_what_a_script_asks_changes_nothing(said, effect):
    request = ExecutePlanRequest()
    request.plan.command.sql_command.sql = "INSERT INTO t VALUES (1)"
    request.user_context.extensions.add(type_url="type.googleapis.com/onager.ScriptStatement", value=said)
    assert effect_of("ExecutePlan", request) is effect


@pytest.mark.parametrize(
    ("asked", "effect"),
    [("list_tables", Effect.READ), ("set_current_database", Effect.SETTING), ("create_table", Effect.WRITE)],
)
def test_what_a_call_of_the_catalog_does(asked, effect):
    relation = Relation()
    getattr(relation.catalog, asked).SetInParent()
    request = ExecutePlanRequest()
    request.plan.root = relation.SerializeToString()
    assert effect_of("ExecutePlan", request) is effect


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("SELECT 1", Effect.READ),
        (" ( select 'insert into t')", Effect.READ),
        ("/* INSERT */ SHOW TABLES", Effect.READ),
        ("WITH x AS (SELECT 'insert') SELECT * FROM x", Effect.READ),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", Effect.WRITE),
        ("FROM t INSERT INTO u SELECT *", Effect.WRITE),
        ("FROM t |> WHERE x > 1", Effect.READ),
        ("EXPLAIN INSERT INTO t VALUES (1)", Effect.READ),
        ("SET x = 1", Effect.SETTING),
        ("SET VAR x = (SELECT max(n) FROM t)", Effect.READ),
        ("DECLARE x INT DEFAULT 1", Effect.READ),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", Effect.SETTING),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", Effect.WRITE),
        ("USE other", Effect.SETTING),
        ("-- only\nINSERT INTO t VALUES (1)", Effect.WRITE),
        ("settle", Effect.WRITE),
        ("CALL system.rewrite()", Effect.WRITE),
        ("ANALYZE TABLE t COMPUTE STATISTICS", Effect.WRITE),
        ("", Effect.WRITE),
    ],
)
def test_what_a_statement_does(text, effect):
    assert effect_of_statement(text) is effect


async def test_all_of_an_error_is_known_that_stands_under_another_number(hosted, program_pair):
    with pytest.raises(RefusedError):
        await hosted.sql("FAIL sales")
    await hosted.fail()
    await mend(program_pair)
    new = await goes_on(hosted)
    await new.analyze(plan=b"added")
    with pytest.raises(RefusedError) as error:
        await new.sql("FAIL sales")
    assert error.value.is_recorded
    assert b"call/0/2" in error.value.metadata["grpc-status-details-bin"]
    (answer,) = await new.ask("FetchErrorDetails", number=0, error_id="call/0/2")
    (cause,) = FetchErrorDetailsResponse.FromString(answer).errors
    assert cause.spark_throwable.error_class == "TABLE_OR_VIEW_NOT_FOUND"
