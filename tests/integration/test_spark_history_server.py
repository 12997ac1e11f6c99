"""The History Server of the installed PySpark reads what is written of a job."""

import json
import os
import re
import urllib.request
from pathlib import Path

import pyspark
import pytest
from msgspec.structs import replace

from onager.cli.java import ADVICE, find_java_home
from onager.clock import SystemClock
from onager.execution_graph import FailureKind, JobCancelled, TaskSucceeded, apply_all, metrics_text
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.exports import JobExports
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.scheduler.jobs.history import JobHistory
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_store import JobStore
from onager.state_backend.memory import MemoryBackend
from tests.support.processes.children import end, start
from tests.support.waiting import HANGS_S, until
from tests.unit.execution_graph.builder import Job, chain, new_graph, planned
from tests.unit.scheduler.test_operator_tree import node, plan

ALL = "?minDate=1970-01-01&minEndDate=1970-01-01"
"""By default it leaves out what is as old as the times of these jobs."""
SPARK_HOME = Path(pyspark.__file__).parent


class Server:
    """The process, and its answers."""

    def __init__(self, logs, directory):
        home = find_java_home()
        assert home is not None, ADVICE
        settings = {
            "spark.history.fs.logDirectory": f"file://{logs}",
            "spark.history.fs.update.interval": "1s",
            "spark.history.ui.port": "0",
        }
        self.log = directory / "history-server.log"
        self.process = start(
            [
                *(home / "bin" / "java", "-Xmx400m", "-cp", f"{SPARK_HOME}/jars/*"),
                *(f"-D{key}={value}" for key, value in settings.items()),
                "org.apache.spark.deploy.history.HistoryServer",
            ],
            self.log,
            {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME)},
        )
        self.address = until(self._bound, self.log.read_text)

    def _bound(self):
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r"Bound HistoryServer to 127\.0\.0\.1, and started at http://\S+:(\d+)", self.log.read_text())
        return found and f"http://127.0.0.1:{found[1]}"

    def get(self, path):
        with urllib.request.urlopen(f"{self.address}{path}", timeout=HANGS_S) as answer:
            return answer.read().decode()

    def rest(self, path=""):
        return json.loads(self.get(f"/api/v1/applications{path}"))


@pytest.fixture
async def server(tmp_path):
    """Return the server of a directory with the logs of two jobs: one with troubles, one that was cancelled."""
    logs = tmp_path / "logs"
    logs.mkdir()
    backend = MemoryBackend()
    for job in (troubled(), cancelled()):
        content = await exported(backend, job)
        (logs / job.graph.job_id).write_bytes(content)
    made = Server(logs, tmp_path)
    yield made
    end(made.process)


def troubled():
    """A job that lost an executor with its outputs, failed a task, and got through."""
    job = planned(*chain(2), is_shared=False)
    job.run(1, "a")
    job.launch("a", limit=1)
    job.launch("b")
    job.lose("a")
    job.launch("c")
    job.fail(1, 0, FailureKind.IO_ERROR)
    job.finish()
    return job


def cancelled():
    job = Job(graph=replace(new_graph(), job_id="job-2"))
    job.launch("a")
    assert job.feed(job.plan(*chain(2)))
    job.launch("a")
    assert job.feed(JobCancelled(reason="enough", principal="eve", at_ms=job.tick()))
    return job


async def exported(backend, job):
    """Store a job as a scheduler does, batch by batch, and return its event log as it is streamed to clients."""
    clock = SystemClock()
    jobs = JobStore(backend, JobHeads(backend, clock, interval_ms=500), clock, "s1")
    blobs = BlobStore(backend)
    scan = plan(node(0, "Scan parquet", numOutputRows={"index": 0}))
    job_id = JobId(job.graph.job_id)
    begun = replace(new_graph(), job_id=job.graph.job_id)
    stored, _ = await jobs.submit(begun)
    await blobs.put(job_id, [scan])
    measured = {"op_metrics": metrics_text(bytes([1, 0, 10])), "bound_plan": digest_of(scan)}
    for happened in job.log:
        is_scan = isinstance(happened, TaskSucceeded) and (happened.stage_id, happened.stage_attempt) == (1, 0)
        event = replace(happened, **measured) if is_scan else happened
        after = apply_all(stored.graph, [event])
        if after is not stored.graph:
            committed = await jobs.commit(stored, (event,), after)
            stored = committed.job
    assert not stored.graph.is_active
    exports = JobExports(jobs, JobHistory(backend, jobs.recent), blobs, clock)
    return b"".join([piece async for piece in exports.export(job_id, pb.ExportJobRequest(format="spark-event-log"))])


def test_it_lists_jobs_and_shows_stages_tasks_executors_and_plans(server):
    until(lambda: len(server.rest(ALL)) == 2, server.log.read_text)
    apps = {app["id"]: app["attempts"][0]["completed"] for app in server.rest(ALL)}
    assert apps == {"job-1": True, "job-2": True}

    assert [job["status"] for job in server.rest("/job-1/jobs")] == ["SUCCEEDED", "SUCCEEDED"]
    assert server.rest("/job-2/jobs?status=failed")[0]["jobId"] == 1

    stages = {(s["stageId"], s["attemptId"]): s for s in server.rest("/job-1/stages")}
    assert {key: stage["status"] for key, stage in stages.items()} == {
        (0, 0): "COMPLETE",
        (1, 0): "COMPLETE",
        (1, 1): "COMPLETE",
        (2, 0): "FAILED",
        (2, 1): "COMPLETE",
    }
    assert stages[1, 1]["numFailedTasks"] == 1
    tasks = server.rest("/job-1/stages/2/0/taskList")
    assert sorted(task["status"] for task in tasks) == ["FAILED", "KILLED"]

    executors = {e["id"]: e["isActive"] for e in server.rest("/job-1/allexecutors")}
    assert executors == {"planner": True, "a": False, "b": True, "c": True, "z": True}

    (sql,) = server.rest("/job-1/sql?details=true&planDescription=true")
    assert sql["status"] == "COMPLETED"
    shown = {node["nodeName"]: {m["name"]: m["value"] for m in node["metrics"]} for node in sql["nodes"]}
    assert shown["Scan parquet"] == {"numOutputRows": "20"}
    assert shown["Exchange"]["shuffle records written"] == "20"
    assert "Scan parquet" in server.get("/history/job-1/SQL/execution/?id=0")
    for page in ("jobs", "stages", "executors", "SQL", "environment"):
        assert "job-1" in server.get(f"/history/job-1/{page}/")
