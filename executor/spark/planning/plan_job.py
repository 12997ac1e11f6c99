"""Plans a job: turns its spec into stages, or runs it as a single stage when it is small."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onager.datasets import SINK_FORMATS
from onager.errors import CatalogConflictError, PlanningError, UnsupportedPlanError
from onager.executor.exchange import check_appended, check_target
from onager.executor.foreign import ForeignTables
from onager.executor.spark import plan_codec
from onager.executor.spark.jvm import Jvm, jvm_session, session_over
from onager.executor.spark.kernel.leaves import PagedSources, read_growing
from onager.executor.spark.kernel.queries import QueryTools
from onager.executor.spark.place_checks import NoteRead
from onager.executor.spark.planning.catalog import MOST_PLANNINGS, CatalogMovedError, PlanningCatalog
from onager.executor.spark.planning.cut_stages import CutStage
from onager.executor.spark.planning.cutter import cut_plan
from onager.executor.spark.planning.encoded import add_stages, shortened
from onager.executor.spark.planning.formats import check_options, completed
from onager.executor.spark.planning.frames import FirstFrame, FrameTerms, first_frame, keeps_frame
from onager.executor.spark.planning.job_session import (
    changed_settings,
    job_session,
    planned_settings,
    register_views,
)
from onager.executor.spark.planning.partitioned import check_names, partitioned
from onager.executor.spark.planning.script_steps import ScriptSteps, program
from onager.executor.spark.planning.sizing import (
    CUT_SETTINGS,
    feed_from_files,
    fuses,
    is_fused,
    metrics_wanted,
    setting_bytes,
    sizes,
)
from onager.executor.spark.planning.sql_script import PlannedScript, plan_script
from onager.executor.spark.planning.table_folders import check_no_table_at
from onager.executor.spark.stage_plan import ExchangeInput, MetricsWanted
from onager.executor.work import CatalogReader
from onager.explain_analyze import marked_analyzed
from onager.job_settings import METRICS, SORT_PARALLEL_FROM_BYTES, overwrites_anything
from onager.private_paths import NO_PATHS, PrivatePaths
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_PLAN_BYTES

MOST_OUTPUTS = 200_000
"""The maximum number of tasks whose output a stage reads: a message lists them for each task, 60 bytes each."""
WHOLE = "whole query on one executor"
"""The name of the stage of a single-stage query."""


@dataclass(frozen=True, slots=True)
class FusedRun:
    """The outcome of a query that ran as a single stage, in the planning task."""

    output: pb.TaskOutput
    metrics: pb.TaskMetrics
    inline_result: bytes = b""
    """An Arrow IPC stream if `output.inline`."""
    final_plan: bytes = b""
    """The operators that Spark ran, as a stage's bound plan; empty: not told."""
    op_metrics: bytes = b""
    """What they measured, as tasks report it."""
    observed: bytes = b""
    """What the query has observed, as an ExecutePlanResponse of Spark Connect."""


class RunFused(Protocol):
    """Runs a query with plain Spark on all slots of this executor."""

    def __call__(
        self, frame: DataFrame, column_names: Sequence[str], sink: pb.Sink | None, metrics: MetricsWanted
    ) -> FusedRun:
        """Write the result of *frame* as one ordered partition, or as the staged files of *sink*.

        Unless *metrics* are off, tell what its operators measured.
        """
        ...


class ArrowSchema(Protocol):
    """Gives the Arrow schema of a result."""

    def __call__(self, session: Any, plan: Any, column_names: Sequence[str]) -> bytes:
        """Return the Arrow IPC schema message of the output of *plan*, a JVM plan, under *column_names*."""
        ...


class CallFunction(Protocol):
    """Calls the Python function of a job."""

    def __call__(self, spec: pb.JobSpec, session: SparkSession) -> AbstractContextManager[DataFrame]:
        """Yield the DataFrame that the function of *spec* returns, made in *session*; valid within the context."""
        ...


class ConnectQuery(Protocol):
    """Gives the query of an operation of Spark Connect."""

    def __call__(
        self, plan: pb.ConnectPlan, session: SparkSession, tables: PlanningCatalog | None
    ) -> AbstractContextManager[PlannedScript]:
        """Yield the query of *plan*, made in *session*; valid within the context."""
        ...


