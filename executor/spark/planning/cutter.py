"""Cuts a physical plan into stages at its exchanges, limits and subqueries.

The plan was made without adaptive execution, so it contains every exchange. The child of each exchange becomes a stage;
in the consumer, a placeholder leaf replaces it. Placeholders also replace sources. The remaining fragment is what the
tasks of a stage run.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from onager.errors import UnsupportedPlanError
from onager.executor.spark import leaves
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.plans import PlanTools
from onager.executor.spark.planning.boundaries import NOTHING_BEGUN, BegunStages, Boundary
from onager.executor.spark.planning.cut_stages import Cut, CutFeed, CutStage
from onager.executor.spark.planning.determinism import is_deterministic
from onager.executor.spark.planning.fingerprints import fingerprint
from onager.executor.spark.planning.job_session import planned_settings
from onager.executor.spark.planning.marks import marks_of
from onager.executor.spark.planning.naming import stage_name
from onager.executor.spark.planning.nodes import (
    ADVICE,
    DEFAULT_ADVICE,
    EXCHANGES,
    KNOWN,
    LIMITS_TO_ONE,
    SUBQUERIES,
    Tasks,
)
from onager.executor.spark.planning.outline import Outline, PlanNode
from onager.executor.spark.planning.partitions import combined, growing_leaves, streamed_child
from onager.executor.spark.planning.python_code import check_python_functions
from onager.executor.spark.planning.sizing import samples_of_run
from onager.executor.spark.stage_plan import (
    PLACEHOLDER_PREFIX,
    ExchangeInput,
    HashOutput,
    LeafInput,
    MetricsWanted,
    ResultOutput,
    RoundRobinOutput,
    SingleOutput,
    SortedOutput,
    StageOutput,
    StagePlan,
    StageSource,
)

HASH_PARTITIONINGS = frozenset({"HashPartitioning", "ShufflePartitionIdPassThrough"})
"""The partitionings with an expression for the bucket; the second one is that of `repartitionById`."""
_ENDS = frozenset({"ShuffleExchangeExec", "BroadcastExchangeExec"})
KNOWN_PARTITIONINGS = HASH_PARTITIONINGS | {"RangePartitioning", "RoundRobinPartitioning", "SinglePartition"}
LOOKED_UP = leaves.LEAVES | EXCHANGES | SUBQUERIES | KNOWN.keys() | KNOWN_PARTITIONINGS
"""The classes of Spark that this package recognises by name."""


def cut_plan(
    session: SparkSession,
    plan: Any,
    column_names: Sequence[str],
    *,
    parallel_sort_bytes: int,
    metrics: MetricsWanted = "rows",
    may_grow: bool = False,
    has_fingerprints: bool = False,
) -> Cut:
    """Return the stages of *plan*, which *session* made under its current settings; see `Cutter.cut`."""
    with tempfile.TemporaryDirectory(prefix="onager-plan-") as scratch:
        cutter = Cutter(
            Jvm.of(session),
            jvm_session(session),
            plan,
            conf=planned_settings(session),
            column_names=column_names,
            scratch=Path(scratch),
            parallel_sort_bytes=parallel_sort_bytes,
            metrics=metrics,
            may_grow=may_grow,
            has_fingerprints=has_fingerprints,
        )
        return Cut(cutter.cut(), cutter.exchanges(), cutter.subqueries())


@dataclass(slots=True)
class _Draft:
    """A stage in the making."""

    cut: list[PlanNode] = field(default_factory=list)
    replacements: list[Any] = field(default_factory=list)
    inputs: list[StageSource] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)
    """Of the inputs, one by one; empty for those without."""
    arriving: set[int] = field(default_factory=set)
    """Indexes of nodes that another stage computes although they are not exchanges."""
    input_bytes: int = 0
    growing: leaves.DescribedLeaf | None = None
    """The leaf of which more is found while the stage runs."""


class Cutter:
    """Cuts one physical plan."""

    def __init__(
        self,
        jvm: Jvm,
        session: Any,
        plan: Any,
        *,
        conf: dict[str, str],
        column_names: Sequence[str],
        scratch: Path,
        parallel_sort_bytes: int,
        metrics: MetricsWanted = "rows",
        first_stage_id: int = 1,
        begun: BegunStages = NOTHING_BEGUN,
        may_grow: bool = False,
        has_fingerprints: bool = False,
    ) -> None:
        """Prepare to cut *plan*, which the JVM session *session* made.

        A sort that reads at least *parallel_sort_bytes* runs in several tasks; *scratch* is an empty directory. Stages
        are numbered from *first_stage_id* on, after those of earlier plans, which have *begun*. Those whose files or
        partitions are not all known get the rest while they run, if they *may_grow*. Those that may be reused get a
        fingerprint if the plan *has_fingerprints*.
        """
        self._jvm = jvm
        self._session = session
        self._scratch = scratch
        self._tools = PlanTools(jvm)
        self._outline = Outline(jvm, plan)
        self._conf = conf
        self._column_names = tuple(column_names)
        self._parallel_sort_bytes = parallel_sort_bytes
        self._metrics = metrics
        self._first_stage_id = first_stage_id
        self._begun = begun
        self._has_fingerprints = has_fingerprints
        self._may_grow = growing_leaves(self._outline) if may_grow else frozenset()
        self._described: dict[int, leaves.DescribedLeaf] = {}
        self._partitions: dict[int, int] = {}
        self._produced: dict[int, int] = {}
        self.stages: list[CutStage] = []

    def cut(self) -> list[CutStage]:
        """Return the stages, producers before consumers; the last one gives the result.

        Raises `UnsupportedPlanError`, which names the operator, when part of the plan cannot be distributed.
        """
        for node in self._outline.nodes:
            self._check(node)
        try:
            self._stage(self._outline.root, ResultOutput())
        except Py4JJavaError as e:
            if not _cannot_travel(e):
                raise
            raise UnsupportedPlanError(
                f"{str(e.java_exception.getMessage()).splitlines()[0]}, which cannot be sent to another process",
                DEFAULT_ADVICE,
            ) from e
        return _with_sole_readers(self.stages)

    def exchanges(self) -> dict[int, int]:
        """Return the stages of exchanges from which a new plan could read, once the plan is cut, by these' plan ids."""
        ends = [node for node in self._outline.nodes if node.kind in _ENDS and not _brings_buckets(node)]
        return {node.plan_id: self._produced[node.plan_id] for node in ends if node.plan_id in self._produced}

    def subqueries(self) -> dict[str, int]:
        """Return the stages of subqueries, once the plan is cut, by their names."""
        nodes = [node for node in self._outline.nodes if node.kind == "SubqueryExec"]
        made = {node.particulars: self._produced[node.plan_id] for node in nodes if node.plan_id in self._produced}
        return {**self._begun.subqueries, **made}

    # ------------------------------------------------------------ what can be cut

    def _check(self, node: PlanNode) -> None:
        if node.kind not in KNOWN and node.kind not in EXCHANGES | leaves.LEAVES | SUBQUERIES:
            raise UnsupportedPlanError(f"{node.kind} in the physical plan", ADVICE.get(node.kind, DEFAULT_ADVICE))
        if node.runs_python:
            check_python_functions(self._tools, self._outline.handle(node))
        if node.particulars == "barrier":
            raise UnsupportedPlanError(
                "barrier mode", "its tasks would all have to run at once: leave barrier=True out", runs_whole=False
            )
        if node.kind == "ShuffleExchangeExec":
            partitioning = node.particulars.split(" ")[0]
            if partitioning not in KNOWN_PARTITIONINGS:
                raise UnsupportedPlanError(
                    f"an exchange by {partitioning}", "repartition by columns, or by a number of partitions alone"
                )

    # ------------------------------------------------------------ stages

    def _stage(
        self, root: PlanNode, output: StageOutput, *, limit: PlanNode | None = None, exchange: PlanNode | None = None
    ) -> int:
        """Append the stage that computes *root*, after its producers, and return its id.

        *limit* becomes a local limit on top; *exchange* is the exchange that carries the output.
        """
        draft = _Draft()
        self._visit(root, draft)
        top = self._outline.handle(root)
        if exchange is not None and _brings_buckets(exchange):
            self._visit_subqueries(exchange, draft)
            top = self._tools.with_bucket(self._outline.handle(exchange))
        handles = [self._outline.handle(node) for node in draft.cut]
        fragment = self._tools.fragment(top, handles, draft.replacements)
        if limit is not None:
            fragment = self._tools.local_limit(self._outline.handle(limit), fragment)
        is_sorted = isinstance(output, SortedOutput)
        if exchange is not None and is_sorted:
            fragment = self._tools.sorted(self._outline.handle(exchange), fragment)
        written = self._scratch / f"fragment-{len(self.stages)}"
        text = self._tools.finish(fragment, written)
        plan = StagePlan(
            fragment=written.read_bytes(),
            inputs=tuple(draft.inputs),
            output=output,
            partitions=self._tasks(root),
            column_names=self._column_names if isinstance(output, ResultOutput) else (),
            conf=self._conf,
            metrics=self._metrics,
        )
        marks = marks_of(
            self._outline, root, output, partitions=plan.partitions, exchange=exchange, arriving=draft.arriving
        )
        feed = self._feed(draft.growing) if draft.growing is not None else None
        repeats = is_deterministic(self._outline, root, output, limit=limit, arriving=draft.arriving)
        stage_id = self._next_stage_id
        self.stages.append(
            CutStage(
                stage_id=stage_id,
                name=self._name(root, draft, limit, is_sorted=is_sorted),
                plan=plan,
                is_deterministic=repeats,
                text=text,
                input_bytes=draft.input_bytes,
                expected_rows=-1 if limit is not None else self._tools.expected_rows(self._outline.handle(root)),
                may_fuse=marks.may_fuse and feed is None,
                may_merge=marks.may_merge,
                feed=feed,
                may_split=frozenset(self._produce(self._outline.nodes[index]) for index in marks.may_split),
                sides={self._produce(self._outline.nodes[index]): side for index, side in marks.sides.items()},
                fingerprint=self._fingerprint(draft, plan, fragment, exchange) if repeats else "",
            )
        )
        return stage_id

    def _fingerprint(self, draft: _Draft, plan: StagePlan, fragment: Any, exchange: PlanNode | None) -> str:
        """Return the stage's fingerprint; empty if one of its inputs has none, or it gives the result."""
        is_kept = self._has_fingerprints and not isinstance(plan.output, ResultOutput)
        if not is_kept or not all(draft.fingerprints):
            return ""
        mine = self._tools.fingerprint(fragment, None if exchange is None else self._outline.handle(exchange))
        return fingerprint(plan, mine, draft.fingerprints) if mine else ""

    def _fingerprint_of(self, node: PlanNode, source: StageSource) -> str:
        """Return the fingerprint of an input, which *node* was before."""
        if not self._has_fingerprints:
            return ""
        if isinstance(source, LeafInput):
            return "" if source.grows else self._tools.leaf_fingerprint(self._scratch / f"leaf-{node.index}")
        is_begun = source.stage_id < self._first_stage_id
        return "" if is_begun else self.stages[source.stage_id - self._first_stage_id].fingerprint

    @property
    def _next_stage_id(self) -> int:
        return self._first_stage_id + len(self.stages)

    def _feed(self, leaf: leaves.DescribedLeaf) -> CutFeed:
        """Append the stage that finds more of *leaf*."""
        assert leaf.growth is not None
        stage_id = self._next_stage_id
        plan = StagePlan(leaf.growth.source, (), SingleOutput(), 1, (), self._conf, "off")
        text = f"lists what is left of {leaf.label}"
        self.stages.append(
            CutStage(stage_id, f"list {leaf.name.removeprefix('scan ')}", plan, False, text, 0, is_feed=True)
        )
        return CutFeed(stage_id, leaf.growth.portion, leaf.growth.partitions)

    def _name(self, root: PlanNode, draft: _Draft, limit: PlanNode | None, *, is_sorted: bool) -> str:
        name = stage_name(self._outline, root, self._described, limit=limit, arriving=draft.arriving)
        return f"{name} → sort" if is_sorted else name

    def _produce(self, exchange: PlanNode) -> int:
        """Return the id of the stage whose output *exchange* carries; cut it on first use, unless it has begun."""
        if (boundary := self._boundary(exchange)) is not None:
            return boundary.stage_id
        if exchange.plan_id not in self._produced:
            self._produced[exchange.plan_id] = self._stage(exchange.child, self._output(exchange), exchange=exchange)
        return self._produced[exchange.plan_id]

    def _boundary(self, exchange: PlanNode) -> Boundary | None:
        """Return the earlier stage that is read at *exchange*; a broadcast can read one just as it is."""
        if exchange.kind == "BroadcastExchangeExec":
            exchange = exchange.child
            found = self._begun.at(exchange)
            return None if found is None or found.is_sorted else found
        return self._begun.at(exchange)

    def _output(self, exchange: PlanNode) -> StageOutput:
        if exchange.kind != "ShuffleExchangeExec":
            return SingleOutput()
        buckets = self._buckets(exchange)
        match exchange.particulars.split(" ")[0]:
            case partitioning if partitioning in HASH_PARTITIONINGS:
                return HashOutput(buckets, self._tools.bucket_expression(self._outline.handle(exchange)))
            case "RoundRobinPartitioning":
                return RoundRobinOutput(buckets)
            case "RangePartitioning" if buckets > 1:
                ordering = self._tools.ordering(self._outline.handle(exchange))
                return SortedOutput(ordering, samples_of_run(self._tasks(exchange.child)))
            case _:
                return SingleOutput()

    def _buckets(self, exchange: PlanNode) -> int:
        """Return how many partitions a shuffle's output has."""
        partitioning, buckets, origin = exchange.particulars.split(" ")
        if partitioning != "RangePartitioning":
            return int(buckets)
        if exchange.subqueries:
            return 1  # a subquery's value is known within one fragment, and ranges involve two
        is_asked_for = origin != "ENSURE_REQUIREMENTS"  # otherwise Spark added it for a sort
        is_large = is_asked_for or self._input_bytes(exchange.child) >= self._parallel_sort_bytes
        return int(buckets) if is_large else 1

    def _input_bytes(self, node: PlanNode) -> int:
        """Return how many bytes of files and other leaves *node* reads."""
        node = self._outline.original(node)
        own = self._describe(node).input_bytes if node.kind in leaves.LEAVES else 0
        return own + sum(self._input_bytes(child) for child in node.children)

    # ------------------------------------------------------------ nodes

    def _visit(self, node: PlanNode, draft: _Draft) -> None:
        """Add to *draft* the replacements for parts below *node* that other stages compute or that are sources."""
        if node.kind in leaves.LEAVES:
            self._replace_leaf(node, draft)
            return
        if node.kind in EXCHANGES:
            self._replace_exchange(node, draft)
            return
        if node.kind in LIMITS_TO_ONE and self._tasks(node.child) > 1:
            producer = self._stage(node.child, SingleOutput(), limit=node)
            draft.arriving.add(node.child.index)
            leaf = self._placeholder(draft, node.child, ExchangeInput(producer, reads_all=False))
            self._replace(draft, node.child, leaf)
            self._visit_subqueries(node, draft)
            return
        if node.looks_at_all_partitions:
            self._replace_collecting_join(node, draft)
            return
        for child in node.children:
            self._visit(child, draft)
        self._visit_subqueries(node, draft)

    def _visit_subqueries(self, node: PlanNode, draft: _Draft) -> None:
        for subquery in node.subqueries:
            original = self._outline.original(subquery)
            if original.kind == "SubqueryBroadcastExec":
                below = self._broadcast(draft, original.child)
            else:
                below = self._placeholder(draft, original.child, ExchangeInput(self._produce(original), reads_all=True))
            self._replace(draft, subquery, self._tools.with_child(self._outline.handle(original), below))

    def _replace_collecting_join(self, node: PlanNode, draft: _Draft) -> None:
        """Run a join in one task because its output depends on all streamed rows."""
        streamed = streamed_child(self._outline, node)
        for child in node.children:
            if child is not streamed or self._tasks(child) == 1:
                self._visit(child, draft)
                continue
            producer = self._stage(child, SingleOutput())
            draft.arriving.add(child.index)
            leaf = self._placeholder(draft, child, ExchangeInput(producer, reads_all=False))
            self._replace(draft, child, leaf)
        self._visit_subqueries(node, draft)
        handles = [self._outline.handle(cut) for cut in draft.cut]
        join = self._tools.fragment(self._outline.handle(node), handles, draft.replacements)
        self._replace(draft, node, self._tools.in_one_task(join))

    def _replace_leaf(self, node: PlanNode, draft: _Draft) -> None:
        described = self._describe(node)
        draft.input_bytes += described.input_bytes
        grows = described.growth is not None
        draft.growing = described if grows else draft.growing
        leaf = self._placeholder(draft, node, LeafInput(described.description, described.label, grows=grows))
        if node.subqueries and node.kind == leaves.FILE_LEAF:
            # Partition filters that wait for a subquery are evaluated when the stage is bound. Such filters of other
            # sources may be ignored, since the join applies them, too.
            self._visit_subqueries(node, draft)
            scan = self._outline.handle(node)
            filtered = self._tools.under_runtime_filters(scan, leaf, described.partitions)
            handles = [self._outline.handle(cut) for cut in draft.cut]
            leaf = self._tools.fragment(filtered, handles, draft.replacements)
        self._replace(draft, node, leaf)

    def _replace_exchange(self, node: PlanNode, draft: _Draft) -> None:
        exchange = self._outline.original(node)
        if exchange.kind == "BroadcastExchangeExec":
            self._replace(draft, node, self._broadcast(draft, node))
            return
        producer, ordering = self._produce(exchange), b""
        if (boundary := self._boundary(exchange)) is not None:
            ordering = self._tools.ordering(self._outline.handle(exchange)) if boundary.is_sorted else b""
        elif isinstance(output := self.stages[producer - self._first_stage_id].plan.output, SortedOutput):
            ordering = output.ordering
        source = ExchangeInput(producer, reads_all=False, partitions=self._tasks(exchange), ordering=ordering)
        make = self._tools.placeholder_with_bucket if _brings_buckets(exchange) else None
        self._replace(draft, node, self._placeholder(draft, node, source, make))

    def _broadcast(self, draft: _Draft, node: PlanNode) -> Any:
        """Return the broadcast exchange of *node* over another stage's output."""
        exchange = self._outline.original(node)
        leaf = self._placeholder(draft, node, ExchangeInput(self._produce(exchange), reads_all=True))
        return self._tools.with_child(self._outline.handle(exchange), leaf)

    def _placeholder(
        self, draft: _Draft, columns_of: PlanNode, source: StageSource, make: Callable[[Any, str], Any] | None = None
    ) -> Any:
        draft.inputs.append(source)
        draft.fingerprints.append(self._fingerprint_of(columns_of, source))
        name = f"{PLACEHOLDER_PREFIX}{len(draft.inputs) - 1}"
        return (make or self._tools.placeholder)(self._outline.handle(columns_of), name)

    def _replace(self, draft: _Draft, node: PlanNode, replacement: Any) -> None:
        draft.cut.append(node)
        draft.replacements.append(replacement)

    def _describe(self, node: PlanNode) -> leaves.DescribedLeaf:
        if node.index not in self._described:
            handle = self._outline.handle(node)
            target = self._scratch / f"leaf-{node.index}"
            may_grow = node.index in self._may_grow
            self._described[node.index] = leaves.describe(
                self._jvm, self._session, node.kind, handle, target, may_grow=may_grow
            )
        return self._described[node.index]

    # ------------------------------------------------------------ partitions

    def _tasks(self, node: PlanNode) -> int:
        """Return how many partitions the output of *node* has."""
        if node.index not in self._partitions:
            self._partitions[node.index] = self._count_tasks(node)
        return self._partitions[node.index]

    def _count_tasks(self, node: PlanNode) -> int:
        if node.kind in leaves.LEAVES:
            return self._describe(node).partitions
        if node.kind in EXCHANGES:
            exchange = self._outline.original(node)
            if exchange.kind == "BroadcastExchangeExec":
                return 1
            boundary = self._boundary(exchange)
            return self._buckets(exchange) if boundary is None else boundary.partitions
        rule = KNOWN[node.kind].tasks
        if rule is Tasks.ONE or node.looks_at_all_partitions:
            return 1
        if rule is Tasks.STREAMED:
            return self._tasks(streamed_child(self._outline, node))
        counts = [self._tasks(child) for child in node.children]
        if rule is Tasks.EQUAL and len(set(counts)) > 1:
            raise UnsupportedPlanError(
                f"{node.kind} over inputs of {' and '.join(map(str, sorted(set(counts))))} partitions",
                "repartition both sides by the join's columns",
            )
        most = int(node.particulars) if rule is Tasks.COALESCED else 0
        return combined(rule, counts, most)


