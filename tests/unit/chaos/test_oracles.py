"""Each chaos oracle finds its violations, and accepts no wrong explanation."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onager.protocol import onager_pb2 as pb
from tests.chaos import oracles
from tests.chaos.faults import EndedByItself, Injected
from tests.chaos.schedule import Fault, FaultKind
from tests.chaos.workload import JobRecord


def record(**more) -> JobRecord:
    made = JobRecord("j-1", "q3", "client-1", submitted_s=100.0, acknowledged_s=100.5, ended_s=110.0)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def struck(kind: FaultKind, from_s: float = 105.0, target: str = "executor-1") -> Injected:
    return Injected(Fault(0.0, kind, target, 1.0), target, from_s, from_s + 1.0)


def failed(kind: str, message: str) -> JobRecord:
    return record(trouble=f"failed: {message}", failure=pb.Failure(kind=kind, message=message))


def test_a_job_that_does_not_end_is_found():
    assert oracles.all_ended([record()]).is_clean
    assert not oracles.all_ended([record(ended_s=None)]).is_clean
    assert not oracles.all_ended([record(ended_s=None, acknowledged_s=None)]).is_clean


def test_a_wrong_result_is_never_explained():
    faults = [struck(kind) for kind in FaultKind for _ in range(9)]
    assert not oracles.results_right([record(trouble="3 rows against 4")], faults).is_clean


@pytest.mark.parametrize(
    ("kind", "message", "fault", "count"),
    [
        ("io_error", "Python worker exited unexpectedly", FaultKind.KILL_PYTHON_WORKER, 4),
        ("user_error", "Task 0 in stage 1 ended the JVMs of 4 executors", FaultKind.KILL_JVM, 6),
    ],
)
def test_a_failure_needs_as_many_faults_as_the_rule_says(kind, message, fault, count):
    jobs = [failed(kind, message)]
    assert oracles.results_right(jobs, [struck(fault)] * count).is_clean
    assert not oracles.results_right(jobs, [struck(fault)] * (count - 1)).is_clean
    assert not oracles.results_right(jobs, [struck(fault, from_s=10.0)] * count).is_clean


def test_a_full_disk_fails_no_job():
    assert not oracles.results_right([failed("io_error", "No space left on device")],
                                     [struck(FaultKind.FILL_DISK)] * 8).is_clean  # fmt: skip


def test_a_users_error_is_not_explained_by_faults():
    assert not oracles.results_right([failed("user_error", "No space left on device")],
                                     [struck(FaultKind.FILL_DISK)]).is_clean  # fmt: skip


def test_a_task_that_ran_again_is_found():
    assert not oracles.nothing_ran_again([record(rerun=["stage 1 partition 0 succeeded 2 times"])]).is_clean


@pytest.mark.parametrize(
    ("tags", "is_clean"),
    [
        (["a", "a"], True),
        (["a"], False),
        (["a", "a", "a"], False),
        (["a", "a", "stranger"], False),
        (["a", "a", "bad", "bad"], False),
        ([], False),
    ],
)
def test_sinks_have_the_rows_of_each_successful_job_once(tmp_path, tags, is_clean):
    wanted = pa.table({"tag": ["TAG", "TAG"], "n": [1, 2]})
    rows = [(tag, i % 2 + 1) for i, tag in enumerate(tags)]
    (tmp_path / "sink").mkdir()
    pq.write_table(pa.table({"tag": [t for t, _ in rows], "n": [n for _, n in rows]},
                            schema=pa.schema({"tag": pa.string(), "n": pa.int64()})),
                   tmp_path / "sink" / "part.parquet")  # fmt: skip
    jobs = [record(tag="a"), record(tag="bad", trouble="failed: …")]
    assert oracles.sinks_whole({tmp_path / "sink": jobs}, wanted).is_clean is is_clean


def test_a_sink_that_is_not_there_is_found(tmp_path):
    assert not oracles.sinks_whole({tmp_path / "none": [record(tag="a")]}, pa.table({"tag": ["TAG"]})).is_clean


def test_what_a_publication_leaves_beside_a_sink_is_found(tmp_path):
    (tmp_path / "sink").mkdir()
    pq.write_table(pa.table({"tag": ["a"]}), tmp_path / "sink" / "part.parquet")
    (tmp_path / ".sink.onager-j-1").mkdir()
    verdict = oracles.sinks_whole({tmp_path / "sink": [record(tag="a")]}, pa.table({"tag": ["TAG"]}))
    assert verdict.findings == [".sink.onager-j-1 is left beside the datasets"]


def test_only_a_start_without_store_or_disk_may_end_by_itself():
    refused = EndedByItself("scheduler-1", 2, 106.0, "no store", was_serving=False)
    served = EndedByItself("scheduler-1", 2, 106.0, "boom", was_serving=True)
    outage = [struck(FaultKind.KILL_ETCD_MAJORITY, target="etcd")]
    assert oracles.died_for_a_reason([refused], outage).is_clean
    assert not oracles.died_for_a_reason([refused], []).is_clean
    assert not oracles.died_for_a_reason([served], outage).is_clean


def test_errors_in_logs_are_found():
    calm = json.dumps({"level": "warning", "event": "watch_broke"})
    error = json.dumps({"level": "error", "event": "defect"})
    assert oracles.logs_calm({"scheduler-1": calm}, []).is_clean
    assert not oracles.logs_calm({"scheduler-1": f"{calm}\n{error}\n"}, []).is_clean
    assert not oracles.logs_calm({"scheduler-1": "Traceback (most recent call last):\n"}, []).is_clean


def test_only_an_executor_whose_jvm_was_killed_may_miss_it():
    lost = {"executor-1": json.dumps({"level": "error", "event": "jvm_lost"})}
    assert oracles.logs_calm(lost, [struck(FaultKind.KILL_JVM)]).is_clean
    assert not oracles.logs_calm(lost, [struck(FaultKind.KILL_JVM, target="executor-2")]).is_clean
    assert not oracles.logs_calm(lost, [struck(FaultKind.KILL_EXECUTOR)]).is_clean


def test_a_scheduler_that_grows_is_found():
    assert oracles.memory_bounded({"scheduler-1": 100 << 20}).is_clean
    assert not oracles.memory_bounded({"scheduler-1": 500 << 20}).is_clean
