"""What becomes of the catalog when rows were written into partitions, whatever else has happened meanwhile."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from onager.catalog_records import Entries, folded, new_partitions_at, read_page
from onager.errors import CatalogConflictError, PlanningError, StateCorruptError
from onager.exchange_layout import uri_quoted
from onager.manifests import Place, TablePlaces
from onager.scheduler.catalog.changes import CatalogChanges, changes_from, decoded, encoded, with_written
from onager.scheduler.catalog.merging import Found, merge, pages_needed
from tests.support.catalogs import T_ID, WHERE, message, partitions, table

KEY = "tables/default/t"


class Table:
    """A table, changed by one job after the other."""

    def __init__(self) -> None:
        self.record: dict[str, Any] = table()
        self.pages: dict[str, Entries] = {}

    def merge(self, changes: CatalogChanges) -> None:
        found = {KEY: Found(self.record, 1)}
        merged = merge(changes, found, {key: self.pages[key] for key in pages_needed(changes, found)})
        self.pages |= {key: read_page(key.rpartition("/")[2], page, key) for key, page in merged.pages.items()}
        if (value := merged.values.get(KEY)) is not None:
            self.record = json.loads(value)

    def set(self, **paths: dict[str, Any] | None) -> None:
        """Set or remove partitions as DDL does."""
        self.merge(changes_from(message(partitions({f"k={k}": each for k, each in paths.items()}))))

    def planned(self) -> CatalogChanges:
        """Return what a planner says now of a job that will write partitions."""
        change = partitions({})
        change.template, change.seen = '{"storage": {"serde": "s"}, "parameters": {}}', self.record.get("changes", 0)
        return decoded(encoded(changes_from(message(change))))

    def write(
        self, planned: CatalogChanges, paths: Sequence[str], replaces: str = "nothing", within: str = "", at: str = ""
    ) -> None:
        """End a job that has written rows, which looks where partitions lie right now."""
        held = self.places()
        places = {}
        for path in paths:
            there = held.get(path, "") if replaces == "nothing" else ""
            places[path] = Place(
                there or f"{at or new_partitions_at(self.record)}/{uri_quoted(path)}", held.get(path, "")
            )
        self.merge(with_written(planned, TablePlaces(KEY, replaces, within, places)))  # type: ignore[arg-type]

    def places(self) -> dict[str, str]:
        pages = [self.pages[f"pages/{T_ID}/{page}"] for page in self.record.get("pages", ())]
        return {path: each["storage"]["location"] for path, each in folded(pages).items()}


def at(location: str) -> dict[str, Any]:
    return {"storage": {"location": location}}


@pytest.fixture
def t() -> Table:
    made = Table()
    made.set(a=at(f"{WHERE}/k=a"), b=at(f"{WHERE}/v-1/k=b"))
    return made


def test_new_partitions_are_like_the_template(t):
    t.write(t.planned(), ["k=%41/d=__HIVE_DEFAULT_PARTITION__"])
    page = t.pages[f"pages/{T_ID}/{t.record['pages'][-1]}"]
    assert page == {
        "k=%41/d=__HIVE_DEFAULT_PARTITION__": {
            "storage": {"serde": "s", "location": f"{WHERE}/k=%2541/d=__HIVE_DEFAULT_PARTITION__"},
            "parameters": {},
            "spec": {"k": "A", "d": "__HIVE_DEFAULT_PARTITION__"},
            "changed": 2,
        }
    }


def test_two_that_add_to_old_and_to_the_same_new_partitions_both_win(t):
    first, second = t.planned(), t.planned()
    for planned in (first, second):
        t.write(planned, ["k=a", "k=b", "k=new"])
    assert t.places() == {"k=a": f"{WHERE}/k=a", "k=b": f"{WHERE}/v-1/k=b", "k=new": f"{WHERE}/k=new"}


def test_one_that_adds_gets_an_error_when_a_partition_moved_or_went_after_it_has_looked(t):
    for change in ({"b": at(f"{WHERE}/v-2/k=b")}, {"b": None}):
        planned, places = t.planned(), TablePlaces(KEY, "nothing", "", {"k=b": Place(f"{WHERE}/v-1/k=b", "x")})
        t.set(**change)
        with pytest.raises(CatalogConflictError, match=r"table default\.t .*partition k=b was (moved|removed)"):
            t.merge(with_written(planned, places))


def test_of_two_that_replace_a_partition_the_second_gets_an_error_and_others_do_not(t):
    first, second, third = t.planned(), t.planned(), t.planned()
    t.write(first, ["k=a"], "written", at=f"{WHERE}/v-2")
    with pytest.raises(CatalogConflictError, match="partition k=a was altered"):
        t.write(second, ["k=a", "k=c"], "written", at=f"{WHERE}/v-3")
    t.write(third, ["k=b", "k=c"], "written", at=f"{WHERE}/v-4")
    assert t.places() == {"k=a": f"{WHERE}/v-2/k=a", "k=b": f"{WHERE}/v-4/k=b", "k=c": f"{WHERE}/v-4/k=c"}
    t.write(t.planned(), ["k=a"], "written", at=f"{WHERE}/v-5")


def test_one_that_replaces_a_partition_that_has_another_name_by_then_gets_an_error(t):
    for replaces, within in (("written", ""), ("matching", "k=a"), ("matching", "")):
        planned = t.planned()
        places = {} if replaces == "matching" and not within else {"k=a": Place(f"{WHERE}/v-2/k=a", f"{WHERE}/k=a")}
        t.set(a=None, c=at(f"{WHERE}/k=a"))
        with pytest.raises(CatalogConflictError, match=r"k=a was removed|k=c was altered"):
            t.merge(with_written(planned, TablePlaces(KEY, replaces, within, places)))
        t.set(a=at(f"{WHERE}/k=a"), c=None)


def test_one_that_replaces_partitions_below_a_name_gets_an_error_when_one_of_them_has_gone(t):
    planned = t.planned()
    t.set(b=None)
    with pytest.raises(CatalogConflictError, match="partitions of it were removed"):
        t.merge(with_written(planned, TablePlaces(KEY, "matching", "k=a", {})))


def test_a_new_partition_is_not_made_where_another_was_dropped_since_its_place_was_chosen(t):
    planned, places = t.planned(), TablePlaces(KEY, "nothing", "", {"k=z": Place(f"{WHERE}/k=z")})
    t.set(z=at(f"{WHERE}/k=z"))
    t.set(z=None)
    with pytest.raises(CatalogConflictError, match="partition k=z was removed"):
        t.merge(with_written(planned, places))


def test_a_value_may_have_dots(t):
    t.write(t.planned(), ["k=v1..v2"])
    assert t.places()["k=v1..v2"] == f"{WHERE}/k=v1..v2"


def test_all_that_match_go_and_one_that_came_since_is_a_conflict(t):
    t.set(**{"c/h=1": at(f"{WHERE}/k=c/h=1"), "c/h=2": at(f"{WHERE}/k=c/h=2"), "cc/h=1": at(f"{WHERE}/k=cc/h=1")})
    late = t.planned()
    t.write(t.planned(), ["k=c/h=2"], "matching", "k=c", at=f"{WHERE}/v-2")
    assert set(t.places()) == {"k=a", "k=b", "k=c/h=2", "k=cc/h=1"}
    with pytest.raises(CatalogConflictError, match="partition k=c/h=2 was altered"):
        t.write(late, [], "matching", "k=c")
    t.write(t.planned(), [], "matching")
    assert t.places() == {}


def test_new_partitions_never_lie_where_others_lay(t):
    assert new_partitions_at(t.record) == WHERE
    t.set(a=None)
    base = new_partitions_at(t.record)
    assert base.startswith(f"{WHERE}/v-00000000")
    t.write(t.planned(), ["k=a", "k=b"])
    assert t.places() == {"k=a": f"{base}/k=a", "k=b": f"{WHERE}/v-1/k=b"}
    assert new_partitions_at(t.record) == base
    t.write(t.planned(), [], "matching", "k=a")
    assert new_partitions_at(t.record) != base


def test_pages_are_merged_and_who_changed_last_is_still_known(t):
    late = t.planned()
    for n in range(40):
        t.write(t.planned(), [f"k=n{n}"], "written", at=f"{WHERE}/v-{n}")
    t.write(late, ["k=a"], "written", at=f"{WHERE}/v-99")
    assert len(t.places()) == 42
    with pytest.raises(CatalogConflictError, match="partition k=n3 was altered"):
        t.write(late, ["k=n3"], "written", at=f"{WHERE}/v-100")


def test_what_no_executor_would_publish_is_refused(t):
    planned = t.planned()
    for table_places in (None, TablePlaces("tables/default/u", "nothing", "", {})):
        with pytest.raises(StateCorruptError, match="not what it was to write"):
            with_written(planned, table_places)
    for location in ("file:/etc/k=z", f"{WHERE}/../k=z", f"{WHERE}/%2e%2e/k=z"):
        with pytest.raises(PlanningError, match="not in its folder"):
            t.merge(with_written(planned, TablePlaces(KEY, "written", "", {"k=z": Place(location)})))
