"""A hostile executor: its reports cannot lead a scheduler outside the exchange, or affect others' tasks."""

import os
import struct

import grpc
import pytest

from onager.errors import FetchFailedError, InvalidRequestError
from onager.protocol import onager_pb2 as pb
from tests.integration.scheduler.conftest import serving
from tests.integration.scheduler.test_jobs import planned, refused
from tests.support.damage import sealed
from tests.support.fakes.scripted_executor import (
    Client,
    ScriptedExecutor,
    arrow_stream,
    executor,
    failure,
    plan_outcome,
    success,
)
from tests.support.waiting import eventually

SECRET = arrow_stream([13, 14])
NAMES = [
    "",
    "x/../../../secret",
    "../secret",
    "/secret",
    "..",
    ".",
    "a.b",
    "a\x00b",
    "a\nb",
    "a b",
    "-a",
    "n" * 65,
    "x/../../../../../../../../../../../../../../etc/passwd",
]


@pytest.fixture
async def scheduler(tmp_path):
    (tmp_path / "exchange").mkdir()
    async with serving(f"leveldb:{tmp_path / 'state'}", tmp_path, retry_pauses_s=(0.01,)) as running:
        yield running


@pytest.fixture
async def client(scheduler):
    client = Client(scheduler.address)
    yield client
    await client.close()


def reporting(change, *, kind="result", inline=None, sink=""):
    """Return a job of one stage whose only task succeeds with an output that *change* has changed."""

    def run(task_set, task):
        if task_set.work == pb.PLAN:
            return planned(task_set, task, plan_outcome([(1, 1, kind)], is_sink=sink))
        report = success(task_set, task, "e1", inline=inline)
        change(report.success)
        return report

    return run


def named(nonce):
    def change(done):
        done.output.nonce = nonce

    return change


@pytest.mark.parametrize("nonce", NAMES)
async def test_a_name_that_leads_elsewhere_is_no_success(scheduler, client, tmp_path, nonce):
    (tmp_path / "secret.arrow").write_bytes(SECRET)
    await client.submit("job-1")
    async with executor(scheduler.address, "e1", reporting(named(nonce))):
        ended = await client.wait("job-1")
    assert ended.state == pb.FAILED
    assert any(words in ended.failure.message for words in ("cannot name an execution", "success.output.nonce"))


@pytest.mark.parametrize("name", ["../x", "n/../../x", "/etc/passwd", "n//x", "", "n/a\nb"])
async def test_a_staged_file_outside_of_its_directory_is_no_success(scheduler, client, name):
    run = reporting(lambda done: done.output.files.append(name), kind="sink", sink="/data/out")
    await client.submit("job-1")
    async with executor(scheduler.address, "e1", run):
        ended = await client.wait("job-1")
    assert ended.state == pb.FAILED
    assert any(words in ended.failure.message for words in ("the name of a staged file", "success.output.files"))


async def test_a_plan_whose_output_no_file_can_be_called_fails_the_job(scheduler, client):
    await client.submit("job-1")
    async with executor(scheduler.address, "e1", reporting(lambda _: None, kind="sink", sink="/data/o\0ut")):
        ended = await client.wait("job-1")
    assert ended.state == pb.FAILED
    assert "cannot be a path" in ended.failure.message


async def test_a_manifest_that_was_not_sent_is_no_success(scheduler, client):
    def run(task_set, task):
        if task_set.work == pb.PLAN:
            return planned(task_set, task, plan_outcome([(1, 1, "sink")], is_sink="/data/out"))
        report = success(task_set, task, "e1")
        if task_set.work == pb.PUBLISH_PLAN:
            report.success.output.payload_digest = "a" * 64  # another job's
        return report

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", run):
        ended = await client.wait("job-1")
    assert ended.state == pb.FAILED
    assert "did not send what it left" in ended.failure.message


@pytest.mark.parametrize("through", ["file", "directory"])
async def test_a_result_is_not_read_through_a_link(scheduler, client, tmp_path, through):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0-n.arrow").write_bytes(SECRET)
    job = tmp_path / "exchange" / "job-1"
    if through == "file":
        (job / "1").mkdir(parents=True)
        (job / "1" / "0-n.arrow").symlink_to(tmp_path / "elsewhere" / "0-n.arrow")
    else:
        job.mkdir()
        (job / "1").symlink_to(tmp_path / "elsewhere")
    await client.submit("job-1")
    async with executor(scheduler.address, "e1", reporting(named("n"))):
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        error = await refused(client.fetch("job-1"))
    assert isinstance(error, FetchFailedError)
    assert "leads out of the exchange directory" in str(error)


async def test_a_pipe_in_place_of_a_result_keeps_nobody_waiting(scheduler, client, tmp_path):
    (tmp_path / "exchange" / "job-1" / "1").mkdir(parents=True)
    os.mkfifo(tmp_path / "exchange" / "job-1" / "1" / "0-n.arrow")
    await client.submit("job-1")
    async with executor(scheduler.address, "e1", reporting(named("n"))):
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert "no plain file" in str(await refused(client.fetch("job-1")))


