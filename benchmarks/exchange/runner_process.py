"""An executor's Spark and stage runner in a process of its own, for benchmarks and tests that need two.

Run as ``python -m benchmarks.exchange.runner_process SOCKET``; `RunnerProcess` starts it and is the other end.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from queue import Queue
from typing import Any, Self

import psutil
from pyspark.sql import SparkSession

from benchmarks.exchange.stages import encoded_stages
from onager.clock import SystemClock
from onager.executor.spark import plan_codec
from onager.executor.spark.running.streams import StreamSettings
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import start_session
from onager.executor.spark.stage_plan import StagePlan
from onager.executor.work import OnReport
from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_key

_BUSY = ("executor.Executor$TaskRunner.run", "onager.Kernel.bind")
_START_S = 120.0
_ANSWER_S = 60.0


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """What the runner is made with."""

    executor_id: str
    exchange_dir: str
    slots: int
    conf: dict[str, str] = field(default_factory=dict)
    streams: StreamSettings | None = None
    incarnation: str = ""


class RunnerProcess:
    """Does what a `StageRunner` does, in another process."""

    def __init__(self, options: RunnerOptions) -> None:
        """Start the process; `connect` waits until it can be used."""
        self._options = options
        self._directory = tempfile.TemporaryDirectory(prefix="onager-runner-")
        socket = str(Path(self._directory.name) / "socket")
        self._listener = Listener(socket)
        command = [sys.executable, "-m", "benchmarks.exchange.runner_process", socket]
        self.process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self._answers: Queue[Any] = Queue()
        self._lock = threading.Lock()
        self._open: dict[TaskKey, OnReport] = {}
        self.stream_address = ""
        self.jvm = psutil.Process()

    def connect(self) -> Self:
        """Wait until Spark runs there."""
        self._connection = self._listener.accept()
        self._connection.send(self._options)
        threading.Thread(target=self._listen, name="runner-process", daemon=True).start()
        self.stream_address, pid = self._answers.get(timeout=_START_S)
        self.jvm = psutil.Process(pid)
        return self

    def run(self, task_set: pb.TaskSet, plan: StagePlan, on_report: OnReport) -> None:
        """Start tasks."""
        with self._lock:
            for task in task_set.tasks:
                key = task_key(
                    pb.TaskId(
                        job_id=task_set.job_id,
                        stage_id=task_set.stage_id,
                        stage_attempt=task_set.stage_attempt,
                        partition=task.partition,
                        task_attempt=task.task_attempt,
                    )
                )
                self._open[key] = on_report
        self._connection.send(("run", task_set.SerializeToString(), plan_codec.encode(plan)))

    def cancel(self, tasks: Iterable[TaskKey]) -> None:
        """Stop tasks."""
        self._ask("cancel", list(tasks))

    def close_job(self, job_id: str) -> None:
        """Forget a job."""
        self._ask("close_job", job_id)

    def plan(self, source: str, *, has_exchange: bool) -> list[bytes]:
        """Return the stages of the benchmark's query over *source*, encoded."""
        return list(self._ask("plan", source, has_exchange))

    def stream_use(self) -> list[int]:
        """Return what `Kernel.streamUse` says."""
        return list(self._ask("stream_use"))

    def busy_threads(self) -> list[str]:
        """Return the JVM's threads that run tasks, or make stages ready for that."""
        return list(self._ask("busy_threads"))

    def is_alive(self) -> bool:
        """Return whether its JVM works."""
        return bool(self._ask("is_alive"))

    def close(self) -> None:
        """Stop it, if it still runs; harmless to repeat."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(_ANSWER_S)
        self._listener.close()
        self._directory.cleanup()

    def _ask(self, what: str, *arguments: Any) -> Any:
        self._connection.send((what, *arguments))
        return self._answers.get(timeout=_ANSWER_S)

    def _listen(self) -> None:
        while True:
            try:
                what, content = self._connection.recv()
            except (EOFError, OSError):
                return
            if what == "report":
                report = pb.TaskReport.FromString(content)
                with self._lock:
                    on_report = self._open.pop(task_key(report.task))
                on_report(report)
            else:
                self._answers.put(content)


def main(socket: str) -> None:
    """Serve the process at the other end of *socket* until it goes."""
    connection = Client(socket)
    options: RunnerOptions = connection.recv()
    spark = start_session(options.slots, options.conf, options.exchange_dir)
    runner = StageRunner(
        spark,
        executor_id=options.executor_id,
        exchange_dir=options.exchange_dir,
        slots=options.slots,
        clock=SystemClock(),
        streams=options.streams,
        incarnation=options.incarnation,
    )
    jvm: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark keeps it nowhere else
    connection.send(("answer", (runner.stream_address, jvm.proc.pid)))
    with contextlib.suppress(EOFError, OSError):
        _serve(connection, spark, runner)
    os._exit(0)  # with the JVM, which lives on this process's pipe


def _serve(connection: Connection, spark: SparkSession, runner: StageRunner) -> None:
    lock = threading.Lock()

    def send(what: str, content: Any) -> None:
        with lock:
            connection.send((what, content))

    def run(task_set: bytes, plan: bytes) -> None:
        runner.run(
            pb.TaskSet.FromString(task_set),
            plan_codec.decode(plan),
            lambda report: send("report", report.SerializeToString()),
        )

    answers: dict[str, Callable[..., Any]] = {
        "cancel": runner.cancel,
        "close_job": runner.close_job,
        "plan": lambda source, has_exchange: encoded_stages(spark, source, has_exchange=has_exchange),
        "stream_use": lambda: list(runner.kernel.stream_use()),
        "is_alive": runner.is_alive,
        "busy_threads": lambda: busy_threads(spark._jvm),  # noqa: SLF001
    }
    while True:
        what, *arguments = connection.recv()
        if what == "run":
            run(*arguments)
        else:
            send("answer", answers[what](*arguments))


def busy_threads(jvm: Any) -> list[str]:
    """Return the stacks of the threads of a JVM that run tasks of Spark's, or bind a stage."""
    return [stack for stack in stacks_of(jvm) if any(part in stack for part in _BUSY)]


def stacks_of(jvm: Any) -> list[str]:
    """Return the stacks of all threads of a JVM."""
    stacks = []
    for stack in jvm.Thread.getAllStackTraces().values():
        holder = jvm.Throwable()
        holder.setStackTrace(stack)
        stacks.append(str(jvm.org.apache.commons.lang3.exception.ExceptionUtils.getStackTrace(holder)))
    return stacks


if __name__ == "__main__":
    main(sys.argv[1])
