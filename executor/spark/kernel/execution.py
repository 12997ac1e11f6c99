"""An executor's kernel: it binds stages, runs their tasks, and serves and reads streams."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import JavaObject, Jvm, jvm_context, jvm_session, to_list
from onager.executor.spark.kernel.classes import KERNEL

Spec = Mapping[str, Any]
Event = tuple[dict[str, Any], bytes]
"""The outcome of a partition or of a run, and its inline result (empty if there is none).

Its fields come from Java's `Task.apply` and `Runs.json`; those of a failure from `Failures.describe`."""

_LENGTH_BYTES: Final = 4


def answer_promptly(gateway: Any) -> None:
    """Let *gateway* send each answer without delay, even one above 8 KiB."""
    gateway.java_gateway_server.addListener(gateway.jvm.onager.gateway.PromptAnswers())


def check_lookups(session: SparkSession, classes: Iterable[str]) -> None:
    """Raise when Spark lacks a class or method that the kernel looks up by name, or one of the plan nodes *classes*."""
    jvm = Jvm.of(session)
    jvm.java_class("onager.spark43.Lookups").check(jvm_session(session), jvm.java_list(sorted(classes)))


class Kernel:
    """The kernel of one executor: binds stages, runs tasks, serves and reads streams. Thread-safe."""

    def __init__(self, spark: SparkSession, exchange_dir: str, slots: int, writer: str = "") -> None:
        """Start the kernel; names of unfinished files in *exchange_dir* contain *writer*, this incarnation's id."""
        self._jvm = Jvm.of(spark)
        self._java = self._jvm.java_class(KERNEL)(jvm_context(spark), exchange_dir, slots, writer)
        self._groups, self._stages = self._java.groups(), self._java.stages()
        self._broadcasts, self._runs = self._java.broadcasts(), self._java.runs()

    def close(self, wait_ms: int = 0) -> int:
        """Wait up to *wait_ms* for tasks to end, release everything, restore the context; return how many still run."""
        return int(self._java.close(wait_ms))

    def describe(self, error: JavaObject) -> dict[str, Any]:
        """Return the fields of the protocol's `Failure` for a Throwable."""
        described: dict[str, Any] = json.loads(self._java.describe(error))
        return described

    # ------------------------------------------------------------ stages and their tasks

    def session(self, base: SparkSession, conf: Mapping[str, str]) -> JavaObject:
        """Return a new session over the context of *base*, with the settings *conf* only."""
        return self._groups.session(jvm_session(base), json.dumps(conf))

    def bind(
        self,
        session: JavaObject,
        fragment: bytes,
        spec: Spec,
        leaves: Iterable[JavaObject | None],
        fused: Iterable[bytes] = (),
    ) -> JavaObject:
        """Return the bound stage of *spec* (Java's `StageSpec`); *leaves* has a plan for each input that is None.

        *fused*: the fragments of the stages that it names as fused.
        """
        made = self._jvm.java_list
        return self._stages.bind(session, fragment, json.dumps(spec), made(leaves), made(fused))

    def operators(self, bound: JavaObject) -> list[dict[str, Any]] | None:
        """Return the operators of a bound stage (Java's `BoundPlan.nodes`), or None if its tasks report no metrics."""
        text = str(self._java.operators(bound))
        return json.loads(text) if text else None

    def submit(self, bound: JavaObject, spec: Spec, expression: bytes) -> None:
        """Start partitions of a bound stage (Java's `Runs.submit`).

        *spec* has the fields of Java's `OutputSpec`, run, partitions, nonces.
        """
        self._runs.submit(bound, json.dumps(spec), expression)

    def cancel(self, run: str, partitions: Iterable[int]) -> None:
        """Stop *partitions* of a run (Java's `Runs.cancel`); the others continue."""
        self._runs.cancel(run, self._jvm.java_list(partitions))

    def take(self, wait_ms: int) -> list[Event]:
        """Wait up to *wait_ms* for events of runs (Java's `Runs.take`), and return them in order.

        Partition -1: the run has ended.
        """
        return _unpacked(bytes(self._runs.take(wait_ms)))

    def run_single_stage(self, session: JavaObject, query: JavaObject, spec: Spec) -> Event:
        """Run the QueryExecution *query* with plain Spark on this thread; *spec*: `OutputSpec`, nonce and metrics.

        With metrics, the event has ``operators`` (Java's `BoundPlan.nodes`) and ``op_metrics``, as Base64.
        """
        (event,) = _unpacked(bytes(self._java.runSingleStage(session, query, json.dumps(spec))))
        return event

    def readings(self, most: int) -> list[dict[str, Any]]:
        """Return what running tasks, *most* at most, and single-stage queries have read (Java's `Runs.readings`)."""
        found: list[dict[str, Any]] = json.loads(self._java.readings(most))
        return found

    def codegen_ms(self, bound: JavaObject) -> int:
        """Return how long the JVM generated and compiled code while a stage was bound."""
        return int(bound.codegenMs())

    def jvm_use(self) -> dict[str, int]:
        """Return ``heap_used_bytes``, ``heap_max_bytes``, and ``gc_ms`` since the JVM started."""
        use: dict[str, int] = json.loads(self._java.jvmUse())
        return use

    # ------------------------------------------------------------ job groups and jobs

    @contextmanager
    def control(self, group: str, description: str, attempt: str, was_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Put this thread's Spark jobs into the job group *group* within the context; they log as *attempt*.

        If the context fails, it ends once no Spark task of the group goes on: those of work that failed, or
        *was_cancelled*, may.
        """
        self._groups.enterControl(group, description, attempt)
        try:
            yield
        except BaseException:
            self._groups.awaitControl(group, was_cancelled())
            raise
        finally:
            self._groups.leaveControl(group)

    def cancel_control(self, group: str) -> None:
        """Cancel the running and future Spark jobs of *group*, and interrupt its thread."""
        self._groups.cancelControl(group)

    def cancel_group(self, group: str) -> None:
        """Cancel the running and future Spark jobs of *group*, such as the broadcasts of a stage."""
        self._java.cancelGroup(group)

    def close_job(self, job_id: str) -> None:
        """Release the broadcasts of a job."""
        self._broadcasts.closeJob(job_id)

    def broadcast_use(self) -> tuple[int, int, int]:
        """Return the number of broadcasts held, the number ever started, and the bytes that Spark holds for them."""
        held, begun, size = self._broadcasts.use()
        return held, begun, size

    def limit_broadcasts(self, size: int) -> None:
        """Limit the broadcasts that stages hold at once to about *size* bytes."""
        self._broadcasts.limit(size)

    def exchange_problems(self, tasks: int) -> list[str]:
        """Return why processes of the cluster do not share the exchange directory; probes with *tasks* tasks."""
        return [str(problem) for problem in to_list(self._java.exchangeProblems(tasks))]

    # ------------------------------------------------------------ streams

    def open_streams(self, spec: Spec) -> str:
        """Open the stream server with *spec* (of Java's `Streams`); return the address where others read streams."""
        return str(self._java.openStreams(json.dumps(spec)))

    def expect_streams(self, tasks: Spec) -> None:
        """Announce tasks (Java's `StreamedTasks`) that will stream once their stage is bound."""
        self._java.expectStreams(json.dumps(tasks))

    def give_up_streams(self, tasks: Spec, why: str) -> None:
        """Tell the readers of tasks that have not started that they will not start."""
        self._java.giveUpStreams(json.dumps(tasks), why)

    def close_streams(self, job_id: str) -> None:
        """Drop a job's streams, and accept no more of them."""
        self._java.closeStreams(job_id)

    def stop_streams(self) -> None:
        """Stop serving and reading streams."""
        self._java.stopStreams()

    def stream_use(self) -> tuple[int, int, int, int]:
        """Return bytes in memory, bytes spilled so far, tasks that stream, and requests that wait."""
        held, spilled, tasks, requests = self._java.streamUse()
        return held, spilled, tasks, requests


def _unpacked(data: bytes) -> list[Event]:
    """Return the events that the kernel packed: the length of a JSON list, the list, then the inline results."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    events = []
    for event in json.loads(data[_LENGTH_BYTES:end]):
        size = event.pop("inline_bytes", 0)
        events.append((event, data[end : end + size]))
        end += size
    return events
