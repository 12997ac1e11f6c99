"""How the exchange benchmark evaluates its measurements."""

import psutil
import pytest

from benchmarks.exchange.__main__ import COLUMNS, _row
from benchmarks.exchange.memory import PeakMemory


def test_a_row_says_how_fast_bytes_went_and_what_an_exchange_costs_in_any_case():
    row = _row("streaming", 1_000_000, 2.0, [[0.3, 0.1, 0.2], [0.05, 0.15, 0.1]], 12.5)
    assert tuple(row) == COLUMNS
    assert row["bytes"] == 40_000_000
    assert row["mb_per_s"] == 20.0
    assert row["fixed_ms"] == pytest.approx(100.0)


def test_memory_that_was_taken_for_a_moment_counts():
    me = psutil.Process()
    with PeakMemory([me]) as memory:
        taken = bytearray(200_000_000)
        for at in range(0, len(taken), 4096):
            taken[at] = 1
        while memory.grown_mb < 150:
            pass
        del taken
    assert memory.grown_mb >= 150
