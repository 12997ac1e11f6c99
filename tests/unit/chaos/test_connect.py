"""What is done to sessions of Spark Connect, and what must hold of them."""

import pytest

from tests.chaos.connect import Memory, answers_right, schedule
from tests.connect_doctests.__main__ import compare
from tests.connect_doctests.child import reason

MIB = 1 << 20


def test_the_seed_decides_all_faults():
    assert schedule(1, 600) == schedule(1, 600) != schedule(2, 600)
    faults = schedule(1, 600)
    assert len(faults) > 40
    assert len({fault.kind for fault in faults}) == 6
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert faults[-1].at_s < 600


@pytest.mark.parametrize(
    ("rss_mib", "finding"),
    [
        ([100, 110, 112, 112, 111, 112, 113, 112], None),
        ([100, 110, 112, 130, 150, 170, 190, 200], "121"),
        ([100, 110, 112, 112, 500, 112, 112, 112], "500 MiB"),
    ],
)
def test_memory_that_grows_is_found(rss_mib, finding):
    memory = Memory(None)
    memory.samples = {
        ("scheduler-1", 7): [(1.0, 90 * MIB)],
        ("scheduler-3", 8): [(5.0 * n, mib * MIB) for n, mib in enumerate(rss_mib)],
    }
    verdict = memory.verdict()
    assert verdict.is_clean == (finding is None)
    assert all(finding in reported for reported in verdict.findings)


def test_a_wrong_answer_is_found():
    right = {"session": "1-0", "request": "sum", "trouble": ""}
    assert answers_right([right]).is_clean
    assert answers_right([right, {**right, "trouble": "3 is not 4"}]).findings == ["1-0 sum: 3 is not 4"]


def of(failed: int, *reasons: str) -> dict:
    return {"examples": 2, "failed": failed, "reasons": list(reasons)}


def test_doctests_that_pass_with_spark_pass_are_refused_or_differ():
    refusal = "UnsupportedOperationException: [UNSUPPORTED_FEATURE] Onager does not do this over Spark Connect: x"
    spark = {"a": of(0), "b": of(0), "c": of(0), "d": of(1, "got: 1"), "e": of(0)}
    mine = {"a": of(0), "b": of(2, refusal, "NameError"), "c": of(1, "got: 2"), "d": of(1, "got: 1")}
    found = compare(spark, mine)
    assert (found["doctests"], found["pass_with_spark"], found["pass"]) == (5, 4, 1)
    assert found["refused"] == {"b": refusal}
    assert found["differ"] == {"c": "got: 2", "e": "it did not run"}


def test_the_reason_of_a_doctest_is_its_error_or_what_it_got():
    raised = "*****\nException raised:\n  Traceback …\n    pyspark.errors.exceptions.connect.ParseException: [X] no\n"
    assert (
        reason(raised.replace("    pyspark", "pyspark")) == "pyspark.errors.exceptions.connect.ParseException: [X] no"
    )
    assert reason("*****\nExpected:\n    1\nGot:\n    2\n    3\n") == "got: 2 3"
