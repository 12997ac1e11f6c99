"""Stages as they are decided, before their fragments are made: all of them in one call."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from onager.executor.spark import leaves
from onager.executor.spark.kernel.plans import JavaCutting, Part
from onager.executor.spark.planning.boundaries import brings_buckets
from onager.executor.spark.planning.cut_stages import CutStage
from onager.executor.spark.planning.fingerprints import fingerprint
from onager.executor.spark.planning.outline import PlanNode
from onager.executor.spark.stage_plan import (
    PLACEHOLDER_PREFIX,
    ExchangeInput,
    HashOutput,
    LeafInput,
    SortedOutput,
    StageOutput,
    StageSource,
)


def over(node: PlanNode, child: Part) -> Part:
    """Return *node* with its only child replaced."""
    return {"make": "over", "node": node.index, "child": child}


def in_one_task(node: PlanNode) -> Part:
    """Return *node*, with all that has been replaced below it, coalesced into one partition."""
    return {"make": "in_one_task", "node": node.index}


def filtered(scan: PlanNode, leaf: Part, tasks: int) -> Part:
    """Return *leaf*, of *tasks* partitions, below the runtime filters of *scan*."""
    return {"make": "filtered", "node": scan.index, "child": leaf, "tasks": tasks}


@dataclass(slots=True)
class Draft:
    """A stage in the making."""

    root: PlanNode
    output: StageOutput
    """Without its expression or ordering, which are those of `exchange`."""
    exchange: PlanNode | None = None
    """The exchange that carries the output."""
    limit: PlanNode | None = None
    """What becomes a local limit on top."""
    inputs: list[StageSource] = field(default_factory=list)
    arriving: set[int] = field(default_factory=set)
    """Indexes of nodes that another stage computes although they are not exchanges."""
    input_bytes: int = 0
    growing: leaves.DescribedLeaf | None = None
    """The leaf of which more is found while the stage runs."""
    is_reusable: bool = False
    """Whether it gets a fingerprint, if all of its inputs have one."""
    _replaced: list[Part] = field(default_factory=list)
    _nodes: list[PlanNode] = field(default_factory=list)
    """The nodes that the inputs were before."""
    _ordered_by: list[PlanNode | None] = field(default_factory=list)
    """For each input, the exchange that says in which order its rows are; None: in none."""
    stage: CutStage = field(init=False)
    """Without fragment and inputs, and what is known of these."""

    def replace(self, node: PlanNode, part: Part) -> None:
        """Let *part* be in the place of *node*."""
        self._replaced.append({"node": node.index, "by": part})

    def placeholder(
        self,
        node: PlanNode,
        source: StageSource,
        *,
        ordered_by: PlanNode | None = None,
        make: Literal["placeholder", "bucketed", "cached"] = "placeholder",
    ) -> Part:
        """Add the input *source*, and return the leaf that stands for it, with the columns of *node*.

        *ordered_by*: the exchange of ranges of sorted runs. *make*: ``bucketed`` if its rows bring their buckets along;
        ``cached`` if they have all columns of what is cached.
        """
        self.inputs.append(source)
        self._nodes.append(node)
        self._ordered_by.append(ordered_by)
        return {"make": make, "node": node.index, "name": f"{PLACEHOLDER_PREFIX}{len(self.inputs) - 1}"}

    @property
    def wanted(self) -> Part:
        """What is to be made of it, as Java's `Cutting` takes it."""
        return {
            "root": self.root.index,
            "replaced": self._replaced,
            "limit": None if self.limit is None else self.limit.index,
            "exchange": None if self.exchange is None else self.exchange.index,
            "carries_bucket": self.exchange is not None and brings_buckets(self.exchange),
            "is_sorted": isinstance(self.output, SortedOutput),
            "has_digest": self.is_reusable,
        }

    @property
    def expressions(self) -> Iterator[int]:
        """The exchanges whose expression or ordering it needs."""
        if self.exchange is not None and isinstance(self.output, HashOutput | SortedOutput):
            yield self.exchange.index
        yield from (exchange.index for exchange in self._ordered_by if exchange is not None)

    def sources(self) -> Iterator[tuple[StageSource, PlanNode, PlanNode | None]]:
        """Yield each input, the node that it was, and the exchange by which its rows are ordered."""
        return zip(self.inputs, self._nodes, self._ordered_by, strict=True)


def finished(
    java: JavaCutting,
    drafts: Sequence[Draft | CutStage],
    described: Mapping[int, leaves.DescribedLeaf],
    first_stage_id: int,
) -> list[CutStage]:
    """Return the stages of *drafts*, numbered from *first_stage_id* on, with all that was left open.

    *described* has the leaves by their places. What is a stage already, a feed, stays as it is.
    """
    open_ones = [draft for draft in drafts if isinstance(draft, Draft)]
    expressions = {exchange for draft in open_ones for exchange in draft.expressions}
    made = iter(enumerate(java.make([draft.wanted for draft in open_ones], expressions)))
    stages: list[CutStage] = []

    def fingerprint_of(source: StageSource, node: PlanNode) -> str:
        if isinstance(source, LeafInput):
            return described[node.index].digest
        return stages[source.stage_id - first_stage_id].fingerprint if source.stage_id >= first_stage_id else ""

    for draft in drafts:
        if isinstance(draft, CutStage):
            stages.append(draft)
            continue
        place, facts = next(made)
        plan = replace(
            draft.stage.plan,
            fragment=java.fragment(place),
            inputs=tuple(_ordered(source, by, java) for source, _, by in draft.sources()),
            output=_distributed(draft.output, draft.exchange, java),
        )
        of_inputs = [fingerprint_of(source, node) for source, node, _ in draft.sources()]
        is_reusable = bool(facts["digest"]) and all(of_inputs)
        stages.append(
            replace(
                draft.stage,
                plan=plan,
                text=facts["text"],
                expected_rows=facts["expected_rows"],
                fingerprint=fingerprint(plan, facts["digest"], of_inputs) if is_reusable else "",
            )
        )
    return stages


def _ordered(source: StageSource, by: PlanNode | None, java: JavaCutting) -> StageSource:
    if by is None or not isinstance(source, ExchangeInput):
        return source
    return replace(source, ordering=java.expression(by.index))


def _distributed(output: StageOutput, exchange: PlanNode | None, java: JavaCutting) -> StageOutput:
    match output:
        case HashOutput() if exchange is not None:
            return replace(output, expression=java.expression(exchange.index))
        case SortedOutput() if exchange is not None:
            return replace(output, ordering=java.expression(exchange.index))
        case _:
            return output
