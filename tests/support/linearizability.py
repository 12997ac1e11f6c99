"""Whether a concurrent history of registers can be explained by one order of its operations.

A history is linearizable when each operation seems to happen at one moment between its call and its return. One
whose outcome is unknown may happen at any moment after its call, or never.

The search is that of Wing and Gong with Lowe's memory of what was tried; each key is searched by itself, since a
history is linearizable exactly when that of each of its keys is.

Sources: J. Wing, C. Gong, "Testing and Verifying Concurrent Objects", 1993; G. Lowe, "Testing for Linearizability",
2017; M. Herlihy, J. Wing, "Linearizability: A Correctness Condition for Concurrent Objects", 1990 (locality).
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

MAX_STEPS = 3_000_000
"""After this many steps, a search ends with an error."""


class Kind(StrEnum):
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    CAS = "cas"


class Outcome(StrEnum):
    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Operation:
    """One operation on one register, whose value is `None` when the key is missing.

    Each written value is written only once, so that a value says which write is seen. *called* and *returned* are
    moments of one clock, no two of them the same.
    """

    client: int
    key: str
    kind: Kind
    called: float
    returned: float
    """Infinite when the outcome is unknown."""
    outcome: Outcome = Outcome.OK
    value: str | None = None
    """What a write or a compare-and-set puts."""
    expected: str | None = None
    """What a compare-and-set compares with."""
    found: str | None = None
    """What a read, or a compare-and-set in conflict, found."""
    was_there: bool | None = None
    """What a delete said, where it is known."""

    def step(self, state: str | None) -> tuple[bool, str | None]:
        """Return whether this can happen to a register that holds *state*, and what it holds afterwards."""
        match self.kind:
            case Kind.READ:
                return self.found == state, state
            case Kind.WRITE:
                return True, self.value
            case Kind.DELETE:
                return self.was_there in (None, state is not None), None
            case Kind.CAS if self.outcome is Outcome.UNKNOWN:
                return state == self.expected, self.value  # otherwise it changes nothing, as if it never happened
            case Kind.CAS if self.outcome is Outcome.CONFLICT:
                return state == self.found and state != self.expected, state
            case Kind.CAS:
                return state == self.expected, self.value


class NotLinearizableError(AssertionError):
    """No order of a key's operations explains what they returned."""


class UndecidedError(AssertionError):
    """The search was given up."""


def check(history: Iterable[Operation], directory: Path) -> None:
    """Raise `NotLinearizableError`, with the history written to a file in *directory*, unless it is linearizable."""
    history = sorted(history, key=lambda operation: operation.called)
    by_key: dict[str, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    for key, operations in by_key.items():
        try:
            stuck_at = _search(operations)
        except UndecidedError as error:
            raise UndecidedError(f"{error}; the history is in {_write(history, directory)}") from None
        if stuck_at is not None:
            raise NotLinearizableError(
                f"the history of {key!r} is not linearizable: after an order of as many as could be ordered, none of "
                f"{_shown(stuck_at)} can be next; it is in {_write(history, directory)}"
            )


def _search(operations: Sequence[Operation]) -> list[Operation] | None:
    """Return `None` when there is an order, else the operations at which the longest attempt ended."""
    everything = (1 << len(operations)) - 1
    certain = sum(1 << n for n, operation in enumerate(operations) if operation.returned != math.inf)
    tried: set[tuple[int, str | None]] = set()
    paths: list[tuple[int, str | None]] = [(everything, None)]  # what is left, and the register's state
    fewest, stuck_at = math.inf, list[Operation]()
    for _ in range(MAX_STEPS):
        if not paths:
            return stuck_at
        left, state = paths.pop()
        if not left & certain:
            return None
        following, possible = _following(operations, left, state)
        if not following and (left & certain).bit_count() < fewest:
            fewest, stuck_at = (left & certain).bit_count(), possible
        for path in following:
            if path not in tried:
                tried.add(path)
                paths.append(path)
    raise UndecidedError(f"{MAX_STEPS:,} steps did not decide a history of {len(operations)} operations")


def _following(
    operations: Sequence[Operation], left: int, state: str | None
) -> tuple[list[tuple[int, str | None]], list[Operation]]:
    """Return where one more operation can lead, the most promising last, and what could be next by its time."""
    likely: list[tuple[int, str | None]] = []
    unlikely: list[tuple[int, str | None]] = []
    possible: list[Operation] = []
    first_return = math.inf
    rest = left
    while rest:
        bit = rest & -rest
        rest -= bit
        operation = operations[bit.bit_length() - 1]
        if operation.called > first_return:
            break  # one that is left returned before this one and all later ones were called
        first_return = min(first_return, operation.returned)
        possible.append(operation)
        can_be, after = operation.step(state)
        if can_be:
            (unlikely if operation.returned == math.inf else likely).append((left - bit, after))
    return unlikely + likely[::-1], possible


def _write(history: Sequence[Operation], directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "history.jsonl"
    path.write_text("".join(json.dumps(asdict(operation)) + "\n" for operation in history))
    return path


def read_history(path: Path) -> list[Operation]:
    """Return a history that `check` wrote."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [Operation(**{**o, "kind": Kind(o["kind"]), "outcome": Outcome(o["outcome"])}) for o in found]


def _shown(operations: Sequence[Operation]) -> str:
    return "; ".join(
        f"client {o.client}'s {o.kind} ({o.outcome}, value {o.value}, expected {o.expected}, found {o.found})"
        for o in operations[:6]
    )
