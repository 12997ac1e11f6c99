"""The assertion that a query gives the same result distributed as in plain Spark."""

import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import DataFrame

from onager.errors import UnsupportedPlanError
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.spark.kernel.queries import order_of
from onager.testing.compare import Order, difference
from onager.testing.config import HarnessConfig
from onager.testing.kernel import jvm_with_kernel
from onager.testing.run import DistributedRun, Plant, run_graph
from onager.testing.stages import StageGraph, cut


def assert_distributed_eq(
    frame: DataFrame, config: HarnessConfig | None = None, *, plant: Plant | None = None
) -> DistributedRun:
    """Run the query of *frame* distributed and in plain Spark, and fail unless both give the same rows.

    Rows are compared as a multiset, and in order where the query orders its result (ties may come in any order). A
    query that was not cut fails, unless `HarnessConfig.single_stage` says that it is known to be one stage; a query
    marked so fails if it was cut. What plain Spark raises is raised as it is; `DistributedRunError` means that only the
    distributed run failed. *plant* is for testing the harness itself.
    """
    __tracebackhide__ = True
    return Comparison(frame).check(config, plant=plant)


class Comparison:
    """A query, to be run distributed any number of times, and in plain Spark once."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._jvm = jvm_with_kernel(frame.sparkSession)
        self._analyzed, self._order = _ordered(self._jvm, frame)
        added = self._analyzed.output().size() - len(frame.columns)
        self._names = [*frame.columns, *(f"onager_order_{i}" for i in range(added))]

    def check(self, config: HarnessConfig | None = None, *, plant: Plant | None = None) -> DistributedRun:
        """Do what `assert_distributed_eq` does."""
        __tracebackhide__ = True
        config = config or HarnessConfig()
        graph = _cut(self._frame, self._analyzed, self._names, config)
        expected = self._expected
        run = run_graph(self._frame, graph, config, plant)
        how = difference(run.table, expected, self._order, ordered=config.ordered, tolerance=config.relative_tolerance)
        if how is not None:
            raise AssertionError(f"distributed, the query gives another result: {how}\n\n{run.graph}")
        return run

    @cached_property
    def _expected(self) -> pa.Table:
        return _plain(self._jvm, self._frame, self._analyzed, self._names)


def _cut(frame: DataFrame, analyzed: Any, names: list[str], config: HarnessConfig) -> StageGraph:
    __tracebackhide__ = True
    try:
        graph = cut(frame, analyzed, names, config)
    except UnsupportedPlanError as e:
        raise AssertionError(f"the query cannot be distributed, so there is nothing to compare: {e}") from e
    if not graph.is_cut and not config.single_stage:
        raise AssertionError(
            "the query is one stage, so nothing was exchanged and the comparison says little; if that is as it should "
            f"be, say HarnessConfig(single_stage=True)\n\n{graph}"
        )
    if graph.is_cut and config.single_stage:
        raise AssertionError(
            f"the query is marked as a single stage, and has {len(graph.stages)}: leave single_stage out\n\n{graph}"
        )
    return graph


def _ordered(jvm: Jvm, frame: DataFrame) -> tuple[Any, Order]:
    """Return the query, with columns added for the keys of its order that its output lacks, and that order."""
    analyzed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  (PySpark shows it as text alone)
    is_limited, places, query = order_of(jvm, analyzed)
    return query, Order(keys=places, columns=len(frame.columns), is_limited=is_limited)


def _plain(jvm: Jvm, frame: DataFrame, analyzed: Any, names: list[str]) -> pa.Table:
    """Return the query's result of plain Spark under the session's settings, in the form of Onager's results."""
    session = frame.sparkSession
    datasets = jvm.java_class("org.apache.spark.sql.classic.Dataset")
    query = datasets.ofRows(jvm_session(session), analyzed).queryExecution()
    with tempfile.TemporaryDirectory(prefix="onager-testing-") as directory:
        kernel = Kernel(session, directory, 1)
        try:
            spec = {"layout": "result", "directory": "plain", "nonce": "r", "names": names}
            event, inline = kernel.run_single_stage(jvm_session(session), query, spec)
        finally:
            kernel.close()
        content = inline if event["inline"] else Path(directory, "plain", "0-r.arrow").read_bytes()
        with pa.ipc.open_stream(content) as reader:
            return reader.read_all()
