"""What is written is, byte for byte, what pydantic would write: it is pydantic that reads it."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from onager.execution_graph import EventBatch, ExecutionGraph, TaskMetrics, TaskOutput
from onager.execution_graph.encoding import encoder
from onager.execution_graph.stages import TaskLedger
from tests.unit.execution_graph.test_codec import JOBS

GRAPHS, BATCHES, LEDGERS = TypeAdapter(ExecutionGraph), TypeAdapter(EventBatch), TypeAdapter(TaskLedger)


@pytest.mark.parametrize("make", JOBS)
def test_graphs_and_logs_are_written_as_pydantic_writes_them(make):
    job = make()
    assert encoder(ExecutionGraph)(job.graph).encode() == GRAPHS.dump_json(job.graph)
    batch = EventBatch(batch_id="b", events=tuple(job.log))
    assert encoder(EventBatch)(batch).encode() == BATCHES.dump_json(batch)


counts = st.integers(0, 2**63 - 1)
texts = st.text(st.characters(exclude_categories=("Cs",)))
outputs = st.builds(
    TaskOutput,
    nonce=texts,
    task_attempt=counts,
    executor_id=texts,
    is_shared=st.booleans(),
    rows=counts,
    bytes=counts,
    is_inline=st.booleans(),
    files=st.lists(texts, max_size=3).map(tuple),
    payload_digest=st.none() | st.text("0123456789abcdef", min_size=1),
    incarnation=texts,
)
metrics = st.builds(
    TaskMetrics, run_ms=counts, rows_out=counts, bytes_out=counts, peak_memory_bytes=counts, queued_ms=counts
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.integers(0, 10_000), outputs, max_size=5), st.lists(metrics, max_size=3))
def test_any_output_is(found, spent):
    ledger = TaskLedger().with_outputs(found, dict(enumerate(spent)))
    assert encoder(TaskLedger)(ledger).encode() == LEDGERS.dump_json(ledger)
    assert LEDGERS.validate_json(encoder(TaskLedger)(ledger)) == ledger


def test_a_type_that_no_record_has_is_refused():
    @dataclass(frozen=True)
    class Odd:
        items: list[int]

    with pytest.raises(TypeError, match=r"no record has values of list\[int\]"):
        encoder(Odd)
