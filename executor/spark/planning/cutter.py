"""Cuts a physical plan into stages at its exchanges, limits and subqueries.

The plan was made without adaptive execution, so it contains every exchange. The child of each exchange becomes a stage;
in the consumer, a placeholder leaf replaces it. Placeholders also replace sources. The remaining fragment is what the
tasks of a stage run.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from onager.errors import UnsupportedPlanError
from onager.executor.spark import leaves
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.plans import Digests, JavaCutting, Part
from onager.executor.spark.planning.boundaries import (
    HASH_PARTITIONINGS,
    NOTHING_BEGUN,
    BegunStages,
    Boundary,
    brings_buckets,
)
from onager.executor.spark.planning.cut_stages import Cut, CutFeed, CutStage, CutTerms
from onager.executor.spark.planning.determinism import is_deterministic
from onager.executor.spark.planning.drafts import Draft, filtered, finished, in_one_task, over
from onager.executor.spark.planning.job_session import planned_settings
from onager.executor.spark.planning.marks import marks_of
from onager.executor.spark.planning.naming import stage_name
from onager.executor.spark.planning.nodes import (
    ADVICE,
    CACHED,
    DEFAULT_ADVICE,
    EXCHANGES,
    KNOWN,
    LIMITS_TO_ONE,
    SUBQUERIES,
    Tasks,
)
from onager.executor.spark.planning.outline import Outline, PlanNode
from onager.executor.spark.planning.partitions import combined, growing_leaves, read_leaves, streamed_child
from onager.executor.spark.planning.python_code import check_python_functions
from onager.executor.spark.planning.sizing import samples_of_run
from onager.executor.spark.stage_plan import (
    ExchangeInput,
    HashOutput,
    LeafInput,
    ResultOutput,
    RoundRobinOutput,
    SingleOutput,
    SortedOutput,
    StageOutput,
    StagePlan,
    StageSource,
)

RESULT = ResultOutput()
_ENDS = frozenset({"ShuffleExchangeExec", "BroadcastExchangeExec"})
KNOWN_PARTITIONINGS = HASH_PARTITIONINGS | {"RangePartitioning", "RoundRobinPartitioning", "SinglePartition"}
LOOKED_UP = leaves.LEAVES | EXCHANGES | SUBQUERIES | KNOWN.keys() | KNOWN_PARTITIONINGS
"""The classes of Spark that this package recognises by name."""


class CachedPlans(Protocol):
    """What a program caches, of which a plan has scans."""

    def cut(self, plan_id: int, first_stage_id: int) -> tuple[Boundary, Sequence[CutStage]]:
        """Return where the rows of the cached plan *plan_id* come from; at first with its stages, from that id on."""


def cut_plan(
    session: SparkSession,
    plan: Any,
    terms: CutTerms,
    *,
    may_grow: bool = False,
    has_fingerprints: bool = False,
    caches: CachedPlans | None = None,
) -> Cut:
    """Return the stages of *plan*, which *session* made under its current settings; see `Cutter.cut`."""
    with tempfile.TemporaryDirectory(prefix="onager-plan-") as scratch:
        conf = planned_settings(session)
        digests: Digests = "REUSED" if has_fingerprints else "NONE"
        cutter = Cutter(session, plan, terms, conf, Path(scratch), may_grow=may_grow, digests=digests, caches=caches)
        return cutter.cut()


class Cutter:
    """Cuts one physical plan."""

    def __init__(
        self,
        session: SparkSession,
        plan: Any,
        terms: CutTerms,
        conf: dict[str, str],
        scratch: Path,
        *,
        first_stage_id: int = 1,
        begun: BegunStages = NOTHING_BEGUN,
        may_grow: bool = False,
        digests: Digests = "NONE",
        caches: CachedPlans | None = None,
    ) -> None:
        """Prepare to cut *plan*, which *session* made under *conf*; *scratch* is an empty directory.

        Stages are numbered from *first_stage_id* on, after those of earlier plans, which have *begun*. If they
        *may_grow*, stages get files and partitions that are not known yet while they run. With *digests* of its
        leaves, stages that may be reused get fingerprints. *caches*: what the plan may have scans of.
        """
        self._java = JavaCutting(Jvm.of(session), jvm_session(session), plan, scratch)
        self._outline = Outline(self._java.outline())
        self._conf = conf
        self._terms = terms
        self._first_stage_id = first_stage_id
        self._begun = begun
        self._digests: Digests = digests
        self._caches = caches
        self._may_grow = growing_leaves(self._outline) if may_grow else frozenset()
        self._described: dict[int, leaves.DescribedLeaf] = {}
        self._partitions: dict[int, int] = {}
        self._produced: dict[int, int] = {}
        self._drafts: list[Draft | CutStage] = []
        self._sorted: set[int] = set()

    @property
    def read(self) -> Sequence[leaves.DescribedLeaf]:
        """The leaves that the stages of a plan read that was cut."""
        return list(self._described.values())

    def cut(self, output: StageOutput = RESULT) -> Cut:
        """Return the plan's stages, producers before consumers; the last one gives the result, or *output*.

        Everything is decided from the outline and the descriptions of leaves; then all fragments are made at once.
        Raises `UnsupportedPlanError`, which names the operator, when part of the plan cannot be distributed.
        """
        for node in self._outline.nodes:
            self._check(node)
        try:
            reached = {node.index: node.kind for node in read_leaves(self._outline, self._begun)}
            self._described = leaves.describe(self._java, reached, self._may_grow, self._digests)
            self._stage(self._outline.root, output)
            made = finished(self._java, self._drafts, self._described, self._first_stage_id)
        except Py4JJavaError as e:
            if not _cannot_travel(e):
                raise
            raise UnsupportedPlanError(
                f"{str(e.java_exception.getMessage()).splitlines()[0]}, which cannot be sent to another process",
                DEFAULT_ADVICE,
            ) from e
        return Cut(_with_sole_readers(made), self._exchanges(), self._subqueries())

    def _exchanges(self) -> dict[int, int]:
        """Return the stages of exchanges from which a new plan could read, by these' plan ids."""
        ends = [node for node in self._outline.nodes if node.kind in _ENDS and not brings_buckets(node)]
        return {node.plan_id: self._produced[node.plan_id] for node in ends if node.plan_id in self._produced}

    def _subqueries(self) -> dict[str, int]:
        """Return the stages of subqueries, by their names."""
        nodes = [node for node in self._outline.nodes if node.kind == "SubqueryExec"]
        made = {node.particulars: self._produced[node.plan_id] for node in nodes if node.plan_id in self._produced}
        return {**self._begun.subqueries, **made}

    # ------------------------------------------------------------ what can be cut

    def _check(self, node: PlanNode) -> None:
        is_known = node.kind in KNOWN or node.kind in EXCHANGES | leaves.LEAVES | SUBQUERIES
        if not is_known or (node.kind == CACHED and self._caches is None):
            raise UnsupportedPlanError(f"{node.kind} in the physical plan", ADVICE.get(node.kind, DEFAULT_ADVICE))
        if node.runs_python:
            check_python_functions(node)
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
        draft = Draft(root, output, exchange, limit)
        self._visit(root, draft)
        if exchange is not None and brings_buckets(exchange):
            self._visit_subqueries(exchange, draft)
        partitions = self._tasks(root)
        marks = marks_of(self._outline, root, output, partitions=partitions, exchange=exchange, arriving=draft.arriving)
        feed = self._feed(draft.growing) if draft.growing is not None else None
        repeats = is_deterministic(self._outline, root, output, limit=limit, arriving=draft.arriving)
        is_result = isinstance(output, ResultOutput)
        draft.is_reusable = self._digests == "REUSED" and repeats and not is_result
        draft.stage = CutStage(
            stage_id=self._next_stage_id,
            name=self._name(root, draft, limit),
            plan=StagePlan(
                fragment=b"",
                inputs=(),
                output=output,
                partitions=partitions,
                column_names=self._terms.column_names if is_result else (),
                conf=self._conf,
                metrics=self._terms.metrics,
            ),
            is_deterministic=repeats,
            text="",
            input_bytes=draft.input_bytes,
            may_fuse=marks.may_fuse and feed is None,
            may_merge=marks.may_merge,
            feed=feed,
            may_split=frozenset(self._produce(self._outline.nodes[index]) for index in marks.may_split),
            sides={self._produce(self._outline.nodes[index]): side for index, side in marks.sides.items()},
        )
        self._drafts.append(draft)
        if isinstance(output, SortedOutput):
            self._sorted.add(draft.stage.stage_id)
        return draft.stage.stage_id

    @property
    def _next_stage_id(self) -> int:
        return self._first_stage_id + len(self._drafts)

    def _feed(self, leaf: leaves.DescribedLeaf) -> CutFeed:
        """Append the stage that finds more of *leaf*."""
        assert leaf.growth is not None
        stage_id = self._next_stage_id
        plan = StagePlan(leaf.growth.source, (), SingleOutput(), 1, (), self._conf, "off")
        name = f"list {leaf.name.removeprefix('scan ')}"
        text = f"lists what is left of {leaf.label}"
        self._drafts.append(CutStage(stage_id, name, plan, False, text, 0, is_feed=True))
        return CutFeed(stage_id, leaf.growth.portion, leaf.growth.partitions)

    def _name(self, root: PlanNode, draft: Draft, limit: PlanNode | None) -> str:
        name = stage_name(self._outline, root, self._described, limit=limit, arriving=draft.arriving)
        return f"{name} → sort" if isinstance(draft.output, SortedOutput) else name

    def _produce(self, exchange: PlanNode) -> int:
        """Return the id of the stage whose output *exchange* carries; cut it on first use, unless it has begun."""
        if (boundary := self._begun.read_at(exchange)) is not None:
            return boundary.stage_id
        if exchange.kind == CACHED:
            return self._cached(exchange).stage_id
        if exchange.plan_id not in self._produced:
            self._produced[exchange.plan_id] = self._stage(exchange.child, self._output(exchange), exchange=exchange)
        return self._produced[exchange.plan_id]

    def _cached(self, scan: PlanNode) -> Boundary:
        """Return where cached rows come from; their stages are cut on first use."""
        assert self._caches is not None
        boundary, stages = self._caches.cut(int(scan.particulars), self._next_stage_id)
        self._drafts.extend(stages)
        return boundary

    def _output(self, exchange: PlanNode) -> StageOutput:
        if exchange.kind != "ShuffleExchangeExec":
            return SingleOutput()
        buckets = self._buckets(exchange)
        match exchange.particulars.split(" ")[0]:
            case partitioning if partitioning in HASH_PARTITIONINGS:
                return HashOutput(buckets, b"")
            case "RoundRobinPartitioning":
                return RoundRobinOutput(buckets)
            case "RangePartitioning" if buckets > 1:
                return SortedOutput(b"", samples_of_run(self._tasks(exchange.child)))
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
        is_large = is_asked_for or self._input_bytes(exchange.child) >= self._terms.parallel_sort_bytes
        return int(buckets) if is_large else 1

    def _input_bytes(self, node: PlanNode) -> int:
        """Return how many bytes of files and other leaves *node* reads."""
        node = self._outline.original(node)
        if node.kind == CACHED:
            return self._cached(node).input_bytes
        own = self._described[node.index].input_bytes if node.kind in leaves.LEAVES else 0
        return own + sum(self._input_bytes(child) for child in node.children)

    # ------------------------------------------------------------ nodes

    def _visit(self, node: PlanNode, draft: Draft) -> None:
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
            draft.replace(node.child, draft.placeholder(node.child, ExchangeInput(producer, reads_all=False)))
            self._visit_subqueries(node, draft)
            return
        if node.looks_at_all_partitions:
            self._replace_collecting_join(node, draft)
            return
        for child in node.children:
            self._visit(child, draft)
        self._visit_subqueries(node, draft)

    def _visit_subqueries(self, node: PlanNode, draft: Draft) -> None:
        for subquery in node.subqueries:
            original = self._outline.original(subquery)
            if original.kind == "SubqueryBroadcastExec":
                below = self._broadcast(draft, original.child)
            else:
                below = draft.placeholder(original.child, ExchangeInput(self._produce(original), reads_all=True))
            draft.replace(subquery, over(original, below))

    def _replace_collecting_join(self, node: PlanNode, draft: Draft) -> None:
        """Run a join in one task because its output depends on all streamed rows."""
        streamed = streamed_child(self._outline, node)
        for child in node.children:
            if child is not streamed or self._tasks(child) == 1:
                self._visit(child, draft)
                continue
            producer = self._stage(child, SingleOutput())
            draft.arriving.add(child.index)
            draft.replace(child, draft.placeholder(child, ExchangeInput(producer, reads_all=False)))
        self._visit_subqueries(node, draft)
        draft.replace(node, in_one_task(node))

    def _replace_leaf(self, node: PlanNode, draft: Draft) -> None:
        described = self._described[node.index]
        draft.input_bytes += described.input_bytes
        grows = described.growth is not None
        draft.growing = described if grows else draft.growing
        leaf = draft.placeholder(node, LeafInput(described.description, described.label, grows=grows))
        if node.subqueries and node.kind == leaves.FILE_LEAF:
            # Partition filters that wait for a subquery are evaluated when the stage is bound. Such filters of other
            # sources may be ignored, since the join applies them, too.
            self._visit_subqueries(node, draft)
            leaf = filtered(node, leaf, described.partitions)
        draft.replace(node, leaf)

    def _replace_exchange(self, node: PlanNode, draft: Draft) -> None:
        exchange = self._outline.original(node)
        if exchange.kind == "BroadcastExchangeExec":
            draft.replace(node, self._broadcast(draft, node))
            return
        if exchange.kind == CACHED:
            self._replace_cached(exchange, draft)
            return
        producer = self._produce(exchange)
        boundary = self._begun.read_at(exchange)
        is_sorted = producer in self._sorted if boundary is None else boundary.is_sorted
        source = ExchangeInput(producer, reads_all=False, partitions=self._tasks(exchange))
        part = draft.placeholder(
            node,
            source,
            ordered_by=exchange if is_sorted else None,
            make="bucketed" if brings_buckets(exchange) else "placeholder",
        )
        draft.replace(node, part)

    def _replace_cached(self, scan: PlanNode, draft: Draft) -> None:
        rows = self._cached(scan)
        source = ExchangeInput(rows.stage_id, reads_all=False, partitions=rows.partitions, by_producer=True)
        draft.replace(scan, draft.placeholder(scan, source, make="cached"))

    def _broadcast(self, draft: Draft, node: PlanNode) -> Part:
        """Return the broadcast exchange of *node* over another stage's output."""
        exchange = self._outline.original(node)
        return over(exchange, draft.placeholder(node, ExchangeInput(self._produce(exchange), reads_all=True)))

    # ------------------------------------------------------------ partitions

    def _tasks(self, node: PlanNode) -> int:
        """Return how many partitions the output of *node* has."""
        if node.index not in self._partitions:
            self._partitions[node.index] = self._count_tasks(node)
        return self._partitions[node.index]

    def _count_tasks(self, node: PlanNode) -> int:
        if node.kind in leaves.LEAVES:
            return self._described[node.index].partitions
        if node.kind in EXCHANGES:
            exchange = self._outline.original(node)
            if exchange.kind == "BroadcastExchangeExec":
                return 1
            boundary = self._cached(exchange) if exchange.kind == CACHED else self._begun.read_at(exchange)
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
    """Return *stages* with `is_sole_reader` set for each input that is the only reader of its producer.

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
                    replace(source, is_sole_reader=reads[source.stage_id] == 1) if _is_exchange(source) else source
                    for source in stage.plan.inputs
                ),
            ),
        )
        for stage in stages
    ]


def _is_exchange(source: StageSource) -> TypeGuard[ExchangeInput]:
    return isinstance(source, ExchangeInput)
