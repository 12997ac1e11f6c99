from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from onager.client import JobProgress
from onager.execution_graph import (
    ExecutorSlot,
    Failure,
    FailureCause,
    FailureKind,
    JobCancelled,
    RetryLimits,
    SinkSpec,
    SpeculationPolicy,
    StageInput,
    TaskMetrics,
    apply_all,
    find_stragglers,
    pop_next_tasks,
)
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.explained import UNEXPLAINED, Explained
from onager.scheduler.api.progress import ProgressView, progress_of_head, why_nobody_works
from onager.scheduler.jobs.exchange_sizes import ExchangeSizes
from onager.scheduler.jobs.job_heads import JobTerms, head_of
from onager.scheduler.jobs.job_specs import decode_spec_shown, encode_spec
from onager.scheduler.jobs.live_progress import LiveProgress
from onager.scheduler.policy.fair_queue import FairQueue
from tests.unit.scheduler.small_graphs import failed, graph, planned, succeeded
from tests.unit.scheduler.test_job_store import launches

HEADER = SimpleNamespace(job_id="job-1", principal="ann", retry_of="", session="", labels={}, deadline_ms=0)


def teller(*, slots=2, free=2, draining=False, busy=(), now_ms=0):
    queue = FairQueue()
    for job_id, running in busy:
        queue.update(JobId(job_id), submitted_ms=0, weight=1, running=running, available=0)
    record = SimpleNamespace(slots=slots, runs_programs=False)
    session = SimpleNamespace(record=record, held=[0] * (slots - free), slot=ExecutorSlot("e1", "life", 1))
    executors = SimpleNamespace(
        takes_work=lambda _: not draining,
        taking_work=lambda: {"e1", "e2"},
        total_slots=0 if draining else slots,
        sessions=[session] if slots else [],
        infos=lambda: [pb.ExecutorInfo(state="draining" if draining else "alive")] if slots else [],
    )
    clock = SimpleNamespace(now_ms=lambda: now_ms)
    return ProgressView(executors, queue, clock, ExchangeSizes(), LiveProgress(), lambda _: None)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (teller(slots=0, free=0), "no executor is registered"),
        (teller(draining=True), "every executor is leaving: start another one"),
        (teller(free=0, busy=[("other", 2)]), "all slots are busy with other (2)"),
        (teller(), ""),
    ],
)
def test_a_waiting_job_says_what_it_waits_for(made, why):
    assert made.progress(graph()).waiting_for == why


def test_a_job_says_that_its_tasks_are_left_to_another_executor():
    found = graph()
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(1)])
    found = apply_all(found, launches(found))
    failure = failed(0, 9)
    found = apply_all(found, [failure])
    why = "its tasks have failed on e1, and wait for a slot of another executor"
    assert teller().progress(found).waiting_for == why
    assert teller(free=0).progress(found).waiting_for == ""


def test_a_job_says_which_task_is_tried_again_next_and_why_it_failed():
    found = replace(graph(), limits=RetryLimits(retry_pauses_ms=(500, 2_000)))
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(3)])
    found = apply_all(found, launches(found, 3))
    assert not teller().progress(found).HasField("retry")
    failure = failed(2, 1_000, "no space left\n\tat java…")
    found = apply_all(found, [failure, replace(failure, partition=1, at_ms=1_100)])
    message = teller(now_ms=1_200).progress(found)
    progress = JobProgress.from_message(message)
    assert progress.retry is not None
    assert progress.retry.text(1_200) == (
        "task 2 of stage 1 failed: no space left; try 2 of 4 in 0.3 s (1 more task waits for a retry)"
    )
    assert teller(now_ms=1_500).progress(found).retry.partition == 1
    assert not teller(now_ms=1_600).progress(found).HasField("retry")
    assert JobProgress.from_message(teller(now_ms=1_600).progress(found)).retry is None


def test_a_running_job_waits_for_nothing():
    found = graph()
    found = apply_all(found, launches(found))
    assert teller(slots=0, free=0).progress(found).waiting_for == ""


def test_each_task_is_reported_with_its_successes():
    found = graph()
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(3)])
    found = apply_all(found, launches(found, 2))
    found = apply_all(found, [succeeded(1, 1)])
    job = SimpleNamespace(header=HEADER, graph=found, seq=4)
    detail = teller().detail(job, pb.JobSpec(), Explained("all", {"1": "part"}, {}), pb.GetJobRequest())
    tasks = detail.progress.stages[1].tasks
    assert [t.state for t in tasks] == ["running", "successful", "pending"]
    assert [t.successes for t in tasks] == [0, 1, 0]
    assert [t.attempts for t in tasks] == [1, 1, 0]
    assert (detail.plan, detail.progress.stages[1].plan, detail.log_seq) == ("all", "part", 4)


