"""Logs of jobs: from executors that wait at any scheduler, from the record, and what is said of the rest."""

import asyncio

import pytest
from msgspec.structs import replace

from onager.errors import InvalidRequestError, JobNotFoundError
from onager.execution_graph import Failure, FailureKind, JobCancelled
from onager.executor.attempt_logs import AttemptLogs
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.scheduler import timing
from onager.scheduler.api import job_logs
from onager.scheduler.api.job_logs import notes
from onager.scheduler.jobs.job_writers import Decision
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.pair import HERE, FakeContext, job_of
from tests.unit.scheduler.small_graphs import failed, graph

CONTEXT = FakeContext()


class Executor:
    """An executor that waits at a scheduler, and has logs."""

    def __init__(self, scheduler, name="e1", life="life"):
        self.app, self.name, self.life = scheduler, name, life
        self.logs: list[pb.AttemptLog] = []
        self.asked: list[pb.LogsAsk] = []
        self.answers = True

    async def register(self):
        request = pb.RegisterExecutorRequest(
            executor_id=self.name,
            incarnation=self.life,
            slots=4,
            protocol_version=PROTOCOL_VERSION,
            spark_version="4.3.0",
            python_version="3.11",
            exchange_dir="/x",
        )
        await self.app.executors.register(request)

    async def run(self):
        answers = []
        while True:
            request = pb.AwaitRequestsRequest(
                executor_id=self.name, incarnation=self.life, wait_ms=60_000, answers=answers
            )
            response = await self.app.gateway.AwaitRequests(request, CONTEXT)
            self.asked += [each.logs for each in response.requests]
            if not self.answers:
                await asyncio.Event().wait()
            answers = [
                pb.RequestAnswer(number=each.number, logs=pb.LogsAnswer(logs=self._found(each.logs)))
                for each in response.requests
            ]

    def _found(self, ask):
        after = {each.task.SerializeToString(): each.position for each in ask.after}
        return [
            log
            for log in self.logs
            if log.end > after.get(log.task.SerializeToString(), -1)
            and (not ask.HasField("partition") or log.task.partition == ask.partition)
        ]


@pytest.fixture
async def cluster(pair, monkeypatch):
    """Two schedulers, of which each reaches the other's executors, and one executor at each."""

    async def ask(scheduler_id, request):
        sent = pb.AskExecutorsRequest.FromString(request.SerializeToString())
        return await pair.schedulers[scheduler_id].for_schedulers.AskExecutors(sent, CONTEXT)

    for scheduler in pair.schedulers.values():
        scheduler.service.logs.calls.ask_executors = ask
    pair.e1, pair.e2 = Executor(pair.here), Executor(pair.there, "e2", "life2")
    await pair.e1.register()
    await pair.e2.register()
    for scheduler in pair.schedulers.values():
        await scheduler.executors.refresh()
    tasks = [asyncio.create_task(executor.run()) for executor in (pair.e1, pair.e2)]
    yield pair
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def attempt(job_id, partition, text="hello\n", *, attempt=0, end=None):
    task = pb.TaskId(job_id=job_id, stage_id=1, partition=partition, task_attempt=attempt)
    return pb.AttemptLog(task=task, text=text.encode(), end=len(text) if end is None else end)


async def fetched(scheduler, job_id, **wanted):
    request = pb.FetchLogsRequest(job_id=job_id, **wanted)
    return [each async for each in scheduler.service.logs.fetch(request)]


async def test_every_scheduler_tells_the_logs_of_all_executors_in_order(cluster):
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=3)
    cluster.e1.logs = [attempt(job_id, 2, "two\n"), attempt(job_id, 0, "zero\n")]
    cluster.e2.logs = [attempt(job_id, 1, "one\n")]
    for scheduler in cluster.schedulers.values():
        lines = await fetched(scheduler, job_id)
        assert [(log.task.partition, log.executor_id, log.text) for log in lines] == [
            (0, "e1", b"zero\n"),
            (1, "e2", b"one\n"),
            (2, "e1", b"two\n"),
        ]


async def test_what_is_wanted_reaches_the_executor(cluster):
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=3)
    await fetched(cluster.there, job_id, stage_id=1, partition=2, attempt=0, tail_bytes=100)
    (ask,) = cluster.e1.asked
    assert (ask.job_id, ask.stage_id, ask.partition, ask.attempt, ask.tail_bytes) == (job_id, 1, 2, 0, 100)
    await fetched(cluster.there, job_id)
    assert not cluster.e1.asked[1].HasField("attempt")


async def test_an_executor_speaks_for_itself_and_for_jobs_that_were_asked_about_only(cluster):
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=1)
    lie = attempt(job_id, 0)
    lie.executor_id = "e2"
    cluster.e1.logs = [lie, attempt("job-other", 0)]
    (line,) = await fetched(cluster.here, job_id)
    assert (line.executor_id, line.task.job_id) == ("e1", job_id)


