"""How far a job is by what its executors tell, and how long it is likely to go on."""

from msgspec.structs import replace

from onager.execution_graph import AdaptivePolicy, JobCancelled, StageInput, TaskMetrics, TaskRead
from onager.execution_graph.events import StageLaidOut
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.jobs.live_progress import LiveProgress
from tests.unit.execution_graph import test_replanning as again
from tests.unit.execution_graph.builder import Job, chain, output, planned, stage
from tests.unit.scheduler.pair import HERE, THERE, job_of

START_MS = 1_000


def reported(
    stage_id: int, partition: int, *, permille: int = 0, size: int = 0, attempt: int = 0, stage_attempt: int = 0
):
    task = pb.TaskId(
        job_id="job-1", stage_id=stage_id, stage_attempt=stage_attempt, partition=partition, task_attempt=attempt
    )
    return pb.AttemptProgress(task=task, rows_read=size // 10, bytes_read=size, permille=permille)


def done(job: Job, stage_id: int, partition: int, **cost: int) -> None:
    assert job.feed(replace(job.success(stage_id, partition), metrics=TaskMetrics(**cost)))


def test_a_stage_is_as_far_as_its_tasks_and_what_they_have_read() -> None:
    job = planned(stage(1, 4))
    job.launch("a", 3)
    live = LiveProgress()
    assert live.estimate(job.graph, job.now_ms).fraction == 0
    done(job, 1, 0, run_ms=100)
    live.record(
        [reported(1, 1, permille=500, size=300), reported(1, 2, permille=250, size=100), reported(1, 3, permille=900)]
    )
    far = live.estimate(job.graph, job.now_ms)
    assert far.fraction == (1 + 0.5 + 0.25) / 4, "of a task that is not running nothing counts"
    assert far.stages[1] == (far.fraction, 40, 400)


def test_it_never_falls_while_a_stage_goes_on() -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    live = LiveProgress()
    live.record([reported(1, 0, permille=900)])
    assert live.estimate(job.graph, job.now_ms).fraction == 0.45
    live.record([reported(1, 0, permille=100)])
    assert live.estimate(job.graph, job.now_ms).fraction == 0.45
    job.lose("a")
    far = live.estimate(job.graph, job.now_ms)
    assert (far.fraction, far.fell) == (0.45, ""), "the attempt is gone, and the stage goes on"


def test_a_task_that_runs_is_not_done_whatever_it_has_read() -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    live = LiveProgress()
    live.record([reported(1, 0, permille=1000)])
    assert live.estimate(job.graph, job.now_ms).fraction == 0.99


def test_what_other_stages_made_tells_how_much_there_is_to_read() -> None:
    job = planned(*chain(2))
    job.launch("a")
    done(job, 1, 0, bytes_out=700)
    done(job, 1, 1, bytes_out=300)
    job.launch("a")
    live = LiveProgress()
    live.record([reported(2, 0, size=250)])
    assert live.estimate(job.graph, job.now_ms).stages[2].fraction == 0.25, "half of the 500 bytes of one of two tasks"


def test_after_a_rollback_it_says_why_it_fell() -> None:
    job = planned(*chain(2), is_shared=False)
    job.run(1)
    job.launch("b")
    live = LiveProgress()
    live.record([reported(2, 0, permille=500)])
    before = live.estimate(job.graph, job.now_ms)
    assert before.fraction == (2 + 0.5) / 4
    job.lose("a")
    after = live.estimate(job.graph, job.now_ms)
    assert after.fraction < before.fraction
    assert after.fell.startswith("stage ")
    assert "runs again" in after.fell
    job.run(1)
    job.launch("b")
    live.record([reported(2, p, permille=900, stage_attempt=1, attempt=job.held(2, p).attempt) for p in (0, 1)])
    again = live.estimate(job.graph, job.now_ms)
    assert again.fraction > before.fraction
    assert again.fell == ""


def test_after_a_re_plan_it_says_why_it_fell() -> None:
    job = again.with_due_replan()
    live = LiveProgress()
    assert live.estimate(job.graph, job.now_ms).fraction == 2 / 10
    again.begun(job)
    assert live.estimate(job.graph, job.now_ms).fraction == 2 / 10, "planning is nothing of what is to do"
    job.launch("a")
    join, last = again.swapped(6)
    assert job.feed(again.replanned(job, replace(join, partitions=40), last, dropped=(2, 3, 4), result=7))
    after = live.estimate(job.graph, job.now_ms)
    assert after.fraction == 2 / 44
    assert after.fell.startswith("the rest was planned again by stage 5, and has other tasks: stage 1 has 20 rows in ")
    job.run(6)
    assert live.estimate(job.graph, job.now_ms).fell == ""


def test_a_kept_plan_changes_nothing_of_how_far_a_job_is() -> None:
    job = again.with_due_replan()
    live = LiveProgress()
    before = live.estimate(job.graph, job.now_ms)
    again.begun(job)
    job.launch("a")
    assert job.feed(again.replanned(job))
    after = live.estimate(job.graph, job.now_ms)
    assert (after.fraction, after.fell) == (before.fraction, "")


def test_after_buckets_were_split_it_says_why_it_fell() -> None:
    split = replace(stage(2, 2, reads=(1,)), inputs=(StageInput(1, "bucket", may_split=True),), may_merge=True)
    job = planned(stage(1, 2), split, adaptive=AdaptivePolicy(fuse_bytes=0))
    job.run(1)
    live = LiveProgress()
    assert live.estimate(job.graph, job.now_ms).fraction == 1 / 2
    halves = tuple(
        TaskRead(
            first_bucket=bucket, end_bucket=bucket + 1, split_stage_id=1, first_producer=half, end_producer=half + 1
        )
        for bucket in (0, 1)
        for half in (0, 1)
    )
    assert job.feed(StageLaidOut(stage_id=2, basis=((1, 0), (2, 0)), reads=halves, at_ms=job.tick()))
    after = live.estimate(job.graph, job.now_ms)
    assert after.fraction == 2 / 6
    assert after.fell == "stage 2 (stage 2) shares 2 buckets among 4 tasks, by their sizes"


def test_the_rest_is_a_range_once_a_tenth_is_done() -> None:
    job = planned(stage(1, 10))
    job.launch("a", 2)
    live = LiveProgress()
    begun_ms = job.stage(1).started_ms
    assert live.estimate(job.graph, begun_ms + 500).eta_ms is None
    done(job, 1, 0, run_ms=400)
    done(job, 1, 1, run_ms=400)
    job.launch("a", 2)
    low_ms, high_ms = live.estimate(job.graph, begun_ms + 500).eta_ms
    # By pace 2,000 ms more; by tasks 8 of 400 ms, two at a time: 1,600.
    assert (low_ms, high_ms) == (1_200, 3_000)


def test_a_query_that_runs_where_it_is_planned_is_as_far_as_its_executor_says() -> None:
    job = Job()
    job.launch("a")
    live = LiveProgress()
    assert live.estimate(job.graph, job.now_ms) is None
    live.record([reported(0, 0, permille=200, size=50)])
    far = live.estimate(job.graph, job.held(0, 0).launched_ms + 1_000)
    assert far.fraction == 0.2
    assert far.stages[0] == (0.2, 5, 50)
    assert far.eta_ms == (3_000, 6_000)
    job.feed(job.plan(stage(1, 1, plan_digest=None, kind="result"), fused=output("f")))
    assert not job.graph.is_active


def test_it_is_forgotten_with_the_job_and_has_limits() -> None:
    live = LiveProgress()
    live.record([reported(1, p, permille=1) for p in range(20_000)])
    job = planned(stage(1, 2))
    job.launch("a")
    assert live.estimate(job.graph, job.now_ms).fraction == 0.001
    live.forget("job-1")
    assert live.estimate(job.graph, job.now_ms).fraction == 0


def test_a_job_that_tells_again_and_again_is_not_forgotten_for_others(monkeypatch) -> None:
    monkeypatch.setattr("onager.scheduler.jobs.live_progress._MAX_JOBS", 2)
    live = LiveProgress()
    job = planned(stage(1, 2))
    job.launch("a")
    live.record([reported(1, 0, permille=500)])
    for number in range(3):
        other = reported(1, 0)
        other.task.job_id = f"other-{number}"
        live.record([other])
        live.record([reported(1, 1)])
    assert live.estimate(job.graph, job.now_ms).fraction == 0.25


async def test_what_comes_after_the_end_of_a_job_is_not_kept(pair) -> None:
    job_id = job_of(HERE)
    await pair.run_job(job_id, tasks=1)
    late = reported(1, 0, permille=500)
    late.task.job_id = job_id
    pair.here._record_progress([late])
    assert list(pair.here.live._jobs) == [job_id]
    cancelled = JobCancelled(reason="enough", at_ms=20)
    await pair.here.writers.record_decision(JobId(job_id), lambda _: Decision([cancelled]))
    pair.here._record_progress([late])
    assert not pair.here.live._jobs


async def test_what_other_schedulers_forward_after_the_end_of_a_job_is_not_kept(pair) -> None:
    job_id = job_of(HERE)
    await pair.run_job(job_id, tasks=1)
    late = reported(1, 0, permille=500)
    late.task.job_id = job_id
    forwarded = pb.ForwardRequest(scheduler_id=THERE, progress=[late])
    await pair.forward(HERE, forwarded)
    assert list(pair.here.live._jobs) == [job_id]
    cancelled = JobCancelled(reason="enough", at_ms=20)
    await pair.here.writers.record_decision(JobId(job_id), lambda _: Decision([cancelled]))
    await pair.forward(HERE, forwarded)
    assert not pair.here.live._jobs