def plan_job(
    spec: pb.JobSpec,
    spark: SparkSession,
    *,
    cluster_slots: int,
    arrow_schema: ArrowSchema,
    run_fused: RunFused,
    call_function: CallFunction,
    connect_query: ConnectQuery | None = None,
    private: PrivatePaths = NO_PATHS,
    may_grow: bool = False,
    catalog: CatalogReader | None = None,
    foreign: ForeignTables | None = None,
    may_step: bool = False,
    has_fingerprints: bool = False,
    on_read: NoteRead | None = None,
) -> pb.PlanOutcome:
    """Plan a job in its own session, and run it at once if it reads little (``onager.fusion.maxBytes``).

    If it *may_step*, a script with several effects becomes the steps of a program. If it *has_fingerprints*, stages
    that other jobs may have computed before get them. *on_read* is told the paths that are read.
    If it *may_grow*, files of very large directories may be left to be listed while its first tasks run, and so may
    partitions of Python data sources that can give them bit by bit.

    A query that cannot be distributed also runs at once, whatever its size, and its plan says why. *cluster_slots*
    determines the number of tasks; *private* paths cannot be sinks. Nothing outside the session changes. With a
    *catalog*, the session has its databases, tables, views and functions, and the outcome tells what a script changes
    of them; the job is planned anew while what it reads of them changes. *foreign*: tables of other catalogs.

    Raises `PlanningError` and its subclasses for a job that cannot be planned, `InvalidSettingError` for its conf,
    `SinkError` for a target that cannot be published or may not be replaced, `CatalogConflictError`,
    `CatalogUnavailableError`, and Spark's own exceptions.
    """

    def planned(new: SparkSession, tables: PlanningCatalog | None) -> pb.PlanOutcome:
        with job_session(spec, new) as session, _told_in_words(), ExitStack() as until_planned:
            if may_grow and (from_files := feed_from_files(spec.conf)):
                read_growing(Jvm.of(session), jvm_session(session), from_files)
            query: _Query | ScriptSteps
            if spec.HasField("connect"):
                query = _checked(
                    spec, session, _of_connect(spec, session, tables, connect_query, until_planned), private
                )
            else:
                query = _query(spec, session, tables, call_function, until_planned, private, may_step=may_step)
            if isinstance(query, ScriptSteps):
                return program(query, spec.sink if spec.HasField("sink") and spec.sink.path else None)
            return _plan_query(
                spec,
                session,
                query,
                cluster_slots=cluster_slots,
                arrow_schema=arrow_schema,
                run_fused=run_fused if tables is None else _settled(run_fused, tables),
                may_grow=may_grow,
                has_fingerprints=has_fingerprints,
                on_read=on_read,
            )

    if catalog is None:
        return planned(session_over(spark, jvm_session(spark).newSession()), None)
    for _ in range(MOST_PLANNINGS):
        try:
            with PlanningCatalog(spark, catalog, foreign, on_read) as tables:
                outcome = planned(tables.session, tables)
                tables.settle()
                # What a program's statements have changed here, its steps change.
                is_program = outcome.stages[:1] and outcome.stages[0].work == pb.Work.STEP
                return outcome if is_program else _with_changes(outcome, tables.changes())
        except CatalogMovedError:
            continue
    raise CatalogConflictError("the catalog", f"it changed each of the {MOST_PLANNINGS} times that the job was planned")


def _plan_query(
    spec: pb.JobSpec,
    session: SparkSession,
    query: "_Query",
    *,
    cluster_slots: int,
    arrow_schema: ArrowSchema,
    run_fused: RunFused,
    may_grow: bool,
    has_fingerprints: bool,
    on_read: NoteRead | None,
) -> pb.PlanOutcome:
    metrics = "full" if query.is_analyzed and METRICS not in spec.conf else metrics_wanted(spec.conf)
    planning = _Planning(session, query, arrow_schema, metrics, may_grow=may_grow)
    if on_read is not None:
        on_read(planning.roots())
    if query.is_done or planning.is_fused(spec.conf):
        return planning.fused(run_fused)
    try:
        may_list = may_grow and feed_from_files(spec.conf) > 0
        stages = planning.cut(spec, cluster_slots, may_grow=may_list, has_fingerprints=has_fingerprints)
        _check_width(stages)
    except UnsupportedPlanError as e:
        if not e.runs_whole:
            raise
        return planning.fused(run_fused, because_of=e)
    grows = any(stage.feed is not None for stage in stages)
    if not grows and is_fused(spec.conf, sum(stage.input_bytes for stage in stages)):
        return planning.fused(run_fused)
    outcome = planning.outcome(stages)
    if (size := outcome.ByteSize()) > MAX_PLAN_BYTES:
        return planning.fused(run_fused, because_of=_too_large(size))
    return outcome


