"""The calls of a mended program against those that are recorded: what runs, and what is refused.

The oracle says what the design says: a program fits if the calls that are recorded up to its last write are, in their
order, among the calls of the mended program up to that write, and if no other write comes before it.
"""

from hypothesis import example, given
from hypothesis import strategies as st

from onager.scheduler.connect.matching import Asked, Recorded, Why, match
from onager.scheduler.connect.program_targets import Effect

effects = {"r": Effect.READ, "s": Effect.SETTING, "w": Effect.WRITE}
calls = st.lists(st.tuples(st.sampled_from("rrsww"), st.integers(0, 2)), max_size=9)


def asked(call):
    return Asked(call[0], "t", "session", str(call[1]))


def run(before, now, *, keeps=False):
    """Match a program; return what becomes of each of its calls, until one is refused, and what is left."""
    recorded = [Recorded(number, asked(call), effects[call[0]]) for number, call in enumerate(before, 1)]
    position, found = 0, []
    for call in now:
        left = [each for each in recorded if each.number > position]
        result = match(left, asked(call), effects[call[0]], keeps=keeps, is_beside=False)
        found.append(result)
        if result.refused is not None:
            break
        if result.recorded is not None:
            position = result.recorded.number
    return found, [each for each in recorded if each.number > position]


def is_among(some, others):
    left = iter(others)
    return all(each in left for each in some)


def fits(before, now):
    """Return whether a mended program fits, and until which of its writes it does; by trying all."""
    writes = [index for index, call in enumerate(before) if call[0] == "w"]
    made = [index for index, call in enumerate(now) if call[0] == "w"]
    for done, (old, new) in enumerate(zip(writes, made, strict=False)):
        if before[old] != now[new] or not is_among(before[:old], now[:new]):
            return False, done
    return len(made) >= len(writes), min(len(made), len(writes))


@given(calls, calls)
@example([("r", 0), ("r", 0), ("w", 0)], [("r", 1), ("r", 0), ("w", 0)])
@example([("r", 0), ("w", 0)], [("r", 1), ("r", 0), ("w", 0)])
def test_a_program_fits_exactly_if_its_record_is_among_its_calls(before, now):
    found, left = run(before, now)
    is_fitting, matched = fits(before, now)
    writes = [each for each in found if each.recorded is not None and each.recorded.effect is Effect.WRITE]
    assert len([each for each in writes if each.stands]) == matched
    is_refused = bool(found) and found[-1].refused is not None
    is_missing = any(each.effect is Effect.WRITE for each in left)
    assert is_fitting == (not is_refused and not is_missing)


@given(calls, calls)
def test_what_comes_before_the_first_read_that_differs_stands_and_what_comes_behind_runs(before, now):
    found, _ = run(before, now)
    expected = iter(before)
    waiting = next(expected, None)
    for call, result in zip(now, found, strict=False):
        if result.refused is not None:
            return
        assert (result.recorded is not None) == (call == waiting)
        assert result.stands == (call == waiting and call[0] != "s")
        if call == waiting:
            waiting = next(expected, None)


@given(calls, st.lists(st.tuples(st.integers(0, 9), st.tuples(st.sampled_from("rs"), st.integers(3, 5))), max_size=5))
def test_reads_and_settings_may_be_added_anywhere(before, added):
    now = list(before)
    for place, call in added:
        now.insert(min(place, len(now)), call)
    found, left = run(before, now)
    assert not left
    assert [each.recorded for each in found if each.recorded is not None] == [
        Recorded(number, asked(call), effects[call[0]]) for number, call in enumerate(before, 1)
    ]


@given(calls, calls)
def test_a_record_that_stands_takes_each_outcome_once_and_no_write_runs_before_all_are_matched(before, now):
    found, _ = run(before, now, keeps=True)
    taken = [each.recorded.number for each in found if each.recorded is not None and each.refused is None]
    assert taken == sorted(set(taken))
    for index, (call, result) in enumerate(zip(now, found, strict=False)):
        if call[0] == "w" and result.refused is None and not result.stands:
            rest = set(range(1, len(before) + 1)) - {number for number in taken if number <= (taken or [0])[-1]}
            behind = max((each.recorded.number for each in found[:index] if each.recorded), default=0)
            assert not [number for number in rest if number > behind and before[number - 1][0] == "w"]


@given(calls)
def test_a_program_that_was_not_changed_is_answered_from_its_record(before):
    found, left = run(before, before)
    assert not left
    assert all(result.recorded is not None and result.refused is None for result in found)
    assert [call for call, result in zip(before, found, strict=True) if not result.stands] == [
        call for call in before if call[0] == "s"
    ]


def test_a_write_that_differs_or_comes_behind_a_read_that_differs_says_so():
    old, new = ("w", 0), ("w", 1)
    (found,), _ = run([old], [new])
    assert found.refused is Why.DIFFERS
    found, _ = run([("r", 0), old], [("r", 1), old])
    assert found[-1].refused is Why.BEHIND
    recorded = [Recorded(1, asked(old), Effect.WRITE)]
    assert match(recorded, asked(old), Effect.WRITE, keeps=False, is_beside=True).refused is Why.BEHIND_OTHER
    other = asked(new)._replace(target="elsewhere")
    assert match(recorded, other, Effect.WRITE, keeps=True, is_beside=False).refused is Why.UNKNOWN
    assert match(recorded, asked(new), Effect.WRITE, keeps=True, is_beside=False).stands
    assert match([], asked(new), Effect.WRITE, keeps=False, is_beside=False).recorded is None
