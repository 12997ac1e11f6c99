"""The checker of histories: good ones pass, and each kind of bad one is found."""

import math
import random  # noqa: TID251 seeded
from itertools import permutations

import pytest

from tests.support import linearizability
from tests.support.linearizability import (
    Kind,
    NotLinearizableError,
    Operation,
    Outcome,
    UndecidedError,
    check,
    read_history,
)

INF = math.inf


def read(called, returned, found, key="k"):
    return Operation(1, key, Kind.READ, called, returned, found=found)


def write(called, returned, value, key="k"):
    outcome = Outcome.UNKNOWN if returned == INF else Outcome.OK
    return Operation(2, key, Kind.WRITE, called, returned, outcome, value=value)


def delete(called, returned, *, was_there):
    outcome = Outcome.UNKNOWN if returned == INF else Outcome.OK
    return Operation(3, "k", Kind.DELETE, called, returned, outcome, was_there=was_there)


def cas(called, returned, expected, value, found=None):
    outcome = Outcome.UNKNOWN if returned == INF else Outcome.CONFLICT if found is not None else Outcome.OK
    return Operation(4, "k", Kind.CAS, called, returned, outcome, value=value, expected=expected, found=found)


GOOD = {
    "nothing": [],
    "a read of a missing key": [read(0, 1, None)],
    "a read of what was written": [write(0, 1, "a"), read(2, 3, "a")],
    "a read during a write sees either": [write(0, 5, "a"), read(1, 2, None), read(3, 4, "a")],
    "a write may count after a later one": [write(0, 9, "a"), write(1, 2, "b"), read(3, 4, "b"), read(5, 6, "a")],
    "a write of unknown outcome that was": [write(0, INF, "a"), read(1, 2, None), read(8, 9, "a")],
    "a write of unknown outcome that was not": [write(0, INF, "a"), read(1, 2, None), read(8, 9, None)],
    "an unknown write that came late": [write(0, INF, "a"), write(1, 2, "b"), read(3, 4, "b"), read(5, 6, "a")],
    "a chain of compare-and-set": [cas(0, 1, None, "a"), cas(2, 3, "a", "b"), read(4, 5, "b")],
    "one of two compare-and-set": [cas(0, 5, None, "a"), cas(1, 6, None, "b", found="a"), read(7, 8, "a")],
    "an unknown compare-and-set that another saw": [cas(0, INF, None, "a"), cas(1, 2, None, "b", found="a")],
    "an unknown compare-and-set that lost": [cas(0, INF, None, "a"), cas(1, 2, None, "b"), read(3, 4, "b")],
    "a delete that says what it did": [write(0, 1, "a"), delete(2, 3, was_there=True), delete(4, 5, was_there=False)],
    "an unknown delete": [write(0, 1, "a"), delete(2, INF, was_there=None), read(3, 4, "a"), read(5, 6, None)],
    "keys that have nothing to do with each other": [write(0, 3, "a", "x"), write(1, 2, "b"), read(4, 5, "a", "x")],
}
BAD = {
    "a stale read": [write(0, 1, "a"), write(2, 3, "b"), read(4, 5, "a")],
    "a lost write": [write(0, 1, "a"), read(2, 3, None)],
    "a value from nowhere": [read(0, 1, "x")],
    "a read from the future": [read(0, 1, "a"), write(2, 3, "a")],
    "a value that comes and goes": [write(0, 9, "a"), read(1, 2, "a"), read(3, 4, None)],
    "two readers that differ in the order": [
        write(0, 19, "a"),
        write(1, 18, "b"),
        read(2, 3, "a"),
        read(4, 5, "b"),
        read(6, 7, "a"),
    ],
    "two winners": [cas(0, 5, None, "a"), cas(1, 6, None, "b")],
    "a conflict with what was never there": [cas(0, 1, None, "a"), cas(2, 3, "a", "c", found="z")],
    "a conflict that found what was expected": [cas(0, 1, None, "a"), cas(2, 3, "a", "c", found="a")],
    "an unknown write seen before it was called": [read(0, 1, "a"), write(2, INF, "a")],
    "an unknown write that happened twice": [
        write(0, INF, "a"),
        read(1, 2, "a"),
        write(3, 4, "b"),
        read(5, 6, "b"),
        read(7, 8, "a"),
    ],
    "an unknown compare-and-set that happened anyhow": [
        write(0, 1, "b"),
        cas(2, INF, None, "a"),
        read(3, 4, "b"),
        read(5, 6, "a"),
    ],
    "a delete of nothing that says otherwise": [delete(0, 1, was_there=True)],
    "a delete that left it": [write(0, 1, "a"), delete(2, 3, was_there=True), read(4, 5, "a")],
    "one bad key among good ones": [write(0, 1, "a", "x"), read(2, 3, "a", "x"), read(4, 5, "z")],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_can_be_explained_passes(name, tmp_path):
    check(GOOD[name], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_cannot_be_explained_is_found_and_kept(name, tmp_path):
    with pytest.raises(NotLinearizableError, match=str(tmp_path)) as raised:
        check(BAD[name], tmp_path / "histories")
    assert "is not linearizable" in str(raised.value)
    kept = read_history(tmp_path / "histories" / "history.jsonl")
    assert kept == sorted(BAD[name], key=lambda operation: operation.called)


def explained_by_trying_all(history):
    """Return whether any order of any choice of the unknown operations explains it: the definition, word by word."""
    unknown = [o for o in history if o.returned == INF]
    certain = [o for o in history if o.returned != INF]
    for chosen in range(1 << len(unknown)):
        happened = certain + [o for n, o in enumerate(unknown) if chosen >> n & 1]
        for order in permutations(happened):
            if any(b.returned < a.called for n, a in enumerate(order) for b in order[n + 1 :]):
                continue
            state = None
            for operation in order:
                can_be, state = operation.step(state)
                if not can_be:
                    break
            else:
                return True
    return False


def test_it_agrees_with_the_definition_on_small_histories(tmp_path):
    draw = random.Random(11)
    verdicts = []
    for _ in range(600):
        moments = draw.sample(range(100), 12)
        history = []
        for n in range(6):
            called, returned = sorted(moments[2 * n : 2 * n + 2])
            if draw.random() < 0.2:
                returned = INF
            values = [None, "0", "1", "2", "3"]
            match draw.randrange(4):
                case 0:
                    history.append(read(called, returned, draw.choice(values)))
                case 1:
                    history.append(write(called, returned, str(n)))
                case 2:
                    was_there = None if returned == INF else draw.random() < 0.5
                    history.append(delete(called, returned, was_there=was_there))
                case 3:
                    found = draw.choice(["0", "1", None, None]) if returned != INF else None
                    history.append(cas(called, returned, draw.choice(values), str(n), found))
        try:
            check(history, tmp_path)
        except NotLinearizableError:
            verdicts.append(False)
        else:
            verdicts.append(True)
        assert verdicts[-1] == explained_by_trying_all(history), history
    assert 50 < sum(verdicts) < 500


def test_a_search_that_takes_too_long_is_no_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(linearizability, "MAX_STEPS", 50)
    history = [write(n, 100 + n, f"{n}") for n in range(12)] + [read(200, 201, "none of them")]
    with pytest.raises(UndecidedError, match="50 steps"):
        check(history, tmp_path)


def test_many_concurrent_operations_are_decided_quickly(tmp_path):
    history = [
        operation
        for n in range(300)
        for operation in (
            write(10 * n, 10 * n + 9, f"{n}"),
            read(10 * n + 1, 10 * n + 12, f"{n}"),
            write(10 * n + 2, INF, f"u{n}"),
        )
    ]
    check(history, tmp_path)