def _cannot_travel(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()) == "java.io.NotSerializableException"


def _with_sole_readers(stages: Sequence[CutStage]) -> list[CutStage]:
    """Return *stages* with `is_alone` set for each input that is the only reader of its producer.

    What a stage reads more than once may not be a part of it, nor be split.
    """
    read_by = [Counter(source.stage_id for source in stage.plan.inputs if _is_exchange(source)) for stage in stages]
    reads = Counter(producer for read in read_by for producer in read.elements())
    repeated = {producer for read in read_by for producer, times in read.items() if times > 1}
    return [
        replace(
            stage,
            may_fuse=stage.may_fuse and stage.stage_id not in repeated,
            may_split=stage.may_split - repeated,
            plan=replace(
                stage.plan,
                inputs=tuple(
                    replace(source, is_alone=reads[source.stage_id] == 1) if _is_exchange(source) else source
                    for source in stage.plan.inputs
                ),
            ),
        )
        for stage in stages
    ]


def _is_exchange(source: StageSource) -> TypeGuard[ExchangeInput]:
    return isinstance(source, ExchangeInput)


def _brings_buckets(exchange: PlanNode) -> bool:
    """Return whether rows carry their bucket through *exchange* as a column, because a subquery determines it."""
    partitioning = exchange.particulars.split(" ")[0]
    return exchange.kind == "ShuffleExchangeExec" and partitioning in HASH_PARTITIONINGS and bool(exchange.subqueries)
