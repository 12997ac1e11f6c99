"""How the state benchmark measures and reports a cell."""

from contextlib import asynccontextmanager

import pytest

from benchmarks.state.__main__ import _cell, _median_cost, _row
from benchmarks.state.machine import describe
from benchmarks.state.side import AsyncSide, Sample, ThreadSide


class Reported(AsyncSide):
    """Writes down its rounds, and takes a given time for each call."""

    def __init__(self, name: str, rounds: list[str], latency_s: float) -> None:
        self.name = name
        self.rounds = rounds
        self.latency_s = latency_s

    async def fill(self) -> None:
        return

    def ready(self, operation, caller):  # noqa: ARG002 the base's
        raise AssertionError("`measure` is made up here, and calls nothing")

    async def measure(self, operation, callers, seconds) -> Sample:  # noqa: ARG002 the base's
        self.rounds.append(self.name)
        calls = round(seconds / self.latency_s)
        return Sample([self.latency_s] * calls, seconds)


async def test_the_rounds_of_both_sides_alternate_and_warming_up_does_not_count():
    rounds: list[str] = []
    ours, raw = await _cell((Reported("a", rounds, 0.02), Reported("b", rounds, 0.01)), "put", 1, 8.0)
    assert "".join(rounds) == "ab" + 4 * "abba"
    assert (ours.per_s, raw.per_s) == (50, 100)
    row = _row("etcd", "put", 1, ours, raw)
    assert list(row) == ["backend", "operation", "callers", "per_s", "p50_ms", "p99_ms", "raw_per_s", "cost"]
    assert (row["p50_ms"], row["p99_ms"], row["cost"]) == (20, 20, 2)


def test_quantiles_are_of_what_was_measured():
    sample = Sample([number / 1000 for number in range(100, 0, -1)], 1.0)
    assert sample.quantile_ms(0.5) == 51
    assert sample.quantile_ms(0.99) == 100
    assert Sample([0.003], 1.0).quantile_ms(0.99) == 3


def test_the_median_is_of_one_backends_cells():
    rows = [{"backend": "a", "cost": cost} for cost in (1.0, 3.0, 1.5)] + [{"backend": "b", "cost": 9.0}]
    assert _median_cost(rows, "a") == 1.5


@pytest.mark.parametrize("kind", [AsyncSide, ThreadSide])
async def test_all_callers_call_until_the_time_is_over(kind):
    class Counting(kind):
        def __init__(self) -> None:
            self.calls: dict[int, list[int]] = {}
            self.ended = 0

        async def fill(self) -> None:
            return

        @asynccontextmanager
        async def ready(self, operation, caller):  # noqa: ARG002 the base's
            numbers = self.calls.setdefault(caller, [])

            async def later(number):
                numbers.append(number)

            yield later if kind is AsyncSide else numbers.append
            self.ended += 1

    side = Counting()
    sample = await side.measure("put", 3, 0.05)
    assert sample.elapsed_s >= 0.05
    assert set(side.calls) == {0, 1, 2}
    assert sum(map(len, side.calls.values())) == len(sample.latencies_s) > 0
    assert all(numbers == list(range(len(numbers))) for numbers in side.calls.values())
    assert side.ended == 3


def test_what_it_was_measured_on_is_reported_and_memory_is_no_disk(tmp_path, monkeypatch):
    machine = describe(tmp_path)
    assert machine["fdatasync_ms"] > 0
    assert machine["plyvel"]
    monkeypatch.setattr("benchmarks.state.machine._file_system", lambda _: "tmpfs")
    with pytest.raises(ValueError, match="is a tmpfs, which is no disk"):
        describe(tmp_path)
