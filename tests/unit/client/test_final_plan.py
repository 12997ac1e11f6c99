"""The plan as it ran: fetched page by page, shown in 100 columns, with what stands out."""

import pyarrow as pa
import pytest

from onager.client.final_plan import FinalPlan, FinalStage
from onager.client.plan_hints import plan_hints
from onager.client.plan_text import WIDTH, plan_lines
from onager.client.progress import JobState
from onager.explain_analyze import is_analyzed, marked_analyzed
from onager.protocol import onager_pb2 as pb
from tests.unit.client.plans import EVENTS, MIB, RESULT, SKEWED, STAGES


@pytest.fixture
def job(scheduler, connect):
    scheduler.jobs["j"] = pb.JobSpec()
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.SUCCESSFUL)]
    scheduler.final_stages, scheduler.batches = STAGES, EVENTS
    return connect(scheduler.address).job("j")


def test_all_pages_are_one_plan(job, scheduler):
    plan = job.final_plan()
    assert (plan.job_id, plan.state) == ("j", JobState.SUCCESSFUL)
    assert [stage.progress.stage_id for stage in plan.stages] == [0, 1, 2]
    assert [request.stage_id for method, request in scheduler.calls if method == "GetFinalPlan"] == [0, 1, 2]
    (bound,) = plan.stages[1].plans
    aggregate = bound.operators[1]
    assert (aggregate.rows, aggregate.metric("spillSize").value, aggregate.metric("sortTime")) == (20, 5 * MIB, None)
    assert (plan.stages[1].estimated_rows, plan.stages[2].estimated_rows) == (1_000_000, None)


def test_a_task_costs_what_its_first_success_took(job):
    (stage,) = job.task_costs().values()
    assert [(task.partition, task.attempt, task.run_ms) for task in stage] == [(0, 0, 500), (1, 0, 500), (2, 1, 3000)]


def test_what_stands_out_is_said(job):
    hints = plan_hints(job.final_plan(), job.task_costs())
    assert {hint.stage_id for hint in hints} == {1}
    assert [hint.kind for hint in hints] == ["estimate", "skew", "skew", "spill", "waiting", "waiting"]
    texts = "\n".join(hint.text for hint in hints)
    assert "20 rows, 50,000 times fewer than the 1,000,000" in texts
    assert "task 2 on executor-1 took 3.00 s, the median is 0.50 s" in texts
    assert "task 2 read 8.0 MiB, the median is 1.0 MiB" in texts


def changed(**metrics):
    found = pb.FinalStage()
    found.CopyFrom(SKEWED)
    for name, value in metrics.items():
        setattr(found.info.metrics, name, value)
    return FinalPlan("j", JobState.SUCCESSFUL, (FinalStage.from_message(found),))


@pytest.mark.parametrize(
    ("metrics", "kind", "is_said"),
    [
        ({"rows_out": 100_000}, "estimate", True),
        ({"rows_out": 100_001}, "estimate", False),
        ({"rows_out": 10_000_000}, "estimate", True),
        ({"rows_out": 9_999_999}, "estimate", False),
        ({"spill_bytes": 0}, "spill", False),
        ({"queued_ms": 1714, "fetch_ms": 0}, "waiting", False),
        ({"queued_ms": 1715, "fetch_ms": 0}, "waiting", True),
        ({"queued_ms": 0, "fetch_ms": 1200}, "waiting", False),
        ({"queued_ms": 0, "fetch_ms": 1201}, "waiting", True),
    ],
)
def test_from_where_on_it_is_said(metrics, kind, is_said):
    assert (kind in {hint.kind for hint in plan_hints(changed(**metrics), {})}) == is_said


@pytest.mark.parametrize(
    ("median_ms", "longest_ms", "is_said"), [(500, 1500, True), (500, 1499, False), (20, 219, False)]
)
def test_skew_is_seen_without_a_look_at_each_task(median_ms, longest_ms, is_said):
    found = pb.FinalStage()
    found.CopyFrom(SKEWED)
    found.info.latencies.add(part="run", tasks=3, p50_ms=median_ms, max_ms=longest_ms)
    plan = FinalPlan("j", JobState.SUCCESSFUL, (FinalStage.from_message(found),))
    assert [hint.text for hint in plan_hints(plan, {}) if hint.kind == "skew"] == [
        "the slowest task took 1.50 s, the median is 0.50 s"
    ] * is_said
    assert any("the slowest" in line for line in plan_lines(plan, {}))


def test_a_stage_that_runs_has_no_wrong_estimate_yet():
    running = pb.FinalStage(info=RESULT.info, has_estimate=True, estimated_rows=10**9)
    plan = FinalPlan("j", JobState.RUNNING, (FinalStage.from_message(running),))
    assert plan_hints(plan, {}) == []


