"""An executor whose jobs are planned with a catalog."""

from collections.abc import Iterator
from contextlib import contextmanager

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
