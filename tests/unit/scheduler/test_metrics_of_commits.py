"""Counters move by what the committed events say, each once."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from onager.execution_graph import FailureKind, JobCancelled, OutputsTaken, StageReplanned, TakenOutput
from onager.execution_graph.events import ReplanBegun
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.metrics.commits import CommitMetrics
from onager.state_backend.memory import MemoryStore
from tests.support.metrics import counted, of_registry
from tests.unit.execution_graph import builder
from tests.unit.execution_graph.builder import chain, stage
from tests.unit.scheduler.small_graphs import UnsureBackend, append, graph, store
from tests.unit.scheduler.test_job_store import running


@dataclass
class Observed(builder.Job):
    """A job each event of which is committed as a batch of its own."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self):
        self.metrics = CommitMetrics(self.registry)

    def feed(self, event):
        before = SimpleNamespace(graph=self.graph)
        has_changed = super().feed(event)
        self.metrics.committed(before, [event], SimpleNamespace(graph=self.graph))
        return has_changed

    def reported(self, *prefixes):
        samples = of_registry(self.registry)
        return {name: n for prefix in prefixes for name, n in counted(samples, f"onager_{prefix}").items()}


def planned(*stages, **how):
    job = Observed(**how)
    job.launch("planner")
    assert job.feed(job.plan(*stages))
    return job


def test_a_job_from_its_submission_to_its_end():
    job = planned(stage(1, 2))
    job.launch("a")
    job.succeed(1, 0, 1)
    reported = job.reported(
        "jobs_ended", "tasks_ended", "job_duration", "planning", "submit_to", "task_run", "exchange_io"
    )
    assert reported['onager_jobs_ended_total{error_kind="",state="successful"}'] == 1
    assert reported['onager_tasks_ended_total{outcome="successful",work="plan"}'] == 1
    assert reported['onager_tasks_ended_total{outcome="successful",work="query"}'] == 2
    assert reported["onager_job_duration_seconds_count"] == 1
    assert reported["onager_job_duration_seconds_sum"] == pytest.approx(
        (job.graph.ended_ms - job.graph.submitted_ms) / 1000
    )
    assert reported["onager_submit_to_first_task_seconds_count"] == 1
    assert reported["onager_planning_seconds_count"] == 1
    assert reported["onager_task_run_seconds_count"] == 3
    assert (
        reported['onager_task_run_seconds_bucket{le="+Inf"}']
        == reported['onager_task_run_seconds_bucket{le="0.05"}']
        == 3
    )
    assert reported['onager_exchange_io_bytes_total{direction="written"}'] == 3 * builder.METRICS.bytes_out


def test_a_report_that_comes_twice_counts_once():
    job = planned(stage(1, 2))
    job.launch("a")
    success = job.success(1, 0)
    assert job.feed(success)
    assert not job.feed(success)
    assert job.reported("tasks_ended")['onager_tasks_ended_total{outcome="successful",work="query"}'] == 1


def test_failures_by_kind_and_whether_the_task_is_tried_again():
    job = planned(stage(1, 2))
    job.launch("a")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.launch("a")
    job.fail(1, 0, FailureKind.USER_ERROR)
    assert job.reported("tasks_retried") == {'onager_tasks_retried_total{kind="io_error"}': 1}
    assert job.reported("jobs_ended") == {'onager_jobs_ended_total{error_kind="user_error",state="failed"}': 1}
    ended = job.reported("tasks_ended")
    assert ended['onager_tasks_ended_total{outcome="io_error",work="query"}'] == 1
    assert ended['onager_tasks_ended_total{outcome="user_error",work="query"}'] == 1


def test_what_a_lost_executor_costs():
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("b", 1)
    job.launch("a")
    job.lose("a")
    assert job.reported("tasks_retried") == {'onager_tasks_retried_total{kind="executor_lost"}': 1}
    assert job.reported("stage_rollbacks")["onager_stage_rollbacks_total"] >= 1
    assert not job.reported("finished_tasks_rerun")
    job.finish()
    assert job.reported("finished_tasks_rerun") == {"onager_finished_tasks_rerun_total": 2}


