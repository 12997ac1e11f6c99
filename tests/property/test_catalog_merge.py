"""Changes of the catalog that merge commute, nothing of either is lost, and what cannot be merged is a conflict."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from onager.catalog_records import (
    MAX_PAGES,
    CatalogKey,
    Entries,
    folded,
    parsed_page_key,
    read_page,
    read_record,
)
from onager.errors import CatalogConflictError
from onager.scheduler.catalog.changes import CatalogChanges, decoded, encoded
from onager.scheduler.catalog.merging import Found, merge, pages_needed
from tests.support.catalogs import changes, database, partitions, plain, put, table

KEY = "tables/default/t"
PATHS = [f"k={n}" for n in range(6)]


@dataclass
class Catalog:
    """A store of records and pages, with revisions."""

    records: dict[str, Found] = field(default_factory=dict)
    pages: dict[str, Entries] = field(default_factory=dict)
    revision: int = 1

    def commit(self, made: CatalogChanges) -> None:
        found = {key: self.records.get(key) for key in made.keys}
        merged = merge(made, found, {key: self.pages[key] for key in pages_needed(made, found)})
        self.revision += 1
        for key, content in merged.pages.items():
            ids = parsed_page_key(key)
            assert ids is not None
            self.pages[key] = read_page(ids[1], content, key)
        for key, value in merged.values.items():
            parsed = CatalogKey.parsed(key)
            assert parsed is not None
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = Found(read_record(parsed, value, key), self.revision)
        for table_id in merged.dropped:
            self.pages = {key: page for key, page in self.pages.items() if f"/{table_id}/" not in key}

    def copy(self) -> "Catalog":
        return Catalog(dict(self.records), dict(self.pages), self.revision)

    def partitions(self) -> dict[str, Any]:
        record = self.records[KEY].record
        return plain(folded(self.pages[f"pages/{record['id']}/{page}"] for page in record["pages"]))

    @property
    def seen(self) -> dict[str, Any]:
        """What is in it, whatever its pages and revisions."""
        unlike = {"pages": (), "merged": 0, "changes": 0, "removed": 0}
        rest = {key: {**each.record, **unlike} for key, each in self.records.items()}
        return {**rest, "partitions": self.partitions() if KEY in self.records else None}


def with_table(history: list[dict[str, dict[str, int] | None]]) -> Catalog:
    catalog = Catalog()
    catalog.commit(changes(put(KEY, table())))
    for entries in history:
        catalog.commit(changes(partitions(entries)))
    return catalog


values = st.one_of(st.none(), st.fixed_dictionaries({"n": st.integers(0, 3)}))
entries = st.dictionaries(st.sampled_from(PATHS), values, min_size=1)
histories = st.lists(entries, max_size=2 * MAX_PAGES + 4)


@given(histories)
def test_partitions_are_what_was_set_last_however_often_pages_are_merged(history):
    catalog = with_table(history)
    expected: dict[str, Any] = {}
    for each in history:
        expected |= each
    assert catalog.partitions() == {path: each for path, each in expected.items() if each is not None}
    record = catalog.records[KEY].record
    assert len(record["pages"]) - record.get("merged", 0) <= MAX_PAGES


@st.composite
def of_partitions(draw, catalog):
    """Draw what one job does to partitions, all of which must be as it saw them."""
    chosen = draw(entries)
    seen = catalog.partitions()
    return changes(partitions(chosen, {path: seen.get(path) for path in chosen})), set(chosen)


@settings(max_examples=200, deadline=None)
@given(st.data(), histories)
def test_two_jobs_on_one_table_commute_or_the_second_finds_what_the_first_changed(data, history):
    catalog = with_table(history)
    (one, one_paths), (two, two_paths) = data.draw(of_partitions(catalog)), data.draw(of_partitions(catalog))
    results = []
    for first, second in ((one, two), (two, one)):
        after = catalog.copy()
        after.commit(first)
        middle = after.partitions()
        try:
            after.commit(second)
        except CatalogConflictError as error:
            assert one_paths & two_paths
            assert error.name == "table default.t"  # noqa: PT017 - only some pairs conflict
            assert after.partitions() == middle, "of a conflict nothing is made"
            results.append(None)
        else:
            results.append(after.seen)
    before = catalog.partitions()
    changed = [
        {path for path, each in made.partitions[0].entries.items() if before.get(path) != each} for made in (one, two)
    ]
    if not one_paths & changed[1] and not two_paths & changed[0]:
        assert results[0] is not None
        assert results[0] == results[1]
    else:
        assert None in results


@given(st.data())
def test_appends_never_lose_partitions(data):
    """Any number of jobs that were planned on the same table, each with partitions of its own."""
    catalog = with_table([])
    jobs = data.draw(st.permutations([changes(partitions({f"k={n}": {"n": n}})) for n in range(40)]))
    for made in jobs:
        catalog.commit(made)
    assert catalog.partitions() == {f"k={n}": {"n": n} for n in range(40)}


KEYS = ["databases/a", KEY, "tables/a/u", "functions/a/f"]
RECORDS = {
    "databases/a": database(comment="x"),
    KEY: table(comment="y"),
    "tables/a/u": table("00000000000000bb", "file:/u"),
    "functions/a/f": {"kind": "function", "version": 1, "spark": {"className": "x"}},
}


@st.composite
def of_records(draw, catalog):
    chosen = draw(st.sets(st.sampled_from(KEYS), min_size=1))
    guarded = draw(st.sets(st.sampled_from(KEYS))) - chosen
    puts = []
    for key in sorted(chosen):
        found = catalog.records.get(key)
        is_removed = found is not None and draw(st.booleans())
        puts.append(put(key, None if is_removed else RECORDS[key], 0 if found is None else found.revision))
    reads = {key: 0 if (found := catalog.records.get(key)) is None else found.revision for key in guarded}
    return changes(*puts, reads=reads), chosen, guarded


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sets(st.sampled_from(KEYS)))
def test_whole_records_commute_unless_one_changes_what_the_other_depends_on(data, there):
    catalog = Catalog()
    if there:
        catalog.commit(changes(*(put(key, RECORDS[key]) for key in sorted(there))))
    (one, *of_one), (two, *of_two) = data.draw(of_records(catalog)), data.draw(of_records(catalog))
    results = []
    for first, second in ((one, two), (two, one)):
        after = catalog.copy()
        after.commit(first)
        try:
            after.commit(second)
        except CatalogConflictError:
            results.append(None)
        else:
            results.append(after.seen)
    overlaps = of_one[0] & (of_two[0] | of_two[1]), of_two[0] & (of_one[0] | of_one[1])
    # The second conflicts exactly if the first changed something of its own.
    assert (results[0] is None) == bool(overlaps[0])
    assert (results[1] is None) == bool(overlaps[1])
    if None not in results:
        assert results[0] == results[1]


@given(st.data(), histories)
def test_changes_survive_the_blob(data, history):
    catalog = with_table(history)
    for made in (data.draw(of_records(catalog))[0], data.draw(of_partitions(catalog))[0]):
        assert decoded(encoded(made)) == made
