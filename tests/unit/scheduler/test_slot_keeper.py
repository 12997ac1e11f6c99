"""What executors' lists say of the books."""

from types import SimpleNamespace

import pytest

from onager.clock import ManualClock
from onager.ids import ExecutorId, Incarnation, JobId, Partition, StageId, TaskKey
from onager.scheduler.engine.slot_keeper import SlotKeeper
from onager.scheduler.policy.slot_books import SlotBooks

E1, LIFE = ExecutorId("e1"), Incarnation("life")


def key(partition):
    return TaskKey(JobId("job-1"), StageId(1), 0, Partition(partition), 0)


@pytest.fixture
def ledger():
    made = SlotBooks()
    made.adopt(E1, LIFE, [key(0), key(1)], 0.0)
    return made


@pytest.fixture
def session():
    return SimpleNamespace(executor_id=E1, incarnation=LIFE, held={}, list_number=3)


@pytest.fixture
def keeper(ledger):
    push = SimpleNamespace(ledger=ledger, pool=None, confirmed={key(0): 4, key(1): 4})
    members = SimpleNamespace(listen=lambda _: None, live_incarnations=frozenset({"a", "b"}))
    return SlotKeeper(push, None, None, None, members, None, ManualClock())


def test_a_task_that_the_executor_had_and_has_no_more_is_over(keeper, ledger, session):
    keeper.heard_list(session, 5, {key(1)})
    assert not ledger.has(E1, key(0))
    assert ledger.held(E1, LIFE) == 1
    assert (set(session.held), session.list_number) == ({key(1)}, 5)


def test_a_list_from_before_the_task_was_taken_says_nothing(keeper, ledger, session):
    keeper.heard_list(session, 4, set())
    assert ledger.held(E1, LIFE) == 2


def test_a_list_says_nothing_of_a_task_that_may_be_on_its_way(keeper, ledger, session):
    keeper._push.confirmed.clear()
    keeper.heard_list(session, 9, set())
    assert ledger.held(E1, LIFE) == 2


def test_what_was_launched_a_moment_ago_counts_as_held_though_no_list_shows_it(keeper, session):
    session.held = {key(0): 0.0, key(1): -60.0}
    keeper.heard_list(session, 4, set())
    assert set(session.held) == {key(0)}


def test_who_has_died_since_an_executor_was_asked_may_be_the_one_that_it_means(keeper):
    keeper._on_peers()
    keeper._must_take_over = False
    keeper.found_elsewhere([key(0)])
    assert not keeper._must_take_over
    keeper._members.live_incarnations = frozenset({"a"})
    keeper._on_peers()
    keeper._must_take_over = False  # a round has sent everything again, and here is the answer to one from before
    keeper.found_elsewhere([key(0)])
    assert keeper._must_take_over
    keeper._must_take_over = False
    keeper._clock.advance(2000)
    keeper.found_elsewhere([key(0)])
    assert not keeper._must_take_over, "nobody has died lately"