def _settled(run_fused: RunFused, tables: PlanningCatalog) -> RunFused:
    """Return *run_fused* for queries that are planned on one revision of the catalog: otherwise they are not run."""

    def run(frame: DataFrame, column_names: Sequence[str], sink: pb.Sink | None, metrics: MetricsWanted) -> FusedRun:
        tables.settle(frame._jdf)  # noqa: SLF001  (PySpark has no public way to it)
        return run_fused(frame, column_names, sink, metrics)

    return run


def _with_changes(outcome: pb.PlanOutcome, changes: pb.CatalogChanges | None) -> pb.PlanOutcome:
    if changes is not None:
        outcome.catalog.CopyFrom(changes)
        if (size := outcome.ByteSize()) > MAX_PLAN_BYTES:
            raise UnsupportedPlanError(
                f"a plan and changes of the catalog of {size:,} bytes, more than the {MAX_PLAN_BYTES:,} of a message",
                "make fewer changes in one job, and the others in jobs of their own",
                runs_whole=False,
            )
    return outcome


@dataclass(frozen=True, slots=True)
class _Query:
    """What a job asks for."""

    frame: DataFrame
    sink: pb.Sink | None
    is_analyzed: bool = False
    """Whether its result is its plan, as it ran."""
    is_done: bool = False
    """Whether it was a statement that changes the catalog: it has no rows, and nothing is left to run."""
    takes_any_option: bool = False
    """Whether an option of its sink may be one without effect."""
    is_table: bool = False
    """Whether its sink is that of a table."""
    is_kept: bool = False
    """Whether it writes a checkpoint."""


def _check_width(stages: Sequence[CutStage]) -> None:
    partitions = {stage.stage_id: stage.plan.partitions for stage in stages}
    for stage in stages:
        read = sum(partitions[s.stage_id] for s in stage.plan.inputs if isinstance(s, ExchangeInput))
        if read > MOST_OUTPUTS:
            raise UnsupportedPlanError(
                f"a stage that reads the output of {read:,} tasks, more than {MOST_OUTPUTS:,}",
                "read in fewer and larger partitions",
            )


def _too_large(size: int) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        f"a plan of {size:,} bytes, more than the {MAX_PLAN_BYTES:,} that fit a message",
        "it contains data (local rows, literals, partitions of a data source): read the data from files instead",
    )


def _query(
    spec: pb.JobSpec,
    session: SparkSession,
    tables: PlanningCatalog | None,
    call_function: CallFunction,
    until_planned: ExitStack,
    private: PrivatePaths,
    *,
    may_step: bool,
) -> _Query | ScriptSteps:
    """Return the job's query, and its sink with all options; or its steps."""
    query = _frame(spec, session, tables, call_function, until_planned, private, may_step=may_step)
    return query if isinstance(query, ScriptSteps) else _checked(spec, session, query, private)


def _of_connect(
    spec: pb.JobSpec,
    session: SparkSession,
    tables: PlanningCatalog | None,
    connect_query: ConnectQuery | None,
    until_planned: ExitStack,
) -> _Query:
    if connect_query is None:
        raise PlanningError("this executor was made without Spark Connect, and the job is an operation of it")
    script = until_planned.enter_context(connect_query(spec.connect, session, tables))
    return _Query(
        script.frame,
        script.sink,
        is_done=script.is_done,
        takes_any_option=script.takes_any_option,
        is_table=script.is_table,
        is_kept=script.is_kept,
    )


