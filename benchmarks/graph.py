"""What the execution graph costs a task: ``python -m benchmarks.graph --tasks 100000 --json FILE``.

One stage of so many tasks, handed out by `pop_next_tasks` in batches, and the successes applied by `apply_all` in the
same batches. Then what the job's record and its log weigh, and what a list of running work and a lost executor cost
when half of the stage is running. Times are processor time of one thread; a tenth of the size comes first, to show what
is linear.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

from onager.execution_graph import (
    EventBatch,
    ExecutionGraph,
    ExecutorLost,
    ExecutorSlot,
    JobPlanned,
    OutputLayout,
    PlanSummary,
    RunningStage,
    StageInput,
    StageSpec,
    StageWork,
    TaskMetrics,
    TaskOutput,
    TasksLaunched,
    TaskSucceeded,
    apply,
    apply_all,
    decode_batch,
    decode_graph,
    encode_batch,
    lost_launches,
    pop_next_tasks,
    revive,
    submit,
)
from onager.execution_graph.codec import encode_graph

SLOT = ExecutorSlot("executor-1", "0123456789abcdef", 1)


def planned(tasks: int) -> ExecutionGraph:
    """Return a job of one stage of *tasks* tasks, and one of a single task that reads it."""
    graph = _started(submit(job_id="job", name="job", client_id="c", spec_digest="0" * 64, at_ms=1))
    launched = pop_next_tasks(graph, SLOT, 1, 2)
    if launched is None:
        raise AssertionError("planning is not handed out")
    plan = JobPlanned(
        task_attempt=0,
        executor_id=SLOT.executor_id,
        stages=(_stage(1, tasks, ()), _stage(2, 1, (StageInput(1, "bucket"),))),
        summary=PlanSummary(
            arrow_schema="", schema_json="", explain_digest=None, sink=None, result_stage_id=2, is_fused=False
        ),
        fused_output=None,
        metrics=TaskMetrics(),
        at_ms=3,
    )
    return _started(apply(apply(graph, launched), plan))


def run_stage(graph: ExecutionGraph, batch: int) -> tuple[ExecutionGraph, dict[str, float], list[TaskSucceeded]]:
    """Run the first stage to its end; return the graph, seconds by step, and the first reports."""
    spent = {"pop": 0.0, "launch": 0.0, "succeed": 0.0}
    first: list[TaskSucceeded] = []
    while True:
        begun = time.process_time()
        launched = pop_next_tasks(graph, SLOT, batch, 10)
        popped = time.process_time()
        if not isinstance(launched, TasksLaunched) or launched.stage_id != 1:
            return graph, spent, first
        graph = apply(graph, launched)
        applied = time.process_time()
        found = [success(launched, partition, attempt) for partition, attempt in launched.tasks]
        made = time.process_time()
        graph = apply_all(graph, found)
        spent["pop"] += popped - begun
        spent["launch"] += applied - popped
        spent["succeed"] += time.process_time() - made
        first = first or found


def measure(tasks: int, batch: int) -> dict[str, Any]:
    """Return the figures for one stage of *tasks* tasks, launched *batch* at a time."""
    graph = planned(tasks)
    ended, spent, reports = run_stage(graph, batch)
    running = _with_running(graph, batch)
    logged = [encode_batch(EventBatch(batch_id="b", events=tuple(reports)))]
    launched = pop_next_tasks(graph, SLOT, batch, 10)
    if launched is None:
        raise AssertionError("nothing is handed out")
    logged.append(encode_batch(EventBatch(batch_id="b", events=(launched,))))
    encode_s, snapshot = _timed(lambda: encode_graph(ended))
    decode_s, _ = _timed(lambda: decode_graph(snapshot))
    decode_batch_s, _ = _timed(lambda: decode_batch(logged[0]))
    lost = ExecutorLost(executor_id=SLOT.executor_id, incarnation=SLOT.incarnation, reason="gone", at_ms=20)
    lose_s, _ = _timed(lambda: apply(running, lost))
    list_s, _ = _timed(lambda: lost_launches(running, SLOT, frozenset(), 11))
    micro = 1e6 / tasks
    return {
        "tasks": tasks,
        "batch": batch,
        "us_per_task": {
            **{k: round(v * micro, 2) for k, v in spent.items()},
            "all": round(sum(spent.values()) * micro, 2),
        },
        "snapshot_us_per_task": {"encode": round(encode_s * micro, 2), "decode": round(decode_s * micro, 2)},
        "batch_decode_us_per_task": round(decode_batch_s * 1e6 / len(launched.tasks), 2),
        "bytes_per_task": {
            "snapshot": round(len(snapshot) / tasks, 1),
            "log": round(sum(len(data) for data in logged) / len(launched.tasks), 1),
            "log_zstd": round(sum(len(zstandard.compress(data)) for data in logged) / len(launched.tasks), 1),
        },
        "ms": {
            "lose_executor_of_half": round(lose_s * 1e3, 2),
            "disprove_launches": round(list_s * 1e3, 2),
        },
    }


def main() -> int:
    """Run the benchmark at a tenth of the size and at the full size, which shows whether it is linear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=16, help="tasks a launch")
    parser.add_argument("--json", type=Path, help="where the figures go as JSON (default: printed)")
    options = parser.parse_args()
    found = [measure(tasks, options.batch) for tasks in (max(options.tasks // 10, 1), options.tasks)]
    text = json.dumps({"runs": found, "python": sys.version.split()[0]}, indent=2)
    if options.json is None:
        print(text)
    else:
        options.json.write_text(text + "\n")
    return 0


def _stage(stage_id: int, partitions: int, inputs: tuple[StageInput, ...]) -> StageSpec:
    return StageSpec(
        stage_id=stage_id,
        name=f"stage {stage_id}",
        work=StageWork.QUERY,
        plan_digest="0" * 64,
        partitions=partitions,
        inputs=inputs,
        output=OutputLayout("exchange", 1),
    )


def _started(graph: ExecutionGraph) -> ExecutionGraph:
    event = revive(graph, 2)
    return graph if event is None else apply(graph, event)


def _with_running(graph: ExecutionGraph, batch: int) -> ExecutionGraph:
    """Return *graph* with half of its first stage in the executor's hands."""
    stage = graph.stages[1]
    while isinstance(stage, RunningStage) and len(stage.running) < stage.spec.partitions // 2:
        launched = pop_next_tasks(graph, ExecutorSlot(SLOT.executor_id, SLOT.incarnation, 0), batch, 10)
        if launched is None:
            break
        graph = apply(graph, launched)
        stage = graph.stages[1]
    return graph


def success(launched: TasksLaunched, partition: int, attempt: int) -> TaskSucceeded:
    """Return the report of a task of *launched*."""
    return TaskSucceeded(
        stage_id=launched.stage_id,
        stage_attempt=launched.stage_attempt,
        partition=partition,
        task_attempt=attempt,
        executor_id=launched.executor_id,
        output=TaskOutput(
            nonce=f"{partition:016x}",
            task_attempt=attempt,
            executor_id=launched.executor_id,
            is_shared=True,
            rows=123_456,
            bytes=12_345_678,
        ),
        metrics=TaskMetrics(run_ms=1_234, rows_out=123_456, bytes_out=12_345_678, bytes_in=0, peak_memory_bytes=1),
        at_ms=1_700_000_000_000,
    )


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    found = call()
    return time.process_time() - begun, found


if __name__ == "__main__":
    sys.exit(main())
