"""Scripts as schedulers drive them: jobs of steps are submitted once, watched, stopped, taken over and removed."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from onager.cli.events import what
from onager.client.events import JobEvent
from onager.errors import InvalidRequestError, InvalidSettingError, ResultExpiredError
from onager.execution_graph import (
    Failure,
    FailureKind,
    JobState,
    SinkSpec,
    StagesStarted,
    TaskFailed,
    TaskOutput,
    TasksLaunched,
)
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import caller_of
from onager.scheduler.api import spans
from onager.scheduler.app import SchedulerApp
from onager.scheduler.engine import webhooks
from onager.scheduler.jobs.job_specs import decode_spec, encode_spec
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.jobs.script_specs import spec_of_child
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.pair import FakeContext
from tests.unit.scheduler.small_graphs import planned

CONTEXT = FakeContext()
P = JobId("p")
DAY_MS = 86_400_000


def sql(text, *after, name="", **fields):
    return pb.ScriptStep(sql=pb.SqlScript(text=text), after=after, name=name, **fields)


def spec_of(*steps, **fields):
    return pb.JobSpec(name="nightly", script=pb.ScriptSpec(steps=steps), **fields)


CHAIN = spec_of(sql("SELECT 1"), sql("SELECT 2", 1), sql("SELECT 3", 2), conf={"onager.weight": "2"})


def made(store, clock, name="s", **settings):
    return SchedulerApp(
        SchedulerSettings(exchange_dir="/x", scheduler_id=name, listen="127.0.0.1:1", **settings),
        MemoryBackend(store),
        clock,
    )


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
async def scheduler(store, clock):
    scheduler = made(store, clock)
    await scheduler._backend.put(Keyspace.Schedulers, "s", scheduler.schedulers.record.encoded())
    await scheduler.start()
    yield scheduler
    await scheduler.close()


async def submit(scheduler, spec=CHAIN, job_id=P):
    await scheduler.service.SubmitJob(pb.SubmitJobRequest(job_id=job_id, spec=spec, client_id="c"), CONTEXT)
    await scheduler.steps._work_off()


async def end(scheduler, child, failure=None, *, rows=4, sink=None):
    """Let an executor run the job of a step to its end, in one go."""
    now_ms = scheduler._clock.now_ms()
    launched = TasksLaunched(
        stage_id=0, stage_attempt=0, executor_id="e1", incarnation="life", list_number=0, tasks=((0, 0),), at_ms=now_ms
    )
    fused = planned(1, at_ms=now_ms)
    output = TaskOutput(nonce="n", is_shared=True, rows=rows, bytes=9)
    result = replace(fused.stages[0], plan_digest=None)
    ended = replace(
        fused, stages=(result,), fused_output=output, summary=replace(fused.summary, is_fused=True, sink=None)
    )
    if failure is not None:
        ended = TaskFailed(
            stage_id=0,
            stage_attempt=0,
            partition=0,
            task_attempt=0,
            executor_id="e1",
            failure=Failure(kind=FailureKind.USER_ERROR, message=failure),
            at_ms=now_ms,
        )
    await scheduler.writers.record_decision(
        JobId(child), lambda _: Decision([StagesStarted(stage_ids=(0,), at_ms=now_ms), launched, ended])
    )
    if sink is not None:
        head = scheduler.heads.get(JobId(child))
        assert await scheduler.heads.put([head.model_copy(update={"sink_path": sink.path})])
    await scheduler.steps._work_off()


def children(scheduler, job_id=P):
    return {job: scheduler.heads.get(job).state for job in scheduler.heads.steps_of(job_id)}


async def state(scheduler, job_id=P):
    return (await scheduler.jobs.fresh(job_id)).graph.state


async def spec_of_job(scheduler, job_id):
    graph = (await scheduler.jobs.fresh(JobId(job_id))).graph
    return decode_spec(await scheduler.blobs.get(graph.spec_digest))


async def test_steps_become_jobs_one_after_the_other(scheduler):
    await submit(scheduler)
    assert children(scheduler) == {"p.1": JobState.QUEUED}
    for number in (1, 2, 3):
        assert await state(scheduler) is JobState.RUNNING
        await end(scheduler, f"p.{number}", rows=number)
    assert await state(scheduler) is JobState.SUCCESSFUL
    assert scheduler.heads.get(P).result_rows == 3
    assert set(children(scheduler).values()) == {JobState.SUCCESSFUL}


async def test_the_job_of_a_step_has_the_terms_of_its_script(scheduler):
    spec = spec_of(
        sql("SELECT 1", name="first", conf={"spark.x": "own"}, views=[pb.View(name="V", path="/own")]),
        conf={"onager.weight": "2", "onager.session": "night", "spark.x": "all", "onager.deadline": "2h"},
        views=[pb.View(name="v", path="/all"), pb.View(name="w", path="/w")],
        labels={"team": "a"},
    )
    await submit(scheduler, spec)
    head, child = scheduler.heads.get(JobId("p.1")), await spec_of_job(scheduler, "p.1")
    assert (head.name, head.weight, head.session, head.labels, head.client_id) == (
        "first of nightly",
        2.0,
        "night",
        {"team": "a"},
        "c",
    )
    assert (head.deadline_ms, scheduler.heads.get(P).deadline_ms > 0) == (0, True)
    assert dict(child.conf) == {"onager.weight": "2", "onager.session": "night", "spark.x": "own"}
    assert [(view.name, view.path) for view in child.views] == [("V", "/own"), ("w", "/w")]


async def test_steps_without_an_order_run_at_once(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1"), sql("SELECT 2"), sql("SELECT 3", 1, 2)))
    assert set(children(scheduler)) == {"p.1", "p.2"}
    await end(scheduler, "p.2")
    assert set(children(scheduler)) == {"p.1", "p.2"}
    await end(scheduler, "p.1")
    assert set(children(scheduler)) == {"p.1", "p.2", "p.3"}


async def test_a_failed_step_fails_the_script_and_stops_the_others(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1", name="left"), sql("SELECT 2", name="right")))
    await end(scheduler, "p.2", failure="division by zero")
    assert await state(scheduler) is JobState.FAILED
    outcome = (await scheduler.jobs.fresh(P)).graph.outcome
    assert outcome.failure.message == "step 2 of 2 (right): division by zero"
    await scheduler.steps._work_off()
    progress = (await scheduler.service.GetJob(pb.GetJobRequest(job_id=P), CONTEXT)).progress
    assert [(s.child_job_id, s.step_state) for s in progress.stages[1:]] == [("p.1", "cancelled"), ("p.2", "failed")]
    assert children(scheduler) == {"p.1": JobState.CANCELLED, "p.2": JobState.FAILED}


async def test_cancelling_a_script_stops_its_steps(scheduler):
    await submit(scheduler)
    await scheduler.service.CancelJob(pb.CancelJobRequest(job_id=P, reason="no"), CONTEXT)
    await scheduler.steps._work_off()
    assert children(scheduler) == {"p.1": JobState.CANCELLED}


async def test_cancelling_a_step_fails_its_script(scheduler):
    await submit(scheduler)
    await scheduler.service.CancelJob(pb.CancelJobRequest(job_id="p.1", reason="not this"), CONTEXT)
    await scheduler.steps._work_off()
    message = (await scheduler.jobs.fresh(P)).graph.outcome.failure.message
    assert message == "step 1 of 3 (step 1): it was cancelled: not this"


async def test_a_scheduler_that_takes_over_goes_on_and_submits_no_step_again(scheduler, store, clock):
    await submit(scheduler)
    other = made(store, clock, "s")
    await other.start()
    await asyncio.gather(*(scheduler.steps._work_off() for scheduler in (other, scheduler)))
    assert children(other) == {"p.1": JobState.QUEUED}
    await end(other, "p.1")
    assert set(children(other)) == {"p.1", "p.2"}
    # The first one has learned of nothing, and looks at the script as it knows it.
    scheduler.steps.look_again()
    await scheduler.steps._work_off()
    await end(other, "p.2")
    await end(other, "p.3")
    assert await state(other) is JobState.SUCCESSFUL
    assert children(other) == dict.fromkeys(("p.1", "p.2", "p.3"), JobState.SUCCESSFUL)
    await other.close()


async def test_a_child_that_was_submitted_unseen_is_not_submitted_again(scheduler):
    await submit(scheduler)
    known = scheduler.heads._heads.pop(JobId("p.1"))
    scheduler.steps.look_again()
    await scheduler.steps._work_off()
    scheduler.heads._heads[JobId("p.1")] = known
    assert (await scheduler.jobs.load(JobId("p.1"))).seq == 0


async def retry(scheduler, new="q", of=P):
    request = pb.RetryJobRequest(job_id=of, new_job_id=new)
    await scheduler.service.retries.retry(request, caller_of(CONTEXT))
    await scheduler.steps._work_off()


async def test_a_retry_takes_the_committed_steps_for_done(scheduler):
    await submit(scheduler)
    await end(scheduler, "p.1", rows=7)
    await end(scheduler, "p.2", failure="no")
    await retry(scheduler)
    await scheduler.steps._work_off()
    assert set(children(scheduler, JobId("q"))) == {"q.2"}
    progress = (await scheduler.service.GetJob(pb.GetJobRequest(job_id="q"), CONTEXT)).progress
    assert [(s.child_job_id, s.step_rows, s.state) for s in progress.stages[1:]] == [
        ("p.1", 7, "successful"),
        ("q.2", 0, "running"),
        ("", 0, "unresolved"),
    ]
    await end(scheduler, "q.2")
    await end(scheduler, "q.3")
    assert await state(scheduler, JobId("q")) is JobState.SUCCESSFUL


async def test_what_waited_for_a_step_that_runs_again_runs_again_too(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1"), sql("SELECT 2"), sql("SELECT 3", 2)))
    await end(scheduler, "p.2")
    await end(scheduler, "p.3", rows=3)
    await end(scheduler, "p.1", failure="no")
    await retry(scheduler)
    await scheduler.steps._work_off()
    # The last one only gives rows: these may be gone, so they are made again.
    assert set(children(scheduler, JobId("q"))) == {"q.1", "q.3"}


async def test_a_dataset_that_is_the_last_step_is_not_written_again(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1"), sql("SELECT 2")))
    await end(scheduler, "p.2", rows=3, sink=SinkSpec(path="/out", format="parquet", mode="error"))
    await end(scheduler, "p.1", failure="no")
    await retry(scheduler)
    await scheduler.steps._work_off()
    assert set(children(scheduler, JobId("q"))) == {"q.1"}


async def test_a_retry_waits_for_a_step_that_is_still_being_published(scheduler, monkeypatch):
    async def in_vain(*_):
        """A job that publishes is not stopped."""

    monkeypatch.setattr(scheduler.steps, "_stop_steps", in_vain)
    await submit(scheduler, spec_of(sql("SELECT 1"), sql("SELECT 2")))
    await end(scheduler, "p.2", failure="no")
    await retry(scheduler)
    assert set(children(scheduler, JobId("q"))) == {"q.2"}
    await end(scheduler, "p.1", rows=5)
    progress = (await scheduler.service.GetJob(pb.GetJobRequest(job_id="q"), CONTEXT)).progress
    assert [(s.child_job_id, s.step_rows) for s in progress.stages[1:]] == [("p.1", 5), ("q.2", 0)]


async def test_a_retry_of_a_retry_that_came_to_nothing_finds_what_was_done(scheduler):
    await submit(scheduler)
    await end(scheduler, "p.1", rows=7)
    await end(scheduler, "p.2", failure="no")
    await scheduler.service.retries.retry(pb.RetryJobRequest(job_id=P, new_job_id="q"), caller_of(CONTEXT))
    await scheduler.service.CancelJob(pb.CancelJobRequest(job_id="q", reason="no"), CONTEXT)
    await scheduler.steps._work_off()
    assert children(scheduler, JobId("q")) == {}
    await retry(scheduler, "r", of="q")
    await scheduler.steps._work_off()
    assert set(children(scheduler, JobId("r"))) == {"r.2"}


async def test_a_successful_script_is_run_again_whole(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1")))
    await end(scheduler, "p.1")
    await retry(scheduler)
    assert set(children(scheduler, JobId("q"))) == {"q.1"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (spec_of(), "no step"),
        (spec_of(sql("SELECT 1", 1)), "waits for step 1"),
        (spec_of(sql("SELECT 1", name="a"), sql("SELECT 1", name="a")), "two steps"),
        (spec_of(sql(" ;")), "the SQL text is empty"),
        (spec_of(sql("SELECT 1"), sink=pb.Sink(path="/x", format="csv")), "outputs and Python files"),
        (spec_of(pb.ScriptStep(name="a")), "nothing to run"),
    ],
)
async def test_what_is_no_script_is_refused(scheduler, spec, why):
    with pytest.raises(InvalidRequestError, match=why):
        await scheduler.service.submissions.submit(pb.SubmitJobRequest(job_id=P, spec=spec))


async def test_no_client_gives_a_job_the_id_of_a_step(scheduler):
    with pytest.raises(InvalidRequestError, match="not a job id"):
        await scheduler.service.submissions.submit(
            pb.SubmitJobRequest(job_id="p.1", spec=pb.JobSpec(sql=pb.SqlScript(text="SELECT 1")))
        )


async def test_lists_show_scripts_and_their_steps_only_when_asked(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1"), labels={"team": "a", "run": "7"}))

    async def listed(**fields):
        return [job.job_id for job in (await scheduler.service.ListJobs(pb.ListJobsRequest(**fields), CONTEXT)).jobs]

    assert await listed() == ["p"]
    assert sorted(await listed(steps=True)) == ["p", "p.1"]
    assert await listed(labels={"team": "a"}) == ["p"]
    assert await listed(labels={"team": "a", "run": "8"}) == []


async def test_a_deadline_fails_a_job_and_its_steps(scheduler, clock):
    await submit(scheduler, spec_of(sql("SELECT 1"), conf={"onager.deadline": "2h"}))
    clock.advance(7_199_000)
    await scheduler.steps.pass_deadlines()
    assert await state(scheduler) is JobState.RUNNING
    clock.advance(1_000)
    await scheduler.steps.pass_deadlines()
    await scheduler.steps._work_off()
    assert "within 7200 s, its deadline" in (await scheduler.jobs.fresh(P)).graph.outcome.failure.message
    assert children(scheduler) == {"p.1": JobState.CANCELLED}


async def test_a_deadline_is_counted_from_the_submission_that_the_job_tells(scheduler, clock, monkeypatch):
    """Failures say within how long, by the two moments."""
    now_ms = clock.now_ms

    def moving():
        clock.advance(1)
        return now_ms()

    monkeypatch.setattr(clock, "now_ms", moving)
    await submit(scheduler, spec_of(sql("SELECT 1"), conf={"onager.deadline": "3s"}))
    head = scheduler.heads.get(P)
    assert head.deadline_ms - head.submitted_ms == 3_000


@pytest.mark.parametrize("text", ["soon", "0s", "-1m", "3", "400d", "1.5h"])
async def test_a_deadline_is_a_duration(scheduler, text):
    spec = pb.JobSpec(sql=pb.SqlScript(text="SELECT 1"), conf={"onager.deadline": text})
    with pytest.raises(InvalidSettingError, match="give a duration"):
        await scheduler.service.submissions.submit(pb.SubmitJobRequest(job_id=P, spec=spec))


async def fetch(scheduler):
    return [chunk async for chunk in scheduler.service.FetchResult(pb.FetchResultRequest(job_id=P), CONTEXT)]


async def test_steps_are_kept_for_as_long_as_their_script(scheduler, clock):
    await submit(scheduler, spec_of(sql("SELECT 1"), sql("SELECT 2", 1)))
    await end(scheduler, "p.1")
    clock.advance(3 * DAY_MS)
    await scheduler.retention.sweep()
    head = scheduler.heads.get(JobId("p.1"))
    assert head.has_result
    assert head.has_history
    await end(scheduler, "p.2")
    clock.advance(3_601_000)
    await scheduler.retention.sweep()
    assert not scheduler.heads.get(JobId("p.1")).has_result
    assert not scheduler.heads.get(P).has_result
    heads = [h.model_copy(update={"clean_up": "none"}) for h in scheduler.heads if h.clean_up != "none"]
    await scheduler.heads.put(heads)
    clock.advance(DAY_MS)
    for _ in range(3):
        clock.advance(60_000)
        await scheduler.retention.sweep()
    assert list(scheduler.heads) == []
    assert not (await scheduler._backend.get_from_prefix(Keyspace.Plans, "")).items


async def test_the_steps_of_a_script_are_put_together_from_script_and_step(scheduler):
    script = pb.JobSpec(
        sql=pb.SqlScript(text="INSERT …; INSERT …", parameters=[pb.SqlParameter(name="a", type="bigint", value="1")]),
        conf={"spark.x": "1"},
        name="load",
    )
    step = json.dumps({"sql": {"statements": [1, 2]}, "sink": {"path": "/out"}}).encode()
    found = spec_of_child(encode_spec(script), step, "statement 2, line 1")
    assert (found.sql.text, list(found.sql.statements), found.sql.parameters[0].value) == (
        "INSERT …; INSERT …",
        [1, 2],
        "1",
    )
    assert (found.sink.path, found.name, dict(found.conf)) == ("/out", "statement 2, line 1 of load", {"spark.x": "1"})


async def test_the_result_of_a_script_is_gone_with_that_of_its_last_step(scheduler, clock):
    await submit(scheduler, spec_of(sql("SELECT 1")))
    await end(scheduler, "p.1")
    head = scheduler.heads.get(JobId("p.1"))
    await scheduler.heads.put([head.model_copy(update={"has_result": False})])
    with pytest.raises(ResultExpiredError):
        await scheduler.service._result_job(JobId("p.1"), P)


async def test_a_script_whose_last_step_writes_says_where(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1")))
    await end(scheduler, "p.1", rows=3, sink=SinkSpec(path="/out", format="parquet", mode="error"))
    progress = (await scheduler.service.GetJob(pb.GetJobRequest(job_id=P), CONTEXT)).progress
    assert (progress.sink_path, progress.result_rows) == ("/out", 3)


@pytest.mark.parametrize("form", ["timeline", "timeline-svg", "spark-event-log"])
async def test_what_a_script_did_can_be_exported(scheduler, form):
    await submit(scheduler)
    await end(scheduler, "p.1")
    await end(scheduler, "p.2", failure="no")
    request = pb.ExportJobRequest(job_id=P, format=form)
    exported = b"".join([chunk.content async for chunk in scheduler.service.ExportJob(request, CONTEXT)])
    assert b"step 2" in exported or b"Stage Completed" in exported or b"SparkListenerStageCompleted" in exported


async def all_reported(scheduler):
    """Return all that is reported of P and of the jobs of its steps, the plan first."""
    service = scheduler.service
    found = [str(await service.GetFinalPlan(pb.GetFinalPlanRequest(job_id=P), CONTEXT))]
    found.append(str(await service.ListJobs(pb.ListJobsRequest(steps=True), CONTEXT)))
    for job_id in (P, "p.1", "p.2"):
        found.append(str(await service.GetJob(pb.GetJobRequest(job_id=job_id), CONTEXT)))
        found += [str(each) async for each in service.WatchEvents(pb.WatchEventsRequest(job_id=job_id), CONTEXT)]
        for form in ("timeline", "timeline-svg", "spark-event-log"):
            request = pb.ExportJobRequest(job_id=job_id, format=form)
            found += [str(chunk.content) async for chunk in service.ExportJob(request, CONTEXT)]
        story, job = await scheduler.exports.timelines.story(JobId(job_id))
        found += [span.to_json() for span in spans.spans(story, job.graph)]
        found.append(str(webhooks._body(scheduler.heads.get(job_id))))
    return found


async def test_no_secret_is_shown_of_the_name_of_a_step(scheduler):
    named = sql("SELECT 1", name="SET my.word = hunter2", conf={"spark.redaction.regex": "my.word"})
    await submit(scheduler, spec_of(named, sql("SELECT 2", name="load password=hunter2")))
    await end(scheduler, "p.1")
    await end(scheduler, "p.2", failure="no")
    found = await all_reported(scheduler)
    assert "SET my.word = *********(redacted)" in found[0]
    assert not [each for each in found if "hunter2" in each]


async def test_the_plan_of_a_script_as_it_ran_is_its_steps(scheduler):
    await submit(scheduler)
    await end(scheduler, "p.1")
    plan = await scheduler.service.GetFinalPlan(pb.GetFinalPlanRequest(job_id=P), CONTEXT)
    assert [stage.info.name for stage in plan.stages] == ["plan", "step 1", "step 2", "step 3"]


async def test_events_of_a_script_are_reported_in_words(scheduler):
    await submit(scheduler, spec_of(sql("SELECT 1"), sql("SELECT 2")))
    await end(scheduler, "p.1", rows=1)
    await end(scheduler, "p.2", failure="no")
    batches = [batch async for batch in scheduler.service.WatchEvents(pb.WatchEventsRequest(job_id=P), CONTEXT)]
    events = [JobEvent(1, 0, "s", e.type, json.loads(e.json)) for batch in batches for e in batch.events]
    texts = [what(event) for event in events if event.type == "step_ended"]
    assert texts == ["step 1: job p.1, 1 row", "step 2: job p.2 failed: no"]


async def test_webhooks_are_notified_of_the_script_alone(store, clock, tmp_path):
    (tmp_path / "secret").write_text("a secret of thirty-two characters")
    scheduler = made(store, clock, webhook_urls=["http://127.0.0.1:1/"], webhook_secret_file=tmp_path / "secret")
    await scheduler._backend.put(Keyspace.Schedulers, "s", scheduler.schedulers.record.encoded())
    await scheduler.start()
    await submit(scheduler, spec_of(sql("SELECT 1")))
    await end(scheduler, "p.1")
    assert {job: scheduler.heads.get(JobId(job)).is_notice_due for job in (P, "p.1")} == {P: True, "p.1": False}
    await scheduler.close()
