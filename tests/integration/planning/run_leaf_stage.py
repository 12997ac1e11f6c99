"""Run in a process of its own: decode the stage plan in a file, run its one stage, print rows and a column's sum."""

import sys
import tempfile
import threading
from pathlib import Path

import pyarrow.ipc

from onager.clock import SystemClock
from onager.executor.spark.plan_codec import decode, digest
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session
from onager.protocol import onager_pb2 as pb
from tests.support.waiting import HANGS_S


def main(path: str) -> None:
    encoded = Path(path).read_bytes()
    plan = decode(encoded)
    directory = tempfile.mkdtemp()
    spark = start_session(3, {}, directory)
    runner = StageRunner(spark, executor_id="e", exchange_dir=directory, slots=3, clock=SystemClock())
    task_set = pb.TaskSet(
        job_id="job",
        stage_id=1,
        work=pb.Work.QUERY,
        plan_digest=digest(encoded),
        partitions=plan.partitions,
        output=pb.OutputLayout(kind="result"),
        tasks=[pb.TaskAttempt(partition=i) for i in range(plan.partitions)],
    )
    reports = []
    done = threading.Event()

    def on_report(report: pb.TaskReport) -> None:
        reports.append(report)
        if len(reports) == plan.partitions:
            done.set()

    runner.run(task_set, plan, on_report)
    assert done.wait(HANGS_S)
    rows, total = 0, 0.0
    for report in reports:
        assert not report.HasField("failure"), report.failure.message + report.failure.details
        table = pyarrow.ipc.open_stream(report.success.inline_result).read_all()
        rows += table.num_rows
        total += sum(table.column(1).to_pylist())
    print(rows, total)  # noqa: T201
    runner.close()


if __name__ == "__main__":
    main(sys.argv[1])
