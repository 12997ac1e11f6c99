"""An executor without Spark: the real agent in a process of its own, around a worker that does nothing.

Run by `benchmarks.bare_cluster` as ``python -m benchmarks.bare_executor EVENTS``; its settings are the variables of
`ExecutorSettings`. The agent is the real one, since the cost of holding, reporting and acknowledging a task is part of
the path that is measured, in pull and push alike.

EVENTS is a file that gets a line for each first task of a job (``started JOB MONOTONIC_S``) and, of jobs that ask for
it, for each execution that ended (``finished JOB PARTITION ATTEMPT EXECUTOR``).
"""

import hashlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

from google.protobuf import json_format

from onager.executor.main import run
from onager.executor.settings import ExecutorSettings
from onager.executor.work import Assignment, CatalogReader, OnReport, failure_report
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_keys

SPARK_VERSION: Final = "none"
_SEEN_JOBS: Final = 1_000
_REPORTS: Final = 4_096
"""Different ones, more than a scheduler remembers to have read."""
OPERATORS: Final = 14
METERS: Final = {"off": 0, "rows": 4, "full": 7, "most": 14}
"""How many metrics a task reports, of about four bytes each.

``rows`` and ``full`` are more than what tasks of TPC-H's 22 queries report on average, each exchange cut (11 and 20
bytes), and ``most`` is more than the most that any of them does (52).
"""


