"""Records that the version before wrote are read, mean what they meant, and are not outrun in a rolling upgrade.

``version_1_0.txt`` was written by the code before second attempts: a line for each record, its name, a tab, its bytes.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from immutables import Map

from onager.execution_graph import (
    SCHEMA_MAJOR,
    JobState,
    SpeculationPolicy,
    apply_all,
    decode_batch,
    decode_graph,
    encode_graph,
    violations,
)
from onager.execution_graph.latencies import NO_LATENCIES
from onager.scheduler.cluster.members import Members, SchedulerRecord
from onager.scheduler.engine.overdue_work import OverdueWork
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_log import JobHeader
from onager.state_backend import Keyspace
from tests.unit.execution_graph.builder import Job, new_graph

LINES = (Path(__file__).parent / "version_1_0.txt").read_text().splitlines()
RECORDS = {name: record.encode() for name, _, record in (line.partition("\t") for line in LINES)}
JOBS = [name.removeprefix("graph ") for name in RECORDS if name.startswith("graph ")]


def without_news(graph):
    """Return *graph* without fields that the previous version did not have."""
    stages = [replace(s, ledger=replace(s.ledger, failed_on=Map(), latencies=NO_LATENCIES)) for s in graph.stages]
    return replace(graph, stages=tuple(stages))


@pytest.mark.parametrize("name", JOBS)
def test_a_graph_of_the_version_before_is_sound_and_what_its_log_leads_to(name):
    graph = decode_graph(RECORDS[f"graph {name}"])
    assert violations(graph) == ()
    events = decode_batch(RECORDS[f"batch {name}"]).events
    assert without_news(apply_all(new_graph(), events)) == graph
    assert decode_graph(encode_graph(graph)) == graph


@pytest.mark.parametrize("name", [n for n in JOBS if n != "failed"])
def test_a_job_of_the_version_before_goes_on_to_its_end(name):
    job = Job(graph=decode_graph(RECORDS[f"graph {name}"]), now_ms=5_000)
    job.finish()
    assert job.graph.state is JobState.SUCCESSFUL


def test_what_is_written_again_of_it_can_be_read_by_the_version_before():
    for name in JOBS:
        graph = decode_graph(RECORDS[f"graph {name}"])
        assert encode_graph(graph).replace(b'"1.11"', b'"1.0"', 1) == RECORDS[f"graph {name}"]


def test_the_other_records_are_read_too():
    head = JobHead.decoded(RECORDS["head"], "head")
    assert (head.job_id, head.state, head.weight) == ("job-1", JobState.RUNNING, 2.0)
    assert JobHeader.decoded(RECORDS["header"], "header").snapshot == "00000001-ab"
    executor = ExecutorRecord.decoded(RECORDS["executor"], "executor")
    assert executor.takes_work(0)
    assert executor.mode == "pull"
    assert SchedulerRecord.decoded(RECORDS["scheduler"], "scheduler").reads_major == 1


async def test_nothing_new_is_begun_while_a_scheduler_of_the_version_before_lives(backend, clock):
    members = Members(backend, clock, scheduler_id="new", address="h:1", lease_ttl_s=5)
    assert members.writes_major == SCHEMA_MAJOR == 10
    await backend.put(Keyspace.Schedulers, "old", RECORDS["scheduler"])
    await members.refresh()
    assert members.writes_major == 1
    looked = []
    wants = replace(new_graph(), speculation=SpeculationPolicy())
    overdue = OverdueWork(
        SimpleNamespace(cached=lambda _: SimpleNamespace(graph=wants)),
        None,
        SimpleNamespace(followed=["j"]),
        clock,
        interval_s=1,
        executors=lambda: looked.append("for stragglers") or set(),
        writes_major=lambda: members.writes_major,
    )
    await overdue.look()
    assert looked == []
    await backend.delete(Keyspace.Schedulers, "old")
    await members.refresh()
    assert members.writes_major == SCHEMA_MAJOR
    await overdue.look()
    assert looked == ["for stragglers"]


async def test_a_newer_scheduler_writes_what_this_one_reads(backend, clock):
    members = Members(backend, clock, scheduler_id="this", address="h:1", lease_ttl_s=5)
    newer = members.record.model_copy(update={"scheduler_id": "newer", "reads_major": 11})
    await backend.put(Keyspace.Schedulers, "newer", newer.encoded())
    await members.refresh()
    assert members.writes_major == SCHEMA_MAJOR
