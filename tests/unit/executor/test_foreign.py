"""Catalogs besides Onager's own: how they are named, and what happens where they cannot be used."""

import sys
import threading

import pytest

from onager.clock import SystemClock
from onager.errors import CatalogUnavailableError, InvalidSettingError, SinkError
from onager.executor.foreign import ForeignTables, parse_catalog
from onager.executor.foreign.commits import Commit
from onager.executor.foreign.iceberg import asking, awaited, begun
from onager.executor.settings import ExecutorSettings
from onager.executor.spark.worker import SparkWorker, WorkerSettings


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("ice=iceberg", {}),
        ("ice=iceberg:http://h:8181", {"uri": "http://h:8181"}),
        (
            "ice=iceberg:postgresql+psycopg2://u:p@h/db?warehouse=file:///w%26&empty=",
            {"uri": "postgresql+psycopg2://u:p@h/db", "warehouse": "file:///w&", "empty": ""},
        ),
    ],
)
def test_a_catalog_is_named_with_the_properties_of_its_client(text, properties):
    catalog = parse_catalog(text)
    assert (catalog.name, dict(catalog.properties)) == ("ice", properties)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "give NAME=iceberg:URI"),
        ("ice", "give NAME=iceberg:URI"),
        ("ice=delta:x", "give NAME=iceberg:URI"),
        ("Ice=iceberg", "lower-case letters"),
        ("1=iceberg", "lower-case letters"),
        ("spark_catalog=iceberg", "cannot be a catalog's name"),
        ("parquet=iceberg", "cannot be a catalog's name"),
        ("ice=iceberg:", "there is no URI"),
        ("ice=iceberg:x?y", "are not PROPERTY=VALUE"),
    ],
)
def test_what_names_no_catalog_is_refused(text, why):
    with pytest.raises(InvalidSettingError, match=why):
        parse_catalog(text)


def test_the_settings_name_catalogs_once_each_and_show_no_secret(monkeypatch):
    given = ["ice=iceberg:http://h?token=12345", "ice=iceberg"]
    monkeypatch.setenv("ONAGER_EXECUTOR_CATALOGS", '["a=iceberg", "b=iceberg"]')
    assert [each.name for each in ExecutorSettings(exchange_dir="/x").foreign_catalogs] == ["a", "b"]
    with pytest.raises(InvalidSettingError, match="the catalog ice is given twice"):
        _ = ExecutorSettings(exchange_dir="/x", catalogs=given).foreign_catalogs
    with pytest.raises(InvalidSettingError) as raised:
        parse_catalog("Ice=iceberg:http://h?token=12345")
    assert "12345" not in str(raised.value)


def test_without_pyiceberg_an_executor_with_such_a_catalog_does_not_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    assert ForeignTables().names == ()
    with pytest.raises(InvalidSettingError, match=r"PyIceberg is not installed: pip install 'onager\[iceberg\]'"):
        ForeignTables([parse_catalog("ice=iceberg")])


def test_what_a_catalog_does_not_answer_in_time_is_reported():
    over = threading.Event()
    with pytest.raises(
        CatalogUnavailableError, match=r"the catalog ice cannot be used: it did not answer within 0\.01"
    ):
        awaited("ice", begun(over.wait), 0.01)
    over.set()

    def timed_out():
        with asking("ice"):
            raise TimeoutError("30 s are over")

    with pytest.raises(CatalogUnavailableError, match="30 s are over"):
        awaited("ice", begun(timed_out), 5)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"identifier": 1}', '{"identifier": [], "new": 1}'])
def test_a_commit_of_another_version_is_refused(text):
    with pytest.raises(SinkError, match="not one that this Onager can write"):
        Commit.parsed(text)


def test_an_executor_with_a_hive_metastore_has_no_other_catalogs():
    with pytest.raises(InvalidSettingError, match="has no other catalogs"):
        SparkWorker(
            WorkerSettings(
                slots=1, conf={"spark.sql.catalogImplementation": "hive"}, exchange_dir="/x", executor_id="e"
            ),
            SystemClock(),
            catalogs=[parse_catalog("ice=iceberg")],
        )
