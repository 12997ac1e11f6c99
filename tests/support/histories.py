"""Clients that record what they do to registers, as a history to be checked."""

import asyncio
import itertools
import math
import random  # noqa: TID251 seeded
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from onager.errors import OutcomeUnknownError, StateUnavailableError
from onager.state_backend import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    KeyRange,
    Keyspace,
    KeyValue,
    OutcomeUnknown,
    Put,
    StateBackendClient,
)
from tests.support.linearizability import Kind, Operation, Outcome

REGISTERS = Keyspace.JobLog


class History:
    """What the clients of one run did, by a clock that counts calls and returns."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.moments = itertools.count()

    def counts(self) -> Counter[str]:
        """Return how many operations there were of each kind and outcome."""
        return Counter(f"{operation.kind} {operation.outcome}" for operation in self.operations)


class RecordingClient:
    """Does things to registers through *backend*; what surely did not happen is not recorded."""

    def __init__(self, backend: StateBackendClient, history: History, number: int) -> None:
        self.backend = backend
        self.history = history
        self.number = number
        self.unavailable = 0
        self._seen: dict[str, KeyValue | None] = {}
        self._values = itertools.count()

    async def read(self, key: str, how: str = "get") -> KeyValue | None:
        """Read a register: by ``get``, as part of a ``listing``, or in a ``snapshot``."""

        async def call() -> KeyValue | None:
            match how:
                case "get":
                    return await self.backend.get(REGISTERS, key)
                case "listing":
                    page = await self.backend.get_from_prefix(REGISTERS, "")
                    return next((item for item in page if item.key == key), None)
                case _:
                    seen = await self.backend.read_txn([(REGISTERS, key)], [KeyRange(REGISTERS)])
                    found = next((item for item in seen.ranges[0] if item.key == key), None)
                    assert seen.values[REGISTERS, key] == found
                    return found

        def record(found: object) -> dict[str, object]:
            assert found is None or isinstance(found, KeyValue)
            self._seen[key] = found
            return {"found": text(found)}

        await self._record(key, Kind.READ, call, record)
        return self._seen.get(key)

    async def write(self, key: str) -> None:
        """Put a new value, whatever is there."""
        value = self._new_value()
        await self._record(
            key, Kind.WRITE, lambda: self.backend.put(REGISTERS, key, value.encode()), lambda _: {}, value=value
        )

    async def delete(self, key: str) -> None:
        """Delete the register, whatever is there."""
        await self._record(
            key, Kind.DELETE, lambda: self.backend.delete(REGISTERS, key), lambda was_there: {"was_there": was_there}
        )

    async def compare_and_set(self, key: str, *, is_delete: bool = False) -> None:
        """Put a new value if the register is as this client saw it last."""
        seen = self._seen.get(key)
        value = self._new_value()
        expect = {(REGISTERS, key): ABSENT if seen is None else seen.mod_revision}
        op = Delete(REGISTERS, key) if is_delete else Put(REGISTERS, key, value.encode())

        def record(result: object) -> dict[str, object]:
            match result:
                case Committed(revision):
                    self._seen[key] = None if is_delete else KeyValue(key, value.encode(), revision)
                    return {}
                case Conflict(found):
                    self._seen[key] = found[REGISTERS, key]
                    return {"outcome": Outcome.CONFLICT, "found": text(found[REGISTERS, key])}
                case OutcomeUnknown():
                    return {"outcome": Outcome.UNKNOWN, "returned": math.inf}
                case other:
                    raise AssertionError(f"not an answer to an unfenced write: {other}")

        await self._record(
            key,
            Kind.CAS,
            lambda: self.backend.put_txn([op], expect=expect),
            record,
            expected=text(seen),
            value=None if is_delete else value,
        )

    def _new_value(self) -> str:
        return f"{self.number}.{next(self._values)}"

    async def _record(
        self,
        key: str,
        kind: Kind,
        call: Callable[[], Awaitable[object]],
        reported: Callable[[object], dict[str, object]],
        **known: object,
    ) -> None:
        called = next(self.history.moments)
        try:
            result = await call()
        except StateUnavailableError:
            self.unavailable += 1
            return
        except OutcomeUnknownError:
            more: dict[str, object] = {"outcome": Outcome.UNKNOWN, "returned": math.inf}
        else:
            more = {"returned": next(self.history.moments), **reported(result)}
        fields = {"client": self.number, "key": key, "kind": kind, "called": called, **known, **more}
        self.history.operations.append(Operation(**fields))


def text(item: KeyValue | None) -> str | None:
    return None if item is None else item.value.decode()


async def run_clients(
    backends: Sequence[StateBackendClient],
    history: History,
    seed: int,
    *,
    keys: Sequence[str],
    operations: int,
    pause_s: float = 0.0,
) -> list[RecordingClient]:
    """Let each of *backends* be a client that does *operations* things to *keys*, all at the same time.

    *pause_s* is how long a client rests between two, on average.
    """

    async def run(client: RecordingClient) -> None:
        draw = random.Random(f"{seed}/{client.number}")
        for _ in range(operations):
            key = draw.choice(keys)
            match draw.choices(("read", "write", "delete", "cas", "cas delete"), (30, 12, 6, 45, 7))[0]:
                case "read":
                    await client.read(key, draw.choice(("get", "listing", "snapshot")))
                case "write":
                    await client.write(key)
                case "delete":
                    await client.delete(key)
                case what:
                    if draw.random() < 0.7:
                        await client.read(key)
                    await client.compare_and_set(key, is_delete=what == "cas delete")
            for _ in range(draw.randrange(3)):
                await asyncio.sleep(0)
            if pause_s:
                await asyncio.sleep(draw.expovariate(1 / pause_s))

    clients = [RecordingClient(backend, history, number) for number, backend in enumerate(backends)]
    await asyncio.gather(*(run(client) for client in clients))
    return clients
