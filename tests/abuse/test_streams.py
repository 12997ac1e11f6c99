"""Jobs of very many tasks, and streams whose clients do not read."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc import StatusCode

from onager.protocol import onager_pb2 as pb
from onager.protocol.call_limits import STREAM_LIMITS
from onager.protocol.field_limits import MAX_TASKS_A_PAGE, MAX_TASKS_OF_STAGE
from onager.protocol.limits import BACKUP_FORMAT, CHANNEL_OPTIONS, MIB
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayStub, OnagerSchedulerStub
from tests.abuse.conftest import Abused
from tests.abuse.test_requests import GATEWAY, REFUSED, registration, submission
from tests.support.waiting import eventually, until

SECRET = "do-not-show-me"
PLAN = b"a plan"
PLAN_DIGEST = hashlib.sha256(PLAN).hexdigest()


def job_with_tasks(abused: Abused, job_id: str, executor_id: str, partitions: int) -> pb.TaskId:
    """Submit a job, plan it as one stage of *partitions*, and return what was planned; no other job runs."""
    (answer,) = abused.call("OnagerScheduler/ListJobs", pb.ListJobsRequest(limit=1000).SerializeToString())
    for job in pb.ListJobsResponse.FromString(answer.content).jobs:
        abused.call("OnagerScheduler/CancelJob", pb.CancelJobRequest(job_id=job.job_id).SerializeToString())
    assert abused.call("OnagerScheduler/SubmitJob", submission(job_id))[0].code is StatusCode.OK
    assert abused.call(f"{GATEWAY}/RegisterExecutor", registration(executor_id))[0].code is StatusCode.OK
    life = {"executor_id": executor_id, "incarnation": "i1"}
    number, task_sets = 0, []
    while not task_sets:  # a poll may bring clean-ups of the others alone
        number += 1
        request = pb.PollWorkRequest(**life, free_slots=1, list_number=number, wait_ms=20_000)
        (answer,) = abused.call(f"{GATEWAY}/PollWork", request.SerializeToString())
        task_sets = pb.PollWorkResponse.FromString(answer.content).task_sets
    (task_set,) = task_sets
    assert task_set.job_id == job_id
    task = pb.TaskId(job_id=job_id, task_attempt=task_set.tasks[0].task_attempt)
    stage = pb.PlannedStage(
        stage_id=1, plan_digest=PLAN_DIGEST, partitions=partitions, output=pb.OutputLayout(kind="result"), work=pb.QUERY
    )
    outcome = pb.PlanOutcome(stages=[stage], plan="a plan", blobs=[pb.Blob(digest=PLAN_DIGEST, content=PLAN)])
    report = pb.TaskReport(task=task, success=pb.TaskSuccess(plan=outcome))
    sent = pb.ReportTasksRequest(**life, reports=[report], list_number=number)
    (answer,) = abused.call(f"{GATEWAY}/ReportTasks", sent.SerializeToString())
    assert len(pb.ReportTasksResponse.FromString(answer.content).acknowledged) == 1
    bye = pb.DeregisterExecutorRequest(**life).SerializeToString()
    assert abused.call(f"{GATEWAY}/DeregisterExecutor", bye)[0].code is StatusCode.OK
    return task


def detail(abused: Abused, **request: Any) -> pb.JobDetail:
    (answer,) = abused.call("OnagerScheduler/GetJob", pb.GetJobRequest(**request).SerializeToString())
    assert answer.code is StatusCode.OK, answer
    return pb.JobDetail.FromString(answer.content)


@pytest.mark.parametrize("partitions", [MAX_TASKS_OF_STAGE + 1, 20_000_000, 2**32 - 1])
def test_a_job_of_more_tasks_than_anybody_keeps_account_of_fails(unnoticed: Abused, partitions: int) -> None:
    job_with_tasks(unnoticed, f"too-wide-{partitions}", f"e-{partitions}", partitions)
    found = detail(unnoticed, job_id=f"too-wide-{partitions}")
    assert found.progress.state == pb.FAILED
    assert f"{partitions:,} partitions, more than" in found.progress.failure.message


def test_a_job_of_as_many_tasks_as_it_may_have_is_reported_in_pages(unnoticed: Abused) -> None:
    job_with_tasks(unnoticed, "wide", "e-wide", MAX_TASKS_OF_STAGE)
    found = detail(unnoticed, job_id="wide")
    assert sum(len(stage.tasks) for stage in found.progress.stages) == MAX_TASKS_A_PAGE, found.progress.retry
    assert found.progress.stages[1].partitions == MAX_TASKS_OF_STAGE
    later = detail(unnoticed, job_id="wide", stage_id=1, partition=MAX_TASKS_OF_STAGE - 5, limit=2**32 - 1)
    assert [task.partition for task in later.progress.stages[1].tasks] == [199_995 + n for n in range(5)]
    assert not later.HasField("next")
    cancel = pb.CancelJobRequest(job_id="wide", reason="r" * 60_000)
    (answer,) = unnoticed.call("OnagerScheduler/CancelJob", cancel.SerializeToString())
    assert answer.code is StatusCode.OK, answer


def test_what_is_shown_of_a_job_has_no_secrets(unnoticed: Abused) -> None:
    request = submission("secretive", conf={"spark.hadoop.fs.s3a.secret.key": SECRET})
    assert unnoticed.call("OnagerScheduler/SubmitJob", request)[0].code is StatusCode.OK
    assert SECRET not in str(detail(unnoticed, job_id="secretive"))
    assert SECRET not in unnoticed.log.read_text()


Opened = Callable[[Any], Any]


def slowly(abused: Abused, open_stream: Opened, clients: int) -> list[StatusCode | None]:
    """Return how streams end whose clients read one message each; None for those that continue."""

    async def client() -> Awaitable[StatusCode | None]:
        options = [*CHANNEL_OPTIONS, ("grpc.http2.lookahead_bytes", 64 * 1024)]
        async with grpc.aio.insecure_channel(abused.address, options=options) as channel:
            call = open_stream(OnagerSchedulerStub(channel))
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                return error.code()
            await asyncio.sleep(2)
            call.cancel()
            return None

    async def all_of_them() -> list[StatusCode | None]:
        return list(await asyncio.gather(*(client() for _ in range(clients))))

    return asyncio.run(all_of_them())


def fill(abused: Abused, size_bytes: int) -> None:
    """Put incompressible data into the store."""
    spec = pb.JobSpec(python=pb.PythonFunction(pickled=secrets.token_bytes(size_bytes), function="f"))
    request = pb.SubmitJobRequest(job_id=f"filler-{secrets.token_hex(4)}", spec=spec, client_id="c")
    assert abused.call("OnagerScheduler/SubmitJob", request.SerializeToString())[0].code is StatusCode.OK


@pytest.mark.parametrize(
    "open_stream",
    [
        lambda stub: stub.BackupState(pb.BackupStateRequest(format=BACKUP_FORMAT)),
        lambda stub: stub.CheckState(pb.CheckStateRequest()),
        lambda stub: stub.WatchState(pb.WatchStateRequest(from_revisions={"Plans": 1, "JobLog": 1})),
    ],
    ids=["backup", "check", "watch"],
)
def test_slow_readers_of_the_whole_store(unnoticed: Abused, open_stream: Opened) -> None:
    fill(unnoticed, 4 * MIB)
    ended = slowly(unnoticed, open_stream, 30)
    assert set(ended) == {None, StatusCode.RESOURCE_EXHAUSTED}
    until(lambda: slowly(unnoticed, open_stream, 1) == [None], what="an end of what was cancelled")


def test_clients_that_follow_logs_of_executors_that_do_not_answer(unnoticed: Abused) -> None:
    assert unnoticed.call("OnagerScheduler/SubmitJob", submission("logged"))[0].code is StatusCode.OK
    assert unnoticed.call(f"{GATEWAY}/RegisterExecutor", registration("e-silent"))[0].code is StatusCode.OK
    wait = pb.AwaitRequestsRequest(executor_id="e-silent", incarnation="i1", wait_ms=10)
    assert unnoticed.call(f"{GATEWAY}/AwaitRequests", wait.SerializeToString())[0].code is StatusCode.OK
    follow = pb.FetchLogsRequest(job_id="logged", follow=True, tail_bytes=2**32 - 1)

    async def follow_all() -> list[StatusCode]:
        async with grpc.aio.insecure_channel(unnoticed.address, options=CHANNEL_OPTIONS) as channel:
            calls = [OnagerSchedulerStub(channel).FetchLogs(follow) for _ in range(200)]
            refused = len(calls) - STREAM_LIMITS["FetchLogs"].most
            await eventually(lambda: sum(call.done() for call in calls) >= refused)
            await asyncio.sleep(4)  # what the others follow, they follow for a while
            ended = [await call.code() for call in calls if call.done()]
            assert len(ended) < len(calls)
            return ended

    assert set(asyncio.run(follow_all())) == {StatusCode.UNAVAILABLE}
    many = pb.FetchLogsRequest(job_id="logged", after=[pb.LogPosition(position=2**64 - 1)] * 2000)
    assert unnoticed.call("OnagerScheduler/FetchLogs", many.SerializeToString())[0].code in REFUSED


def test_an_executor_that_fetches_blobs_and_takes_none(unnoticed: Abused) -> None:
    async def fetch() -> list[bool]:
        async with grpc.aio.insecure_channel(unnoticed.address, options=CHANNEL_OPTIONS) as channel:
            stub = OnagerExecutorGatewayStub(channel)
            calls = [stub.FetchBlob(pb.FetchBlobRequest(digest="../" * 50 + f"{n}")) for n in range(200)]
            return [
                isinstance(found, grpc.aio.AioRpcError)
                for found in await asyncio.gather(*(c.read() for c in calls), return_exceptions=True)
            ]

    assert all(asyncio.run(fetch()))
