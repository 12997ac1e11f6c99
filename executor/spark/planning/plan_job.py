"""Plans a job: turns its spec into stages, or runs it as a single stage when it is small."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onager.datasets import SINK_FORMATS
from onager.errors import PlanningError, UnsupportedPlanError
from onager.executor.exchange import check_appended, check_target
from onager.executor.foreign import ForeignTables
from onager.executor.spark import plan_codec
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.leaves import PagedSources, read_growing
from onager.executor.spark.kernel.plans import arrow_schema
from onager.executor.spark.kernel.queries import QueryTools
from onager.executor.spark.place_checks import NoteRead
from onager.executor.spark.planning.caches import CachedPlans, NotKeptError
from onager.executor.spark.planning.catalog import PlanningCatalog, with_catalog
from onager.executor.spark.planning.cut_stages import CutStage, CutTerms
from onager.executor.spark.planning.cutter import cut_plan
from onager.executor.spark.planning.encoded import add_stages, shortened
from onager.executor.spark.planning.formats import check_options, completed
from onager.executor.spark.planning.frames import FirstFrame, first_frame, keeps_frame
from onager.executor.spark.planning.job_session import (
    changed_settings,
    job_session,
    planned_settings,
    register_views,
)
from onager.executor.spark.planning.partitioned import check_names, partitioned
from onager.executor.spark.planning.script_steps import ScriptSteps, steps_outcome
from onager.executor.spark.planning.sizing import (
    CUT_SETTINGS,
    feed_from_files,
    is_single_stage,
    metrics_wanted,
    setting_bytes,
    sizes,
)
from onager.executor.spark.planning.sql_script import JobQuery, plan_script
from onager.executor.spark.planning.table_folders import check_no_table_at
from onager.executor.spark.stage_plan import ExchangeInput, MetricsWanted
from onager.executor.work import CatalogReader
from onager.explain_analyze import marked_analyzed
from onager.job_settings import FUSION_MAX_BYTES, METRICS, SORT_PARALLEL_FROM_BYTES, overwrites_anything
from onager.private_paths import NO_PATHS, PrivatePaths
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MAX_PLAN_BYTES

MAX_OUTPUTS = 200_000
"""The maximum number of tasks whose output a stage reads: a message lists them for each task, 60 bytes each."""
SINGLE_STAGE = "whole query on one executor"
"""The name of the stage of a single-stage query."""

RunSingleStage = Callable[[DataFrame, Sequence[str], pb.Sink | None, MetricsWanted], pb.PlanOutcome]
"""Runs a query with plain Spark on all slots of this executor; returns the ``fused_…`` fields of an outcome.

The result is one ordered partition under the given column names, or the staged files of a sink. Unless metrics are off,
the outcome has what the operators measured.
"""
CallFunction = Callable[[pb.JobSpec, SparkSession], AbstractContextManager[DataFrame]]
"""Yields the DataFrame that a job's function returns, made in the session; valid within the context."""
ConnectQuery = Callable[[pb.ConnectPlan, SparkSession, PlanningCatalog | None], AbstractContextManager[JobQuery]]
"""Yields the query of an operation of Spark Connect, made in the session; valid within the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """What planning a job depends on besides its spec."""

    cluster_slots: int
    """Determines the number of tasks."""
    run_single_stage: RunSingleStage
    call_function: CallFunction
    connect_query: ConnectQuery | None = None
    private: PrivatePaths = NO_PATHS
    """Cannot be sinks."""
    catalog: CatalogReader | None = None
    """The databases, tables, views and functions of the session; None: those of the executor's own Spark."""
    foreign: ForeignTables | None = None
    """Tables of other catalogs."""
    may_grow: bool = False
    """Whether the first tasks may run while files, or partitions of a Python data source, are still being listed."""
    may_step: bool = False
    """Whether a script with several effects becomes steps."""
    has_fingerprints: bool = False
    """Whether stages that other jobs may have computed before get fingerprints."""
    may_cache: bool = True
    """Whether the rows of what its session caches may be kept for other jobs."""
    on_read: NoteRead | None = None
    """Takes the paths that are read."""