def test_an_input_that_is_gone_rolls_its_stages_back():
    job = planned(*chain(2))
    job.run(1, "a")
    job.launch("b")
    job.feed(job.cannot_fetch(2, 0, 1, 0))
    assert job.reported("tasks_retried") == {'onager_tasks_retried_total{kind="fetch_failed"}': 1}
    assert job.reported("stage_rollbacks") == {"onager_stage_rollbacks_total": 2}


def test_tasks_that_never_arrived():
    job = planned(stage(1, 2))
    job.launch("a")
    job.feed(job.take_back(1, 0, FailureKind.LAUNCH_LOST))
    assert job.reported("tasks_retried") == {'onager_tasks_retried_total{kind="launch_lost"}': 1}


def test_a_task_that_plans_again_is_counted():
    job = planned(*chain(2))
    job.run(1)
    basis = ((1, 0),)
    assert job.feed(
        ReplanBegun(replan_id=3, basis=basis, finished=(1,), held=(2,), why="it is small", at_ms=job.tick())
    )
    while 0 not in getattr(job.stage(3), "running", {}):
        job.launch("planner", 1)
    assert job.feed(StageReplanned(replan_id=3, task_attempt=0, executor_id="planner", basis=basis, at_ms=job.tick()))
    assert job.reported("tasks_ended")['onager_tasks_ended_total{outcome="successful",work="replan"}'] == 1


@pytest.mark.parametrize("fate", ["lost", "done"])
async def test_a_write_of_unknown_outcome_is_counted_once(clock, fate):
    registry = CollectorRegistry()
    async with UnsureBackend(MemoryStore(clock)) as backend:
        jobs = store(backend, clock)
        jobs.observer = CommitMetrics(registry)
        backend.script = [fate]
        await jobs.submit(graph(), JobTerms())
        await jobs.submit(graph(), JobTerms())
        assert counted(of_registry(registry), "onager_jobs_submitted_total") == {"onager_jobs_submitted_total": 1}


@pytest.mark.parametrize("fate", ["ok", "lost", "done"])
async def test_of_two_writers_the_one_that_wins_counts(clock, fate):
    one, other = CollectorRegistry(), CollectorRegistry()
    async with UnsureBackend(MemoryStore(clock)) as backend:
        here, there = store(backend, clock), store(backend, clock)
        here.observer, there.observer = CommitMetrics(one), CommitMetrics(other)
        job = await running(here)
        also = await there.load(job.header.job_id)
        backend.script = [fate]
        cancelled = JobCancelled(reason="enough", at_ms=20)
        await append(here, job, [cancelled])
        await append(there, also, [cancelled])
    ended = [counted(of_registry(registry), "onager_jobs_ended_total") for registry in (one, other)]
    assert ended == [{'onager_jobs_ended_total{error_kind="",state="cancelled"}': 1}, {}]


def test_outputs_that_are_taken_and_those_of_them_that_are_lost():
    first, second = chain(2)
    job = planned(first, replace(second, fingerprint="f"), stage(3, reads=(2,), kind="result"))
    outputs = (builder.output("x"), builder.output("y"))
    taken = TakenOutput(stage_id=2, job_id="other", of_stage_id=7, fingerprint="f", outputs=outputs)
    job.feed(OutputsTaken(taken=(taken,), at_ms=job.tick()))
    late = replace(taken, stage_id=9)  # of a plan that came too late
    job.feed(OutputsTaken(taken=(taken, late), at_ms=job.tick()))
    counts = {"onager_stages_reused_total": 1, "onager_reused_bytes_total": 200}
    assert {name: n for name, n in job.reported("stages_reused", "reused").items() if n} == counts
    job.launch()
    job.feed(job.cannot_fetch(3, 0, 2, 0))
    job.finish()
    assert {name: n for name, n in job.reported("stages_reused", "reused").items() if n} == counts | {
        "onager_reused_stages_lost_total": 1
    }
