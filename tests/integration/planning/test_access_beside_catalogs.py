"""What jobs may use where the operator has configured a catalog: its tables, and of all else what they may without."""

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from onager.executor.foreign import ForeignTables, parse_catalog
from onager.executor.spark.jvm import jvm_context
from onager.private_paths import SYSTEM
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import FOREIGN, OneExecutor

_numbers = itertools.count()
SECRET = "planted-0123456789"
ALLOW, PRIVATE = "spark.onager.allow", "spark.onager.privatePaths"
OURS = "where Onager keeps files of its own"
SYSTEMS = "which is the system's"
REFUSED = {
    "another site": ("SELECT * FROM text.`http://127.0.0.1:1/x`", "start executors with --allow http:"),
    "another store": ("SELECT * FROM parquet.`s3a://bucket/x`", "start executors with --allow s3a:"),
    "a mount table": ("SELECT * FROM text.`viewfs://m/x`", "start executors with --allow viewfs:"),
    "a view of another site": (
        "CREATE TEMPORARY VIEW v USING text OPTIONS (path 'http://127.0.0.1:1/x'); SELECT * FROM v",
        "start executors with --allow http:",
    ),
    "a table at another site": (
        "CREATE TABLE t (a STRING) USING text LOCATION 'http://127.0.0.1:1/x'",
        "start executors with --allow http:",
    ),
    "a partition at another site": (
        """CREATE TABLE t (a STRING, p INT) USING csv PARTITIONED BY (p);
        ALTER TABLE t ADD PARTITION (p = 1) LOCATION 's3a://bucket/x'; SELECT * FROM t""",
        "start executors with --allow s3a:",
    ),
    "a database at another site": ("CREATE DATABASE d LOCATION 's3a://bucket/x'", "start executors with --allow s3a:"),
    "a source": (
        "CREATE TEMPORARY VIEW v USING jdbc OPTIONS (url 'jdbc:derby:{data}/made;create=true', dbtable 'x'); SELECT 1",
        "start executors with --allow jdbc",
    ),
    "a table of a source": (
        "CREATE TABLE t USING jdbc OPTIONS (url 'jdbc:derby:{data}/made;create=true', dbtable 'x')",
        "start executors with --allow jdbc",
    ),
    "a program": (
        "SELECT TRANSFORM(id) USING 'cat {secret}' AS (l STRING) FROM range(1)",
        "start executors with --allow transform",
    ),
    "a program over a table of the catalog": (
        "SELECT TRANSFORM(id) USING 'env' AS (l STRING) FROM ice.shop.sales",
        "start executors with --allow transform",
    ),
    "a method": ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "is refused"),
    "a file system in an option": (
        "CREATE TEMPORARY VIEW v USING text OPTIONS (path '{data}', 'fs.file.impl' 'any.Class'); SELECT 1",
        "the option fs.file.impl is refused",
    ),
    "a mount table in an option": (
        "SELECT * FROM text.`{data}` WITH ('fs.viewfs.mounttable.m.link./x' 'file:/')",
        "the option fs.viewfs.mounttable.m.link./x is refused",
    ),
    "an option of a table of the catalog": (
        "SELECT * FROM ice.shop.sales WITH ('parquet.private.read.filter.predicate' = 'rO0AB')",
        "the option parquet.private.read.filter.predicate is refused",
    ),
    "a setting of file systems": ("SET spark.hadoop.fs.s3a.endpoint = h; SELECT 1", "a job cannot set"),
    "another catalog": (f"SET spark.sql.catalog.{FOREIGN} = any.Class; SELECT 1", "a job cannot set"),
    "an environment": ("SELECT * FROM binaryFile.`/proc/self/environ`", SYSTEMS),
    "an environment by another name": ("SELECT * FROM text.`FILE:///proc/self/environ`", SYSTEMS),
    "another root": ("SELECT * FROM text.`/proc/self/root{secret}`", OURS),
    "a link": ("SELECT * FROM text.`{data}/link`", OURS),
    "links below a directory": (
        "CREATE TEMPORARY VIEW v USING text OPTIONS (path '{data}', recursiveFileLookup true); SELECT * FROM v",
        OURS,
    ),
    "a file by the catalog's name": ("SELECT * FROM ice.`{secret}`", OURS),
    "a schema of XML": ("SELECT from_xml('', 'a INT', map('rowValidationXSDPath', '{secret}'))", OURS),
}


