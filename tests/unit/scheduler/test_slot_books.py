"""The books of slots: every movement keeps the number that is held."""

import pytest

from onager.ids import TaskKey
from onager.scheduler.policy.slot_books import SlotBooks

E1, LIFE = "e1", "life"
T1, T2, T9 = (TaskKey("job", 1, 0, partition, 0) for partition in (1, 2, 9))


@pytest.fixture
def changed():
    return []


@pytest.fixture
def ledger(changed):
    made = SlotBooks()
    made.listen(changed.append)
    return made


def test_a_slot_goes_from_the_hand_to_a_task_and_back(ledger, changed):
    ledger.take_in_hand(E1, LIFE, 2)
    ledger.launch(E1, LIFE, [T1, T2], 0.0)
    assert ledger.begin_report(E1, LIFE, [T1, T9]) == {T1}
    assert ledger.held(E1, LIFE) == 2
    assert ledger.end_report(E1, LIFE, {T1}, {T1}) == 1
    assert ledger.held(E1, LIFE) == 2
    assert changed == []  # nobody else need know
    ledger.give_back(E1, LIFE, 1)
    assert (ledger.held(E1, LIFE), changed) == (1, [E1])


def test_a_report_frees_a_slot_once(ledger):
    ledger.take_in_hand(E1, LIFE, 1)
    ledger.launch(E1, LIFE, [T1], 0.0)
    assert ledger.begin_report(E1, LIFE, [T1]) == {T1}
    assert ledger.begin_report(E1, LIFE, [T1]) == set()  # it came twice at once
    ledger.end_report(E1, LIFE, {T1}, {T1})
    assert ledger.begin_report(E1, LIFE, [T1]) == set()
    assert ledger.held(E1, LIFE) == 1


def test_a_report_that_was_not_stored_frees_nothing(ledger):
    ledger.take_in_hand(E1, LIFE, 1)
    ledger.launch(E1, LIFE, [T1], 3.0)
    ledger.begin_report(E1, LIFE, [T1])
    assert ledger.end_report(E1, LIFE, {T1}, set()) == 0
    assert list(ledger.launched()) == [(E1, LIFE, T1, 3.0)]


def test_a_task_without_a_slot_in_the_hand_takes_one_all_the_same(ledger, changed):
    ledger.launch(E1, LIFE, [T1], 0.0)
    ledger.launch(E1, LIFE, [T1], 0.0)
    assert (ledger.held(E1, LIFE), changed) == (1, [E1])


def test_adopting_and_forgetting(ledger, changed):
    ledger.adopt(E1, LIFE, [T1, T2], 0.0)
    assert ledger.has(E1, T1)
    assert ledger.forget(E1, [T1, T9]) == 1
    assert ledger.forget("e2", [T1]) == 0
    assert (ledger.held(E1, LIFE), changed) == (1, [E1, E1])


def test_another_life_begins_with_nothing(ledger):
    ledger.take_in_hand(E1, LIFE, 2)
    assert ledger.held(E1, "next") == 0
    ledger.take_in_hand(E1, "next", 1)
    assert (ledger.held(E1, LIFE), ledger.held(E1, "next")) == (0, 1)
    ledger.close(E1, LIFE)
    assert ledger.lives() == [(E1, "next")]
    ledger.close(E1, "next")
    assert ledger.lives() == []


def test_a_task_that_was_adopted_before_its_launch_was_known_to_be_stored_has_one_slot(ledger, changed):
    ledger.take_in_hand(E1, LIFE, 1)
    ledger.adopt(E1, LIFE, [T1], 1.0)
    assert ledger.held(E1, LIFE) == 2
    changed.clear()
    ledger.launch(E1, LIFE, [T1], 2.0)
    assert (ledger.held(E1, LIFE), changed) == (1, [E1])
    assert list(ledger.launched()) == [(E1, LIFE, T1, 1.0)]


def test_what_comes_late_of_a_life_that_is_over_leaves_the_books_of_the_next_alone(ledger):
    ledger.take_in_hand(E1, LIFE, 2)
    ledger.launch(E1, LIFE, [T1], 0.0)
    ledger.begin_report(E1, LIFE, [T1])
    ledger.take_in_hand(E1, "next", 1)
    ledger.launch(E1, "next", [T2], 5.0)
    ledger.give_back(E1, LIFE, 1)
    assert ledger.begin_report(E1, LIFE, [T1]) == set()
    assert ledger.end_report(E1, LIFE, {T1}, {T1}) == 0
    assert list(ledger.launched()) == [(E1, "next", T2, 5.0)]
