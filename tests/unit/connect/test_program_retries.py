"""Retries of programs: what is recorded stands, and the call that failed is made again."""

import asyncio

import pytest

from onager.errors import InvalidRequestError, NotFoundError
from onager.execution_graph import StageWork
from onager.ids import JobId
from onager.program_errors import ProgramGoesOnError
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import caller_of
from onager.scheduler.program_records import FailedCall, ProgramKey
from onager.state_backend import Keyspace
from tests.unit.connect.recorded_program import KEY as SESSION_KEY
from tests.unit.connect.recorded_program import (
    Attempt,
    RefusedError,
    conf,
    doing,
    finish,
    job_of,
    left,
    operation,
    record_of,
)
from tests.unit.scheduler.pair import FakeContext

SPEC = pb.JobSpec(program=pb.ProgramSpec(file_name="app.py", source=b"print()", user="ann"))
KEY = ProgramKey("", "nightly")


class Hosted(Attempt):
    """An attempt of a program that is a job."""

    async def begin(self, user="ann", job_id="nightly"):
        hosted = self.pair.here.hosted
        job = await self.pair.here.jobs.fresh(JobId(job_id))
        assert job.graph.stages[1].spec.work is StageWork.PROGRAM
        request = pb.BeginProgramRequest(
            program_id=self.program, secret=self.secret, user=user, digest=job.graph.spec_digest
        )
        self.begun = await hosted.programs.begin("", request, job_id=job_id)
        return self

    async def fail(self, failed=None):
        """End with exit code 1, by the error of the call *failed*."""
        request = pb.EndProgramRequest(
            program_id=self.program, attempt=self.begun.attempt, secret=self.secret, exit_code=1, failed=failed
        )
        await self.pair.here.programs.end("", request)
        await end_job(self.pair, (await self.pair.here.programs.read(KEY))[0].job_id)


async def end_job(pair, job_id):
    await pair.here.service.CancelJob(pb.CancelJobRequest(job_id=job_id), FakeContext())
    await pair.settle()


async def retry(pair, new="again", job_id="nightly"):
    request = pb.RetryJobRequest(job_id=job_id, new_job_id=new)
    answer = await pair.here.service.retries.retry(request, caller_of(FakeContext()))
    await pair.settle()
    return answer


async def info(pair, job_id):
    return await pair.there.service.of_programs.get(pb.GetProgramRequest(program_id=job_id))


@pytest.fixture
async def hosted(program_pair, spark):
    await program_pair.here.service.SubmitJob(
        pb.SubmitJobRequest(job_id="nightly", spec=SPEC, client_id="c"), FakeContext()
    )
    await program_pair.settle()
    return await Hosted(program_pair, spark, "a" * 32).begin()


async def second(hosted, job_id="again", letter="b"):
    return await Hosted(hosted.pair, hosted.spark, letter * 32).begin(job_id=job_id)


async def test_a_retry_makes_the_call_that_failed_again_and_none_before(hosted, program_pair, spark):
    await hosted.sql("SET a b")
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (1)"), 2)
    with pytest.raises(RefusedError):
        await hosted.sql("FAIL sales")
    await hosted.get("spark.sql.x")  # PySpark asks for settings after an error
    await hosted.fail(pb.FailedCall(task="0", number=3))
    answer = await retry(program_pair)
    assert (answer.job_id, answer.existed) == ("again", False)
    goes_on = await second(hosted)
    assert (goes_on.begun.attempt, goes_on.begun.calls, goes_on.begun.retries) == (2, 2, 1)
    assert goes_on.begun.seed == hosted.begun.seed
    asked = spark.asked
    await goes_on.sql("SET a b")
    await goes_on.sql("INSERT INTO t VALUES (1)")
    assert spark.asked == asked
    await goes_on.sql("SET c d")
    assert await conf(program_pair) == {"a": "b", "c": "d"}
    for job_id in ("nightly", "again"):
        shown = await info(program_pair, job_id)
        assert (shown.program_id, shown.job_id, shown.attempt, shown.ended) == ("nightly", "again", 2, False)
        assert "2 recorded calls of program nightly stand; it goes on with the call that failed" in shown.retried
        assert shown.retried.endswith("ExecutePlan sql_command at app.py:3")


