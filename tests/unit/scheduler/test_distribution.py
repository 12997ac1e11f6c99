"""Which free slots are filled first: each policy over what is free."""

from hypothesis import given
from hypothesis import strategies as st

from onager.scheduler.policy.distribution import FreeSlots, TaskDistribution, near_their_input, spread

BIAS, ROUND_ROBIN, LOCALITY = TaskDistribution


def free_slots(slots):
    return [FreeSlots(name, left, total) for name, (left, total) in slots.items()]


def chosen(policy, slots, wanted):
    return [executor_id for executor_id, job_id in spread(policy, free_slots(slots), wanted) if job_id is None]


def near(slots, claims, has):
    places = near_their_input(free_slots(slots), claims, lambda j, e: has.get((j, e), 0.0))
    assert [job_id for _, job_id in places] == list(claims)[: len(places)]
    return [executor_id for executor_id, _ in places]


def test_bias_fills_one_executor_before_the_next():
    assert chosen(BIAS, {"a": (2, 2), "b": (2, 2)}, 3) == ["a", "a", "b"]


def test_bias_begins_with_the_fullest():
    assert chosen(BIAS, {"a": (4, 4), "b": (1, 4)}, 2) == ["b", "a"]


def test_round_robin_takes_from_each_in_turn():
    assert chosen(ROUND_ROBIN, {"a": (2, 2), "b": (2, 2)}, 4) == ["a", "b", "a", "b"]


def test_round_robin_begins_with_the_executor_with_the_largest_free_part():
    assert chosen(ROUND_ROBIN, {"small": (1, 1), "large": (4, 8)}, 2) == ["small", "large"]


def test_locality_goes_where_the_input_is_while_there_is_room():
    slots = {"a": (2, 2), "b": (1, 2), "c": (1, 2)}
    assert near(slots, ["j"] * 4, {("j", "b"): 1.0, ("j", "c"): 0.5}) == ["b", "c", "a", "a"]


def test_locality_spreads_tasks_without_local_input():
    assert near({"a": (2, 2), "b": (2, 2)}, ["j"] * 3, {}) == ["a", "b", "a"]


@given(
    slots=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5).map(lambda n: (n, 5))),
    wanted=st.integers(0, 25),
    policy=st.sampled_from(TaskDistribution),
)
def test_no_slot_is_used_twice_and_none_stays_free_while_a_job_wants_it(policy, slots, wanted):
    given_slots = near(slots, ["j"] * wanted, {}) if policy is LOCALITY else chosen(policy, slots, wanted)
    assert all(given_slots.count(name) <= free for name, (free, _) in slots.items())
    assert len(given_slots) == min(wanted, sum(free for free, _ in slots.values()))
