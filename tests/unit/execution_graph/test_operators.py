"""What operators measured: merged in any order, counted once, kept out of what cannot be read."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onager.execution_graph import EventBatch, decode_batch, decode_graph, encode_batch, metrics_text
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.operators import MAX_PLANS, OperatorReport, OperatorTotals, with_reports
from onager.execution_graph.stages import TaskLedger
from tests.unit.execution_graph.builder import Job, chain, output, planned, stage, stored_ledger

LARGEST = 2**63 - 1


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text(*pairs: tuple[int, int]) -> str:
    """Return what a task would report of metrics, as its event has it."""
    return base64.b64encode(b"\x01" + b"".join(varint(key) + varint(value) for key, value in pairs)).decode()


values = st.dictionaries(st.integers(0, 200), st.integers(1, LARGEST), max_size=6)
reports = st.builds(
    lambda plan, found: OperatorReport(plan, text(*found.items())), st.sampled_from(["p", "q", "r"]), values
)


def by_plan(totals):
    return {each.bound_plan: each for each in totals}


@settings(deadline=None)
@given(st.lists(reports, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter(found, random):
    shuffled = random.sample(found, len(found))
    assert by_plan(with_reports((), shuffled)) == by_plan(with_reports((), found))


@settings(deadline=None)
@given(st.lists(reports, max_size=8), st.integers(0, 8))
def test_reports_can_come_in_any_portions(found, cut):
    assert with_reports(with_reports((), found[:cut]), found[cut:]) == with_reports((), found)


@settings(deadline=None)
@given(st.lists(values, max_size=5))
def test_odd_keys_are_merged_by_maximum_and_even_ones_are_summed(found):
    totals = with_reports((), [OperatorReport("p", text(*each.items())) for each in found])
    keys = sorted({key for each in found for key in each})
    merged = [(k, [each[k] for each in found if k in each]) for k in keys]
    wanted = tuple((k, max(all_of) if k % 2 else min(sum(all_of), LARGEST)) for k, all_of in merged)
    assert totals == ((OperatorTotals(bound_plan="p", tasks=len(found), values=wanted),) if found else ())


@settings(deadline=None)
@given(st.lists(reports, max_size=8))
def test_totals_survive_the_round_trip(found):
    ledger = TaskLedger().with_outputs({}, {}, operators=found)
    assert stored_ledger(ledger)[0] == ledger


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_not_reported(data):
    totals = with_reports((), [OperatorReport("p", metrics_text(data))])
    assert [each.tasks for each in totals] in ([], [1])
    assert totals == with_reports((), [OperatorReport("p", base64.b64encode(data).decode())])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x02\x00\x01", id="another format"),
        pytest.param(b"\x01\x00", id="a key without a value"),
        pytest.param(b"\x01\x00\x80", id="cut off"),
        pytest.param(b"\x01\x00" + varint(2**63), id="too large"),
        pytest.param(b"\x01\x00" + b"\x80" * 30 + b"\x00", id="too long"),
        pytest.param(b"\x01" + varint(2**12) + b"\x01", id="an index beyond the plan's"),
        pytest.param(b"\x01" + b"\x00\x01" * 5000, id="too many"),
    ],
)
def test_what_cannot_be_read_counts_as_not_reported(data):
    assert with_reports((), [OperatorReport("p", metrics_text(data))]) == ()
    assert with_reports((), [OperatorReport("p", base64.b64encode(data).decode())]) == ()


def test_totals_of_few_plans_are_kept():
    names = [f"plan-{n}" for n in range(MAX_PLANS + 2)]
    totals = with_reports((), [OperatorReport(name, text((0, 1))) for name in names])
    assert [each.bound_plan for each in totals] == names[:MAX_PLANS]
    totals = with_reports(totals, [OperatorReport("", text((0, 5))), OperatorReport(names[-1], text((0, 5)))])
    assert [each.values for each in totals] == [((0, 6),), *[((0, 1),)] * (MAX_PLANS - 1)]


def with_metrics(event, plan: str, *pairs):
    return replace(event, bound_plan=plan, op_metrics=text(*pairs))


def test_a_stage_has_what_its_accepted_outputs_reported_once():
    job = planned(*chain(2, partitions=3))
    job.launch("a", 3)
    first = with_metrics(job.success(1, 0), "p", (0, 10), (3, 7))
    second = with_metrics(job.success(1, 1), "", (0, 5), (3, 9))
    late = job.held(1, 1)
    assert job.feed(first)
    assert job.feed(second)
    assert not job.feed(first), "an executor repeats what was not acknowledged"
    assert not job.feed(with_metrics(job.success(1, 1, task=late), "", (0, 99)))
    job.succeed(1, 2)  # an executor of an earlier version

    (totals,) = job.stage(1).ledger.operators
    assert totals == OperatorTotals(bound_plan="p", tasks=2, values=((0, 15), (3, 9)))
    assert decode_graph(encode_graph(job.graph)) == job.graph


def test_the_attempt_that_loses_adds_nothing():
    job = planned(stage(1))
    job.launch("a", 1)
    loser = with_metrics(job.success(1, 0), "p", (0, 10))
    job.lose("a")
    job.launch("b", 1)
    assert not job.feed(loser)
    assert job.stage(1).ledger.operators == ()


def test_a_partition_that_is_made_again_counts_once():
    job = planned(*chain(2, partitions=2))
    job.launch("a", 2)
    assert job.feed(with_metrics(job.success(1, 0), "p", (0, 10), (3, 7)))
    assert job.feed(with_metrics(job.success(1, 1), "", (0, 5)))
    job.launch("b", 1)
    assert job.feed(job.cannot_fetch(2, 0, 1, 1))
    job.launch("c", 1)
    assert job.feed(with_metrics(job.success(1, 1), "", (0, 5)))
    (totals,) = job.stage(1).ledger.operators
    assert job.stage(1).ledger.success_count(1) == 2
    assert totals == OperatorTotals(bound_plan="p", tasks=2, values=((0, 15), (3, 7)))


def test_a_query_that_ran_while_it_was_planned_has_its_operators():
    job = planned(stage(1))
    event = next(each for each in job.log if each.type == "job_planned")
    fused = replace(
        event,
        stages=(stage(1, 1, plan_digest=None, kind="result"),),
        fused_output=output("n"),
        op_metrics=text((0, 7)),
        bound_plan="p",
    )
    again = Job()
    again.launch("a", 1)
    assert again.feed(replace(fused, executor_id=again.held(0, 0).executor_id))
    (totals,) = again.stage(1).ledger.operators
    assert totals == OperatorTotals(bound_plan="p", tasks=1, values=((0, 7),))
    assert decode_graph(encode_graph(again.graph)) == again.graph
    batch = EventBatch(batch_id="b", events=tuple(again.log))
    assert decode_batch(encode_batch(batch)) == batch


def test_records_without_metrics_have_nothing_of_them():
    job = planned(stage(1))
    job.finish()
    batch = EventBatch(batch_id="b", events=tuple(job.log))
    assert b'"operators"' not in encode_graph(job.graph)
    assert b'"op_metrics"' not in encode_batch(batch)
    assert b'"bound_plan"' not in encode_batch(batch)
