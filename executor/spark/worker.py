"""The worker of a real executor: dispatches each kind of task, over one SparkSession."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import psutil
import pyspark
import structlog
from google.protobuf.json_format import Parse
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from onager.clock import Clock
from onager.errors import InvalidSettingError, PlanningTimeoutError, SinkError, VersionMismatchError
from onager.exchange_layout import checkpoint, join, local_path
from onager.executor.attempt_logs import AttemptLogs
from onager.executor.exchange import (
    Contents,
    HeldPartitions,
    carry_out,
    check_exchange_dir,
    held_partitions,
    look_through,
    plan_publish,
    remove_job_data,
    remove_staging,
    remove_table_folder,
    remove_unfinished,
    take_back,
)
from onager.executor.exchange.seen_places import NO_PLACES, SeenPlaces
from onager.executor.foreign import ForeignCatalog, ForeignTables
from onager.executor.foreign.catalogs import FLAG
from onager.executor.spark.cancellation import Cancellation
from onager.executor.spark.cluster import SparkCluster, is_cluster
from onager.executor.spark.connect import ConnectRequests, connect_query, failure_of, opened
from onager.executor.spark.control_tasks import Action, ControlTasks
from onager.executor.spark.deadlines import Deadlines
from onager.executor.spark.functions import FunctionCalls, FunctionProcesses, timeout_of
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.jvm_end import MemoryKills, described
from onager.executor.spark.kernel.execution import check_lookups
from onager.executor.spark.load import ProcessTree
from onager.executor.spark.place_checks import check_planned, cleaning_up, planning_in, writing_at
from onager.executor.spark.plan_codec import decode, digest
from onager.executor.spark.plan_times import PlanTimes
from onager.executor.spark.planning import PlanTerms, cutter, plan_job, replan, statement_classes
from onager.executor.spark.planning.catalog import PlanningCatalog
from onager.executor.spark.planning.sizing import check_settings_known
from onager.executor.spark.planning.sql_script import JobQuery
from onager.executor.spark.running.feed import find_more
from onager.executor.spark.running.single_stage import run_single_stage
from onager.executor.spark.running.streams import StreamSettings
from onager.executor.spark.running.task_runner import StageRunner
from onager.executor.spark.session import has_died, is_alive, start_session, warm_up
from onager.executor.spark.stage_plan import MetricsWanted
from onager.executor.work import Assignment, CatalogReader, OnReport, Worker, WorkerDiedError, WorkerEnd
from onager.ids import BlobDigest, JobId, StageId, TaskKey, new_nonce
from onager.job_settings import PLANNING_TIMEOUT, may_be_reused
from onager.manifests import Manifest
from onager.private_paths import NO_PATHS, PrivatePaths
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_PLAN_BYTES, MIB

_CATALOG = "spark.sql.catalogImplementation"
_STOP_TIMEOUT_S = 10.0
_MAX_MANIFEST_BYTES = MAX_PLAN_BYTES - MIB

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker runs Spark, and what its jobs may do."""

    slots: int
    conf: Mapping[str, str]
    exchange_dir: str
    exchange_shared: bool = False
    executor_id: str
    incarnation: str = ""
    warehouse: str = ""
    """Where tables without a location lie; empty: as Spark is set."""
    planning_timeout_s: float = 0.0
    """The default limit for planning a job; 0: none."""
    cancel_grace_s: float = math.inf
    """How long what was cancelled may go on."""
    private: PrivatePaths = NO_PATHS
    allow: Sequence[str] = ()