def _checked(spec: pb.JobSpec, session: SparkSession, query: _Query, private: PrivatePaths) -> _Query:
    """Return *query* with all options of its sink; `PlanningError` or `SinkError` for one that cannot be."""
    given = spec.sink if spec.HasField("sink") and spec.sink.path else None
    frame, said = query.frame, query.sink
    if query.is_done and given is not None:
        raise PlanningError(
            "the script ends with a statement that gives no rows, and the job has an output: end it with a query, "
            "or leave out the output"
        )
    if query.is_analyzed and given is not None:
        raise PlanningError(
            "the result of EXPLAIN ANALYZE is a plan, and the job has an output: leave out one of them "
            "(onager job ID --analyze shows the plan of any job)"
        )
    if said is not None and given is not None:
        raise PlanningError(
            "the script ends with a statement that writes, and the job has an output, too: give only one"
        )
    sink = said or given
    if sink is not None:
        if sink.format not in SINK_FORMATS:
            raise PlanningError(
                f"a result cannot be written as {sink.format or 'nothing'}: give {', '.join(SINK_FORMATS)}"
            )
        if not query.takes_any_option:
            check_options(Jvm.of(session), sink.format, sink.options, f"the output {sink.path}", is_written=True)
        if not query.is_kept and not (said is not None and sink.format == "csv"):  # which Spark finds by their places
            check_names(frame)
        schema = frame.schema.json()
        # A sink in a statement is written with Spark's defaults; a sink of the job is written without loss.
        sink = completed(sink, schema) if said is None else sink
        sink.replaces_anything = overwrites_anything(spec.conf)
        check_target(sink, NO_PATHS if query.is_kept else private)
        if not (query.is_table or query.is_kept):
            check_no_table_at(session, sink)
        described = pb.Sink(schema_json=schema)
        described.MergeFrom(sink)
        check_appended(described)
        frame = partitioned(frame, sink)
    return replace(query, frame=frame, sink=sink)


def _frame(
    spec: pb.JobSpec,
    session: SparkSession,
    tables: PlanningCatalog | None,
    call_function: CallFunction,
    until_planned: ExitStack,
    private: PrivatePaths,
    *,
    may_step: bool,
) -> _Query | ScriptSteps:
    """Return the job's query, and the sink if its script names one; or its steps."""
    register_views(session, spec, private)
    if spec.HasField("python"):
        return _Query(until_planned.enter_context(call_function(spec, session)), None)
    script = plan_script(
        session,
        spec.sql.text,
        tables,
        only=frozenset(spec.sql.statements),
        parameters=spec.sql.parameters,
        may_step=may_step and not spec.sql.statements,
    )
    if isinstance(script, ScriptSteps):
        return script
    return _Query(
        script.frame, script.sink, script.is_analyzed, script.is_done, script.takes_any_option, script.is_table
    )


@contextmanager
def _told_in_words() -> Iterator[None]:
    """Turn a stack overflow or a lack of memory in the JVM into an error that says what to do."""
    try:
        yield
    except Py4JJavaError as e:
        name = str(e.java_exception.getClass().getName())
        if name == "java.lang.StackOverflowError":
            raise PlanningError(
                "the query is nested too deeply for Spark: split it up with temporary views over files, "
                "or give the executors a larger stack (--spark-conf spark.driver.extraJavaOptions=-Xss16m)"
            ) from e
        if name == "java.lang.OutOfMemoryError":
            raise PlanningError(
                "the query does not fit into the memory of the executor that plans it: "
                "give the executors more (--spark-conf spark.driver.memory=4g)"
            ) from e
        raise