@contextmanager
def allowing(executor: OneExecutor, name: str, private: Path) -> Iterator[None]:
    """Have the executor's Spark allow *name* and nothing else within the context, as a start with other flags would."""
    conf = jvm_context(executor.spark).conf()
    before = {key: conf.get(key, "") for key in (ALLOW, PRIVATE)}
    # Spark looks at both anew when what is private has changed.
    conf.set(ALLOW, name).set(PRIVATE, "\n".join((str(private), *SYSTEM, f"/none/{next(_numbers)}")))
    try:
        yield
    finally:
        for key, value in before.items():
            conf.set(key, value)


@pytest.fixture(scope="module")
def directory(executor: OneExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a directory with a table of the catalog, a secret, and files for all."""
    made = tmp_path_factory.mktemp("beside")
    (made / "private").mkdir()
    (made / "private" / "secret").write_text(SECRET)
    (made / "data").mkdir()
    (made / "data" / "plain.txt").write_text("plain\n")
    (made / "data" / "link").symlink_to(made / "private" / "secret")
    properties = {"uri": f"sqlite:///{made}/ice.db", "warehouse": f"file://{made}/ice"}
    catalog = load_catalog(FOREIGN, **properties)
    catalog.create_namespace("shop")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    catalog.create_table("shop.sales", rows.schema).append(rows)
    catalog.close()
    given = f"{FOREIGN}=iceberg:{properties['uri']}?warehouse={properties['warehouse']}"
    executor.foreign = ForeignTables([parse_catalog(given)])
    yield made
    executor.foreign.close()
    executor.foreign = None


def test_tables_of_the_catalog_and_plain_files_are_read(
    executor: OneExecutor, catalog: MemoryCatalog, directory: Path
) -> None:
    """Or all that is refused here would be refused for another reason."""
    with allowing(executor, "", directory / "private"):
        for text, rows in (
            ("SELECT id FROM ice.shop.sales", [(1,), (2,)]),
            (f"SELECT * FROM text.`{directory}/data/plain.txt`", [("plain",)]),
        ):
            assert sorted(executor.run(executor.plan_sql(text))) == rows


@pytest.mark.parametrize("what", REFUSED)
def test_it_opens_nothing_else(executor: OneExecutor, catalog: MemoryCatalog, directory: Path, what: str) -> None:
    text, reported = REFUSED[what]
    names = {"data": directory / "data", "secret": directory / "private" / "secret"}
    with allowing(executor, "", directory / "private"), pytest.raises(Exception, match=re.escape(reported)) as raised:
        executor.run(executor.plan_sql(text.format(**names), conf={}))
    assert SECRET not in str(raised.value)
    assert not (directory / "data" / "made").exists()


@pytest.mark.parametrize("scheme", ["ftp", "http", "https"])
def test_no_file_system_is_opened_on_which_no_table_can_lie(executor: OneExecutor, scheme: str) -> None:
    """Not even by what no plan shows, such as a path within a file."""
    path = executor.spark._jvm.org.apache.hadoop.fs.Path(f"{scheme}://127.0.0.1:1/x")
    with pytest.raises(Exception, match=f"start executors with --allow {scheme}:"):
        path.getFileSystem(executor.spark.sparkContext._jsc.hadoopConfiguration())


@pytest.mark.parametrize(
    ("allowed", "made", "reported"),
    [
        ("image", "USING image LOCATION '{0}/data'", "start executors with --allow image"),
        (
            "viewfs:",
            """(line STRING, p INT) USING text PARTITIONED BY (p) LOCATION 'viewfs://m/x'
            OPTIONS ('fs.viewfs.mounttable.m.link./x' 'file://{0}/data')""",
            "viewfs://m/x cannot be read",
        ),
    ],
)
def test_tables_of_onagers_own_are_of_its_own_formats_and_file_systems(
    executor: OneExecutor, catalog: MemoryCatalog, directory: Path, allowed: str, made: str, reported: str
) -> None:
    """Whatever an executor with other flags let into its catalog."""
    with allowing(executor, allowed, directory / "private"):
        catalog.commit(executor.plan_sql(f"CREATE TABLE t {made.format(directory)}", conf={}))
    with allowing(executor, "", directory / "private"), pytest.raises(Exception, match=reported):
        executor.plan_sql("SELECT * FROM t", conf={})