def test_a_stage_is_reported_with_what_was_wasted():
    found = graph()
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(3)])
    found = apply_all(found, launches(found, 2))

    def now():
        job = SimpleNamespace(graph=found, seq=4, header=JobTerms())
        return teller().detail(job, pb.JobSpec(), UNEXPLAINED, pb.GetJobRequest()).progress

    assert not now().stages[1].HasField("wasted")
    cost = TaskMetrics(run_ms=70, fetch_ms=9)
    found = apply_all(found, [replace(failed(0, 5), metrics=cost), succeeded(1, 1)])
    assert now().stages[1].wasted == pb.TaskMetrics(run_ms=70, fetch_ms=9)
    assert JobProgress.from_message(now()).stages[1].wasted_ms == 70


def test_a_job_says_how_much_of_it_lies_in_the_exchange():
    found = graph()
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(3)])
    found = apply_all(found, launches(found, 3))
    first, second, last = (succeeded(1, p) for p in range(3))
    found = apply_all(found, [replace(first, output=replace(first.output, bytes=100))])
    found = apply_all(found, [replace(second, output=replace(second.output, bytes=20, is_inline=True))])
    assert teller().progress(found).exchange_bytes == 100
    cancelled = apply_all(found, [JobCancelled(reason="enough", at_ms=3)])
    assert teller().progress(cancelled).exchange_bytes == 0
    found = apply_all(found, [replace(last, output=replace(last.output, bytes=3))])
    assert not found.is_active
    assert teller().progress(found).exchange_bytes == 103


def test_a_cancelled_job_says_why():
    found = apply_all(graph(), [JobCancelled(reason="enough", at_ms=3)])
    progress = teller().progress(found)
    assert progress.state == pb.CANCELLED
    assert progress.failure.message == "enough"
    assert progress_of_head(head_of(found, JobTerms())).state == pb.CANCELLED


def test_stages_and_tasks_of_a_job_that_was_cancelled_are_no_longer_running():
    found = apply_all(graph(), launches(graph()))
    assert [stage.state for stage in teller().progress(found).stages] == ["running"]
    (stage,) = teller().progress(apply_all(found, [JobCancelled(reason="enough", at_ms=7)])).stages
    assert (stage.state, stage.running, stage.pending, stage.ended_ms) == ("stopped", 0, 1, 7)


def test_code_is_left_out_of_what_people_are_shown():
    spec = pb.JobSpec(
        python=pb.PythonFunction(pickled=b"secret", function="f"), py_files=[pb.PyFile(name="m.py", content=b"x")]
    )
    shown = decode_spec_shown(encode_spec(spec))
    assert shown.python.function == "f"
    assert not shown.python.pickled
    assert shown.py_files[0].name == "m.py"
    assert not shown.py_files[0].content
    assert spec.python.pickled


def test_a_task_that_ran_twice_at_once_says_so():
    found = replace(graph(), speculation=SpeculationPolicy(quantile=0.5, min_task_runtime_ms=0))
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(2)])
    found = apply_all(found, launches(found, 2))
    found = apply_all(found, [succeeded(1, 0)])
    found = apply_all(found, find_stragglers(found, ["e1", "e2"], 99_999))
    found = apply_all(found, [pop_next_tasks(found, ExecutorSlot("e2", "life", 1), 1, 99_999)])

    def now():
        job = SimpleNamespace(header=HEADER, graph=found, seq=4)
        stage = teller().detail(job, pb.JobSpec(), UNEXPLAINED, pb.GetJobRequest()).progress.stages[1]
        task = stage.tasks[1]
        return stage.tasks_speculated, task.attempts, task.speculated, task.speculative_executor_id

    assert now() == (1, 2, True, "e2")
    found = apply_all(found, [replace(succeeded(1, 1, attempt=1), executor_id="e2")])
    assert now() == (1, 2, True, "")
    job = SimpleNamespace(header=HEADER, graph=found, seq=4)
    stage = teller().detail(job, pb.JobSpec(), UNEXPLAINED, pb.GetJobRequest()).progress.stages[1]
    assert [t.speculative_won for t in stage.tasks] == [False, True]


def test_executors_that_are_quarantined_are_named_with_when_and_why():
    quarantined = [
        pb.ExecutorInfo(executor_id="b", state="quarantined", quarantined_until_ms=7_200_000, reason="all fails"),
        pb.ExecutorInfo(executor_id="a", state="quarantined", quarantined_until_ms=3_600_000, reason="no disk"),
        pb.ExecutorInfo(executor_id="c", state="lost"),
    ]
    assert why_nobody_works(quarantined) == (
        "no executor takes work: b is quarantined, a is quarantined; a until 01:00:00 UTC, because no disk: "
        "mend it and start it again, or start another one"
    )
    leaving = pb.ExecutorInfo(executor_id="d", state="draining")
    assert "a is quarantined, d is leaving; a until" in why_nobody_works([quarantined[1], leaving])


