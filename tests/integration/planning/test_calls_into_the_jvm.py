"""How many calls into the JVM planning makes: a call costs 0.1 to 0.3 ms, and many of them are most of a small plan."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onager.protocol import onager_pb2 as pb
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import CUT, OneExecutor

Q5 = Path(__file__).resolve().parents[3] / "benchmarks" / "tpch" / "queries" / "q5.sql"
RELEASE = "m"
"""Begins a message that an object of the JVM is not referred to any more: when, the garbage collector says."""
A_SMALL_JOB = 17
"""The catalog: its copy, its session, whether it has changed (before the run, and at the end), changes, the end. The
session: active, and not any more. The script: split, a parser, parsed, its rows (Spark's analysis). The query: its
facts, planned anew; its physical plan, the text of it, and the schema of its result."""
A_CUT_PLAN = 30
"""That without the second look at the catalog, and: settings read twice, changed twice and restored, how much the query
needs, four calls that cut the plan, three for its frame."""
A_VIEW = 2
"""Its files, whose errors name it, and its name."""
A_SETTING = 4
"""Each setting of a job is judged by itself, and has its own error."""


@pytest.fixture
def planner(executor: OneExecutor, monkeypatch: pytest.MonkeyPatch) -> OneExecutor:
    """An executor with a catalog of no tables, as jobs are planned in a cluster; it runs nothing."""
    monkeypatch.setattr(executor, "catalog", MemoryCatalog())
    ran = pb.PlanOutcome(fused_output=pb.TaskOutput(), fused_metrics=pb.TaskMetrics())
    monkeypatch.setattr(executor, "run_single_stage", lambda *_: ran)
    return executor


@contextmanager
def counted(executor: OneExecutor, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the messages that this thread sends within the context."""
    calls: list[str] = []
    gateway: Any = executor.spark.sparkContext._gateway
    client, me = gateway._gateway_client, threading.get_ident()
    send = client.send_command

    def sent(command: str, *at: Any, **how: Any) -> Any:
        if threading.get_ident() == me and not command.startswith(RELEASE):
            calls.append(command)
        return send(command, *at, **how)

    with monkeypatch.context() as within:
        within.setattr(client, "send_command", sent)
        yield calls


def calls_of(
    executor: OneExecutor,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    views: Sequence[pb.View] = (),
    conf: Mapping[str, str] = {},
) -> tuple[int, int]:
    """Return how many calls the second planning of *text* makes, which looks up no class, and its stages."""
    spec = pb.JobSpec(sql=pb.SqlScript(text=text), views=views, conf=conf)
    for _ in range(2):
        with counted(executor, monkeypatch) as calls:
            outcome = executor.plan(spec, may_step=True, may_grow=True, has_fingerprints=True)
    return len(calls), len(outcome.stages)


def test_a_small_job_makes_a_few(planner: OneExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_of(planner, monkeypatch, "select 1") == (A_SMALL_JOB, 1)


def test_a_cut_plan_makes_as_many_however_many_stages_it_has(
    planner: OneExecutor, tpch: list[pb.View], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = sum(key.startswith("spark.") for key in CUT)
    q5 = calls_of(planner, monkeypatch, Q5.read_text(), tpch, CUT)
    assert q5 == (A_CUT_PLAN + 6 * A_VIEW + settings * A_SETTING, 8)
    shuffled = CUT | {"spark.sql.autoBroadcastJoinThreshold": "-1"}
    calls, stages = calls_of(planner, monkeypatch, Q5.read_text(), tpch, shuffled)
    assert stages > 8
    assert calls <= q5[0] + A_SETTING


def test_a_statement_more_is_parsed_and_run_in_two(planner: OneExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    views = [f"create temporary view v{number} as select {number}" for number in range(3)]
    two, three = (
        calls_of(planner, monkeypatch, "; ".join([*views[:count], "select * from v0"]))[0] for count in (2, 3)
    )
    assert three - two == 2
