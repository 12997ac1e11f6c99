"""``python -m benchmarks.exchange --sf 1 [--runs 3] [--probes 9] --json FILE``.

The same rows (four columns of TPC-H's lineitem) go from one stage to the next over Spark's own shuffle in ``local[2]``,
over files and over streams between two executors' JVMs on this machine. Seconds are those of both stages, the best of
the runs after one to warm up; ``fixed_ms`` is what the exchange of ten rows adds to a query of one stage; ``peak_mb``
how much the JVMs grew meanwhile.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.exchange.memory import PeakMemory
from benchmarks.exchange.runner_process import RunnerOptions, RunnerProcess
from benchmarks.exchange.stages import CONF, ROW_BYTES
from benchmarks.tpch.data import generate
from onager.executor.spark import plan_codec
from onager.executor.spark.running.streams import StreamSettings
from onager.executor.spark.stage_plan import ExchangeInput, ResultOutput, StagePlan
from onager.protocol import onager_pb2 as pb

COLUMNS: Final = ("exchange", "rows", "bytes", "seconds", "mb_per_s", "fixed_ms", "peak_mb")
_WAIT_S: Final = 600.0


def main() -> None:
    """Measure, print a table, write the JSON."""
    options = _options()
    source = str(generate(options.sf) / "lineitem.parquet")
    rows = [_spark(source, options), _ours("durable", source, options), _ours("streaming", source, options)]
    report = {"sf": options.sf, "rows": rows}
    print("  ".join(f"{name:>10}" for name in COLUMNS))
    for row in rows:
        print("  ".join(f"{row[name]:>10}" for name in COLUMNS))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange", description=__doc__)
    parser.add_argument("--sf", type=float, default=1.0, help="scale factor of the rows")
    parser.add_argument("--runs", type=int, default=3, help="timed runs, after one to warm up")
    parser.add_argument("--probes", type=int, default=9, help="runs of ten rows")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


def _row(exchange: str, rows: int, seconds: float, few_s: Sequence[Sequence[float]], peak_mb: float) -> dict[str, Any]:
    """Return a row of the report; *few_s*: the times of ten rows with the exchange, and without."""
    fixed_s = statistics.median(few_s[0]) - statistics.median(few_s[1])
    return {
        "exchange": exchange,
        "rows": rows,
        "bytes": rows * ROW_BYTES,
        "seconds": round(seconds, 3),
        "mb_per_s": round(rows * ROW_BYTES / seconds / 1e6, 1),
        "fixed_ms": round(fixed_s * 1000, 1),
        "peak_mb": peak_mb,
    }


def _spark(source: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch:
        out = Path(scratch) / "reported.json"
        arguments = [source, str(options.runs), str(options.probes), str(out)]
        subprocess.run([sys.executable, "-m", "benchmarks.exchange.plain_spark", *arguments], check=True)
        answer = json.loads(out.read_text())
    return _row("spark", answer["rows"], answer["seconds"], answer["few_s"], answer["peak_mb"])


def _ours(exchange: str, source: str, options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="onager-bench-"))
        executors = [
            RunnerProcess(
                RunnerOptions(
                    executor_id=f"executor-{number}",
                    exchange_dir=directory,
                    # Of a streamed job both stages run at once, and share the cores.
                    slots=1 if exchange == "durable" else 4,
                    conf=CONF,
                    streams=StreamSettings(),
                )
            )
            for number in (1, 2)
        ]
        for executor in executors:
            stack.callback(executor.close)
        for executor in executors:
            executor.connect()
        jobs = _Jobs(executors, is_streaming=exchange == "streaming")
        for has_exchange in (True, False) * 2:
            jobs.run("", has_exchange=has_exchange)
        with PeakMemory([executor.jvm for executor in executors]) as memory:
            runs = [jobs.run(source) for _ in range(1 + options.runs)][1:]
        few_s = [[jobs.run("", has_exchange=has).seconds for _ in range(options.probes)] for has in (True, False)]
    return _row(exchange, runs[0].rows, min(run.seconds for run in runs), few_s, memory.grown_mb)


@dataclass(frozen=True, slots=True)
class _Ran:
    """One run of both stages."""

    rows: int
    """That the first stage gave."""
    seconds: float


class _Jobs:
    """Runs the two stages on executors as a scheduler would, as far as the exchange goes."""

    def __init__(self, executors: Sequence[RunnerProcess], *, is_streaming: bool) -> None:
        self._executors = executors
        self._is_streaming = is_streaming
        self._count = 0

    def run(self, source: str, *, has_exchange: bool = True) -> _Ran:
        """Run the stages once and forget what they gave."""
        plans = [plan_codec.decode(e) for e in self._executors[0].plan(source, has_exchange=has_exchange)]
        self._count += 1
        job = _Job(f"job-{self._count}", self._executors, plans, is_streaming=self._is_streaming)
        start_s = time.perf_counter()
        if self._is_streaming:
            for stage_id in range(1, len(plans) + 1):
                job.launch(stage_id)
            job.wait(*range(1, len(plans) + 1))
        else:
            for stage_id in range(1, len(plans) + 1):
                job.launch(stage_id)
                job.wait(stage_id)
        seconds = time.perf_counter() - start_s
        for executor in self._executors:
            executor.close_job(job.job_id)
        return _Ran(sum(output.rows for output in job.outputs[1].values()), seconds)


class _Job:
    """One job's task sets, and the outputs that were reported."""

    def __init__(
        self, job_id: str, executors: Sequence[RunnerProcess], plans: Sequence[StagePlan], *, is_streaming: bool
    ) -> None:
        self.job_id = job_id
        self._executors = executors
        self._plans = plans
        self._is_streaming = is_streaming
        self._changed = threading.Condition()
        self.outputs: dict[int, dict[int, pb.TaskOutput]] = {stage_id: {} for stage_id in range(1, len(plans) + 1)}
        self._failure: pb.Failure | None = None

    def launch(self, stage_id: int) -> None:
        """Start the tasks of a stage, shared out among the executors."""
        plan = self._plans[stage_id - 1]
        for at, executor in enumerate(self._executors):
            partitions = range(at, plan.partitions, len(self._executors))
            if partitions:
                executor.run(self._task_set(stage_id, plan, partitions), plan, self._take)

    def wait(self, *stage_ids: int) -> None:
        """Wait until all tasks of the stages have succeeded."""
        with self._changed:
            ended = self._changed.wait_for(
                lambda: (
                    self._failure is not None
                    or all(len(self.outputs[s]) == self._plans[s - 1].partitions for s in stage_ids)
                ),
                _WAIT_S,
            )
        if self._failure is not None or not ended:
            sys.exit(f"a task failed: {self._failure}" if ended else "tasks did not end")

    def _task_set(self, stage_id: int, plan: StagePlan, partitions: Sequence[int]) -> pb.TaskSet:
        made = pb.TaskSet(
            job_id=self.job_id,
            stage_id=stage_id,
            work=pb.QUERY,
            plan_digest=f"{stage_id}",
            partitions=plan.partitions,
            tasks=[pb.TaskAttempt(partition=partition) for partition in partitions],
            output=pb.OutputLayout(kind="result" if isinstance(plan.output, ResultOutput) else "exchange"),
            streaming=self._is_streaming,
        )
        for source in plan.inputs:
            if isinstance(source, ExchangeInput) and self._is_streaming:
                stream = made.streams.add(stage_id=source.stage_id)
                for partition in range(self._plans[source.stage_id - 1].partitions):
                    stream.tasks.add(address=self._executors[partition % len(self._executors)].stream_address)
            elif isinstance(source, ExchangeInput):
                outputs = self.outputs[source.stage_id]
                made.inputs.add(stage_id=source.stage_id, outputs=[outputs[p] for p in sorted(outputs)])
        return made

    def _take(self, report: pb.TaskReport) -> None:
        with self._changed:
            if report.HasField("success"):
                self.outputs[report.task.stage_id][report.task.partition] = report.success.output
            else:
                self._failure = report.failure
            self._changed.notify_all()


if __name__ == "__main__":
    main()
