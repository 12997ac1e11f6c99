"""Which commands of a session are kept, to be carried out again."""

from onager.executor.spark.connect.entries import put_entry, removed_entry
from onager.protocol import onager_pb2 as pb


class Session:
    def __init__(self):
        self.entries = []

    def _change(self, put, removed):
        gone = {(entry.kind, entry.name) for entry in (*removed, *put)}
        self.entries = [e for e in self.entries if (e.kind, e.name) not in gone] + list(put)

    def make(self, name, text, kind="view"):
        self._change(*put_entry(pb.ConnectSession(entries=self.entries), kind, name, text.encode()))

    def drop(self, name, text, kind="view"):
        self._change(*removed_entry(pb.ConnectSession(entries=self.entries), kind, name, text.encode()))

    def commands(self):
        return [pb.ConnectMade.FromString(entry.command).command.decode() for entry in self.entries]


def test_a_view_that_is_replaced_takes_the_place_of_the_old_one():
    session = Session()
    for number in range(1_000):
        session.make("sales", f"view sales of range {number}")
    assert session.commands() == ["view sales of range 999"]
    assert session.entries[0].name == "sales"


def test_what_a_later_view_has_read_stays_before_it():
    session = Session()
    session.make("sales", "view sales of range 1")
    session.make("totals", "view totals of SALES")
    session.make("sales", "view sales of range 2")
    assert session.commands() == ["view sales of range 1", "view totals of SALES", "view sales of range 2"]
    session.make("sales", "view sales of range 3")
    session.drop("sales", "drop sales")
    assert session.commands()[:2] == ["view sales of range 1", "view totals of SALES"]
    assert session.commands()[-1] == "drop sales"
    session.make("sales", "view sales of range 4")
    assert session.commands()[-1] == "view sales of range 4"
    names = [(entry.kind, entry.name) for entry in session.entries]
    assert len(set(names)) == len(names)


def test_a_view_that_is_made_of_what_it_replaces_comes_after_it():
    session = Session()
    session.make("sales", "view sales of range")
    session.make("sales", "view sales of sales")
    assert session.commands() == ["view sales of range", "view sales of sales"]


def test_a_view_that_nobody_has_read_leaves_nothing_when_it_is_dropped():
    session = Session()
    session.make("sales", "view sales of range")
    session.make("other", "view other of range")
    session.drop("sales", "drop sales")
    assert session.commands() == ["view other of range"]
    session.drop("absent", "drop absent")
    assert session.commands() == ["view other of range"]


def test_kinds_have_names_of_their_own():
    session = Session()
    session.make("sales", "view sales of range")
    session.make("sales", "function sales", kind="function")
    assert [entry.kind for entry in session.entries] == ["view", "function"]
    assert session.commands()[0] == "view sales of range"


def test_a_long_name_is_found_wherever_it_is():
    name = "n" * 60
    session = Session()
    session.make(name, f"view {name} of range")
    session.make("other", f"view other of 1{name}")
    session.make(name, f"view {name} of nothing")
    assert len(session.commands()) == 3


def test_a_session_that_is_named_like_its_view_keeps_no_more_of_it():
    session = pb.ConnectSession(database="sales", conf={"spark.sales": "sales"})
    put, _ = put_entry(session, "view", "sales", b"view sales of range 1")
    session.entries.extend(put)
    put, removed = put_entry(session, "view", "sales", b"view sales of range 2")
    assert [entry.name for entry in (*put, *removed)] == ["sales", "sales"]
    assert pb.ConnectMade.FromString(put[0].command).database == "sales"
