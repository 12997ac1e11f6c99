"""Calls the Python function of a job in its own process, which reaches the JVM through its own gateway."""

import json
import re
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Never

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import UnknownException, convert_exception
from pyspark.sql import DataFrame, SparkSession

from onager.errors import (
    FunctionLostError,
    InvalidSettingError,
    PlanningError,
    PlanningTimeoutError,
    SideEffectError,
    UserCodeError,
)
from onager.executor.spark.cancellation import Cancellation
from onager.executor.spark.functions.job_spark import described_context
from onager.executor.spark.functions.printed import Printed
from onager.executor.spark.functions.processes import FunctionProcess, FunctionProcesses, not_started
from onager.executor.spark.kernel.functions import FunctionGateway
from onager.job_settings import PLANNING_TIMEOUT
from onager.protocol import onager_pb2 as pb

_DURATION: Final = re.compile(r"([0-9]+)\s*(ms|s|m|min|h|d|)")
_MAX_DIGITS: Final = 12
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_CLOSE_MS: Final = 1_000
_CLOSE_PATIENCE: Final = 10
_FROM_OUTSIDE: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT})
"""Signals by which operators, and the operating system when memory runs out, end processes."""

log = structlog.get_logger()


class FunctionCalls:
    """Calls the functions of jobs that are planned in one SparkSession's Spark; thread-safe."""

    def __init__(self, spark: SparkSession, processes: FunctionProcesses, default_timeout_s: float = 0.0) -> None:
        """*default_timeout_s*: for jobs that do not set ``onager.planning.timeout``; 0: no limit."""
        self._processes = processes
        self._default_timeout_s = default_timeout_s
        self._context = described_context(spark.sparkContext)

    @contextmanager
    def called(
        self, spec: pb.JobSpec, session: SparkSession, job_id: str, cancellation: Cancellation
    ) -> Iterator[DataFrame]:
        """Call the job's function in a process over the JVM session of *session*, and yield what it returns.

        On entry, the process has ended, and so have its calls into the JVM. Files that the DataFrame needs exist until
        the context ends. Raises `UserCodeError`, `PlanningError` and its other subclasses, `FunctionLostError`,
        `InvalidSettingError`, and Spark's errors in the function.
        """
        timeout_s = timeout_of(spec.conf, self._default_timeout_s)
        printed = Printed(job_id)
        with tempfile.TemporaryDirectory(prefix="onager-function-", ignore_cleanup_errors=True) as directory:
            try:
                yield self._call(spec, session, Path(directory), timeout_s, printed, cancellation)
            except Exception as e:
                e.printed = printed.end  # type: ignore[attr-defined]
                raise

    def _call(
        self,
        spec: pb.JobSpec,
        session: SparkSession,
        directory: Path,
        timeout_s: float,
        printed: Printed,
        cancellation: Cancellation,
    ) -> DataFrame:
        gateway = FunctionGateway(session)
        try:
            request = gateway.place() | {"directory": str(directory)}
            parts = (
                json.dumps(request | {"context": self._context}).encode(),
                pb.JobSpec(python=spec.python, py_files=spec.py_files).SerializeToString(),
            )
            with self._processes.fork() as process, cancellation.stopping(process.kill):
                process.ask(*parts)
                try:
                    answer = process.answer(timeout_s or None, printed.take)
                except TimeoutError:
                    raise PlanningTimeoutError(timeout_s, PLANNING_TIMEOUT) from None
            cancellation.check()
            if answer is None:
                _tell_end(process)
            return self._outcome(json.loads(answer), gateway, session)
        finally:
            printed.close()
            self._close(gateway)

    def _close(self, gateway: FunctionGateway) -> None:
        """Wait until the process's calls into the JVM have ended; until then the slot is in use."""
        for tries in range(1, 1 << 30):
            left = gateway.close(_CLOSE_MS)
            if not left:
                return
            if tries == _CLOSE_PATIENCE:
                log.warning("function_not_stopped", left=left, why="Spark's driver still works on its requests")

    def _outcome(self, answer: Mapping[str, Any], gateway: FunctionGateway, session: SparkSession) -> DataFrame:
        match answer["kind"]:
            case "returned":
                return DataFrame(gateway.frame(), session)
            case "spark":
                _raise_again(gateway.error(), answer["note"])
            case "user":
                raise UserCodeError(answer["message"], answer["traceback"], raised=answer["raised"])
            case "side_effect":
                raise SideEffectError(answer["statement"], answer["advice"], answer["why"])
            case "planning":
                raise PlanningError(answer["message"])
        raise RuntimeError(f"the process of the job's function failed:\n{answer.get('message')}")


def _tell_end(process: FunctionProcess) -> Never:
    """Raise the error for a process that ended without an answer."""
    code = process.exit_code
    if process.not_started:
        raise not_started(process.not_started)
    if code is None:
        raise FunctionLostError("the process of the job's function was lost while it planned the job")
    if code >= 0:
        raise UserCodeError(f"the function's process ended with exit code {code} while it planned the job")
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    said = f"the function's process was killed by {name} while it planned the job"
    if -code in _FROM_OUTSIDE:
        memory = "; the operating system does that when memory runs out" if -code == signal.SIGKILL else ""
        raise FunctionLostError(said + memory)
    raise UserCodeError(said, raised=name)


def _raise_again(origin: Any, note: str) -> Never:
    """Raise the JVM's exception in the function as PySpark would raise it here."""
    error: Exception = convert_exception(origin)
    if isinstance(error, UnknownException):
        error = Py4JJavaError("The job's function caused an error in the JVM.", origin)
    if note:
        error.add_note(note)
    assert isinstance(error, PySparkException | Py4JJavaError)
    raise error


def timeout_of(conf: Mapping[str, str], default_s: float) -> float:
    """Return how many seconds a job's function may take (0: no limit); raises `InvalidSettingError`."""
    text = conf.get(PLANNING_TIMEOUT, "").strip().lower()
    if not text:
        return default_s
    found = _DURATION.fullmatch(text)
    if found is None or len(found[1]) > _MAX_DIGITS:
        raise InvalidSettingError(PLANNING_TIMEOUT, conf[PLANNING_TIMEOUT], "give a duration, such as 90s, 15m or 2h")
    return int(found[1]) * _SECONDS[found[2]]
