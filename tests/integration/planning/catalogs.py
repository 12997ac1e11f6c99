"""An executor whose jobs are planned with a catalog."""

from collections.abc import Iterator
from contextlib import contextmanager

from onager.protocol import onager_pb2 as pb
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import OneExecutor


@contextmanager
def planned_with(executor: OneExecutor) -> Iterator[MemoryCatalog]:
    """Plan the jobs of *executor* with a new catalog within the context, and yield it."""
    executor.catalog = made = MemoryCatalog()
    try:
        yield made
    finally:
        executor.catalog = None


def commit(executor: OneExecutor, catalog: MemoryCatalog, text: str) -> pb.PlanOutcome:
    outcome = executor.plan_sql(text, conf={})
    catalog.commit(outcome)
    return outcome


def rows(executor: OneExecutor, text: str, conf: dict[str, str] | None = None) -> list[tuple[object, ...]]:
    return sorted(executor.run(executor.plan_sql(text, conf=conf or {})))