async def test_the_end_of_the_first_job_does_not_end_the_retry(hosted, program_pair):
    await hosted.fail()
    await retry(program_pair)
    goes_on = await second(hosted)
    for scheduler in program_pair.schedulers.values():
        scheduler.hosted._ended.add(JobId("nightly"))
        await scheduler.hosted.close_ended()
    await goes_on.sql("SET a b")
    await program_pair.here.hosted.close(JobId("again"), "cancelled")
    with pytest.raises(RefusedError, match="has ended"):
        await goes_on.analyze()


async def test_of_two_retries_at_once_one_goes_on(hosted, program_pair):
    await hosted.fail()
    done = await asyncio.gather(retry(program_pair, "one"), retry(program_pair, "two"), return_exceptions=True)
    (made,) = [each for each in done if isinstance(each, pb.RetryJobResponse)]
    (refused,) = [each for each in done if isinstance(each, Exception)]
    assert isinstance(refused, ProgramGoesOnError)
    assert f"program nightly goes on as job {made.job_id}" in str(refused)
    assert (await retry(program_pair, made.job_id)).existed
    with pytest.raises(ProgramGoesOnError, match=made.job_id):
        await retry(program_pair, "three")


async def test_a_retry_of_a_retry_goes_on_with_the_same_record(hosted, program_pair, spark):
    await hosted.sql("SET a b")
    await hosted.fail()
    await retry(program_pair, "one")
    await (await second(hosted, "one")).fail()
    await retry(program_pair, "two", "one")
    third = await second(hosted, "two", "c")
    assert (third.begun.retries, third.begun.attempt) == (2, 3)
    asked = spark.asked
    await third.sql("SET a b")
    assert spark.asked == asked
    assert (await info(program_pair, "two")).program_id == "nightly"


async def test_a_program_that_failed_outside_of_spark_ends_as_before_and_says_so(hosted, program_pair):
    await hosted.sql("SET a b")
    await hosted.fail()
    await retry(program_pair)
    assert (await info(program_pair, "again")).retried == (
        "1 recorded call of program nightly stands; no call has failed, so the program ends as before unless what it "
        "meets outside of Spark differs"
    )


async def test_calls_whose_jobs_were_stopped_with_the_program_are_made_again(hosted, program_pair, spark):
    await doing(hosted, hosted.sql("INSERT INTO t VALUES (1)"), 1)
    await left(hosted, hosted.sql("INSERT INTO u VALUES (1)"), 2)
    await end_job(program_pair, "nightly")
    await retry(program_pair)
    goes_on = await second(hosted)
    assert goes_on.begun.calls == 1
    await goes_on.sql("INSERT INTO t VALUES (1)")
    asked = spark.asked
    goes_on.number = 10  # its own operation: the id follows from the retry
    record = await record_of(goes_on, 2)
    assert record is None
    await doing(goes_on, goes_on.sql("INSERT INTO v VALUES (1)"), 11)
    assert spark.asked == asked + 1
    assert "was stopped: ExecutePlan sql_command to insert into u" in (await info(program_pair, "again")).retried


async def test_a_stopped_call_that_was_recorded_since_is_made_again(hosted, program_pair):
    await left(hosted, hosted.query(), 1)
    await end_job(program_pair, "nightly")
    head = program_pair.here.heads.get(job_of(1))
    assert not await program_pair.here.retention.settle_calls([head])
    assert (await record_of(hosted, 1)).is_stopped
    await retry(program_pair)
    assert await record_of(hosted, 1) is None


async def test_a_query_that_the_program_itself_cancelled_stays_cancelled(hosted, program_pair):
    await left(hosted, hosted.query(), 1)
    await program_pair.here.spark_connect.running.cancel(
        (await program_pair.here.spark_connect.sessions.find(SESSION_KEY)).key, [operation(1)]
    )
    await program_pair.settle()
    head = program_pair.here.heads.get(job_of(1))
    await program_pair.here.retention.settle_calls([head])
    await hosted.fail()
    await retry(program_pair)
    record = await record_of(hosted, 1)
    assert record.is_done
    assert not record.is_stopped