async def test_an_inline_result_that_came_damaged_is_made_again(scheduler, client):
    content, checksum = sealed(arrow_stream([1, 2, 3]))
    sent = [content[:100] + bytes([content[100] ^ 1]) + content[101:], content]

    def change(done):
        done.output.checksum = checksum
        done.inline_result = sent.pop(0)

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", reporting(change, inline=b"-")):
        ended = await client.wait("job-1")
        assert ended.state == pb.SUCCESSFUL
        assert ended.stages[1].tasks_failed == 1
        assert await client.fetch("job-1") == [1, 2, 3]


async def test_a_result_with_an_index_that_promises_too_much_is_refused(scheduler, client, tmp_path):
    content, checksum = sealed(arrow_stream([1, 2, 3]))
    (tmp_path / "exchange" / "job-1" / "1").mkdir(parents=True)
    path = tmp_path / "exchange" / "job-1" / "1" / "0-n.arrow"
    path.write_bytes(content[:-16] + struct.pack(">i", 2**31 - 1) + content[-12:])

    def change(done):
        done.output.nonce, done.output.checksum = "n", checksum

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", reporting(change)):
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert isinstance(await refused(client.fetch("job-1")), FetchFailedError)


async def test_what_is_reported_of_another_executors_task_is_ignored(scheduler, client):
    held = {}

    def keep(task_set, task):
        if task_set.work == pb.PLAN:
            return planned(task_set, task, plan_outcome([(1, 1, "result")]))
        held["task"] = (task_set, task)
        return None

    await client.submit("job-1")
    async with executor(scheduler.address, "e1", keep) as e1:
        while not held:
            await e1.changed.wait()
            e1.changed.clear()
        async with executor(scheduler.address, "e2", keep) as e2:
            await e2.register()
            for report in (
                success(*held["task"], "e1", inline=arrow_stream([13])),
                failure(*held["task"], "user_error"),
            ):
                await e2.report([report])
            detail = await client.detail("job-1")
            assert [t.state for t in detail.progress.stages[1].tasks] == ["running"]
        await e1.finish(
            list(e1.held.values()),
            lambda task_set, task: success(task_set, task, "e1", inline=arrow_stream([7])),
        )
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert await client.fetch("job-1") == [7]


@pytest.mark.parametrize(
    ("executor_id", "incarnation"), [("..", "a"), ("a/b", "a"), ("a\n", "a"), ("e1", ""), ("e1", "../x"), ("e1", "a.b")]
)
async def test_a_registration_under_no_name_is_refused(scheduler, executor_id, incarnation):
    asks = ScriptedExecutor(scheduler.address, executor_id, lambda *_: None)
    asks.incarnation = incarnation
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asks.register()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert InvalidRequestError.__name__ in str(caught.value.trailing_metadata())
    await asks.channel.close()


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("place", ["exchange", "exchange/job-2", "state", "state/out", "", "file:exchange", "link"])
async def test_no_output_goes_among_our_own_files(scheduler, client, tmp_path, mode, place):
    (tmp_path / "link").symlink_to(tmp_path / "exchange")
    scheme = "file:" if place.startswith("file:") else ""
    sink = pb.Sink(path=f"{scheme}{tmp_path}/{place.removeprefix(scheme)}", format="parquet", mode=mode)
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), sink=sink)
    error = await refused(client.stub.SubmitJob(pb.SubmitJobRequest(job_id="job-1", spec=spec)))
    assert isinstance(error, InvalidRequestError)
    assert "where Onager keeps files of its own" in str(error)
    # What a script says of its output is known once it is planned.
    run = reporting(lambda _: None, kind="sink", sink=sink.path)
    await client.submit("job-2")
    async with executor(scheduler.address, "e1", run):
        ended = await client.wait("job-2")
    assert ended.state == pb.FAILED
    assert "where Onager keeps files of its own" in ended.failure.message


async def test_an_output_that_steps_back_is_refused(client):
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), sink=pb.Sink(path="/a/missing/../../b", format="parquet"))
    error = await refused(client.stub.SubmitJob(pb.SubmitJobRequest(job_id="job-1", spec=spec)))
    assert isinstance(error, InvalidRequestError)


async def test_what_was_staged_goes_though_the_job_never_came_to_a_plan(scheduler, client):
    """A query may run, and stage its output, while it is planned."""
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), sink=pb.Sink(path="/data/out", format="parquet"))
    await client.stub.SubmitJob(pb.SubmitJobRequest(job_id="job-1", spec=spec))
    async with executor(scheduler.address, "e1", lambda *task: failure(*task, "user_error")) as e1:
        assert (await client.wait("job-1")).state == pb.FAILED
        await eventually(lambda: e1.cleaned)
    assert [(c.job_id, c.sink.path) for c in e1.cleaned] == [("job-1", "/data/out")]