class SparkWorker(Worker):
    """Runs tasks in its own SparkSession, which the constructor starts and warms up.

    The constructor raises `WorkerDiedError` when the JVM is killed meanwhile.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        *,
        streams: StreamSettings | None = None,
        logs: AttemptLogs | None = None,
        catalogs: Sequence[ForeignCatalog] = (),
        places: SeenPlaces = NO_PLACES,
    ) -> None:
        """*logs* gets what tasks log. *catalogs*: others than Onager's own.

        *places*: the shared directories, without which tasks fail.
        """
        self._settings = settings
        self._deadlines = Deadlines(clock, settings.cancel_grace_s)
        self._planning_timeout_s = settings.planning_timeout_s
        self._places = places
        self._foreign = _foreign_tables(catalogs, settings.conf)
        self._executor_id = settings.executor_id
        self._clock = clock
        self._exchange_dir = settings.exchange_dir
        self._private = settings.private.with_paths([settings.exchange_dir], tables=settings.warehouse)
        self._spark = self._start_spark(logs)
        self._memory_kills = MemoryKills()
        self._processes = FunctionProcesses()
        try:
            warm_up(self._spark)
            self._runner = self._make_runner(streams)
            self._check_spark()
            self._cluster = self._join_cluster(settings.slots, clock)
        except Exception as error:
            self._processes.close()
            if has_died(self._spark):
                raise WorkerDiedError("Spark's JVM was killed while it was warmed up") from error
            raise
        # A Hive metastore that the executor was given.
        self._has_own_catalog = self._spark.conf.get(_CATALOG) != "in-memory"
        self._functions = FunctionCalls(self._spark, self._processes, settings.planning_timeout_s)
        self._connect = self._make_connect()
        self._tree = ProcessTree()
        actions: dict[int, Action] = {
            pb.PLAN: self._plan,
            pb.FEED: self._find_more,
            pb.PUBLISH_PLAN: self._plan_publish,
            pb.PUBLISH: self._publish,
            pb.REPLAN: self._replan,
        }
        self._control = ControlTasks(self._runner.kernel, actions, clock, logs, self._deadlines)

    def _start_spark(self, logs: AttemptLogs | None) -> SparkSession:
        settings = self._settings
        return start_session(
            settings.slots,
            settings.conf,
            settings.exchange_dir,
            exchange_shared=settings.exchange_shared,
            warehouse=settings.warehouse,
            private=self._private,
            logs=logs,
            catalogs=self._foreign.names,
            allow=settings.allow,
        )

    def _make_runner(self, streams: StreamSettings | None) -> StageRunner:
        return StageRunner(
            self._spark,
            executor_id=self._executor_id,
            exchange_dir=self._exchange_dir,
            slots=self._settings.slots,
            clock=self._clock,
            incarnation=self._settings.incarnation,
            # A cluster's processes run the tasks, but this process would own the port.
            streams=None if is_cluster(self._spark.sparkContext.master) else streams,
            deadlines=self._deadlines,
            places=self._places,
        )

    def _make_connect(self) -> ConnectRequests:
        return ConnectRequests(
            self._spark,
            self._exchange_dir,
            spark_version=self.spark_version,
            has_own_catalog=self._has_own_catalog,
            foreign=self._foreign,
            kernel=self._runner.kernel,
            deadlines=self._deadlines,
            places=self._places,
        )

    def _check_spark(self) -> None:
        check_settings_known(self._spark)
        try:
            check_lookups(self._spark, cutter.LOOKED_UP | statement_classes.LOOKED_UP)
        except Py4JJavaError as e:
            why = e.java_exception.getMessage()
            raise VersionMismatchError(f"this Onager cannot run on Spark {self.spark_version}: {why}") from e

    def _join_cluster(self, slots: int, clock: Clock) -> SparkCluster | None:
        master = self._spark.sparkContext.master
        if not is_cluster(master):
            return None
        found = SparkCluster(self._spark, self._runner.kernel, master, slots, clock)
        found.check_exchange(self._exchange_dir)
        return found

    @property
    def spark_version(self) -> str:
        """The version of Spark that runs here."""
        return str(pyspark.__version__)

    @property
    def stream_address(self) -> str:
        """The address where others read this executor's streams; see `onager.executor.work.Worker`."""
        return self._runner.stream_address

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        """Start the tasks of *assignment*; see `onager.executor.work.Worker`."""
        task_set = assignment.task_set
        if task_set.work != pb.QUERY:
            self._control.start(assignment, on_report)
            return
        plan = decode(assignment.blobs[BlobDigest(task_set.plan_digest)])
        fused = {
            StageId(stage.stage_id): decode(assignment.blobs[BlobDigest(stage.plan_digest)]) for stage in task_set.fused
        }
        portion = assignment.blobs[BlobDigest(task_set.portion.digest)] if task_set.portion.digest else b""
        self._runner.run(task_set, plan, on_report, fused, portion)

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        """Stop *tasks*."""
        self._control.cancel(tasks)
        self._runner.cancel(tasks)

    def kept_jobs(self) -> Collection[JobId]:
        """Return the jobs with data in memory; see `onager.executor.work.Worker`."""
        return self._runner.kept_jobs()

    def streamed_jobs(self) -> Collection[JobId]:
        """Return the jobs whose streams others may still read; see `onager.executor.work.Worker`."""
        return self._runner.streamed_jobs()

    def clean_up(self, request: pb.CleanUp) -> None:
        """Forget a job and remove its files except those to keep, or remove only dead executors' unfinished files."""
        with cleaning_up(self._places, request):
            self._clean_up(request)

    def _clean_up(self, request: pb.CleanUp) -> None:
        job_id = JobId(request.job_id)
        if request.dead_writers:
            count = remove_unfinished(self._exchange_dir, job_id, request.dead_writers)
            log.info("unfinished_files_removed", job_id=job_id, files=count)
            return
        has_ended = self._control.close_job(job_id)
        self._runner.close_job(job_id)
        if request.memory_only:
            return
        if not has_ended:
            raise OSError(f"job {job_id} is still being stopped here, and may write until then")
        remove_job_data(self._exchange_dir, job_id, tuple(request.keep_files) if request.keep_result else ())
        if request.HasField("sink"):
            if request.take_back:
                take_back(request.sink.path, job_id)
            remove_staging(request.sink.path, job_id)
        for folder in request.folders:
            remove_table_folder(folder, self._private)

    def connect(self, call: pb.ConnectCall, catalog: CatalogReader) -> pb.ConnectReply:
        """Answer a request of a Spark Connect session; see `onager.executor.work.Worker`."""
        return self._connect.answer(call, catalog)

    def exchange_contents(self) -> Contents:
        """Return the contents of the exchange directory."""
        return look_through(self._exchange_dir)

    def check_exchange(self) -> None:
        """Raise when the exchange directory is not writable; see `onager.executor.work.Worker`."""
        check_exchange_dir(self._exchange_dir)

    def sample_load(self) -> pb.ExecutorLoad | None:
        """Return what this process, its JVM and all below them use; None once the JVM is lost."""
        try:
            jvm = self._runner.kernel.jvm_use()
            tree = self._tree.look()
        except (Py4JError, OSError, psutil.Error) as e:
            log.warning("load_not_sampled", error=str(e))
            return None
        return pb.ExecutorLoad(
            heap_used_bytes=jvm["heap_used_bytes"],
            heap_max_bytes=jvm["heap_max_bytes"],
            gc_ms=jvm["gc_ms"],
            rss_bytes=tree.rss_bytes,
            cpu_percent=tree.cpu_percent,
            python_workers=tree.python_workers,
        )

    def progress(self) -> Sequence[pb.AttemptProgress]:
        """Return what running tasks have read: not of those that run in the processes of a Spark cluster."""
        try:
            return self._runner.progress(self._control.groups())
        except (Py4JError, OSError) as e:  # the JVM is gone, and the tasks with it
            log.warning("progress_not_seen", error=str(e))
            return ()

    def is_alive(self) -> bool:
        """Return whether the JVM, its Spark and the cluster behind it appear to run."""
        if not self._runner.is_alive():
            return False
        self._memory_kills.look()
        return self._cluster is None or self._cluster.is_reached()

    def end(self) -> WorkerEnd | None:
        """Return how the JVM ended; None while it runs, whatever became of Spark in it."""
        if not has_died(self._spark):
            return None
        code = self._spark.sparkContext._gateway.proc.poll()  # noqa: SLF001 - PySpark keeps it nowhere else
        return described(code, was_killed_for_memory=self._memory_kills.are_more)

    def enforce_deadlines(self) -> str:
        """Stop what has taken too long; see `onager.executor.work.Worker`."""
        return self._deadlines.enforce()

    def kill(self) -> None:
        """End the JVM at once."""
        self._spark.sparkContext._gateway.proc.kill()  # noqa: SLF001 - PySpark keeps it nowhere else

    def close(self) -> None:
        """Stop Spark and the processes of functions, and reap the JVM."""
        jvm: Any = self._spark.sparkContext._gateway.proc  # noqa: SLF001 - PySpark keeps it nowhere else
        self._processes.close()
        self._foreign.close()
        with contextlib.suppress(Py4JError, OSError):
            self._runner.close()
            if is_alive(self._spark):
                self._spark.stop()
        # The JVM exits when its standard input is closed.
        jvm.stdin.close()
        try:
            jvm.wait(_STOP_TIMEOUT_S)
        except TimeoutExpired:
            log.warning("jvm_killed", pid=jvm.pid)
            jvm.kill()
            jvm.wait()

    # ------------------------------------------------------------ control tasks

    def _plan(self, key: TaskKey, assignment: Assignment, cancellation: Cancellation) -> pb.TaskSuccess:
        task_set, spec = assignment.task_set, _spec_of(assignment)
        times = PlanTimes(self._clock)

        def run_at_once(
            frame: DataFrame, column_names: Sequence[str], sink: pb.Sink | None, metrics: MetricsWanted
        ) -> pb.PlanOutcome:
            lift_limit()
            cancellation.check()
            kernel = self._runner.kernel
            return run_single_stage(kernel, self._executor_id, key.job_id, frame, column_names, sink, metrics)

        @contextlib.contextmanager
        def of_connect(
            plan: pb.ConnectPlan, session: SparkSession, tables: PlanningCatalog | None
        ) -> Iterator[JobQuery]:
            with opened(plan.session, session, self._exchange_dir) as made:
                yield connect_query(plan, made, tables, self._checkpoint(key.job_id))

        try:
            with self._limited(spec, cancellation) as lift_limit, planning_in(self._places) as note_read:
                terms = PlanTerms(
                    cluster_slots=task_set.cluster_slots,
                    run_single_stage=run_at_once,
                    call_function=lambda job, session: times.of_function(
                        self._functions.called(job, session, key.job_id, cancellation)
                    ),
                    connect_query=of_connect,
                    private=self._private,
                    may_grow=task_set.may_grow,
                    catalog=None if self._has_own_catalog else assignment.catalog,
                    foreign=self._foreign,
                    may_step=task_set.may_step,
                    may_cache=task_set.may_reuse,
                    has_fingerprints=task_set.may_reuse and may_be_reused(spec.conf, key.job_id),
                    on_read=note_read,
                )
                outcome = plan_job(spec, self._spark, terms)
            check_planned(self._places, outcome)
        except Exception as error:
            if spec.HasField("connect"):
                error.connect_details = failure_of(self._spark, error).details  # type: ignore[attr-defined]
            raise
        return times.success(outcome)

    def _replan(self, key: TaskKey, assignment: Assignment, cancellation: Cancellation) -> pb.TaskSuccess:
        del key
        with self._limited(_spec_of(assignment), cancellation):
            return pb.TaskSuccess(plan=replan(assignment.task_set.replan, self._spark, assignment.blobs))

    def _find_more(self, key: TaskKey, assignment: Assignment, cancellation: Cancellation) -> pb.TaskSuccess:
        del key
        cancellation.check()
        with self._limited(_spec_of(assignment), cancellation), planning_in(self._places) as note_read:
            jvm, blobs = Jvm.of(self._spark), assignment.blobs
            return find_more(assignment.task_set, blobs, jvm, self._runner.binder, self._executor_id, note_read)

    def _limited(
        self, spec: pb.JobSpec, cancellation: Cancellation
    ) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """Limit how long planning takes in the context, which yields a function that lifts the limit."""
        timeout_s = timeout_of(spec.conf, self._planning_timeout_s)
        return cancellation.limited(timeout_s, PlanningTimeoutError(timeout_s, PLANNING_TIMEOUT))

    def _plan_publish(self, key: TaskKey, assignment: Assignment, cancellation: Cancellation) -> pb.TaskSuccess:
        del cancellation
        task_set = assignment.task_set
        nonce = new_nonce()
        outputs = [output for location in task_set.inputs for output in location.outputs]
        held = self._held(assignment) if task_set.sink.HasField("table") else None
        private = NO_PATHS if task_set.sink.path == self._checkpoint(key.job_id) else self._private
        with writing_at(self._places, task_set.sink.path):
            content = plan_publish(key.job_id, task_set.sink, outputs, nonce, private, held).to_bytes()
        if len(content) > _MAX_MANIFEST_BYTES:
            raise SinkError(
                f"the manifest of what is to be published has {len(content):,} bytes, more than the "
                f"{_MAX_MANIFEST_BYTES:,} that fit a message: write fewer and larger files, or in several jobs"
            )
        name = digest(content)
        output = pb.TaskOutput(
            nonce=nonce,
            executor_id=self._executor_id,
            shared=True,
            rows=sum(output.rows for output in outputs),
            payload_digest=name,
        )
        return pb.TaskSuccess(output=output, blobs=[pb.Blob(digest=name, content=content)])

    def _checkpoint(self, job_id: JobId) -> str:
        """Return where a job may write, though other jobs may neither write nor read there."""
        return str(Path(local_path(join(self._exchange_dir, checkpoint(job_id)))).absolute())

    @staticmethod
    def _held(assignment: Assignment) -> HeldPartitions:
        if assignment.catalog is None:
            raise SinkError("the executor was made without a catalog, and the job writes a table of one")
        return held_partitions(assignment.catalog.read, assignment.task_set.sink.table)

    def _publish(self, key: TaskKey, assignment: Assignment, cancellation: Cancellation) -> pb.TaskSuccess:
        del cancellation
        (content,) = assignment.blobs.values()
        manifest = Manifest.from_bytes(content)
        # It is asked before files are where a table's are: they stay there if the table is not as it was.
        if not (manifest.foreign and self._foreign.has_committed(manifest.foreign, key.job_id)):
            with writing_at(self._places, manifest.target):
                carry_out(manifest)
            if manifest.foreign:
                self._foreign.commit(manifest.foreign, key.job_id, [move.name for move in manifest.moves])
        return pb.TaskSuccess(output=pb.TaskOutput(nonce=new_nonce(), executor_id=self._executor_id, shared=True))


def _foreign_tables(catalogs: Sequence[ForeignCatalog], conf: Mapping[str, str]) -> ForeignTables:
    if catalogs and conf.get(_CATALOG, "in-memory") != "in-memory":
        raise InvalidSettingError(
            FLAG, catalogs[0].name, f"an executor with {_CATALOG}={conf[_CATALOG]} has no other catalogs: omit one"
        )
    return ForeignTables(catalogs)


def _spec_of(assignment: Assignment) -> pb.JobSpec:
    return Parse(assignment.blobs[BlobDigest(assignment.task_set.spec_digest)], pb.JobSpec())