async def test_a_write_that_ended_after_its_program_stands(hosted, program_pair, spark):
    await left(hosted, hosted.sql("INSERT INTO t VALUES (1)"), 1)
    await finish(program_pair, 1)
    await end_job(program_pair, "nightly")
    await retry(program_pair)
    assert (await record_of(hosted, 1)).is_done
    goes_on = await second(hosted)
    asked = spark.asked
    await goes_on.sql("INSERT INTO t VALUES (1)")
    assert spark.asked == asked


async def test_a_program_that_has_succeeded_or_whose_record_is_gone_is_not_retried(hosted, program_pair):
    request = pb.EndProgramRequest(program_id="nightly", attempt=1, secret=hosted.secret)
    await program_pair.here.programs.end("", request)
    await end_job(program_pair, "nightly")
    with pytest.raises(InvalidRequestError, match="program nightly has succeeded"):
        await retry(program_pair)
    backend = program_pair.here._backend
    await backend.delete(*KEY.place)
    await retry(program_pair)  # no executor has ever had it, so it is a new program
    assert program_pair.here.heads.get(JobId("again")).program_id == ""


async def test_a_retry_of_a_retry_without_a_record_is_refused(hosted, program_pair):
    await hosted.fail()
    await retry(program_pair, "one")
    await end_job(program_pair, "one")
    await program_pair.here._backend.delete(*KEY.place)
    with pytest.raises(NotFoundError, match="program nightly has no record"):
        await retry(program_pair, "two", "one")


async def test_more_calls_than_a_transaction_takes_are_dropped(hosted, program_pair):
    for _ in range(150):
        await hosted.sql("SET a b")
    await hosted.fail(pb.FailedCall(task="0", number=3))
    await retry(program_pair)
    assert (await second(hosted)).begun.calls == 2
    assert len(await program_pair.here._backend.scan_keys(Keyspace.ProgramCalls, limit=10)) == 2


async def test_the_session_of_a_program_that_failed_stays_for_a_retry(hosted, program_pair, clock):
    await hosted.sql("SET a b")
    await hosted.fail()
    clock.advance(6 * 24 * 3_600_000)
    await program_pair.here.spark_connect.sweep(with_files=False)
    await retry(program_pair)
    goes_on = await second(hosted)
    goes_on.number = 1
    assert await goes_on.get("a") == ["b"]


async def test_its_end_of_a_session_is_no_call_that_stands_in_the_way(hosted, program_pair):
    with pytest.raises(RefusedError):
        await hosted.sql("FAIL sales")
    await hosted.ask("ReleaseSession")
    await hosted.fail(pb.FailedCall(task="0.0", number=1))
    await retry(program_pair)
    assert await record_of(hosted, 2) is None


@pytest.mark.parametrize(
    ("task", "number", "is_dropped"),
    [
        ("0.3", 4, False),
        ("0.3", 5, True),
        ("0.3", 6, True),
        ("0.3.1", 9, False),
        ("0.3.2", 1, True),
        ("0.3.2.0", 1, True),
        ("0.4", 9, False),
        ("0.30", 9, False),
        ("0", 9, False),
    ],
)
def test_what_comes_behind_a_call_that_failed(task, number, is_dropped):
    assert FailedCall(task="0.3", number=5, tasks=2).is_before(task, number) == is_dropped


async def test_the_job_of_a_program_that_failed_can_be_retried_for_as_long_as_its_record_stays(
    hosted, program_pair, clock
):
    async def sweep():
        for scheduler in program_pair.schedulers.values():
            await scheduler.retention.sweep()
        await program_pair.settle()

    await hosted.fail()
    clock.advance(2 * 3_600_000)
    await sweep()
    clock.advance(6 * 24 * 3_600_000)
    await sweep()
    assert not (await retry(program_pair)).existed
    clock.advance(2 * 24 * 3_600_000)
    await sweep()
    assert program_pair.here.heads.get(JobId("nightly")) is None
