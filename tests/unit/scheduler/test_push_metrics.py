"""What an operator sees of push mode."""

import pytest
from prometheus_client import CollectorRegistry

from onager.ids import ExecutorId, JobId
from onager.scheduler.push_metrics import PushMetrics
from onager.state_backend import Keyspace
from tests.unit.scheduler.push_world import PushWorld

JOB, E1 = JobId("job-1"), ExecutorId("e1")


@pytest.fixture
async def world(clock):
    """Two of the three slots of an executor have a task, after half a second's wait."""
    made = PushWorld(clock)
    await made.start()
    await made.register("e1", 3)
    await made.run_job(JOB, 2)
    made.registry = CollectorRegistry()
    made.replica.push.observer = PushMetrics(made.registry, made.replica.slots)
    clock.advance(500)
    await made.fill()
    yield made
    await made.replica.writers.close()


def value(world, name, **labels):
    return world.registry.get_sample_value(f"onager_push_{name}", labels)


def slots(world):
    return {holder: value(world, "slots", executor_id="e1", holder=holder) for holder in ("self", "others", "free")}


def keys_of(world):
    return [key for *_, key, _ in world.replica.push.ledger.launched()]


async def test_launches_and_how_long_their_tasks_have_waited(world):
    assert value(world, "launches_total") == 2
    assert value(world, "wait_seconds_count") == 2
    assert 1.0 <= value(world, "wait_seconds_sum") < 1.2


async def test_slots_by_who_holds_them(world):
    assert slots(world) == {"self": 2, "others": 0, "free": 1}
    pool = world.replica.slots
    record = pool.find(E1)
    another = record.model_copy(update={"holders": {**record.holders, "another": 1}})
    await world.backend.put(Keyspace.Slots, E1, another.encoded())
    await pool.refresh()
    assert slots(world) == {"self": 2, "others": 1, "free": 0}
    await world.backend.delete(Keyspace.Slots, E1)
    await pool.refresh()
    assert slots(world) == {"self": None, "others": None, "free": None}


async def test_how_long_a_task_is_on_its_way_counts_once(world, clock):
    clock.advance(20)
    push, record = world.replica.push, world.replica.executors.find("e1")
    for number in (1, 2):
        push.taken(record, keys_of(world), number)
    assert value(world, "delivery_seconds_count") == 2
    assert value(world, "delivery_seconds_sum") == pytest.approx(0.04)


async def test_what_goes_wrong(world):
    push, record = world.replica.push, world.replica.executors.find("e1")
    first, second = keys_of(world)
    push.failed()
    push.refused(record, [first], "the executor has no slot for the task", pause_s=0.5)
    push.given_up(record, [second])
    found = {name: value(world, f"{name}_total") for name in ("call_failures", "refusals", "given_up", "sent_again")}
    assert found == {"call_failures": 1, "refusals": 1, "given_up": 1, "sent_again": 0}
    assert slots(world)["free"] == 3


async def test_launches_in_nobodys_books_are_sent_again_and_counted(world):
    push = world.replica.push
    push.ledger.forget(E1, keys_of(world))
    await world.replica.keeper.patrol()
    assert value(world, "sent_again_total") == 2
