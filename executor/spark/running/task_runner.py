"""Runs the tasks of query stages, for the agent's worker.

    runner = StageRunner(spark, executor_id=…, exchange_dir=…, slots=…, clock=SystemClock())
    runner.run(task_set, stage_plan, on_report)   # returns at once; on_report(TaskReport) once per task, any thread
    runner.run(task_set, stage_plan, on_report, {stage_id: its_plan})   # of a task set that names fused stages
    runner.cancel([task_key, …])                  # each is reported as killed once it has ended, unless reported before
    runner.close_job(job_id)                      # cancels running tasks; forgets bound stages and broadcasts
    runner.close()

A `TaskSet` (``work = QUERY``) and its `StagePlan` run as one Spark job over the task set's partitions; each partition
has its own outcome. Failures of tasks are reported, not raised. Output goes where `onager.exchange_layout` says, under
a nonce that is drawn for each execution of a task. The kernel keeps the output of a `streaming` task set for other
stages, which read it at `stream_address`; its inputs in `streams` are read from the executors that serve them.
"""

import base64
import contextlib
import itertools
import math
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from onager.clock import Clock
from onager.exchange_layout import local_path, stage_directory
from onager.execution_graph.failures import FailureKind
from onager.executor.exchange import remove_output
from onager.executor.exchange.seen_places import NO_PLACES, SeenPlaces
from onager.executor.spark import failures
from onager.executor.spark.deadlines import Deadlines, name_of
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.spark.place_checks import check_places, check_task_set, lost_place
from onager.executor.spark.running.binder import NOTHING_FUSED, Binder, FusedPlans, StageKey, stage_key
from onager.executor.spark.running.readings import by_run, progress_of
from onager.executor.spark.running.runs import Run, named_attempts, report_of, run_metrics
from onager.executor.spark.running.sink_layout import sink_layout
from onager.executor.spark.running.streams import StreamSettings, check_reader, open_streams
from onager.executor.spark.session import is_alive
from onager.executor.spark.stage_plan import ResultOutput, SortedOutput, StagePlan, buckets_of, expression_of
from onager.executor.work import OnReport
from onager.ids import JobId, Nonce, TaskKey, new_nonce
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_REPORTED_ATTEMPTS
from onager.protocol.task_keys import task_keys

_POLL_MS = 500
_instances = itertools.count(1)
_ENDED = -1
"""The partition number in the event that ends a run."""

log = structlog.get_logger()


