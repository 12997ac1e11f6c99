"""Files of a program of Spark Connect: its functions find them, wherever they run, and no other program's do."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import SparkFiles
from pyspark.sql.connect import functions as F  # noqa: N812 - as everybody does
from pyspark.sql.connect import plan as plans
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructType

from onager.exchange_layout import CONNECT_ARTIFACTS
from onager.executor import archives
from tests.integration.planning.catalogs import planned_with
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.support.spark.one_executor import OneExecutor

UNCUT = ("onager.fusion.maxBytes", "100000000")


@pytest.fixture
def new_client(executor: OneExecutor) -> Iterator[Callable[[], ConnectClient]]:
    made: list[ConnectClient] = []
    with planned_with(executor) as catalog:

        def new() -> ConnectClient:
            made.append(ConnectClient(executor, catalog))
            return made[-1]

        yield new
        for client in made:
            client.close()


@pytest.fixture
def client(new_client: Callable[[], ConnectClient]) -> ConnectClient:
    return new_client()


def module(number: int) -> bytes:
    return f"VALUE = {number}\n".encode()


def zipped(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def frame_of(client: ConnectClient, text: str) -> Any:
    return DataFrame(plans.SQL(text), client.spark)


def queries(client: ConnectClient) -> Iterator[list[tuple[Any, ...]]]:
    """Yield what functions find in a program's module: of each kind, in tasks and in broadcasts."""
    plain = F.udf(lambda x: x * __import__("its_module").VALUE, LongType())
    some = client.spark.range(1, 3, numPartitions=2)
    yield client.rows(some.select(plain("id")))
    yield client.rows(some.groupBy("id").count().select(plain("id")))
    few = F.broadcast(client.spark.range(1, 3).select(plain("id").alias("id")))
    yield client.rows(client.spark.range(30, numPartitions=2).join(few, "id"))


def test_functions_of_two_programs_find_each_its_own_module(new_client: Callable[[], ConnectClient]) -> None:
    clients = {3: new_client(), 5: new_client()}
    for number, client in clients.items():
        client.add(**{"pyfiles/its_module.py": module(number)})
    for number, client in clients.items():
        for rows in queries(client):
            assert sorted(rows) == [(number,), (2 * number,)]
    for number, client in clients.items():  # in workers that have imported it
        assert sorted(next(queries(client))) == [(number,), (2 * number,)]
    clients[3].set(*UNCUT)
    assert sorted(next(queries(clients[3]))) == [(3,), (6,)]
    with pytest.raises(Exception, match="No module named 'its_module'"):
        next(queries(new_client()))


def test_what_is_planned_in_python_finds_modules(client: ConnectClient) -> None:
    class Series:
        @staticmethod
        def analyze(_: Any) -> Any:
            from pyspark.sql.udtf import AnalyzeResult

            return AnalyzeResult(StructType().add(f"c{__import__('its_module').VALUE}", "long"))

        def eval(self, count: int) -> Iterator[tuple[int]]:
            yield from ((__import__("its_module").VALUE + i,) for i in range(count))

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(i * __import__("its_module").VALUE) for i in range(3)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value + __import__("its_module").VALUE,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "own"

        def schema(self) -> str:
            return f"c{__import__('its_module').VALUE} long"

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
            return Reader()

    client.add(**{"pyfiles/its_module.py": module(7)})
    client.table_function("series", Series)
    frame = frame_of(client, "SELECT * FROM series(2)")
    assert client.schema(frame).names == ["c7"]
    assert sorted(client.rows(frame)) == [(7,), (8,)]
    client.source(Source)
    frame = client.spark.read.format("own").load()
    assert client.schema(frame).names == ["c7"]
    assert sorted(client.rows(frame)) == [(7,), (14,), (21,)]


def test_files_and_archives_are_where_sparkfiles_says(client: ConnectClient) -> None:
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("deep/empty.txt"))
    client.add(
        **{
            "pyfiles/pack.zip": zipped(**{"pack/__init__.py": "NAME = 'packed'"}),
            "files/data.txt": b"data",
            "archives/env.zip#environment": zipped(**{"in/a.txt": "archived"}),
            "archives/t.tar.gz": tarred.getvalue(),
        }
    )

    def look(_):  # type: ignore[no-untyped-def] # with types it would be another kind of function
        import pack

        data, archived = (open(SparkFiles.get(name)).read() for name in ("data.txt", "environment/in/a.txt"))  # noqa: PTH123, SIM115
        return f"{pack.NAME} {data} {archived} {os.listdir(SparkFiles.get('t.tar.gz/deep'))}"  # noqa: PTH208

    some = client.spark.range(4, numPartitions=2)
    assert set(client.rows(some.select(F.udf(look, StringType())("id")))) == {("packed data archived ['empty.txt']",)}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no archive", "cannot be unpacked"),
        (zipped(a="1", b="2"), "2 files of 2 bytes"),
        (zipped(a="12"), "1 files of 2"),
    ],
)
def test_an_archive_that_is_damaged_or_too_large_is_reported_by_its_name(
    client: ConnectClient, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED", 1)
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1)
    client.add(**{"archives/env.zip": content})
    with pytest.raises(ConnectError, match=rf"the archive env\.zip .*{says}"):
        client.schema(client.spark.range(3))
    folder = client._executor.directory / CONNECT_ARTIFACTS
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_tar_does_not_lead_out_of_its_folder(client: ConnectClient) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../astray.txt"))
    client.add(**{"archives/env.tar": content.getvalue()})
    with pytest.raises(ConnectError, match=r"cannot be unpacked.*outside"):
        client.schema(client.spark.range(3))
    assert not list(client._executor.directory.glob("**/astray.txt"))
