"""Executors in this process: each the runner of a real one, over the same SparkSession and one exchange directory."""

import contextlib
import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from onager.clock import SystemClock
from onager.errors import OnagerError
from onager.executor.spark.cluster import is_cluster
from onager.executor.spark.jvm import Jvm, jvm_context
from onager.executor.spark.running.streams import StreamSettings
from onager.executor.spark.running.task_runner import StageRunner
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.testing.config import HarnessConfig

STOP_S = 30.0
_jobs = itertools.count(1)
_streaming = threading.Lock()
"""Held by a run over streams: a reader of one must not have the slot that a writer of another one needs."""

_WAITING_TIMES_MS = {
    "patience_ms": 50,
    "reader_patience_ms": 200,
    "connect_ms": 1000,
    "absent_ms": 5000,
    "poll_ms": 1000,
}
"""As `StreamLimits`; short, since all is in one process: who is missed that long comes later and reads the file."""


class Executor(StageRunner):
    """A real executor's runner, which also keeps what its reports leave out."""

    def __init__(self, spark: SparkSession, **options: Any) -> None:
        """Make it as a `StageRunner`."""
        self.rows_read: dict[tuple[int, int], int] = {}
        """By stage and partition: rows that a task has read of files and other sources."""
        super().__init__(spark, **options)

    def _report_of_event(self, run: Any, mine: Any, event: dict[str, Any], inline: bytes) -> pb.TaskReport:
        self.rows_read[mine[0].stage_id, mine[0].partition] = event["rows_read"]
        return super()._report_of_event(run, mine, event, inline)


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors of one run."""

    job_id: JobId
    directory: str
    """Where they exchange files."""
    slots: int
    """How many tasks run at once, on all of them together."""
    runners: list[Executor] = field(default_factory=list)


@contextlib.contextmanager
def executors(session: SparkSession, config: HarnessConfig) -> Iterator[Executors]:
    """Make the executors of a run; in the end they are stopped, and with them goes whatever they have made."""
    master = session.sparkContext.master
    if is_cluster(master):
        raise OnagerError(f"the harness needs a SparkSession whose tasks run in its own process, not in {master}")
    slots = slots_of(session)
    with contextlib.ExitStack() as stack:
        if config.exchange == "streams":
            stack.enter_context(_streaming)
        scratch = tempfile.TemporaryDirectory(prefix="onager-testing-", ignore_cleanup_errors=True)
        directory = stack.enter_context(scratch)
        made = Executors(JobId(f"test-{os.getpid()}-{next(_jobs)}"), directory, slots)
        streams = _streams(session, config) if config.exchange == "streams" else None
        for number in range(1, config.executors + 1):
            runner = Executor(
                session,
                executor_id=f"executor-{number}",
                exchange_dir=directory,
                slots=slots,
                clock=SystemClock(),
                incarnation=f"{number:016x}",
                streams=streams,
            )
            stack.callback(_stop, number, runner, made.job_id)
            made.runners.append(runner)
        yield made


def slots_of(session: SparkSession) -> int:
    """Return how many tasks Spark runs at once."""
    context = jvm_context(session)
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def _stop(number: int, runner: Executor, job_id: JobId) -> None:
    runner.close_job(job_id)
    if not runner.close(STOP_S):
        raise OnagerError(f"tasks of executor {number} did not stop within {STOP_S:g} s")


def _streams(session: SparkSession, config: HarnessConfig) -> StreamSettings:
    runtime: Any = Jvm.of(session).java_class("java.lang.Runtime").getRuntime()
    memory = min(config.memory_bytes, int(runtime.maxMemory()) // 4)
    channel = (config.channel_frames - 1) * config.frame_bytes + 1  # a frame more fits if it is the only one
    sizes = {
        "frame_bytes": config.frame_bytes,
        "channel_bytes": channel,
        "prefetch_bytes": channel,
        "memory_bytes": max(1, memory // config.executors),
    }
    return StreamSettings(limits=sizes | _WAITING_TIMES_MS)
