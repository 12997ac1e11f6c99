"""Groups of queued commands, and a command that fails in a group."""

import pytest

from onager.clock import ManualClock
from onager.errors import LeaseExpiredError
from onager.state_backend import ABSENT, Committed, Conflict, Delete, DeleteRange, Keyspace, LeaseId, Put
from onager.state_backend.local import DictTable, Engine

LOG, HEADS = Keyspace.JobLog, Keyspace.JobHeads


@pytest.fixture
def table():
    return DictTable()


@pytest.fixture
def engine(table):
    return Engine(table, ManualClock())


def commit(engine, ops, expect=None):
    return engine.run(lambda engine: engine.commit(ops, expect or {}))


def test_a_later_command_of_a_group_sees_the_earlier_ones(engine, table):
    assert commit(engine, [Put(LOG, "job/1", b"mine")], {(LOG, "job/1"): ABSENT}) == Committed(1)
    assert isinstance(commit(engine, [Put(LOG, "job/1", b"late")], {(LOG, "job/1"): ABSENT}), Conflict)
    assert commit(engine, [Put(LOG, "job/2", b"")]) == Committed(2)
    assert commit(engine, [Delete(LOG, "job/2"), Put(LOG, "job/3", b"")]) == Committed(3, 1)
    assert commit(engine, [DeleteRange(LOG, "job/")]) == Committed(4, 2)
    group = engine.take()
    assert [event.mod_revision for event in group.events] == [1, 2, 3, 3, 4, 4]
    table.apply(group.writes)
    assert list(table.keys(b"d", b"e")) == []


def test_a_command_that_raises_leaves_nothing_behind(engine, table):
    commit(engine, [Put(HEADS, "a", b"1")])
    with pytest.raises(LeaseExpiredError):
        commit(engine, [Put(HEADS, "a", b"2"), Put(HEADS, "b", b"2"), Put(HEADS, "c", b"", LeaseId(77))])
    assert commit(engine, [Put(HEADS, "d", b"3")]) == Committed(2)
    group = engine.take()
    assert [(event.key, event.value) for event in group.events] == [("a", b"1"), ("d", b"3")]
    table.apply(group.writes)
    assert list(table.keys(b"d", b"e")) == [b"dJobHeads/a", b"dJobHeads/d"]


def test_reload_takes_back_what_was_not_written(engine, table):
    commit(engine, [Put(HEADS, "a", b"1")])
    table.apply(engine.take().writes)
    commit(engine, [Put(HEADS, "a", b"2")])
    engine.take()  # and the write fails
    engine.reload()
    assert engine.read([(HEADS, "a")], ()).values[HEADS, "a"].value == b"1"
    assert commit(engine, [Put(HEADS, "a", b"2")]) == Committed(2)


def test_revisions_and_lease_ids_go_on_in_the_next_life(table):
    seen = set()
    for life in range(3):
        engine = Engine(table, ManualClock())
        assert engine.revision == life
        assert commit(engine, [Put(HEADS, "a", b"")]) == Committed(life + 1)
        seen |= {engine.run(lambda engine: engine.grant(5)).id for _ in range(3)}
        table.apply(engine.take().writes)
    assert len(seen) == 9


def test_a_lease_leaves_no_record_behind(table):
    clock = ManualClock()
    engine = Engine(table, clock)
    lease = engine.run(lambda engine: engine.grant(0.0005))
    assert lease.ttl_s == 0.001
    commit(engine, [Put(HEADS, "a", b"", lease.id)])
    table.apply(engine.take().writes)
    clock.advance(1)
    engine.run(Engine.expire)
    table.apply(engine.take().writes)
    assert [raw for raw, _ in table.rows(b"", b"\xff")] == [b"mlease", b"mrevision"]
    assert engine.next_deadline_s() is None
