"""Which commands of a session are kept, to be carried out again."""

import pytest

from onager.executor.spark.connect.entries import dropped, made, needed, set_to
from onager.protocol import onager_pb2 as pb


class Session:
    def __init__(self):
        self.message = pb.ConnectSession()

    def _change(self, change):
        gone = {(entry.kind, entry.name) for entry in (*change.removed, *change.put)}
        left = [entry for entry in self.message.entries if (entry.kind, entry.name) not in gone]
        del self.message.entries[:]
        self.message.entries.extend([*left, *change.put])
        names = [(entry.kind, entry.name) for entry in self.message.entries]
        assert len(set(names)) == len(names)

    def make(self, name, text, *reads, kind="view"):
        self._change(made(self.message, kind, name, text.encode(), set(reads)))

    def drop(self, name, kind="view"):
        self._change(dropped(self.message, kind, name, f"drop {name}".encode()))

    def set_to(self, **variables):
        self._change(set_to(self.message, {name: text.encode() for name, text in variables.items()}))

    def commands(self):
        return [pb.ConnectMade.FromString(entry.command).command.decode() for entry in self.message.entries]


@pytest.fixture
def session():
    return Session()


def test_a_view_that_is_replaced_takes_the_place_of_the_old_one(session):
    for number in range(1_000):
        session.make("sales", f"sales {number}", "view days")
    assert session.commands() == ["sales 999"]
    assert session.message.entries[0].name == "sales"


def test_what_a_later_view_has_read_stays_before_it(session):
    session.make("sales", "sales 1")
    session.make("totals", "totals", "view sales")
    session.make("sales", "sales 2")
    assert session.commands() == ["sales 1", "totals", "sales 2"]
    session.make("sales", "sales 3")
    assert session.commands() == ["sales 1", "totals", "sales 3"]
    session.drop("sales")
    assert session.commands() == ["sales 1", "totals", "drop sales"]
    session.make("sales", "sales 4")
    assert session.commands() == ["sales 1", "totals", "drop sales", "sales 4"]
    for number in range(5, 100):
        session.drop("sales")
        session.make("sales", f"sales {number}")
    assert session.commands() == ["sales 1", "totals", "drop sales", "sales 99"]


def test_what_nobody_reads_any_more_goes_with_its_last_reader(session):
    session.make("sales", "sales 1")
    session.make("totals", "totals 1", "view sales")
    session.make("sales", "sales 2")
    session.make("report", "report", "view totals")
    session.make("totals", "totals 2")
    assert session.commands() == ["sales 1", "totals 1", "sales 2", "report", "totals 2"]
    session.drop("report")
    assert session.commands() == ["sales 2", "totals 2"]


def test_a_view_that_is_made_of_what_it_replaces_comes_after_it(session):
    session.make("sales", "sales 1")
    session.make("sales", "sales 2", "view sales")
    assert session.commands() == ["sales 1", "sales 2"]
    session.make("sales", "sales 3")
    assert session.commands() == ["sales 3"]


def test_a_view_that_nobody_has_read_leaves_nothing_when_it_is_dropped(session):
    session.make("sales", "sales 1")
    session.make("other", "other")
    session.drop("sales")
    assert session.commands() == ["other"]
    session.drop("absent")
    assert session.commands() == ["other"]


def test_kinds_have_names_of_their_own(session):
    session.make("sum", "view sum")
    session.make("sum", "function sum", kind="function")
    session.make("other", "other", "function sum")
    session.make("sum", "view sum 2")
    session.make("sum", "function sum 2", kind="function")
    assert session.commands() == ["function sum", "other", "view sum 2", "function sum 2"]


def test_a_command_that_may_read_anything_keeps_all_before_it(session):
    session.make("sales", "sales 1")
    session.make("any", "any", "*")
    session.make("sales", "sales 2")
    session.make("sales", "sales 3")
    assert session.commands() == ["sales 1", "any", "sales 3"]


def test_a_view_may_have_a_number_in_its_name(session):
    session.make("sales~2", "other 1")
    session.make("sales", "sales 1")
    session.make("sales", "sales 2", "view sales")
    session.make("sales~2", "other 2")
    assert session.commands() == ["sales 1", "sales 2", "other 2"]
    session.drop("sales")
    assert session.commands() == ["other 2"]


def test_a_command_is_kept_with_the_settings_of_its_time():
    message = pb.ConnectSession(database="sales", conf={"spark.sales": "sales"})
    (put,), _ = made(message, "view", "sales", b"sales", set())
    kept = pb.ConnectMade.FromString(put.command)
    assert (kept.database, dict(kept.conf)) == ("sales", {"spark.sales": "sales"})


def test_a_request_needs_what_it_reads_and_what_that_was_made_of_then_and_reads_now(session):
    session.make("days", "days")
    session.make("sales", "sales 1", "view days")
    session.make("totals", "totals", "view sales")
    session.make("sales", "sales 2", "view weeks")
    session.make("weeks", "weeks")
    session.make("other", "other")

    def commands(*reads):
        return [made.command.decode() for _, made in needed(session.message, reads)]

    assert commands("view nothing") == []
    assert commands("view days") == ["days"]
    assert commands("view totals") == ["days", "sales 1", "totals", "sales 2", "weeks"]
    assert commands("*") == ["days", "sales 1", "totals", "sales 2", "weeks", "other"]


def test_what_only_who_names_it_reads_stays_until_it_is_taken_back(session):
    for kind in ("cached", "relation", "cache"):
        session.make("one", f"{kind} 1", kind=kind)
    session.make("sales", "sales", "relation one")
    session.make("other", "other")
    assert session.commands() == ["cached 1", "relation 1", "cache 1", "sales", "other"]
    assert [made.command.decode() for _, made in needed(session.message, "*")] == ["relation 1", "sales", "other"]
    for kind in ("cached", "relation", "cache"):
        session.drop("one", kind=kind)
    assert session.commands() == ["relation 1", "sales", "other", "drop one"]
    session.drop("sales")
    assert session.commands() == ["other"]


def test_only_the_last_value_of_a_variable_stays(session):
    session.set_to(x="1", y="1")
    session.set_to(x="2", y="1")
    assert session.commands() == ["1", "2"]
    session.set_to(x="2")
    assert session.commands() == ["2"]
    session.set_to()
    assert not session.message.entries


def test_a_frame_keeps_the_value_of_a_variable_that_it_was_made_of(session):
    session.set_to(x="1")
    session.make("fixed", "fixed", "variable x")
    for value in ("2", "3"):
        session.set_to(x=value)
    assert session.commands() == ["1", "fixed", "3"]
    session.set_to()
    assert session.commands() == ["1", "fixed", "[]"]
    session.set_to(x="4")
    assert session.commands() == ["1", "fixed", "[]", "4"]
    session.drop("fixed")
    assert session.commands() == ["4"]


def test_a_variable_that_is_as_it_was_changes_nothing(session):
    session.set_to(x="1", y="2")
    assert set_to(session.message, {"x": b"1", "y": b"2"}) == ([], [])