def test_a_stage_that_another_one_computes_is_reported_in_a_line():
    fused = pb.FinalStage(info=pb.StageInfo(stage_id=3, name="scan (fused into stage 4)", work="query", state="fused"))
    plan = FinalPlan("j", JobState.RUNNING, (FinalStage.from_message(fused),))
    lines = [line.rstrip() for line in plan_lines(plan, {})]
    assert [" ".join(line.split()) for line in lines] == ["stage 3 scan (fused into stage 4) fused", ""]
    assert plan_hints(plan, {}) == []


def test_the_text_of_a_plan(job):
    lines = list(plan_lines(job.final_plan(), job.task_costs(), per_task=True))
    assert max(map(len, lines)) <= WIDTH
    assert [line.rstrip() for line in lines] == TEXT.splitlines()


TEXT = """\
stage 0  plan                                                        successful, 1 of 1 task, 0.35 s

stage 1  scan lineitem → partial aggregate              successful (attempt 1), 3 of 3 tasks, 3.00 s
  wrote 20 rows, 9.0 MiB, in 4 buckets; Spark expected 1,000,000 rows
  tasks 4.00 s in all, the median 0.50 s, the slowest 3.00 s, peak memory 64.0 MiB, 1 failed, 0
        lost, and 0.70 s of work that did not count
  operators, as 2 of 3 tasks have reported:
        ROWS      TIME    MEMORY     SPILL  OPERATOR
          20    1.90 s  64.0 MiB   5.0 MiB  HashAggregate(keys=[l_orderkey], functions=[partial_sum…
                                            Union
                                            ├ Sort [l_orderkey ASC]
      60,175                                │ Scan parquet lineitem.parquet [l_o… · 1 file · 2.0 MiB
           5                                └ Read stage 4
  ! estimate: 20 rows, 50,000 times fewer than the 1,000,000 that Spark expected when it chose the
              joins
  ! skew: task 2 on executor-1 took 3.00 s, the median is 0.50 s
  ! skew: task 2 read 8.0 MiB, the median is 1.0 MiB: few keys have most rows
  ! spill: tasks wrote 5.0 MiB to disk for want of memory: give executors more memory, or fewer
           slots
  ! waiting: tasks ran 4.00 s, and before that waited 3.00 s on their executors: for the stage's
             plan to be compiled, for broadcasts, for slots of Spark
  ! waiting: tasks ran 4.00 s, of which they waited 2.00 s for rows of other stages

  TASK  TRY  QUEUED     RAN  WAITED  ROWS    WROTE     READ  SPILL  EXECUTOR
     0    0  1.00 s  0.50 s             7  3.0 MiB  1.0 MiB         executor-1
     1    0  1.00 s  0.50 s             7  3.0 MiB  1.0 MiB         executor-1
     2    1  1.00 s  3.00 s             7  3.0 MiB  8.0 MiB         executor-1

stage 2  final aggregate                                                        running, 0 of 1 task
  reads stage 1
  operators: not reported

"""


@pytest.mark.parametrize("depth", [1, 400])
def test_deep_plans_and_long_names_stay_within_the_width(depth):
    stage = pb.FinalStage()
    stage.CopyFrom(SKEWED)
    stage.info.name = "scan " + "x" * 300
    (plan,) = stage.plans
    del plan.operators[:]
    for number in range(depth):
        text = "Join " + "y" * 300
        plan.operators.add(name="Join", text=text, children=[2 * number + 1, 2 * number + 2])
        plan.operators.add(name="Scan stage 1", text="Scan stage 1" + "z" * 300)
    plan.operators.add(name="Filter", text="Filter " + "z" * 300)
    shown = FinalPlan("j", JobState.SUCCESSFUL, (FinalStage.from_message(stage),))
    lines = list(plan_lines(shown, {}))
    assert sum("Join" in line for line in lines) == depth
    assert max(map(len, lines)) <= WIDTH


def test_the_result_of_explain_analyze_is_the_plan(job, scheduler):
    rows = pa.record_batch({"n": [1, 2, 3]})
    marked = marked_analyzed(rows.schema.serialize().to_pybytes())
    scheduler.schema, scheduler.partitions = pa.ipc.read_schema(pa.py_buffer(marked)), [[rows]]
    assert is_analyzed(scheduler.schema)
    assert not is_analyzed(rows.schema)
    table = job.to_arrow()
    assert table.column_names == ["plan"]
    (plan,) = table.column("plan").to_pylist()
    assert "stage 1  scan lineitem" in plan
    assert "! skew: task 2" in plan