@dataclass(frozen=True, slots=True)
class BareJob:
    """One stage of *tasks* tasks that do nothing for *task_ms* each; its SQL text is this as JSON."""

    tasks: int
    task_ms: int = 0
    has_rows: bool = False
    """Whether each task returns a row with the number of its partition, and its end is written down."""
    metrics: str = "off"
    """What each task reports of operators: a key of `METERS`."""
    tag: str = ""
    """Makes otherwise equal jobs distinct: their specification, plan and explanation."""

    @property
    def spec(self) -> pb.JobSpec:
        """Return what is submitted."""
        return pb.JobSpec(sql=pb.SqlScript(text=self.text), name=f"{self.tasks} tasks")

    @property
    def text(self) -> str:
        """Return the job as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str | bytes) -> "BareJob":
        """Return the job that `text` was made of."""
        return BareJob(**json.loads(text))


class BareWorker:
    """Reports each task as successful, at once or after the time that its job says."""

    stream_address = ""

    def __init__(self, executor_id: str, events: Path) -> None:
        self._executor_id = executor_id
        self._events = events.open("a", buffering=1)
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._reported_plans: set[str] = set()
        """Jobs whose bound plan was reported."""
        self._going_on: dict[TaskKey, tuple[threading.Timer, OnReport]] = {}

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        """Plan, or run the tasks of a stage."""
        task_set = assignment.task_set
        keys = task_keys(task_set)
        if task_set.work == pb.PLAN:
            spec = json_format.Parse(assignment.blobs[task_set.spec_digest], pb.JobSpec())  # type: ignore[index]
            success = pb.TaskSuccess(output=self._output(), plan=plan_of(BareJob.parse(spec.sql.text)))
            on_report(pb.TaskReport(task=task_id(keys[0]), success=success))
            return
        if task_set.job_id not in self._seen:
            if len(self._seen) > _SEEN_JOBS:
                self._seen.clear()  # readers of the file use the first line of a job
            self._seen.add(task_set.job_id)
            self._events.write(f"started {task_set.job_id} {time.monotonic()}\n")
        job = BareJob.parse(assignment.blobs[task_set.plan_digest])  # type: ignore[index]
        for key in keys:
            if job.task_ms:
                self._start_timer(job, key, on_report)
            else:
                on_report(self._report(job, key))

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        """Stop tasks that wait for their time."""
        for key in tasks:
            with self._lock:
                found = self._going_on.pop(key, None)
            if found is not None:
                found[0].cancel()
                failure = pb.Failure(kind="task_killed", message="stopped")
                found[1](failure_report(key, failure, started_ms=0, ended_ms=0))

    def kept_jobs(self) -> Collection[JobId]:
        """Return none: nothing is kept."""
        return ()

    def streamed_jobs(self) -> Collection[JobId]:
        """Return none: nothing is streamed."""
        return ()

    def clean_up(self, request: pb.CleanUp) -> None:
        """Do nothing: there are no files."""

    def connect(self, _call: pb.ConnectCall, _catalog: CatalogReader) -> pb.ConnectReply:
        """Say that there is no Spark."""
        return pb.ConnectReply(failure=pb.ConnectFailure(message="there is no Spark here"))

    def exchange_contents(self) -> None:
        """Say that there is nothing to be seen."""

    def check_exchange(self) -> None:
        """There is always space here."""

    def sample_load(self) -> None:
        """Say that nothing is known."""

    def progress(self) -> Sequence[pb.AttemptProgress]:
        """Return none: tasks take no time."""
        return ()

    def is_alive(self) -> bool:
        """Return true: there is no JVM that could die."""
        return True

    def end(self) -> None:
        """Return none: as above."""

    def enforce_deadlines(self) -> str:
        """Return none: nothing takes long."""
        return ""

    def kill(self) -> None:
        """Do nothing: as above."""

    def close(self) -> None:
        """Stop everything."""
        with self._lock:
            for timer, _ in self._going_on.values():
                timer.cancel()
        self._events.close()

    def _start_timer(self, job: BareJob, key: TaskKey, on_report: OnReport) -> None:
        timer = threading.Timer(job.task_ms / 1000, self._end, (job, key))
        timer.daemon = True
        with self._lock:
            self._going_on[key] = (timer, on_report)
        timer.start()

    def _end(self, job: BareJob, key: TaskKey) -> None:
        with self._lock:
            found = self._going_on.pop(key, None)
        if found is not None:
            found[1](self._report(job, key))

    def _report(self, job: BareJob, key: TaskKey) -> pb.TaskReport:
        success = pb.TaskSuccess(output=self._output(), metrics=pb.TaskMetrics(run_ms=job.task_ms or 1))
        if job.has_rows:
            self._events.write(f"finished {key.job_id} {key.partition} {key.task_attempt} {self._executor_id}\n")
            success.inline_result = _row(key.partition)
            success.output.inline, success.output.rows = True, 1
        self._add_operators(job, key, success)
        return pb.TaskReport(task=task_id(key), success=success)

    def _add_operators(self, job: BareJob, key: TaskKey, success: pb.TaskSuccess) -> None:
        content = bound_plan(job.metrics)
        if not content:
            return
        success.op_metrics = op_metrics(job.metrics, key.partition % _REPORTS)
        success.bound_plan = hashlib.sha256(content).hexdigest()
        if key.job_id not in self._reported_plans:
            if len(self._reported_plans) > _SEEN_JOBS:
                self._reported_plans.clear()  # to be reported again does no harm
            self._reported_plans.add(key.job_id)
            success.blobs.add(digest=success.bound_plan, content=content)

    def _output(self) -> pb.TaskOutput:
        return pb.TaskOutput(nonce=secrets.token_hex(8), executor_id=self._executor_id, shared=True)


@cache
def bound_plan(metrics: str) -> bytes:
    """Return the operators that tasks report *metrics* of; empty if they report none."""
    count = METERS[metrics]
    nodes = [
        {
            "id": number,
            "name": "Operator",
            "text": f"Operator {number}, which does nothing [a#{number}L, b#{number}]",
            "children": [number + 1] if number + 1 < OPERATORS else [],
            "metrics": [
                {"index": index, "name": f"metric{index}", "type": "sum"} for index in range(number, count, OPERATORS)
            ],
        }
        for number in range(OPERATORS)
    ]
    return json.dumps({"nodes": nodes}).encode() if count else b""


@cache
def op_metrics(metrics: str, task: int) -> bytes:
    """Return what a task reports: numbers of rows in the ten thousands, each after its key, as varints."""
    written = bytearray([1])
    for index in range(METERS[metrics]):
        for number in (2 * index, 20_000 + index + task):
            left = number
            while left >= 0x80:  # noqa: PLR2004
                written.append(left & 0x7F | 0x80)
                left >>= 7
            written.append(left)
    return bytes(written)


def plan_of(job: BareJob) -> pb.PlanOutcome:
    """Return the plan of *job*: a single stage."""
    content = job.text.encode()
    digest = hashlib.sha256(content).hexdigest()
    outcome = pb.PlanOutcome(arrow_schema=_schema(), schema_json="{}", plan=f"nothing {job.tag}".rstrip())
    outcome.blobs.add(digest=digest, content=content)
    outcome.stages.add(
        stage_id=1,
        name="nothing",
        work=pb.QUERY,
        plan_digest=digest,
        partitions=job.tasks,
        output=pb.OutputLayout(kind="result", buckets=1),
        deterministic=True,
    )
    return outcome


def _schema() -> bytes:
    import pyarrow as pa

    encoded: bytes = pa.schema([("n", pa.int64())]).serialize().to_pybytes()
    return encoded


def _row(number: int) -> bytes:
    import pyarrow as pa

    batch = pa.record_batch([pa.array([number], pa.int64())], names=["n"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def main(events: Path) -> int:
    """Run the executor until it is stopped."""
    _schema()  # Arrow takes a quarter of a second to load: not while a job waits for its plan
    settings = ExecutorSettings()  # from its variables
    return run(settings, lambda known, *_: (BareWorker(known.executor_id, events), SPARK_VERSION))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