def plan_job(spec: pb.JobSpec, spark: SparkSession, terms: PlanTerms) -> pb.PlanOutcome:
    """Plan a job in its own session, and run it at once if it reads little (``onager.fusion.maxBytes``).

    A query that cannot be distributed also runs at once, whatever its size, and its plan says why. Nothing outside the
    session changes. With a catalog, the outcome has what a script changes of it; the job is planned again while what it
    reads of it changes.

    Raises `PlanningError` and its subclasses for a job that cannot be planned, `InvalidSettingError` for its conf,
    `SinkError` for a target that cannot be published or may not be replaced, `CatalogConflictError`,
    `CatalogUnavailableError`, and Spark's own exceptions.
    """

    def planned(new: SparkSession, tables: PlanningCatalog | None) -> pb.PlanOutcome:
        with job_session(spec, new) as session, _explained(), ExitStack() as until_planned:
            if terms.may_grow and (from_files := feed_from_files(spec.conf)):
                read_growing(Jvm.of(session), jvm_session(session), from_files)
            query = _query(spec, session, tables, terms, until_planned)
            if isinstance(query, ScriptSteps):  # they change what its statements have changed here
                return steps_outcome(query, spec.sink if spec.HasField("sink") and spec.sink.path else None)
            query = _checked(spec, session, query, terms.private)
            outcome = _Planning(spec, session, query, tables, terms).plan()
        return outcome if tables is None else _with_changes(outcome, tables.changes())

    what = "the job was planned"
    return with_catalog(spark, terms.catalog, planned, foreign=terms.foreign, on_read=terms.on_read, what=what)


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


def _check_width(stages: Sequence[CutStage]) -> None:
    partitions = {stage.stage_id: stage.plan.partitions for stage in stages}
    for stage in stages:
        read = sum(partitions[s.stage_id] for s in stage.plan.inputs if isinstance(s, ExchangeInput))
        if read > MAX_OUTPUTS:
            raise UnsupportedPlanError(
                f"a stage that reads the output of {read:,} tasks, more than {MAX_OUTPUTS:,}",
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
    terms: PlanTerms,
    until_planned: ExitStack,
) -> JobQuery | ScriptSteps:
    """Return the job's query, and the sink if its script names one; or its steps."""
    if spec.HasField("connect"):
        if terms.connect_query is None:
            raise PlanningError("this executor was made without Spark Connect, and the job is an operation of it")
        return until_planned.enter_context(terms.connect_query(spec.connect, session, tables))
    register_views(session, spec, terms.private)
    if spec.HasField("python"):
        return JobQuery(until_planned.enter_context(terms.call_function(spec, session)), None)
    return plan_script(
        session,
        spec.sql.text,
        tables,
        only=frozenset(spec.sql.statements),
        settled={each.number: each.variables for each in spec.sql.settled},
        parameters=spec.sql.parameters,
        may_step=terms.may_step and not spec.sql.statements,
    )


def _checked(spec: pb.JobSpec, session: SparkSession, query: JobQuery, private: PrivatePaths) -> JobQuery:
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