class _Planning:
    """One query while it is planned."""

    def __init__(
        self,
        session: SparkSession,
        query: _Query,
        arrow_schema: ArrowSchema,
        metrics: MetricsWanted,
        *,
        may_grow: bool = False,
    ) -> None:
        self._jvm = Jvm.of(session)
        self._session = session
        self._query = query.frame._jdf  # noqa: SLF001  (PySpark shows what follows as text alone)
        self._sink = query.sink
        self._is_analyzed = query.is_analyzed
        self._metrics = metrics
        self._arrow_schema = arrow_schema
        self._frame_of_rest: FirstFrame | None = None
        self._tools = QueryTools(self._jvm)
        self._facts = self._tools.facts(self._query)
        self._schema = StructType.fromJson(json.loads(self._facts["schema"]))
        names = enumerate(self._schema.names)
        self._column_names = [str(place) if query.is_kept else name for place, name in names]
        # The size of a Python data source is not known.
        is_unknown = self._facts["input_bytes"] < 0
        self._paged = PagedSources(self._jvm, self._analyzed()) if may_grow and is_unknown else None

    def _analyzed(self) -> Any:
        """Return the analyzed query; of a command, which has already run, its rows."""
        return self._query.queryExecution().commandExecuted()

    def roots(self) -> list[str]:
        """Return the paths of what the query reads."""
        return list(self._facts["roots"])

    def is_fused(self, conf: Mapping[str, str]) -> bool:
        """Return whether the query reads so little that it should run as a single stage.

        The query is optimized to find the part that it needs only if all of its files are too large.
        """
        if not fuses(conf):
            return False
        if is_fused(conf, self._facts["input_bytes"]):
            return True
        return is_fused(conf, self._tools.needed_bytes(self._whole._jdf))  # noqa: SLF001

    @cached_property
    def _whole(self) -> DataFrame:
        """The query as plain Spark plans it in the job's session."""
        return DataFrame(self._tools.planned(jvm_session(self._session), self._query), self._session)

    def fused(self, run_fused: RunFused, because_of: UnsupportedPlanError | None = None) -> pb.PlanOutcome:
        """Run the query now, and return its result as that of a single stage.

        *because_of*: why it was not cut; None: it is small.
        """
        if self._paged:
            self._paged.end()
            self.__dict__.pop("_whole", None)  # as it was planned to be cut
        run = run_fused(self._whole, self._column_names, self._sink, self._metrics)
        plan = self._tools.executed(self._whole._jdf)  # noqa: SLF001
        text = str(plan.toString())
        name = WHOLE
        if because_of is not None:
            name = f"{WHOLE}, because of {because_of.construct}"
            text = f"{name}.\nTo distribute it: {because_of.advice}.\n\n{text}"
        stage = pb.PlannedStage(
            stage_id=1,
            name=name,
            work=pb.Work.QUERY,
            partitions=1,
            output=self._result_layout(),
            deterministic=False,
            plan=shortened(text),
        )
        outcome = self._outcome([stage], plan, text)
        outcome.fused_output.CopyFrom(run.output)
        outcome.fused_metrics.CopyFrom(run.metrics)
        outcome.fused_inline_result = run.inline_result
        outcome.fused_observed = run.observed
        if run.final_plan:
            digest = plan_codec.digest(run.final_plan)
            outcome.fused_op_metrics, outcome.fused_bound_plan = run.op_metrics, digest
            outcome.blobs.add(digest=digest, content=run.final_plan)
        return outcome

    def cut(
        self, spec: pb.JobSpec, cluster_slots: int, *, may_grow: bool = False, has_fingerprints: bool = False
    ) -> list[CutStage]:
        """Return the query's stages, producers before consumers."""
        if spec.HasField("connect") and self._tools.first_of(self._analyzed(), {"CollectMetrics"}):
            # Of all rows, which only a single stage sees; other clients are not told anyway.
            raise UnsupportedPlanError("observed metrics (observe)", "compute them in a query of their own")
        own = planned_settings(self._session)
        with changed_settings(self._session, own, CUT_SETTINGS):
            planned = self._tools.planned(jvm_session(self._session), self._query)
            input_bytes = self._tools.needed_bytes(planned)
            with changed_settings(self._session, own, sizes(spec.conf, own, input_bytes, cluster_slots)):
                self._plan = self._tools.executed(planned)
                parallel_sort_bytes = setting_bytes(spec.conf, SORT_PARALLEL_FROM_BYTES)
                cut = cut_plan(
                    self._session,
                    self._plan,
                    self._column_names,
                    parallel_sort_bytes=parallel_sort_bytes,
                    metrics=self._metrics,
                    may_grow=may_grow or bool(self._paged),
                    has_fingerprints=has_fingerprints,
                )
                if keeps_frame(spec.conf, cut.stages):
                    terms = FrameTerms(
                        column_names=tuple(self._column_names),
                        parallel_sort_bytes=parallel_sort_bytes,
                        metrics=self._metrics,
                        is_sink=self._sink is not None,
                    )
                    execution = planned.queryExecution()
                    self._frame_of_rest = first_frame(self._session, execution, self._plan, cut, terms)
                return cut.stages

    def outcome(self, stages: Sequence[CutStage]) -> pb.PlanOutcome:
        """Return the stages as the plan task's outcome, with their encoded plans as blobs."""
        outcome = self._outcome([], self._plan, str(self._plan.toString()))
        add_stages(outcome, stages, self._result_layout())
        if (frame := self._frame_of_rest) is not None:
            outcome.frame_digest = plan_codec.digest(frame.content)
            outcome.broadcast_bytes = frame.broadcast_bytes
            outcome.blobs.add(digest=outcome.frame_digest, content=frame.content)
        return outcome

    def _result_layout(self) -> pb.OutputLayout:
        return pb.OutputLayout(kind="sink" if self._sink is not None else "result")

    def _outcome(self, stages: list[pb.PlannedStage], plan: Any, text: str) -> pb.PlanOutcome:
        schema = self._arrow_schema(jvm_session(self._session), plan, self._column_names)
        return pb.PlanOutcome(
            stages=stages,
            arrow_schema=marked_analyzed(schema) if self._is_analyzed else schema,
            schema_json=self._schema.json(),
            plan=shortened(text),
            sink=self._sink,
        )
