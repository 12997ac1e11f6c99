"""Physical plans: their nodes, their leaves, and the fragments that stages are made of."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from onager.executor.spark.jvm import JavaObject, Jvm
from onager.executor.spark.kernel.classes import KERNEL

Part = Mapping[str, Any]
"""What replaces a node, as `Part` of Java's `Cutting`."""
Digests = Literal["NONE", "REUSED", "CACHED"]
"""Which digests leaves get, as `Digests` of Java's `Cutting`."""


def arrow_schema(session: JavaObject, jvm: Jvm, plan: JavaObject, column_names: Iterable[str]) -> bytes:
    """Return the Arrow schema of the physical *plan*'s output, as an IPC message."""
    return bytes(jvm.java_class(KERNEL).arrowSchema(session, plan, json.dumps(list(column_names))))


class JavaCutting:
    """One physical plan while it is cut: see Java's `Cutting`. Nodes are named by their places in the outline."""

    def __init__(self, jvm: Jvm, session: JavaObject, plan: JavaObject, scratch: Path) -> None:
        """*scratch*: an empty directory, where what is large is exchanged."""
        self._java = jvm.java_class("onager.plan.Cutting")(session, plan, str(scratch))
        self._scratch = scratch

    def outline(self) -> list[dict[str, Any]]:
        """Return the nodes, parents first; see `Node` of Java's `Outline`."""
        return list(json.loads(self._java.outline()))

    def describe(
        self, leaves: Iterable[tuple[int, bool]], max_bytes: int, digests: Digests
    ) -> list[dict[str, Any] | None]:
        """Describe *leaves*, each with whether it may grow, in files (`leaf`); return `Facts` of Java's `Leaves`.

        The list ends with None for a leaf that cannot be described, or with more than *max_bytes* (its file is there).
        """
        wanted = [{"node": node, "may_grow": may_grow} for node, may_grow in leaves]
        return list(json.loads(self._java.describe(json.dumps(wanted), max_bytes, digests)))

    def leaf(self, node: int) -> Path:
        """Return the file of a description; beside it lie ``-source`` and ``-portion``, those of its feed."""
        return self._scratch / f"leaf-{node}"

    def make(self, stages: Sequence[Mapping[str, Any]], expressions: Iterable[int]) -> list[dict[str, Any]]:
        """Make fragments, and serialise what *expressions*, exchanges, distribute by; see Java's `Cutting.make`."""
        wanted = {"stages": stages, "expressions": sorted(expressions)}
        return list(json.loads(self._java.make(json.dumps(wanted))))

    def fragment(self, place: int) -> bytes:
        """Return the fragment of the stage at *place* of those that were made."""
        return (self._scratch / f"fragment-{place}").read_bytes()

    def expression(self, exchange: int) -> bytes:
        """Return the expression or the ordering of *exchange*, which was among those of `make`."""
        return (self._scratch / f"expression-{exchange}").read_bytes()
