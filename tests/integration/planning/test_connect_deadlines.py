"""Requests of Spark Connect whose time is over, or that fail: they are answered once nothing of them runs any more."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from benchmarks.exchange.runner_process import busy_threads, stacks_of
from onager.clock import ManualClock
from onager.executor.spark.deadlines import Deadlines
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.integration.planning.connect_frames import lazy
from tests.support.catalog import MemoryCatalog
from tests.support.selection import some
from tests.support.spark.one_executor import OneExecutor
from tests.support.waiting import until

SLOW = "levenshtein(repeat('ab', 10000), repeat('ba', 10000))"


@pytest.mark.parametrize(
    "ask",
    some(
        [
            lambda client: client.explain(lazy(client, f"SELECT {SLOW} AS d")),
            # The analyzer computes limits. Spark carries commands out in threads of its own.
            lambda client: client.sql(f"CREATE TEMPORARY VIEW v AS SELECT 1 AS a LIMIT {SLOW}"),
        ]
    ),
    ids=some(["explain", "command"]),
)
def test_analysis_for_which_nobody_waits_any_more_is_stopped_and_then_costs_the_jvm(
    executor: OneExecutor, catalog: MemoryCatalog, ask: Callable[[ConnectClient], Any]
) -> None:
    """Spark's optimizer folds what is constant, and looks at no interrupt meanwhile."""
    clock = ManualClock()
    deadlines = Deadlines(clock, 5)
    client = ConnectClient(executor, catalog, deadlines)

    def is_folding() -> bool:
        return any("levenshtein" in stack for stack in stacks_of(executor.spark._jvm))

    def asked() -> None:
        with suppress(ConnectError):
            ask(client)

    analysis = Thread(target=asked, daemon=True)
    analysis.start()
    until(is_folding, "an optimizer at work")
    assert deadlines.enforce() == ""
    clock.advance(120_000)
    assert deadlines.enforce() == "", "now it is asked to stop"
    clock.advance(5_000)
    assert deadlines.enforce().endswith("of Spark Connect did not stop within 5 s of being cancelled")
    analysis.join()
    assert deadlines.enforce() == "", "it has ended after all"
    assert not is_folding()
    client.close()


@pytest.mark.parametrize("how", ["failed", "stopped"])
def test_a_request_is_answered_once_the_tasks_of_its_spark_jobs_have_ended(
    executor: OneExecutor, catalog: MemoryCatalog, how: str
) -> None:
    """Spark ends a job without waiting for its tasks, and nothing looks for a cancellation within an expression."""
    slow, slower, sooner = (
        f"levenshtein(repeat('ab', cast({length} + id AS int)), repeat('ba', cast({length} + id AS int)))"
        for length in (6000, 12_000, 1500)
    )
    text = {"stopped": slower, "failed": f"IF(id = 0, {slow}, raise_error(CAST({sooner} AS string)))"}[how]
    clock = ManualClock()
    deadlines = Deadlines(clock, 5)
    client = ConnectClient(executor, catalog, deadlines)
    received: list[ConnectError] = []
    left: list[str] = []

    def asked() -> None:
        texts = client.spark.range(0, 2, 1, 2).selectExpr(f"CAST({text} AS string) AS value")
        try:
            client.schema(client.spark.read.json(texts))  # to find the columns, a Spark job reads all rows
        except ConnectError as error:
            received.append(error)
            left.extend(busy_threads(executor.spark._jvm))

    request = Thread(target=asked, daemon=True)
    request.start()
    if how == "stopped":
        until(lambda: len(busy_threads(executor.spark._jvm)) == 2, "two tasks at work")
        clock.advance(120_000)
        assert deadlines.enforce() == ""
    request.join()
    assert len(received) == 1
    assert left == [], "a task goes on of which the client learned that it has ended"
    client.close()
