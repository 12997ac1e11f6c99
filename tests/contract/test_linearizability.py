"""Concurrent operations of several clients are linearizable, whatever fails."""

import asyncio
import random  # noqa: TID251 seeded
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from onager.state_backend.faulty import FaultKind, FaultyBackend, seeded
from onager.state_backend.forwarding import ForwardingBackend
from tests.contract.stores import MemoryHarness
from tests.support.histories import History, RecordingClient, run_clients
from tests.support.linearizability import NotLinearizableError, check
from tests.support.selection import IS_ALL

CLIENTS = 5
OPERATIONS = 60
KEYS = ["a", "b"]
RATES = {
    FaultKind.UNAVAILABLE: 0.05,
    FaultKind.SLOW_REQUEST: 0.1,
    FaultKind.SLOW_ANSWER: 0.1,
    FaultKind.UNKNOWN_UNWRITTEN: 0.05,
    FaultKind.UNKNOWN_WRITTEN: 0.05,
    FaultKind.UNKNOWN_LATE: 0.05,
}


async def run_history(harness, seed, wrap):
    """Return the history of *CLIENTS* clients, and of one more that reads the final state."""
    history = History()
    backends = [wrap(await harness.connect(), f"{seed}/{n}") for n in range(CLIENTS)]
    await run_clients(backends, history, seed, keys=KEYS, operations=OPERATIONS)
    for backend in backends:
        if isinstance(backend, FaultyBackend):
            await backend.settle()
    auditor = RecordingClient(await harness.connect(), history, CLIENTS)
    for key in KEYS:
        await auditor.read(key)
    return history


def with_faults(client, seed):
    return FaultyBackend(client, seeded(random.Random(seed).random, RATES))


@pytest.mark.parametrize("wrap", [lambda client, _: client, with_faults], ids=["", "with faults"])
def test_concurrent_clients_seem_to_take_turns(new_harness, store_kind, tmp_path, tell, wrap):
    counts = Counter()

    @settings(max_examples=store_kind.histories // (1 if IS_ALL else 2), deadline=None, database=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def histories(seed):
        async def run():
            harness = new_harness()
            try:
                return await run_history(harness, seed, wrap)
            finally:
                await harness.stop()

        history = asyncio.run(run())
        check(history.operations, tmp_path / f"seed-{seed}")
        counts.update(history.counts())

    histories()
    tell(str(dict(sorted(counts.items()))))
    assert counts["cas ok"] > 100
    assert counts["cas conflict"] > 50
    if wrap is with_faults:
        assert counts["cas unknown"] > 30
        assert counts["write unknown"] > 10


class StaleReads(ForwardingBackend):
    """Now and then a read is answered with what the same read saw before."""

    def __init__(self, inner, seed):
        super().__init__(inner)
        self.draw = random.Random(seed)
        self.before = {}

    async def _read(self, keys, ranges):
        asked = frozenset(keys), tuple(ranges)
        if asked not in self.before or self.draw.random() < 0.97:
            self.before[asked] = await super()._read(keys, ranges)
        return self.before[asked]


class LateExpectations(ForwardingBackend):
    """Expectations are checked by a read before the write, and not with it."""

    def __init__(self, inner, seed):
        super().__init__(inner)
        self.draw = random.Random(seed)

    async def _commit(self, ops, expect):
        if expect and self.draw.random() < 0.2:
            result = await super()._commit([], expect)
            if type(result).__name__ != "Committed":
                return result
            for _ in range(5):
                await asyncio.sleep(0)
            expect = {}
        return await super()._commit(ops, expect)


class WritesTwice(FaultyBackend):
    """A late request is sent twice."""

    def __init__(self, inner, seed):
        rates = {FaultKind.UNKNOWN_WRITTEN: 0.1, FaultKind.SLOW_ANSWER: 0.2}
        super().__init__(inner, seeded(random.Random(seed).random, rates))

    async def _commit(self, ops, expect):
        result = await super()._commit(ops, expect)
        if type(result).__name__ == "OutcomeUnknown":
            for _ in range(8):
                await asyncio.sleep(0)
            await self.inner._commit(ops, {})
        return result


@pytest.mark.parametrize("broken", [StaleReads, LateExpectations, WritesTwice])
def test_a_store_that_is_not_linearizable_is_found_out(broken, tmp_path):
    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32 - 1))
    def histories(seed):
        history = asyncio.run(run_history(MemoryHarness(), seed, broken))
        check(history.operations, tmp_path)

    with pytest.raises(NotLinearizableError, match="it is in") as raised:
        histories()
    assert (tmp_path / "history.jsonl").read_text().count("\n") > CLIENTS * OPERATIONS / 2
    assert str(tmp_path / "history.jsonl") in str(raised.value)
