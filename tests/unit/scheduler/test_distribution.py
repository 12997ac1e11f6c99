"""Which executors' slots are reserved: each policy over what is free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onager.scheduler.policy.distribution import FreeSlots, TaskDistribution, distribute

BIAS, ROUND_ROBIN, LOCALITY = TaskDistribution


def nowhere(job_id, executor_id):
    del job_id, executor_id
    return 0.0


def chosen(policy, slots, claims, affinity=nowhere):
    free = [FreeSlots(name, left, total) for name, (left, total) in slots.items()]
    return [place.executor_id for place in distribute(policy, free, claims, affinity)]


def test_bias_fills_one_executor_before_the_next():
    assert chosen(BIAS, {"a": (2, 2), "b": (2, 2)}, ["j"] * 3) == ["a", "a", "b"]


def test_bias_begins_with_the_fullest():
    assert chosen(BIAS, {"a": (4, 4), "b": (1, 4)}, ["j"] * 2) == ["b", "a"]


def test_round_robin_takes_from_each_in_turn():
    assert chosen(ROUND_ROBIN, {"a": (2, 2), "b": (2, 2)}, ["j"] * 4) == ["a", "b", "a", "b"]


def test_round_robin_goes_by_the_part_that_is_free():
    assert chosen(ROUND_ROBIN, {"small": (1, 1), "large": (4, 8)}, ["j"] * 2) == ["small", "large"]


def test_locality_goes_where_plan_and_input_are_while_there_is_room():
    has = {("j", "b"): 1.5, ("j", "c"): 1.0}
    slots = {"a": (2, 2), "b": (1, 2), "c": (1, 2)}
    assert chosen(LOCALITY, slots, ["j"] * 4, lambda j, e: has.get((j, e), 0.0)) == ["b", "c", "a", "a"]


def test_locality_is_round_robin_for_who_has_nothing_anywhere():
    assert chosen(LOCALITY, {"a": (2, 2), "b": (2, 2)}, ["j"] * 3) == ["a", "b", "a"]


def test_each_place_names_the_job_that_it_is_for():
    places = distribute(BIAS, [FreeSlots("a", 2, 2)], ["one", "two"], nowhere)
    assert [(p.executor_id, p.job_id) for p in places] == [("a", "one"), ("a", "two")]


@pytest.mark.parametrize("policy", TaskDistribution)
@given(
    slots=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5).map(lambda n: (n, 5))),
    claims=st.lists(st.sampled_from(["j1", "j2"]), max_size=25),
)
def test_no_slot_is_given_twice_and_none_stays_free_while_somebody_wants_it(policy, slots, claims):
    given_slots = chosen(policy, slots, claims)
    assert all(given_slots.count(name) <= free for name, (free, _) in slots.items())
    assert len(given_slots) == min(len(claims), sum(free for free, _ in slots.values()))
