"""How the orchestration benchmark computes a row."""

import hashlib

import pytest

from benchmarks.bare_cluster import BareCluster, Counters
from benchmarks.bare_executor import BareJob, BareWorker, plan_of
from benchmarks.orchestration.__main__ import COLUMNS, configurations
from benchmarks.orchestration.measure import Sample, first_starts_ms, median_row, quantile, sample
from onager.executor.work import Assignment
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key, task_keys


def test_leveldb_is_measured_with_one_scheduler_only():
    found = list(configurations(["leveldb", "etcd"], ["pull", "push"], [1, 3]))
    assert found == [
        ("leveldb", "pull", 1),
        ("leveldb", "push", 1),
        ("etcd", "pull", 1),
        ("etcd", "pull", 3),
        ("etcd", "push", 1),
        ("etcd", "push", 3),
    ]


def test_a_row_is_the_median_of_its_samples_by_task():
    def taken(elapsed_s, writes, cpu_s):
        counted = Counters(writes, bytes_written=10 * writes, conflicts=writes // 10, scheduler_cpu_s=cpu_s)
        return Sample(1_000, elapsed_s, counted)

    row = median_row([taken(0.5, 100, 0.2), taken(0.1, 10, 0.3), taken(1.0, 30, 0.1)])
    assert row["tasks_per_s"] == 2_000
    assert row["store_writes_per_task"] == 0.03
    assert row["store_bytes_per_task"] == 0.3
    assert row["scheduler_cpu_us_per_task"] == 200
    assert row["conflicts"] == 3
    assert set(COLUMNS) - set(row) == {
        *(
            "backend",
            "mode",
            "metrics",
            "schedulers",
            "tasks",
            "first_task_ms_p50",
            "first_task_ms_p99",
            "spark_tasks_per_s",
        )
    }


def test_small_jobs_follow_each_other_until_there_are_enough_tasks():
    class Client:
        def __init__(self):
            self.sizes = []

        def submit(self, spec):
            self.sizes.append(BareJob.parse(spec.sql.text).tasks)
            return self

        def wait(self):
            pass

    class Counted:
        def __init__(self):
            self.asked = 0

        def counters(self):
            self.asked += 1
            # Written, then cleaned up a little later.
            return Counters(writes=(0, 0, 7, 9, 9)[self.asked - 1])

    client = Client()
    found = sample(Counted(), client, 300)
    assert client.sizes == [300] * 6
    assert found.tasks == 1_800
    assert found.counted.writes == 9


def test_first_starts_are_those_of_the_quickest_executor():
    events = [["started", "a", "10.5"], ["finished", "a", "0"], ["started", "a", "10.25"], ["started", "other", "1"]]
    assert first_starts_ms({"a": 10.0}, events) == [250.0]


def test_quantiles():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3
    assert quantile([], 0.5) is None


def test_metrics_of_all_schedulers_are_added_up(monkeypatch, tmp_path):
    def samples(address):
        count = "onager_state_request_seconds_count"
        yield count, {"operation": "put_txn", "outcome": "ok"}, 5.0
        yield count, {"operation": "put_txn", "outcome": "conflict"}, 2.0
        yield count, {"operation": "put", "outcome": "ok"}, 1.0
        yield count, {"operation": "get", "outcome": "ok"}, 100.0
        yield "onager_state_bytes_total", {"direction": "written"}, 50.0
        yield "onager_state_bytes_total", {"direction": "read"}, 1_000.0

    monkeypatch.setattr("benchmarks.bare_cluster._samples", samples)
    cluster = BareCluster("memory:", schedulers=2, executor_slots=(1,), directory=tmp_path)
    found = cluster.counters()
    assert (found.writes, found.conflicts, found.bytes_written) == (12, 4, 100)
    assert found.since(Counters(writes=2)).writes == 10


class TestWorker:
    @pytest.fixture
    def worker(self, tmp_path):
        worker = BareWorker("e-1", tmp_path / "events")
        yield worker
        worker.close()

    def assignment(self, job, partitions):
        plan = plan_of(job)
        task_set = pb.TaskSet(job_id="j", stage_id=1, work=pb.QUERY, plan_digest=plan.stages[0].plan_digest)
        task_set.tasks.extend(pb.TaskAttempt(partition=p) for p in partitions)
        return Assignment(task_set, {blob.digest: blob.content for blob in plan.blobs})

    def test_a_plan_is_one_stage_of_as_many_tasks(self):
        job = BareJob(7, task_ms=3)
        (stage,) = plan_of(job).stages
        assert stage.partitions == 7
        (blob,) = plan_of(job).blobs
        assert hashlib.sha256(blob.content).hexdigest() == blob.digest == stage.plan_digest
        assert BareJob.parse(blob.content) == job

    def test_tasks_without_a_time_succeed_at_once(self, worker, tmp_path):
        reports = []
        worker.start(self.assignment(BareJob(9), (3, 4)), reports.append)
        worker.start(self.assignment(BareJob(9), (5,)), reports.append)
        assert [r.task.partition for r in reports] == [3, 4, 5]
        assert all(r.success.output.shared and not r.success.output.inline for r in reports)
        assert len({r.success.output.nonce for r in reports}) == 3
        words = [line.split() for line in (tmp_path / "events").read_text().splitlines()]
        assert [w[:2] for w in words] == [["started", "j"]]

    def test_tasks_with_a_time_can_be_stopped_and_their_ends_are_written_down(self, worker, tmp_path):
        reports = []
        quick = self.assignment(BareJob(9, task_ms=1, has_rows=True), (1,))
        slow = self.assignment(BareJob(9, task_ms=60_000, has_rows=True), (2,))
        worker.start(slow, reports.append)
        worker.start(quick, reports.append)
        while not reports:
            pass
        worker.cancel(task_keys(slow.task_set))
        worker.cancel(task_keys(slow.task_set))
        assert [task_key(r.task).partition for r in reports] == [1, 2]
        assert reports[0].success.output.rows == 1
        assert reports[0].success.inline_result
        assert reports[1].failure.kind == "task_killed"
        assert "finished j 1" in (tmp_path / "events").read_text()
        assert "finished j 2" not in (tmp_path / "events").read_text()
