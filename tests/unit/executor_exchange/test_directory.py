import os
from pathlib import Path

import pyarrow as pa
import pytest

from executor.exchange import check_exchange_dir, remove_job_data, remove_staging
from onager.errors import ExchangeFullError, ExchangeNotWritableError, FetchFailedError
from onager.exchange_layout import (
    has_scheme,
    local_path,
    result_file,
    stage_directory,
    staging_directory,
)
from onager.result_files import read_result, split_messages


def fill(base: Path, *names: str) -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(name)


def files(base: Path) -> list[str]:
    return sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file())


def test_layout():
    assert stage_directory("job-1", 2) == "job-1/2"
    assert result_file("job-1", 2, 3, "abc") == "job-1/2/3-abc.arrow"
    assert staging_directory("/data/out/", "job-1") == "/data/.out.onager-job-1"
    assert local_path("file:///a/b") == local_path("file:/a/b") == local_path("/a/b") == "/a/b"
    assert has_scheme("hdfs://h/a")
    assert not has_scheme("file:///a")
    assert not has_scheme("/a:/b")


def test_a_usable_directory_passes_and_keeps_nothing(tmp_path):
    check_exchange_dir(str(tmp_path))
    check_exchange_dir(f"file:{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_told(tmp_path):
    with pytest.raises(ExchangeNotWritableError, match=f"{tmp_path}/no is not there"):
        check_exchange_dir(f"{tmp_path}/no")


def test_a_file_is_told(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(ExchangeNotWritableError, match="not a directory"):
        check_exchange_dir(f"{tmp_path}/f")


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [(28, ExchangeFullError, "is full"), (30, ExchangeNotWritableError, "Read-only file system")],
)
def test_a_full_or_read_only_directory_is_told(tmp_path, monkeypatch, number, error, message):
    def refuse(self, _):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(error, match=message):
        check_exchange_dir(str(tmp_path))


def test_job_data_goes_and_can_be_removed_again(tmp_path):
    fill(tmp_path, "job-1/1/0-a.rows", "job-1/2/.0-b.rows.tmp", "job-2/1/0-c.rows")
    remove_job_data(str(tmp_path), "job-1")
    remove_job_data(str(tmp_path), "job-1")
    assert files(tmp_path) == ["job-2/1/0-c.rows"]
    assert [p.name for p in tmp_path.iterdir()] == ["job-2"]


def test_named_files_are_kept(tmp_path):
    fill(tmp_path, "job-1/1/0-a.rows", "job-1/2/0-b.arrow", "job-1/2/0-zombie.arrow")
    remove_job_data(str(tmp_path), "job-1", keep=["2/0-b.arrow"])
    assert files(tmp_path) == ["job-1/2/0-b.arrow"]
    assert not (tmp_path / "job-1" / "1").exists()


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", "../job"])
def test_only_job_ids_name_what_is_removed(tmp_path, job_id):
    fill(tmp_path, "keep/f")
    with pytest.raises(ValueError, match="no job id"):
        remove_job_data(str(tmp_path), job_id)
    assert files(tmp_path) == ["keep/f"]


def test_job_data_behind_a_uri_goes(tmp_path, monkeypatch):
    fill(tmp_path, "job-1/1/0-a.rows", "job-1/2/0-b.arrow")
    monkeypatch.setattr("executor.exchange.directory.has_scheme", lambda _: True)
    remove_job_data(f"file://{tmp_path}", "job-1", keep=["2/0-b.arrow"])
    assert files(tmp_path) == ["job-1/2/0-b.arrow"]
    remove_job_data(f"file://{tmp_path}", "job-1")
    assert not (tmp_path / "job-1").exists()


def test_staging_goes_with_what_a_killed_publisher_left(tmp_path):
    fill(tmp_path, "out/p", ".out.onager-job-1/n/p", ".out.onager-job-1.done-x/p", ".out.onager-job-11/n/p")
    remove_staging(f"{tmp_path}/out", "job-1")
    assert files(tmp_path) == [".out.onager-job-11/n/p", "out/p"]


def write_stream(path: Path, batches: int) -> pa.Schema:
    schema = pa.schema([("x", pa.int64()), ("x", pa.string())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for i in range(batches):
            writer.write_batch(pa.record_batch([pa.array([i]), pa.array([str(i)])], schema=schema))
    return schema


def test_a_result_is_read_message_by_message(tmp_path):
    path = tmp_path / "0-a.arrow"
    schema = write_stream(path, 3)
    first, *rest = read_result(str(path))
    assert pa.ipc.read_schema(pa.BufferReader(first)) == schema
    rows = [pa.ipc.read_record_batch(pa.BufferReader(m), schema).column(0).to_pylist() for m in rest]
    assert rows == [[0], [1], [2]]
    assert list(split_messages(path.read_bytes())) == [first, *rest]


def test_a_missing_or_cut_result_is_a_fetch_failure(tmp_path):
    with pytest.raises(FetchFailedError, match="missing"):
        list(read_result(str(tmp_path / "no.arrow")))
    path = tmp_path / "0-a.arrow"
    write_stream(path, 2)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FetchFailedError, match="damaged"):
        list(read_result(str(path)))