@contextmanager
def _explained() -> Iterator[None]:
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
        spec: pb.JobSpec,
        session: SparkSession,
        query: JobQuery,
        tables: PlanningCatalog | None,
        terms: PlanTerms,
    ) -> None:
        self._jvm = Jvm.of(session)
        self._spec = spec
        self._session = session
        self._query = query
        self._tables = tables
        self._terms = terms
        self._frame = query.frame._jdf  # noqa: SLF001  (PySpark shows what follows as text alone)
        self._metrics: MetricsWanted = (
            "full" if query.is_analyzed and METRICS not in spec.conf else metrics_wanted(spec.conf)
        )
        self._frame_of_rest: FirstFrame | None = None
        self._tools = QueryTools(self._jvm)
        self._facts = self._tools.facts(self._frame)
        may_cache = terms.may_cache and query.caches is not None
        self._cached = query.caches.read_by(self._frame) if may_cache and query.caches is not None else []
        self._schema = StructType.fromJson(json.loads(self._facts["schema"]))
        names = enumerate(self._schema.names)
        self._column_names = [str(place) if query.is_kept else name for place, name in names]
        # The size of a Python data source is not known.
        is_unknown = self._facts["input_bytes"] < 0
        self._may_grow = terms.may_grow and not self._cached
        self._paged = PagedSources(self._jvm, self._analyzed()) if self._may_grow and is_unknown else None

    def plan(self) -> pb.PlanOutcome:
        """Cut the query into stages, or run it now if it is small, or cannot be cut.

        A query of cached rows is not run now, however small: other jobs shall find them.
        """
        if self._terms.on_read is not None:
            self._terms.on_read(list(self._facts["roots"]))
        while True:
            try:
                return self._planned()
            except NotKeptError as error:
                self._cached = [cache_id for cache_id in self._cached if cache_id != error.cache_id]

    def _planned(self) -> pb.PlanOutcome:
        if self._query.is_done or (not self._cached and self._is_small()):
            return self._run()
        try:
            stages = self._cut()
            _check_width(stages)
        except UnsupportedPlanError as e:
            if not e.runs_whole:
                raise
            return self._run(because_of=e)
        grows = any(stage.feed is not None for stage in stages)
        if (
            not grows
            and not self._cached
            and is_single_stage(self._spec.conf, sum(stage.input_bytes for stage in stages))
        ):
            return self._run()
        outcome = self._outcome_of(stages)
        if (size := outcome.ByteSize()) > MAX_PLAN_BYTES:
            return self._run(because_of=_too_large(size))
        return outcome

    def _analyzed(self) -> Any:
        """Return the analyzed query; of a command, which has already run, its rows."""
        return self._frame.queryExecution().commandExecuted()

    def _is_small(self) -> bool:
        """Return whether the query reads so little that it should run as a single stage.

        The query is optimized to find the part that it needs only if all of its files are too large.
        """
        conf = self._spec.conf
        if is_single_stage(conf, self._facts["input_bytes"]):
            return True
        is_possible = setting_bytes(conf, FUSION_MAX_BYTES) > 0
        return is_possible and is_single_stage(conf, self._tools.needed_bytes(self._plain._jdf))  # noqa: SLF001

    @cached_property
    def _plain(self) -> DataFrame:
        """The query as plain Spark plans it in the job's session."""
        return DataFrame(self._tools.planned(jvm_session(self._session), self._frame), self._session)

    def _run(self, because_of: UnsupportedPlanError | None = None) -> pb.PlanOutcome:
        """Run the query now, and return its result as that of a single stage.

        *because_of*: why it was not cut; None: it is small.
        """
        if self._paged:
            self._paged.end()
            self.__dict__.pop("_plain", None)  # as it was planned to be cut
        if self._tables is not None:  # a query that was not planned on one revision of the catalog is not run
            self._tables.settle(self._plain._jdf)  # noqa: SLF001
        run = self._terms.run_single_stage(self._plain, self._column_names, self._query.sink, self._metrics)
        plan = self._tools.executed(self._plain._jdf)  # noqa: SLF001
        text = str(plan.toString())
        name = SINGLE_STAGE
        if because_of is not None:
            name = f"{SINGLE_STAGE}, because of {because_of.construct}"
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
        outcome.MergeFrom(run)
        return outcome

    def _cut(self) -> list[CutStage]:
        """Return the query's stages, producers before consumers."""
        if self._spec.HasField("connect") and self._tools.first_of(self._analyzed(), {"CollectMetrics"}):
            # They are of all rows, which only a single stage sees; other clients do not get them anyway.
            raise UnsupportedPlanError("observed metrics (observe)", "compute them in a query of their own")
        if self._cached and self._query.caches is not None:
            with self._query.caches.planned(self._cached, self._metrics) as caches:
                return self._cut_now(caches)
        return self._cut_now(None)

    def _cut_now(self, caches: CachedPlans | None) -> list[CutStage]:
        conf, own = self._spec.conf, planned_settings(self._session)
        with changed_settings(self._session, own, CUT_SETTINGS):
            planned = self._tools.planned(jvm_session(self._session), self._frame)
            input_bytes = self._tools.needed_bytes(planned)
            with changed_settings(self._session, own, sizes(conf, own, input_bytes, self._terms.cluster_slots)):
                self._plan = self._tools.executed(planned)
                terms = CutTerms(
                    column_names=tuple(self._column_names),
                    parallel_sort_bytes=setting_bytes(conf, SORT_PARALLEL_FROM_BYTES),
                    metrics=self._metrics,
                    is_sink=self._query.sink is not None,
                )
                may_list = self._may_grow and feed_from_files(conf) > 0
                cut = cut_plan(
                    self._session,
                    self._plan,
                    terms,
                    may_grow=may_list or bool(self._paged),
                    has_fingerprints=self._terms.has_fingerprints,
                    caches=caches,
                )
                if caches is None and keeps_frame(conf, cut.stages):
                    execution = planned.queryExecution()
                    self._frame_of_rest = first_frame(self._session, execution, self._plan, cut, terms)
                return cut.stages

    def _outcome_of(self, stages: Sequence[CutStage]) -> pb.PlanOutcome:
        """Return the stages as the plan task's outcome, with their encoded plans as blobs."""
        outcome = self._outcome([], self._plan, str(self._plan.toString()))
        add_stages(outcome, stages, self._result_layout())
        if (frame := self._frame_of_rest) is not None:
            outcome.frame_digest = plan_codec.digest(frame.content)
            outcome.broadcast_bytes = frame.broadcast_bytes
            outcome.blobs.add(digest=outcome.frame_digest, content=frame.content)
        return outcome

    def _result_layout(self) -> pb.OutputLayout:
        return pb.OutputLayout(kind="result" if self._query.sink is None else "sink")

    def _outcome(self, stages: list[pb.PlannedStage], plan: Any, text: str) -> pb.PlanOutcome:
        schema = arrow_schema(jvm_session(self._session), self._jvm, plan, self._column_names)
        return pb.PlanOutcome(
            stages=stages,
            arrow_schema=marked_analyzed(schema) if self._query.is_analyzed else schema,
            schema_json=self._schema.json(),
            plan=shortened(text),
            sink=self._query.sink,
        )
