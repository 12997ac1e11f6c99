"""Writers whose writes can all be accounted for afterwards, whatever their outcome.

They do what a job's log does: a batch goes to the next free key, which it expects to be absent. When the outcome is not
known they look, and where nothing is to be seen they write the very same key again, so that only one of both can win.
"""

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence

from onager.errors import StateUnavailableError
from onager.state_backend import ABSENT, Committed, Conflict, Keyspace, OutcomeUnknown, Put, StateBackendClient

LOG, HEADS = Keyspace.JobLog, Keyspace.JobHeads
LAST = "last"
_COUNTER = (HEADS, "counter")


class Ledger:
    """What was written to one log and one counter by any number of writers, and what became of it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seq_of: dict[str, int] = {}
        """Where each acknowledged batch is."""
        self.increments: Counter[str] = Counter()
        """How many increments each writer was acknowledged."""
        self.received: list[tuple[int, str]] = []
        """What `follow` received, in order: where, and which batch."""
        self._attempted: set[str] = set()

    # -- writing

    async def append(self, backend: StateBackendClient, batch: str, seq: int = 0) -> int:
        """Append *batch* at *seq* or behind it; return where it is."""
        self._attempted.add(batch)
        self.counts["tried"] += 1
        is_there = False
        while not is_there:
            result = await self._put(backend, _key(seq), batch)
            match result:
                case Committed():
                    break
                case Conflict(found):
                    there = found[LOG, _key(seq)]
                    is_there, seq = self._settle(None if there is None else there.value.decode(), batch, seq)
                case OutcomeUnknown():
                    is_there, seq = await self.settle_unknown(backend, batch, seq)
        self.counts["unknown, done"] += is_there
        self.counts["acknowledged"] += 1
        self.seq_of[batch] = seq
        return seq

    async def settle_unknown(self, backend: StateBackendClient, batch: str, seq: int) -> tuple[bool, int]:
        """Return whether *batch* is at *seq*, and else where to write it: at *seq* again when nothing is there."""
        there = await self._get(backend, (LOG, _key(seq)))
        return self._settle(None if there is None else there.decode(), batch, seq)

    @staticmethod
    def _settle(there: str | None, batch: str, seq: int) -> tuple[bool, int]:
        if there is None or there == batch:
            return there == batch, seq
        return False, seq + 1

    async def increment(self, backend: StateBackendClient, writer: str) -> None:
        """Add one to the counter, whose value says how much of it is *writer*'s."""
        self.counts["tried"] += 1
        wanted = self.increments[writer] + 1
        while True:
            now = await self._read(backend, _COUNTER)
            value = Counter(json.loads(now.value)) if now is not None else Counter()
            if value[writer] == wanted:
                self.counts["unknown, done"] += 1
                break
            value[writer] += 1
            expected = ABSENT if now is None else now.mod_revision
            try:
                result = await backend.put_txn(
                    [Put(*_COUNTER, json.dumps(value).encode())], expect={_COUNTER: expected}
                )
            except StateUnavailableError:
                self.counts["unavailable"] += 1
                continue
            if isinstance(result, Committed):
                break
            self.counts["unknown" if isinstance(result, OutcomeUnknown) else "conflict"] += 1
        self.counts["acknowledged"] += 1
        self.increments[writer] = wanted

    async def write(self, backend: StateBackendClient, writer: str, is_enough: Callable[[], bool]) -> None:
        """Append batches, and increment once for every five, until it is enough."""
        seq = 0
        for n in itertools.count():
            if is_enough():
                return
            seq = await self.append(backend, f"{writer}/{n}", seq) + 1
            if n % 5 == 0:
                await self.increment(backend, writer)

    async def write_all(
        self, backends: Sequence[StateBackendClient], is_enough: Callable[[], bool], *, writers: int = 8
    ) -> None:
        """Write with *writers* tasks over *backends* until it is enough; the last batch is `LAST`."""
        async with asyncio.TaskGroup() as tasks:
            for n, backend in zip(range(writers), itertools.cycle(backends), strict=False):
                tasks.create_task(self.write(backend, f"w{n}", is_enough))
        await self.append(backends[0], LAST)

    async def _put(self, backend: StateBackendClient, key: str, batch: str) -> Committed | Conflict | OutcomeUnknown:
        while True:
            try:
                result = await backend.put_txn([Put(LOG, key, batch.encode())], expect={(LOG, key): ABSENT})
            except StateUnavailableError:
                self.counts["unavailable"] += 1
                continue
            if isinstance(result, OutcomeUnknown):
                self.counts["unknown"] += 1
            return result

    async def _read(self, backend: StateBackendClient, key: tuple[Keyspace, str]):
        while True:
            try:
                return await backend.get(*key)
            except StateUnavailableError:
                self.counts["unavailable"] += 1

    async def _get(self, backend: StateBackendClient, key: tuple[Keyspace, str]) -> bytes | None:
        found = await self._read(backend, key)
        return None if found is None else found.value

    # -- accounting

    @property
    def incremented(self) -> int:
        return self.increments.total()

    async def check(self, backend: StateBackendClient, about: str = "") -> None:
        """Hold what is stored against what was acknowledged: nothing lost, nothing doubled, no gap."""
        page = await backend.get_from_prefix(LOG, "job/")
        stored = [(int(item.key.removeprefix("job/")), item.value.decode()) for item in page]
        counter = await backend.get(*_COUNTER)
        value = Counter(json.loads(counter.value)) if counter is not None else Counter()
        times = Counter(batch for _, batch in stored)
        self.counts["lost"] = sum(stored_at not in stored for stored_at in self._acknowledged()) + sum(
            (self.increments - value).values()
        )
        self.counts["doubled"] = sum(n - 1 for n in times.values()) + sum((value - self.increments).values())
        text = f"{self} {about}"
        assert self.counts["lost"] == 0, text
        assert self.counts["doubled"] == 0, text
        assert [seq for seq, _ in stored] == list(range(len(stored))), text
        assert times.keys() <= self._attempted, text
        assert self.received in ([], stored), text

    async def follow(self, backend: StateBackendClient, from_revision: int) -> None:
        """Watch the log until `LAST` was received: each batch comes once, in the order of commits."""
        received: list[tuple[int, str]] = []
        revisions: list[int] = []
        while not received or received[-1][1] != LAST:
            first = revisions[-1] + 1 if revisions else from_revision
            # A watch ends with this when no member answers in time; the watcher then resumes after the last event.
            with contextlib.suppress(StateUnavailableError):
                async with backend.watch(LOG, "job/", from_revision=first) as events:
                    while not received or received[-1][1] != LAST:
                        event = await anext(events)
                        received.append((int(event.key.removeprefix("job/")), event.value.decode()))
                        revisions.append(event.mod_revision)
        assert received == [(n, batch) for n, (_, batch) in enumerate(received)]
        assert revisions == sorted(set(revisions))
        self.received = received
        self.counts["received"] = len(received)

    def _acknowledged(self) -> list[tuple[int, str]]:
        return [(seq, batch) for batch, seq in self.seq_of.items()]

    def __str__(self) -> str:
        names = ("tried", "acknowledged", "unknown", "unknown, done", "unavailable", "received", "lost", "doubled")
        return ", ".join(f"{name.replace(',', ' but')}: {self.counts[name]}" for name in names)


def _key(seq: int) -> str:
    return f"job/{seq:06}"
