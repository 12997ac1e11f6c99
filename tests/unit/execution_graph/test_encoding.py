"""Whatever tasks report can be stored, and is read as it was."""

from hypothesis import given, settings
from hypothesis import strategies as st

from onager.execution_graph import TaskMetrics, TaskOutput
from onager.execution_graph.stages import TaskLedger
from tests.unit.execution_graph.builder import stored_ledger

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
def test_any_output_survives_the_round_trip(found, spent):
    ledger = TaskLedger().with_outputs(found, dict(enumerate(spent)))
    read, data = stored_ledger(ledger)
    assert read == ledger
    assert stored_ledger(read)[1] == data
