"""How the failover benchmark computes its figures."""

import pytest

from benchmarks.failover.__main__ import summary
from benchmarks.failover.disturbed import Run, check_rows, first_for, most_connected, rerun_tasks


def test_extra_time_is_against_the_median_of_jobs_left_alone():
    undisturbed = [Run(2.0, 2.5, 0, False), Run(1.0, 1.5, 0, False), Run(9.0, 9.5, 0, False)]
    killed = [("clients", Run(2.25, 2.5, 1, False)), ("by_lot", Run(2.5, 4.5, 2, True, "3 rows"))]
    found = summary(undisturbed, killed)
    assert (found["kills"], found["extra_s_p50"], found["extra_s_max"]) == (2, 0.375, 0.5)
    assert (found["reported_extra_s_p50"], found["reported_extra_s_max"]) == (1.0, 2.0)
    assert (found["finished_tasks_rerun"], found["wrong_results"]) == (3, 1)
    assert found["list"][1] == {
        "killed": "by_lot",
        "extra_s": 0.5,
        "reported_extra_s": 2.0,
        "rerun": 2,
        "why": "3 rows",
    }


def test_exactly_one_scheduler_comes_first_for_a_job_and_not_always_the_same():
    ids = ["a", "b", "c"]
    assert {first_for(f"job-{n}", ids) for n in range(50)} == {0, 1, 2}


def test_the_scheduler_with_most_executors():
    addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    assert most_connected(addresses, [{1, 9}, {2}, {2, 3}]) == 1
    assert most_connected(addresses, []) == 0


def test_executions_beyond_the_first_count():
    events = [["finished", "j", "0"], ["finished", "j", "1"], ["finished", "j", "0"], ["finished", "i", "1"]]
    assert rerun_tasks([*events, ["started", "j", "0.5"]], "j") == 1


@pytest.mark.parametrize(("rows", "why"), [([2, 0, 1], ""), ([0, 1], "2 rows, 2"), ([0, 1, 1], "3 rows, 2")])
def test_rows_are_one_for_each_partition(rows, why):
    found = check_rows(rows, 3)
    assert found.startswith(why)
    assert bool(found) == bool(why)
