"""The objects of Spark's catalog as JSON, and back: every field, whatever its value."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onager.executor.spark.jvm import Jvm
from tests.support.spark.one_executor import OneExecutor

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
TEXTS = st.dictionaries(NAME, TEXT, min_size=1, max_size=5)
LONG = st.integers(-(2**63), 2**63 - 1)
LOCATION = st.sampled_from(["file:/a/b%20c", "s3a://bucket/k=1/d=%C3%A4", "hdfs://host:8020/x", "file:/%E2%82%AC?q=1"])
PRIMITIVES = st.sampled_from(
    [
        *("integer", "long", "string", "double", "date", "timestamp", "timestamp_ntz", "binary", "boolean"),
        *("decimal(38,18)", "interval day to second", "variant", "void"),
    ]
)


def fields_of(types: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    metadata = st.dictionaries(
        st.sampled_from(["comment", "CURRENT_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING", "x"]),
        TEXT | LONG | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.lists(LONG, min_size=1),
        max_size=2,
    )
    field = st.fixed_dictionaries({"name": NAME, "type": types, "nullable": st.booleans(), "metadata": metadata})
    return st.lists(field, max_size=4).map(lambda fields: {"type": "struct", "fields": fields})


TYPES = st.recursive(
    PRIMITIVES,
    lambda inner: st.one_of(
        fields_of(inner),
        inner.map(lambda of: {"type": "array", "elementType": of, "containsNull": True}),
        inner.map(lambda of: {"type": "map", "keyType": "string", "valueType": of, "valueContainsNull": False}),
    ),
    max_leaves=4,
)
STORAGE = st.fixed_dictionaries(
    {"compressed": st.booleans()},
    optional={
        "location": LOCATION,
        "inputFormat": TEXT,
        "outputFormat": TEXT,
        "serde": TEXT,
        "serdeName": TEXT,
        "properties": TEXTS,
    },
)
COLUMN_STATS = st.fixed_dictionaries(
    {"c.version": st.just("2")},
    optional={
        "c.distinctCount": st.integers(0, 2**63 - 1).map(str),
        "c.nullCount": st.integers(0, 2**63 - 1).map(str),
        "c.min": TEXT,
        "c.max": TEXT,
        "c.avgLen": st.integers(0, 2**62).map(str),
        "c.maxLen": st.integers(0, 2**62).map(str),
    },
)
STATS = st.fixed_dictionaries(
    {"sizeInBytes": st.integers(0, 2**90)},
    optional={
        "rowCount": st.integers(0, 2**90),
        "columns": st.dictionaries(NAME, COLUMN_STATS, min_size=1, max_size=3),
    },
)
NAMES = st.lists(NAME, min_size=1, max_size=3)
TABLES = st.fixed_dictionaries(
    {
        "name": NAME,
        "tableType": st.sampled_from(["MANAGED", "EXTERNAL", "VIEW"]),
        "storage": STORAGE,
        "schema": fields_of(TYPES),
        "owner": TEXT,
        "createTime": LONG,
        "lastAccessTime": LONG,
        "createVersion": TEXT,
        "tracksPartitionsInCatalog": st.booleans(),
        "schemaPreservesCase": st.booleans(),
    },
    optional={
        "database": NAME,
        "provider": TEXT,
        "partitionColumnNames": NAMES,
        "bucketSpec": st.fixed_dictionaries(
            {"numBuckets": st.integers(1, 9_000), "bucketColumnNames": NAMES}, optional={"sortColumnNames": NAMES}
        ),
        "properties": TEXTS,
        "stats": STATS,
        "viewText": TEXT,
        "comment": TEXT,
        "collation": st.sampled_from(["UTF8_LCASE", "UNICODE_CI", ""]),
        "unsupportedFeatures": NAMES,
        "ignoredProperties": TEXTS,
        "viewOriginalText": TEXT,
        "multipartIdentifier": NAMES,
    },
)
PARTITIONS = st.fixed_dictionaries(
    {"storage": STORAGE, "createTime": LONG, "lastAccessTime": LONG},
    optional={"spec": st.dictionaries(NAME, TEXT | st.none(), min_size=1), "parameters": TEXTS, "stats": STATS},
)
DATABASES = st.fixed_dictionaries(
    {"name": NAME, "description": TEXT, "location": LOCATION}, optional={"properties": TEXTS}
)
FUNCTIONS = st.fixed_dictionaries(
    {
        "name": NAME,
        "className": TEXT,
        "resources": st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(["jar", "file", "archive"]), "uri": TEXT}), max_size=2
        ),
    },
    optional={"database": NAME},
)
FULL = {
    "catalog": "c",
    "database": "d",
    "name": "t",
    "tableType": "EXTERNAL",
    "storage": {"location": "file:/a", "compressed": False},
    "schema": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]},
    "provider": "csv",
    "partitionColumnNames": ["a"],
    "bucketSpec": {"numBuckets": 2, "bucketColumnNames": ["a"]},
    "owner": "o",
    "createTime": 5,
    "lastAccessTime": 6,
    "createVersion": "4",
    "properties": {"p": "q"},
    "stats": {"sizeInBytes": 7},
    "viewText": "SELECT 1",
    "comment": "said",
    "collation": "UTF8_LCASE",
    "unsupportedFeatures": ["x"],
    "tracksPartitionsInCatalog": True,
    "schemaPreservesCase": False,
    "ignoredProperties": {"i": "j"},
    "viewOriginalText": "SELECT  1",
    "multipartIdentifier": ["c", "d", "t"],
}


class Codec:
    def __init__(self, executor: OneExecutor) -> None:
        jvm = Jvm.of(executor.spark)
        self._codec = jvm.java_class("onager.spark43.CatalogCodec")
        self._json = jvm.java_class("onager.values.Json")

    def decoded(self, kind: str, value: dict[str, Any]) -> Any:
        return getattr(self._codec, kind)(self._json.tree(json.dumps(value)))

    def encoded(self, thing: Any) -> dict[str, Any]:
        return dict(json.loads(self._json.text(self._codec.of(thing))))


@pytest.fixture(scope="module")
def codec(executor: OneExecutor) -> Codec:
    return Codec(executor)


def test_every_field_of_a_table_has_its_field_in_json(codec: Codec) -> None:
    full, least = codec.decoded("table", FULL), codec.decoded("table", {"schema": {"type": "struct", "fields": []}})
    same = [
        full.productElementName(i)
        for i in range(full.productArity())
        if str(full.productElement(i)) == str(least.productElement(i))
    ]
    assert same == []
    assert codec.encoded(full) == FULL


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [("table", TABLES), ("partition", PARTITIONS), ("database", DATABASES), ("function", FUNCTIONS)],
)
def test_comes_back_as_it_was(codec: Codec, kind: str, drawn: st.SearchStrategy[dict[str, Any]]) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(drawn)
    def check(value: dict[str, Any]) -> None:
        thing = codec.decoded(kind, value)
        again = codec.encoded(thing)
        assert again == value
        assert codec.decoded(kind, again).equals(thing)

    check()
