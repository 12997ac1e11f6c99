import os

import pytest
from pyspark.sql.types import LongType, StructType

from onager.executor.spark.planning import view_schemas
from onager.executor.spark.planning.view_schemas import ViewSchemas, schema_key
from onager.ids import new_incarnation
from onager.place_files import make_id, write_mark


def key(path, **changes):
    known = {"file_format": "csv", "options": {"header": "true"}, "conf": {"spark.sql.caseSensitive": "true"}}
    return schema_key(str(path), **(known | changes))


@pytest.fixture
def table(tmp_path):
    (tmp_path / "year=2026").mkdir()
    (tmp_path / "year=2026" / "a.csv").write_text("x\n1\n")
    return tmp_path


def test_the_same_files_give_the_same_key(table):
    assert key(table) == key(table) is not None
    assert key(f"file:{table}") == key(table)


@pytest.mark.parametrize(
    "changes", [{"file_format": "json"}, {"options": {}}, {"conf": {"spark.sql.caseSensitive": "false"}}]
)
def test_all_that_a_schema_depends_on_is_in_the_key(table, changes):
    assert key(table, **changes) != key(table)


def test_settings_that_are_not_sparks_are_not_in_the_key(table):
    assert key(table, conf={"onager.fusion.maxBytes": "0", "spark.sql.caseSensitive": "true"}) == key(table)


def test_a_file_that_grows_is_touched_or_added_changes_the_key(table):
    seen = [key(table)]
    file = table / "year=2026" / "a.csv"
    file.write_text("x\n1.5\n")
    seen.append(key(table))
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    seen.append(key(table))
    (table / "b.csv").write_text("x\n1\n")
    seen.append(key(table))
    assert len(set(seen)) == 4


def test_marks_of_executors_do_not_change_the_key(table):
    before = key(table)
    make_id(str(table), "a" * 16)
    write_mark(str(table), new_incarnation(), "a" * 16)
    assert key(table) == before


def test_what_cannot_be_looked_through_cheaply_has_no_key(table, monkeypatch):
    assert key("s3a://bucket/table") is None
    assert key(table / "missing") is None
    assert key(table / "*.csv") is None
    monkeypatch.setattr(view_schemas, "MAX_FILES", 0)
    assert key(table) is None


def test_schemas_are_kept_and_the_oldest_forgotten(monkeypatch):
    monkeypatch.setattr(view_schemas, "_MAX_SCHEMAS", 2)
    schemas = ViewSchemas()
    schema = StructType().add("x", LongType())
    schemas.put(None, schema)
    assert schemas.get(None) is None
    schemas.put(("a",), schema)
    schemas.put(("b",), schema)
    assert schemas.get(("a",)) is schema
    schemas.put(("c",), schema)
    assert schemas.get(("a",)) is schema
    assert schemas.get(("b",)) is None