def wide(*partitions: int):
    found = graph()
    found = apply_all(found, launches(found))
    first = planned(partitions[0])
    stages = tuple(
        replace(first.stages[0], stage_id=n, partitions=width, inputs=(StageInput(n - 1, "all"),) if n > 1 else ())
        for n, width in enumerate(partitions, start=1)
    )
    return apply_all(
        found, [replace(first, stages=stages, summary=replace(first.summary, result_stage_id=len(stages)))]
    )


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 12, 100])
def test_tasks_are_reported_in_pages(limit):
    job = SimpleNamespace(header=HEADER, graph=wide(4, 3, 0, 4), seq=4)
    page = pb.GetJobRequest(limit=limit)
    found = []
    while True:
        detail = teller().detail(job, pb.JobSpec(), UNEXPLAINED, page)
        reported = [(s.stage_id, t.partition) for s in detail.progress.stages for t in s.tasks]
        assert len(reported) <= limit
        assert len(detail.progress.stages) == 5
        found += reported
        if not detail.HasField("next"):
            break
        page = pb.GetJobRequest(stage_id=detail.next.stage_id, partition=detail.next.partition, limit=limit)
    assert found == [(n, p) for n, width in enumerate((1, 4, 3, 0, 4)) for p in range(width)]


def test_a_page_beyond_the_last_task_is_empty():
    job = SimpleNamespace(header=HEADER, graph=wide(4), seq=4)
    page = pb.GetJobRequest(stage_id=1, partition=2**32 - 1, limit=10)
    detail = teller().detail(job, pb.JobSpec(), UNEXPLAINED, page)
    assert not [t for s in detail.progress.stages for t in s.tasks]
    assert not detail.HasField("next")


def test_executors_that_are_gone_are_reported_as_what_they_are():
    gone = [
        pb.ExecutorInfo(executor_id="a", state="left", reason="drained"),
        pb.ExecutorInfo(executor_id="b", state="lost", reason="its process 7 died"),
    ]
    assert why_nobody_works([]) == "no executor is registered"
    assert why_nobody_works(gone) == (
        "no executor is there any more: b is lost (its process 7 died), a has left; start one"
    )
    many = [pb.ExecutorInfo(executor_id=f"e{i}", state="left") for i in range(100)]
    assert why_nobody_works(many).endswith("e6 has left, e7 has left, and 92 more; start one")
    leaving = pb.ExecutorInfo(executor_id="d", state="draining")
    assert why_nobody_works([*gone, leaving]) == "every executor is leaving: start another one"


def test_executors_without_space_are_reported_with_what_to_do():
    full = pb.ExecutorInfo(executor_id="a", state="no_space", reason="exchange directory /x is full: free space there")
    quarantined = pb.ExecutorInfo(executor_id="b", state="quarantined", quarantined_until_ms=1, reason="all fails")
    assert why_nobody_works([full, quarantined]) == (
        "no executor takes work: a has no space, b is quarantined; exchange directory /x is full: free space there"
    )


def test_a_task_that_found_no_space_is_reported_without_a_number_of_tries():
    found = graph()
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(1)])
    found = apply_all(found, launches(found))
    failure = failed(0, 9, "exchange directory /x is full")
    cause = Failure(kind=FailureKind.TASK_KILLED, message=failure.failure.message, cause=FailureCause.NO_SPACE)
    found = apply_all(found, [replace(failure, failure=cause)])
    retry = JobProgress.from_message(teller(now_ms=9).progress(found)).retry
    assert retry is not None
    assert (retry.next_try, retry.max_tries) == (1, 0)
    assert retry.text(9) == "task 0 of stage 1 waits: exchange directory /x is full; retry in 5.0 s"


def test_the_path_of_a_sink_is_shown_without_its_login():
    path = "hdfs://user:topsecret@host/out"
    found = graph()
    found = apply_all(found, launches(found))
    made = planned(1)
    sink = SinkSpec(path=path, format="parquet", mode="error")
    found = apply_all(found, [replace(made, summary=replace(made.summary, sink=sink))])
    head = head_of(found, JobTerms()).model_copy(update={"sink_path": path})
    for reported in (teller().progress(found), progress_of_head(head)):
        assert "topsecret" not in reported.sink_path
        assert reported.sink_path.endswith("host/out")