async def test_what_was_kept_of_a_failed_attempt_is_reported_when_no_executor_has_it(cluster):
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=2)
    await cluster.fill(2)
    failure = Failure(kind=FailureKind.IO_ERROR, message="broken", log_tail="before the end password=secret\n")
    event = replace(failed(0, at_ms=20), failure=failure)
    await cluster.here.writers.record_decision(JobId(job_id), lambda _: Decision([event]))
    (kept,) = [log for log in await fetched(cluster.there, job_id) if not log.note]
    assert (kept.kept, kept.executor_id, kept.task.partition) == (True, "e1", 0)
    assert kept.text == b"before the end password=*********(redacted)\n"
    cluster.e1.logs = [attempt(job_id, 0, "all of it\n")]
    (live,) = [log for log in await fetched(cluster.there, job_id, stage_id=1, partition=0) if not log.note]
    assert (live.kept, live.text) == (False, b"all of it\n")
    assert not [log for log in await fetched(cluster.there, job_id, stage_id=1, partition=1) if not log.note]


async def test_an_executor_that_does_not_answer_is_named_and_holds_up_no_other(cluster, monkeypatch):
    monkeypatch.setattr(timing, "LOGS_ANSWERED_S", 0.2)
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=2)
    await cluster.fill(1)
    cluster.e1.answers = False
    cluster.e2.logs = [attempt(job_id, 1)]
    log, note = await fetched(cluster.there, job_id)
    assert log.text == b"hello\n"
    assert note.note == "executor e1 did not answer in time: what tasks logged there is missing here; ask again"


async def test_an_executor_that_is_gone_is_named(cluster):
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=2)
    await cluster.finish(await cluster.fill(1))
    await cluster.here.executors.deregister("e1", "life", "it crashed")
    assert [log.note for log in await fetched(cluster.here, job_id)] == [
        "executor e1 is gone, and what tasks logged there, except for the ends kept with failures",
        "nothing is there: such tasks logged nothing, or long ago",
    ]


async def test_a_job_that_waits_has_logged_nothing_yet(cluster):
    await cluster.here.service.SubmitJob(
        pb.SubmitJobRequest(job_id="job-w", spec=pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"))), CONTEXT
    )
    assert [log.note for log in await fetched(cluster.here, "job-w")] == ["no task has run yet"]


async def test_who_follows_gets_each_line_once_until_the_job_has_ended(cluster, monkeypatch):
    monkeypatch.setattr(timing, "LOGS_FOLLOWED_EVERY_S", 0.01)
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=1)
    keys = await cluster.fill(1)
    cluster.e1.logs = [attempt(job_id, 0, "one\n")]
    received = []
    logs = cluster.here.service.logs.fetch(pb.FetchLogsRequest(job_id=job_id, follow=True))
    async for log in logs:
        received.append(log)
        if len(received) == 1:
            cluster.e1.logs = [attempt(job_id, 0, "two\n", end=8)]
        elif len(received) == 2:
            cluster.e1.logs = [attempt(job_id, 0, "three\n", end=14)]
            await cluster.finish(keys)
    assert b"".join(log.text for log in received) == b"one\ntwo\nthree\n"


async def test_who_resumes_gets_only_what_came_after(cluster):
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=1)
    cluster.e1.logs = [attempt(job_id, 0, "one\n")]
    position = pb.LogPosition(task=cluster.e1.logs[0].task, position=4)
    assert await fetched(cluster.there, job_id, after=[position]) == []


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"stage_id": 2}, "has no stage 2: it has stages 0 to 1"),
        ({"stage_id": 1, "partition": 3}, "has no partition 3: it has partitions 0 to 2"),
        ({"stage_id": 0, "partition": 1}, "has no partition 1: it has partition 0 only"),
        ({"partition": 0}, "a partition is one of a stage: name the stage, too"),
    ],
)
async def test_what_the_job_does_not_have_is_refused(cluster, wanted, why):
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=3)
    with pytest.raises(InvalidRequestError) as caught:
        await fetched(cluster.here, job_id, **wanted)
    assert why in str(caught.value)


async def test_an_unknown_job_is_reported(cluster):
    with pytest.raises(JobNotFoundError):
        await fetched(cluster.here, "job-x")


def test_what_did_not_fit_and_many_names_are_reported():
    names = [f"e{n}" for n in range(10)]
    lines = list(notes(ran_on=names, answered=[], alive=names, left_out=5, is_any=True))
    silent = "executors e0, e1, e2, e3, e4, e5, e6, e7 and 2 more did not answer in time"
    assert lines == [
        f"{silent}: what tasks logged there is missing here; ask again",
        "5 more attempts did not fit: name a stage, and a partition",
    ]


class Looks:
    """The stored jobs, as one who follows looks at them: *change* is awaited before the second look."""

    def __init__(self, jobs, change):
        self._jobs = jobs
        self._change = change
        self.count = 0

    async def fresh(self, job_id):
        self.count += 1
        if self.count == 2:
            await self._change()
        return await self._jobs.fresh(job_id)


