"""Planning, planning again, and listing more have to end in time, as the worker runs them."""

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson
from pyspark.sql.connect.proto import AnalyzePlanRequest

from benchmarks.exchange.runner_process import stacks_of
from onager.clock import ManualClock
from onager.errors import PlanningTimeoutError
from onager.executor.spark import worker as worker_module
from onager.executor.spark.worker import SparkWorker, WorkerSettings
from onager.executor.work import Assignment, blobs_needed
from onager.ids import BlobDigest
from onager.job_settings import PLANNING_TIMEOUT
from onager.protocol import onager_pb2 as pb
from tests.support.catalog import MemoryCatalog
from tests.support.selection import some
from tests.support.spark.one_executor import CUT, OneExecutor
from tests.support.waiting import HANGS_S, until

SLOW = "levenshtein(repeat('ab', 10000), repeat('ba', 10000))"
"""The optimizer folds it, and looks at no interrupt meanwhile."""
LIMIT_S, GRACE_S = 90, 5
TASKS = {
    "plan": pb.TaskSet(work=pb.PLAN),
    "replan": pb.TaskSet(work=pb.REPLAN, replan=pb.ReplanTask(frame_digest="frame")),
    "find_more": pb.TaskSet(work=pb.FEED, plan_digest="source"),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def worker(executor: OneExecutor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkWorker]:
    """Return a worker in the Spark that all tests here share."""
    monkeypatch.setattr(worker_module, "start_session", lambda *_, **__: executor.spark)
    made = SparkWorker(
        WorkerSettings(
            slots=2,
            conf={},
            exchange_dir=str(executor.directory),
            executor_id="executor-1",
            planning_timeout_s=7200,
            cancel_grace_s=GRACE_S,
        ),
        clock,
    )
    yield made
    made._processes.close()
    made._foreign.close()
    made._runner.close()


@pytest.mark.parametrize("work", some(TASKS))
def test_what_plans_for_too_long_is_stopped_and_then_costs_the_jvm(
    executor: OneExecutor, worker: SparkWorker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    begun, goes_on, reported = threading.Event(), threading.Event(), threading.Event()

    def is_at_work() -> bool:
        return begun.is_set() or any("levenshtein" in stack for stack in stacks_of(executor.spark._jvm))

    def wait(*_: Any) -> None:
        begun.set()
        assert goes_on.wait(HANGS_S)

    for name in ("replan", "find_more"):
        monkeypatch.setattr(worker_module, name, wait)
    spec = pb.JobSpec(sql=pb.SqlScript(text=f"SELECT {SLOW}"), conf=CUT | {PLANNING_TIMEOUT: f"{LIMIT_S}s"})
    task_set = pb.TaskSet(job_id=f"job-{work}", spec_digest="spec", tasks=[pb.TaskAttempt()])
    task_set.MergeFrom(TASKS[work])
    blobs = {BlobDigest("spec"): MessageToJson(spec).encode(), BlobDigest("frame"): b"", BlobDigest("source"): b""}
    reports: list[pb.TaskReport] = []

    def on_report(report: pb.TaskReport) -> None:
        reports.append(report)
        reported.set()

    worker.start(Assignment(task_set, {digest: blobs[digest] for digest in blobs_needed(task_set)}), on_report)
    until(is_at_work, "a planning at work")
    clock.advance((LIMIT_S - 1) * 1000)
    assert worker.enforce_deadlines() == ""
    clock.advance(1000)
    assert worker.enforce_deadlines() == "", "now it is asked to stop"
    clock.advance(GRACE_S * 1000)
    stuck = worker.enforce_deadlines()
    assert stuck.endswith(f"did not stop within {GRACE_S} s of being cancelled")
    assert task_set.job_id in stuck
    assert reported.wait(HANGS_S)
    (report,) = reports
    assert report.failure.message == str(PlanningTimeoutError(LIMIT_S, PLANNING_TIMEOUT))
    goes_on.set()
    until(lambda: not any(task_set.job_id in each.name for each in threading.enumerate()), "the end of its thread")
    assert worker.enforce_deadlines() == ""
    assert reports == [report]


def test_a_request_of_spark_connect_that_takes_too_long_costs_the_jvm_in_the_same_way(
    executor: OneExecutor, worker: SparkWorker, clock: ManualClock
) -> None:
    asked = AnalyzePlanRequest()
    asked.explain.plan.root.sql.query = f"SELECT {SLOW}"
    asked.explain.explain_mode = AnalyzePlanRequest.Explain.EXPLAIN_MODE_SIMPLE
    session = pb.ConnectSession(user="ann", session_id=str(uuid.uuid4()))
    call = pb.ConnectCall(session=session, deadline_ms=LIMIT_S * 1000, analyze=asked.SerializeToString())
    request = threading.Thread(target=worker.connect, args=(call, MemoryCatalog()), daemon=True)
    request.start()
    until(lambda: any("levenshtein" in stack for stack in stacks_of(executor.spark._jvm)), "an optimizer at work")
    clock.advance(LIMIT_S * 1000)
    assert worker.enforce_deadlines() == "", "now it is asked to stop"
    clock.advance(GRACE_S * 1000)
    stuck = worker.enforce_deadlines()
    assert stuck.endswith(f"of Spark Connect did not stop within {GRACE_S} s of being cancelled")
    request.join()
    assert worker.enforce_deadlines() == ""
