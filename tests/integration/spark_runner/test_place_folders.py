"""The folder by which executors know a shared directory again: no reader of files comes across it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onager.ids import new_incarnation
from onager.place_files import FOLDER, make_generation, make_id, write_mark

ID = "a" * 16


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


def mark(directory: Path) -> None:
    make_id(str(directory), ID)
    make_generation(str(directory), ID, 2)
    write_mark(str(directory), new_incarnation(), ID)


@pytest.fixture
def root(session: SparkSession, tmp_path: Path) -> Path:
    """A directory with tables and files, in which executors have left no marks yet."""
    root = tmp_path / "root"
    for name in ("t", "u"):
        session.range(3).repartition(2).write.parquet(str(root / name))
    (root / "plain").mkdir()
    (root / "plain" / "a.txt").write_text("a\n")
    return root


def share(root: Path) -> None:
    """Leave marks in *root*, and in tables of it that are shared directories themselves."""
    for marked in (root, root / "t", root / "plain"):
        mark(marked)


def files_at(session: SparkSession, pattern: str, **options: str) -> list[str]:
    found = session.read.format("binaryFile").options(**options).load(pattern)
    return sorted(row.path for row in found.select("path").collect())


@pytest.mark.parametrize("pattern", ["*", "*/*", "{t,u,.onager-place}/*"])
def test_a_pattern_names_what_it_named_before_the_directory_was_shared(session, root, pattern):
    found = {}
    for is_shared in (False, True):
        if is_shared:
            share(root)
        found[is_shared] = [
            files_at(session, f"{root}/{pattern}", recursiveFileLookup=deep) for deep in ("false", "true")
        ]
    assert found[True] == found[False]


def test_tables_in_a_shared_directory_have_their_rows_and_partitions(session, root, tmp_path):
    share(root)
    session.range(3).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(f"{tmp_path}/parts")
    mark(tmp_path / "parts")
    for path in (f"{root}/[tu]", f"{root}/[tu]/*", f"{root}/[!p]*"):
        assert session.read.parquet(path).count() == 6
    assert session.read.parquet(f"{tmp_path}/parts").groupBy("p").count().count() == 2
    assert session.read.parquet(f"{tmp_path}/parts/*").count() == 3
    assert session.read.text(f"{root}/plain").collect() == [("a",)]
    (tmp_path / "empty").mkdir()
    mark(tmp_path / "empty")
    with pytest.raises(Exception, match="PATH_NOT_FOUND"):
        session.read.parquet(f"{tmp_path}/empty/*")


def test_no_listing_of_hadoop_has_it(session, root):
    share(root)
    path = session._jvm.org.apache.hadoop.fs.Path(f"file://{root}")
    files = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())

    def names(found):
        return [status.getPath().toString() for status in found]

    def drained(found):
        all_found = []
        while found.hasNext():
            all_found.append(found.next())
        return names(all_found)

    pattern = session._jvm.org.apache.hadoop.fs.Path(f"file://{root}/*")
    deep = session._jvm.org.apache.hadoop.fs.Path(f"file://{root}/*/*")
    for listed in (
        names(files.listStatus(path)),
        names(files.globStatus(pattern)),
        names(files.globStatus(deep)),
        drained(files.listStatusIterator(path)),
        drained(files.listLocatedStatus(path)),
        drained(files.listFiles(path, True)),
    ):
        assert listed
        assert not [name for name in listed if FOLDER in name]
    in_plain = session._jvm.org.apache.hadoop.fs.Path(f"file://{root}/plain")
    assert files.getContentSummary(in_plain).getFileCount() == 1


def test_it_is_not_read_by_its_name(session, root):
    share(root)
    for path in (f"{root}/{FOLDER}", f"{root}/t/{FOLDER}/{ID}", f"{root}/t/{FOLDER}/*", f"{root}/u/../{FOLDER}"):
        with pytest.raises(Exception, match="where Onager keeps files of its own"):
            session.read.text(path).collect()
