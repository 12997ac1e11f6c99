"""The report on queries that ran over both exchanges."""

import json

from benchmarks.tpch.exchanges import Compared, Timed, report


def made_report(tmp_path, *found):
    is_good = report(found, sf=0.1, slots=(8, 8), path=tmp_path / "below" / "both.json")
    return is_good, json.loads((tmp_path / "below" / "both.json").read_text())


def test_both_are_reported_beside_each_other(tmp_path, capsys):
    one = Compared(3, stages=4, equal=True, durable=Timed(1.5, 2.0, 2), streaming=Timed(0.5, 1.0, 2))
    two = Compared(9, stages=7, equal=True, durable=Timed(3.0, 3.25, 2), streaming=Timed(2.0, 2.5, 2))
    is_good, found = made_report(tmp_path, one, two)
    assert is_good
    assert found["totals_s"] == {"durable": 5.25, "streaming": 3.5}
    assert found["queries"][0]["streaming"] == {"first_row_s": 0.5, "total_s": 1.0, "runs": 2, "given_up": ""}
    assert capsys.readouterr().out == "2 of 2 equal, 2 streamed; durable 5.2 s, streaming 3.5 s\n"


def test_a_query_that_differs_or_did_not_stream_is_no_success(tmp_path):
    is_good, found = made_report(tmp_path, Compared(3, equal=False))
    assert (is_good, found["equal"]) == (False, 0)
    is_good, found = made_report(tmp_path, Compared(3, equal=True, streaming=Timed(given_up="executor e-1: gone")))
    assert (is_good, found["streamed"]) == (False, 0)