async def following(cluster, job_id, change):
    """Follow the logs of a job, which *change* ends; return what was reported, without notes."""
    logs = cluster.here.service.logs
    logs.jobs = Looks(logs.jobs, change)
    request = pb.FetchLogsRequest(job_id=job_id, follow=True)
    async with asyncio.timeout(HANGS_S):
        return [log async for log in logs.fetch(request) if not log.note]


async def broken(cluster, job_id, tasks):
    """Run a job, of which the first task fails, and end it."""
    await cluster.run_job(job_id, tasks)
    await cluster.fill(tasks)
    failure = Failure(kind=FailureKind.IO_ERROR, message="broken", log_tail="the end\n")
    await record(cluster, job_id, replace(failed(0, at_ms=20), failure=failure))


async def record(cluster, job_id, *events):
    for event in events:
        await cluster.here.writers.record_decision(JobId(job_id), lambda _, event=event: Decision([event]))


async def test_who_follows_misses_no_task_that_began_and_ended_between_two_looks(cluster, monkeypatch):
    monkeypatch.setattr(timing, "LOGS_FOLLOWED_EVERY_S", 0.01)
    job_id = job_of(HERE)
    await cluster.here.jobs.submit(graph(job_id))

    async def run():
        await cluster.run_job(job_id, tasks=2)
        await cluster.finish(await cluster.fill(2))
        cluster.e2.logs = [attempt(job_id, 0, "zero\n"), attempt(job_id, 1, "one\n")]

    assert [log.text for log in await following(cluster, job_id, run)] == [b"zero\n", b"one\n"]


async def test_who_follows_gets_at_the_end_what_was_kept_of_attempts_that_no_executor_has(cluster, monkeypatch):
    monkeypatch.setattr(timing, "LOGS_FOLLOWED_EVERY_S", 0.01)
    job_id = job_of(HERE)
    await cluster.here.jobs.submit(graph(job_id))

    async def run():
        await broken(cluster, job_id, tasks=2)
        await record(cluster, job_id, JobCancelled(reason="enough", at_ms=30))
        cluster.e1.logs = [attempt(job_id, 1, "one\n")]

    lines = await following(cluster, job_id, run)
    assert [(log.task.partition, log.kept, log.text) for log in lines] == [
        (1, False, b"one\n"),
        (0, True, b"the end\n"),
    ]


async def test_what_was_kept_is_reported_once(cluster, monkeypatch):
    monkeypatch.setattr(timing, "LOGS_FOLLOWED_EVERY_S", 0.01)
    job_id = job_of(HERE)
    await broken(cluster, job_id, tasks=2)

    async def end():
        await record(cluster, job_id, JobCancelled(reason="enough", at_ms=30))

    (line,) = await following(cluster, job_id, end)
    assert (line.kept, line.text) == (True, b"the end\n")


async def test_a_look_reads_of_the_history_only_what_is_new(cluster, monkeypatch):
    job_id = job_of(HERE)
    await broken(cluster, job_id, tasks=3)
    history, read = cluster.here.history, []
    after = history.after

    async def counted(job_id, position, limit):
        entries = await after(job_id, position, limit)
        read.extend(entry.position for entry in entries)
        return entries

    monkeypatch.setattr(history, "after", counted)
    first = [log for log in await fetched(cluster.here, job_id) if not log.note]
    again = [log for log in await fetched(cluster.here, job_id) if not log.note]
    assert [(log.kept, log.task.partition) for log in first] == [(True, 0)]
    assert again == first
    failure = Failure(kind=FailureKind.IO_ERROR, message="broken", log_tail="the end\n")
    await record(cluster, job_id, replace(failed(1, at_ms=30), failure=failure))
    more = [log for log in await fetched(cluster.here, job_id) if not log.note]
    assert [(log.kept, log.task.partition) for log in more] == [(True, 0), (True, 1)]
    assert read == sorted(set(read)), "no entry is read twice"


async def test_no_line_is_sent_twice_when_more_attempts_log_than_executors_are_asked_about(cluster, monkeypatch):
    monkeypatch.setattr(timing, "LOGS_FOLLOWED_EVERY_S", 0.01)
    monkeypatch.setattr(job_logs, "_MAX_FOLLOWED", 1)
    job_id = job_of(HERE)
    await cluster.run_job(job_id, tasks=2)
    keys = await cluster.fill(2)
    logs = AttemptLogs()
    monkeypatch.setattr(cluster.e1, "_found", lambda ask: logs.answer(ask).logs)
    for key in keys:
        logs.add(key, "begin")

    async def go_on():
        logs.add(keys[0], "end")
        await cluster.finish(keys)

    reported = await following(cluster, job_id, go_on)
    lines = {p: b"".join(log.text for log in reported if log.task.partition == p) for p in (0, 1)}
    assert lines == {keys[0].partition: b"begin\nend\n", keys[1].partition: b"begin\n"}