class StageRunner:
    """Runs the tasks of stages in this process's Spark. Methods return quickly and may be called from any thread."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        executor_id: str,
        exchange_dir: str,
        slots: int,
        clock: Clock,
        incarnation: str = "",
        streams: StreamSettings | None = None,
        deadlines: Deadlines | None = None,
        places: SeenPlaces = NO_PLACES,
    ) -> None:
        """Run tasks in *spark*; names of unfinished files contain *incarnation*, the id of this incarnation.

        With *streams*, tasks may stream; raises `InvalidSettingError` when the stream port cannot be opened.
        *deadlines* learn of cancelled tasks. Tasks fail while *places* where they read or write are not seen.
        """
        self._deadlines = deadlines or Deadlines(clock, math.inf)
        self._places = places
        self._spark = spark
        self._exchange_dir = exchange_dir
        self._executor_id = executor_id
        self._clock = clock
        self._name = f"{executor_id}.{next(_instances)}"
        """Unique among the runners of this Spark: names of runs and job groups contain it."""
        self.kernel = Kernel(spark, local_path(exchange_dir), slots, incarnation)
        self.stream_address = "" if streams is None else open_streams(self.kernel, streams)
        """Where others read this executor's streams; empty: tasks cannot stream."""
        self.binder = Binder(
            spark, self.kernel, self._name, check_address=lambda address: check_reader(streams, address), places=places
        )
        self._reported_plans: set[tuple[StageKey, str]] = set()
        """The bound plans that were reported, by digest."""
        self._streaming: set[str] = set()
        """Jobs with task sets that stream, or read streams, here."""
        self._streamed: set[JobId] = set()
        """Jobs with finished tasks whose streams others may still read."""
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._ended = threading.Condition(self._lock)
        """Notified when none of them is left."""
        self._count = 0
        self._closed = False
        self._is_jvm_lost = False
        self._starters = ThreadPoolExecutor(max_workers=slots + 2, thread_name_prefix="onager-start")
        self._listener = threading.Thread(target=self._listen, name="onager-outcomes", daemon=True)
        self._listener.start()

    def run(
        self,
        task_set: pb.TaskSet,
        plan: StagePlan,
        on_report: OnReport,
        fused: FusedPlans = NOTHING_FUSED,
        portion: bytes = b"",
    ) -> None:
        """Start the tasks of *task_set*, which belong to the stage *plan*, into which *fused* are fused.

        In a growing stage, they read *portion*.
        """
        self._note_streams(task_set)
        with self._lock:
            self._count += 1
            stage = f"{task_set.job_id}/{task_set.stage_id}.{task_set.stage_attempt}"
            name = f"{self._name}/{stage}/{self._count}"
            started_ms = self._clock.now_ms()
            run = Run(name, stage_key(task_set), task_set, on_report, started_ms, plan.made_by, fused, portion)
            for key in task_keys(task_set):
                run.open[key.partition] = (key, new_nonce())
            self._runs[name] = run
        self._starters.submit(self._start, run, plan)

    def cancel(self, tasks: Iterable[TaskKey]) -> None:
        """Stop *tasks*; unknown and already reported ones are ignored."""
        wanted = set(tasks)
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            self._cancel(run, wanted, "cancelled")

    def close_job(self, job_id: str) -> None:
        """Stop the tasks of a job, and release what was kept for it; idempotent."""
        with self._lock:
            runs = [run for run in self._runs.values() if run.task_set.job_id == job_id]
        for run in runs:
            self._cancel(run, {key for key, _ in list(run.open.values())}, "the job has ended")
        with self._lock:
            self._reported_plans = {each for each in self._reported_plans if each[0].job_id != job_id}
        try:
            self.binder.close_job(JobId(job_id))
            self._close_streams(job_id)
        except (Py4JError, OSError) as e:  # the JVM is gone, and everything in it
            log.warning("close_failed", job_id=job_id, error=str(e))

    def kept_jobs(self) -> set[JobId]:
        """Return the jobs with bound stages or streams, which stay until `close_job`."""
        return self.binder.jobs() | {JobId(job_id) for job_id in list(self._streaming)}

    def streamed_jobs(self) -> set[JobId]:
        """Return the jobs with streams of finished tasks that others may still read, until `close_job`."""
        return set(self._streamed)

    def is_alive(self) -> bool:
        """Return whether tasks can still run here; once false it stays so."""
        return not self._closed and not self._is_jvm_lost and is_alive(self._spark)

    def close(self, wait_s: float = 0.0) -> bool:
        """Stop everything; running tasks are reported as killed. The SparkSession belongs to its owner.

        Returns whether all runs and tasks had ended after *wait_s*.
        """
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            self._cancel(run, {key for key, _ in list(run.open.values())}, "the executor stops")
        with self._lock:
            has_ended = self._ended.wait_for(lambda: not self._runs, wait_s)
            runs = list(self._runs.values())
        self._closed = True
        for run in runs:
            self._report_stopped(run, list(run.stopping))
        self._starters.shutdown(wait=False, cancel_futures=True)
        is_over = self._is_jvm_lost or self._close_kernel(wait_s)
        self._listener.join(timeout=2 * _POLL_MS / 1000)
        return has_ended and is_over

    def _close_kernel(self, wait_s: float) -> bool:
        try:
            return self.kernel.close(round(1000 * wait_s)) == 0
        except Py4JJavaError:
            raise
        except (Py4JError, OSError):  # the JVM is gone, and the tasks with it
            return True

    # ------------------------------------------------------------ starting and cancelling

    def _start(self, run: Run, plan: StagePlan) -> None:
        try:
            if not run.open:  # cancelled before it began
                self._end(run)
                return
            check_task_set(self._places, run.task_set)
            self._expect_streams(run)
            begun_s = self._clock.monotonic_s()
            bound = self.binder.bound(
                run.task_set, plan, is_wanted=lambda: bool(run.open), fused=run.fused, portion=run.portion
            )
            check_places(self._places, bound.places)
            run.places = bound.places
            run.bind_ms = round(1000 * (self._clock.monotonic_s() - begun_s))
            run.codegen_ms = min(run.bind_ms, bound.codegen_ms)
            with self._lock:
                todo = sorted((partition, nonce) for partition, (_, nonce) in run.open.items())
                run.submitted = bool(todo)
                never_begun = list(run.stopping)
            if todo:
                self._report_stopped(run, never_begun)
                run.bound_plan = bound.plan
                spec, expression = self._output_spec(run, plan, todo)
                self.kernel.submit(bound.java, spec, expression)
                self._stop_unwanted(run, [partition for partition, _ in todo])
            else:
                self._end(run)
        except Exception as e:  # noqa: BLE001 - every error belongs in the reports
            self._give_up(run, failures.from_exception(self.kernel, self._places.behind(str(e)) or e, run.made_by))

    def _expect_streams(self, run: Run) -> None:
        """Tell readers that the tasks will stream: binding may take long, since it runs the stage's broadcasts."""
        if run.is_streamed:
            self.kernel.expect_streams(self._stream_spec(run, run.partitions))

    def _give_up(self, run: Run, failure: pb.Failure) -> None:
        if run.is_streamed:
            with contextlib.suppress(Py4JError, OSError):
                self.kernel.give_up_streams(self._stream_spec(run, run.partitions), failure.message)
        self._fail_rest(run, failure)

    def _output_spec(self, run: Run, plan: StagePlan, todo: list[tuple[int, Nonce]]) -> tuple[dict[str, Any], bytes]:
        task_set = run.task_set
        spec: dict[str, Any] = {
            "run": run.name,
            "partitions": [partition for partition, _ in todo],
            "nonces": [nonce for _, nonce in todo],
            "attempts": named_attempts(task_set),
            "directory": stage_directory(task_set.job_id, task_set.stage_id),
        }
        if run.is_streamed:
            spec |= self._stream_spec(run, spec["partitions"])
        match plan.output:
            case ResultOutput() if task_set.output.kind == "sink":
                return spec | {"names": plan.column_names} | sink_layout(task_set.sink, task_set.job_id), b""
            case ResultOutput():
                return spec | {"layout": "result", "names": plan.column_names}, b""
            case output:
                samples = {"samples": output.samples} if isinstance(output, SortedOutput) else {}
                layout = {"layout": "stream" if run.is_streamed else "exchange", "buckets": buckets_of(output)}
                return spec | samples | layout, expression_of(output)

    def _stream_spec(self, run: Run, partitions: list[int]) -> dict[str, Any]:
        attempts = {task.partition: task.task_attempt for task in run.task_set.tasks}
        return {
            "job": run.task_set.job_id,
            "stage": run.task_set.stage_id,
            "stage_attempt": run.task_set.stage_attempt,
            "partitions": partitions,
            "task_attempts": [attempts[partition] for partition in partitions],
        }

    def _note_streams(self, task_set: pb.TaskSet) -> None:
        """Remember a job that streams; drop a job's streams once it uses files instead."""
        if task_set.streaming:
            self._streaming.add(task_set.job_id)
        else:
            self._close_streams(task_set.job_id)

    def _close_streams(self, job_id: str) -> None:
        if job_id in self._streaming:
            self._streaming.discard(job_id)
            self._streamed.discard(JobId(job_id))
            self.kernel.close_streams(job_id)

    def _cancel(self, run: Run, wanted: set[TaskKey], why: str) -> None:
        with self._lock:
            gone = {partition: key for partition, (key, _) in run.open.items() if key in wanted}
            for partition, key in gone.items():
                del run.open[partition]
                run.stopping[partition] = key, why
                self._deadlines.stopped(name_of(key))
            is_binding, begun = not run.submitted and not run.open, run.begun
        if not gone:
            return
        try:
            if begun:
                self.kernel.cancel(run.name, gone)
            elif is_binding:
                self.binder.cancel(run.stage)
        except Exception as e:  # noqa: BLE001 - the JVM is gone, and the tasks with it
            log.warning("cancel_failed", run=run.name, error=str(e))

    def _stop_unwanted(self, run: Run, submitted: list[int]) -> None:
        """Stop tasks that were cancelled while their run was being submitted; harmless for tasks that have ended."""
        with self._lock:
            run.begun = True
            gone = [partition for partition in submitted if partition in run.stopping]
        if gone:
            self.kernel.cancel(run.name, gone)

    # ------------------------------------------------------------ outcomes

    def _listen(self) -> None:
        while not self._closed:
            try:
                events = self.kernel.take(_POLL_MS)
            except Exception as e:  # noqa: BLE001 - the JVM has died, or this runner is being closed
                if not self._closed:
                    self._lose_jvm(e)
                return
            for event, inline in events:
                with self._lock:
                    run = self._runs.get(event["run"])
                    mine = run.open.pop(event["partition"], None) if run else None
                if run is not None:
                    self._take_event(run, mine, event, inline)

    def _take_event(self, run: Run, mine: tuple[TaskKey, Nonce] | None, event: dict[str, Any], inline: bytes) -> None:
        try:
            self._on_event(run, mine, event, inline)
        except Exception as e:  # other outcomes must still be processed
            log.exception("outcome_not_taken", run=run.name, partition=event["partition"])
            failure = failures.from_exception(self.kernel, e, run.made_by)
            if mine is not None:
                self._report(run, report_of(mine[0], run.started_ms, self._clock.now_ms(), failure))
            elif event["partition"] == _ENDED:
                self._fail_rest(run, failure)

    def _on_event(self, run: Run, mine: tuple[TaskKey, Nonce] | None, event: dict[str, Any], inline: bytes) -> None:
        if "stopped" in event:
            self._report_stopped(run, [event["partition"]])
        elif event["partition"] == _ENDED:
            described = event.get("failure") or {
                "kind": FailureKind.IO_ERROR,
                "message": "Spark ended the task without a result",
            }
            self._fail_rest(run, failures.from_kernel(described, run.made_by), is_over=False)
        elif mine is not None:
            self._report(run, self._report_of_event(run, mine, event, inline))
        elif "failure" not in event and not event["files"]:
            # It finished while it was being cancelled. (Staged files of a dataset are removed with the job.)
            stage = run.stage
            remove_output(self._exchange_dir, stage.job_id, stage.stage_id, event["partition"], event["nonce"])

    def _report_of_event(
        self, run: Run, mine: tuple[TaskKey, Nonce], event: dict[str, Any], inline: bytes
    ) -> pb.TaskReport:
        key, _ = mine
        started, ended = event["started_ms"], event["ended_ms"]
        lost = lost_place(self._places, run.task_set, run.places, event, is_streamed=run.is_streamed)
        if lost is not None:
            return report_of(key, started, ended, failures.not_seen(lost))
        if "failure" in event:
            if event["failure"]["out_of_memory"]:
                self.binder.spare(run.stage)
            report = report_of(key, started, ended, failures.from_kernel(event["failure"], run.made_by))
            report.failed_metrics.CopyFrom(run_metrics(run, event))
            return report
        if run.is_streamed:
            self._streamed.add(run.stage.job_id)
        report = report_of(key, started, ended, None)
        success = report.success
        success.output.nonce = event["nonce"]  # ours, unless Spark started the task again
        success.output.executor_id = self._executor_id
        success.output.shared = not run.is_streamed
        success.output.rows = event["rows"]
        success.output.bytes = event["bytes"]
        success.output.inline = event["inline"]
        success.output.checksum = event["checksum"]
        success.output.files.extend(event["files"])
        success.bucket_sizes = base64.b64decode(event["bucket_sizes"])
        success.inline_result = inline
        success.metrics.CopyFrom(run_metrics(run, event))
        self._add_operators(run, success, event.get("op_metrics", ""))
        return report

    def progress(self, control: Mapping[str, TaskKey]) -> list[pb.AttemptProgress]:
        """Return what running tasks have read; *control*: the planning tasks, by their job groups."""
        readings = by_run(self.kernel.readings(MAX_REPORTED_ATTEMPTS))
        found = [progress_of(key, reading) for (name, _), reading in readings.items() if (key := control.get(name))]
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            for partition, (key, _) in list(run.open.items()):
                if (reading := readings.get((run.name, partition))) is not None:
                    found.append(progress_of(key, reading))
        return found

    def _add_operators(self, run: Run, success: pb.TaskSuccess, metrics: str) -> None:
        """Add the *metrics* of operators, as Base64, and the bound plan to the first report of a stage attempt."""
        plan = run.bound_plan
        if plan is None or not metrics:
            return
        success.op_metrics, success.bound_plan = base64.b64decode(metrics), plan.digest
        with self._lock:
            is_first = (run.stage, plan.digest) not in self._reported_plans
            self._reported_plans.add((run.stage, plan.digest))
        if is_first:
            success.blobs.add(digest=plan.digest, content=plan.content)

    def _fail_rest(self, run: Run, failure: pb.Failure, *, is_over: bool = True) -> None:
        """Report the rest of the run's tasks; if it *is_over*, also those that were being stopped have ended."""
        with self._lock:
            rest = [key for key, _ in run.open.values()]
            run.open.clear()
        now = self._clock.now_ms()
        for key in rest:
            self._report(run, report_of(key, run.started_ms, now, failure))
        if is_over:
            self._end(run)
        else:
            run.has_ended = True
            self._forget_if_over(run)

    def _end(self, run: Run) -> None:
        """Forget a run of which nothing goes on."""
        run.has_ended = True
        with self._lock:
            stopping = list(run.stopping)
        self._report_stopped(run, stopping)

    def _report_stopped(self, run: Run, partitions: Iterable[int]) -> None:
        """Report cancelled tasks, which have ended."""
        with self._lock:
            ended = [run.stopping.pop(partition) for partition in partitions if partition in run.stopping]
        now = self._clock.now_ms()
        for key, why in ended:
            self._deadlines.end(name_of(key))
            self._report(run, report_of(key, run.started_ms, now, failures.killed(why)))
        self._forget_if_over(run)

    def _lose_jvm(self, error: Exception) -> None:
        log.error("jvm_lost", error=str(error))
        self._is_jvm_lost = True
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            self._fail_rest(run, failures.from_exception(self.kernel, ConnectionError(str(error))))

    def _forget_if_over(self, run: Run) -> None:
        with self._lock:
            if run.has_ended and not run.stopping:
                self._runs.pop(run.name, None)
            if not self._runs:
                self._ended.notify_all()

    def _report(self, run: Run, report: pb.TaskReport) -> None:
        try:
            run.on_report(report)
        except Exception:
            log.exception("report_callback_failed", run=run.name)
