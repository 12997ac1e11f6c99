"""The figures of requests and kills of Spark Connect."""

from benchmarks.connect_kill.__main__ import Run, summary
from benchmarks.connect_latency import in_turns, row


def test_requests_take_turns_and_the_first_ones_do_not_count():
    called = []
    sides = {"spark": lambda: called.append("spark"), "onager": lambda: called.append("onager")}
    times_ms = in_turns(sides, 3)
    assert called[:4] == ["spark", "onager", "spark", "onager"]
    assert len(called) > 6
    assert {side: len(taken) for side, taken in times_ms.items()} == {"spark": 3, "onager": 3}


def test_the_ratio_is_that_of_medians():
    found = row("config", {"spark": [1.0, 2.0, 90.0], "onager": [3.0, 3.0, 3.0]})
    assert (found["spark_ms_p50"], found["onager_ms_p50"], found["ratio"]) == (2.0, 3.0, 1.5)


def test_kills_are_summed_up_by_kind_and_together():
    runs = [
        Run("serving", ["scheduler-1"], 0.2),
        Run("serving", ["scheduler-2"], 0.6, wrong="row 3 is None"),
        Run("executor", ["executor-1"], 4.0, not_once=["job j, stage 1, partition 0: 2 successes"], lost=["view"]),
    ]
    found = summary(runs)
    assert [*found] == ["serving", "executor", "any"]
    assert found["serving"] == {
        "runs": 2, "pause_s_p50": 0.4, "pause_s_max": 0.6, "wrong": 1, "not_once": 0, "lost": 0,
    }  # fmt: skip
    assert (found["any"]["pause_s_max"], found["any"]["not_once"], found["any"]["lost"]) == (4.0, 1, 1)
    assert [run.is_clean for run in runs] == [True, False, False]
