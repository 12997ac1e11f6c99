"""Physical plans: their nodes, and the fragments that stages are made of."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from onager.executor.spark.jvm import JavaObject, Jvm
from onager.executor.spark.kernel.classes import KERNEL


def arrow_schema(session: JavaObject, jvm: Jvm, plan: JavaObject, column_names: Iterable[str]) -> bytes:
    """Return the Arrow schema of the physical *plan*'s output, as an IPC message."""
    return bytes(jvm.java_class(KERNEL).arrowSchema(session, plan, jvm.java_list(column_names)))


class PlanTools:
    """Reads physical plans and makes fragments of them, each operation in one call."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._outline = jvm.java_class("onager.plan.Outline")
        self._fragments = jvm.java_class("onager.plan.Fragments")
        self._buckets = jvm.java_class("onager.plan.Buckets")
        self._leaves = jvm.java_class("onager.plan.Leaves")
        self._queries = jvm.java_class("onager.plan.Queries")
        self._fingerprints = jvm.java_class("onager.plan.Fingerprint")

    def outline(self, plan: JavaObject) -> tuple[list[str], Callable[[int], JavaObject]]:
        """Return a line for each node (see Java's `Outline.of`), and a function from a line's index to its node."""
        text, nodes = self._outline.of(plan)
        return str(text).splitlines(), nodes.get

    def expected_rows(self, node: JavaObject) -> int:
        """Return how many rows Spark expected of *node* when it planned it; -1 where it had no idea."""
        return int(self._queries.expectedRows(node))

    def python_functions(self, node: JavaObject) -> list[tuple[str, int, bool]]:
        """Return the Python functions of *node*: name, number of broadcast variables, whether it has an accumulator."""
        lines = [line.split("\t") for line in str(self._outline.pythonFunctions(node)).splitlines()]
        return [(name, int(broadcasts), has_accumulator == "1") for name, broadcasts, has_accumulator in lines]

    def fragment(self, root: JavaObject, cut: Sequence[JavaObject], replacements: Sequence[JavaObject]) -> JavaObject:
        """Return a copy of a plan without code generation, with each node of *cut* replaced."""
        return self._fragments.of(root, self._jvm.java_list(cut), self._jvm.java_list(replacements))

    def finish(self, fragment: JavaObject, target: Path) -> str:
        """Write a fragment to the file *target*, and return it as text."""
        return str(self._fragments.finish(fragment, str(target)))

    def fingerprint(self, fragment: JavaObject, exchange: JavaObject | None) -> str:
        """Return the digest of a fragment, and of how *exchange* distributes its rows; "" if there is none."""
        return str(self._fingerprints.of(fragment, exchange) or "")

    def leaf_fingerprint(self, description: Path) -> str:
        """Return the digest of the leaf that is described in a file; "" if there is none."""
        return str(self._fingerprints.ofLeaf(str(description)) or "")

    def placeholder(self, like: JavaObject, name: str) -> JavaObject:
        """Return the leaf that stands for an input of a stage with the columns of *like*."""
        return self._fragments.placeholder(like, name)

    def placeholder_with_bucket(self, like: JavaObject, name: str) -> JavaObject:
        """Return a placeholder for rows that carry their bucket as a column, and a projection that drops it."""
        return self._buckets.removed(like, name)

    def with_bucket(self, exchange: JavaObject) -> JavaObject:
        """Return the child of *exchange* with a column for each row's bucket."""
        return self._buckets.added(exchange)

    def bucket_expression(self, exchange: JavaObject) -> bytes:
        """Return the serialised expression that gives a row's bucket."""
        return bytes(self._buckets.expression(exchange))

    def ordering(self, exchange: JavaObject) -> bytes:
        """Return the serialised order by which *exchange* divides rows into ranges."""
        return bytes(self._fragments.ordering(exchange))

    def sorted(self, exchange: JavaObject, child: JavaObject) -> JavaObject:
        """Return *child* with each partition sorted by the ordering of the range *exchange*."""
        return self._fragments.sorted(exchange, child)

    def with_child(self, node: JavaObject, child: JavaObject) -> JavaObject:
        """Return *node* with its only child replaced."""
        return self._fragments.withChild(node, child)

    def in_one_task(self, child: JavaObject) -> JavaObject:
        """Return *child* coalesced into one partition."""
        return self._fragments.inOneTask(child)

    def local_limit(self, limit: JavaObject, child: JavaObject) -> JavaObject:
        """Return *child* with a local limit: of each partition, the rows that *limit* above it may need."""
        return self._fragments.localLimit(limit, child)

    def under_runtime_filters(self, scan: JavaObject, leaf: JavaObject, tasks: int) -> JavaObject:
        """Return *leaf*, of *tasks* partitions, below the runtime filters of *scan*."""
        return self._leaves.underRuntimeFilters(scan, leaf, tasks)

    def settings(self, session: JavaObject) -> dict[str, str]:
        """Return the settings of *session*, except static ones, which only a new process can set."""
        return dict(entry.split("\t", 1) for entry in str(self._fragments.settings(session)).split("\0") if entry)
