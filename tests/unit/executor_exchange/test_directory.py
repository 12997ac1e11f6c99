import errno
import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from onager.errors import ExchangeFullError, ExchangeNotWritableError, FetchFailedError
from onager.exchange_layout import (
    has_scheme,
    local_path,
    result_file,
    stage_directory,
    staging_directory,
)
from onager.executor.exchange import (
    check_exchange_dir,
    look_through,
    remove_job_data,
    remove_output,
    remove_staging,
    remove_table_folder,
    remove_unfinished,
)
from onager.private_paths import NO_PATHS, PrivatePaths
from onager.result_files import read_result, split_messages
from tests.support.damage import sealed


def fill(base: Path, *names: str) -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(name)


def files(base: Path) -> list[str]:
    return sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file())


def test_only_folders_of_tables_are_removed_as_such(tmp_path):
    private = PrivatePaths([str(tmp_path / "exchange-0123456789abcdef")])
    names = (
        "sales-0123456789abcdef",
        "sales",
        "sales-0123456789ABCDEF",
        "exchange-0123456789abcdef",
        "-0123456789abcdef",
    )
    for name in names:
        fill(tmp_path, f"{name}/part-0")
        remove_table_folder((tmp_path / name).as_uri(), private)
    remove_table_folder(f"{tmp_path}/x/../sales-0123456789abcdef", private)
    remove_table_folder(f"{tmp_path}/gone-0123456789abcdef", private)
    assert files(tmp_path) == sorted(f"{name}/part-0" for name in names[1:])


def test_files_that_a_list_names_go_and_nothing_outside_of_the_table(tmp_path):
    home = tmp_path / "t-0123456789abcdef"
    new = home / "v-00000000000000aa"
    fill(home, "k=a/old", "k=a/kept", "k=b/old", "v-00000000000000aa/k=a/part", "v-00000000000000bb/k=c/old")
    fill(home, "v-00000000000000bb/_SUCCESS")
    fill(tmp_path, "else/old")
    listed = ["k=a/old", "k=b/old", "v-00000000000000bb/k=c/old", "../else/old", f"{tmp_path}/else/old", 7, ""]
    (new / "_replaced").write_text(json.dumps(listed))
    for _ in range(2):
        remove_table_folder(str(new / "_replaced"), NO_PATHS)
        assert files(tmp_path) == [
            "else/old",
            "t-0123456789abcdef/k=a/kept",
            "t-0123456789abcdef/v-00000000000000aa/k=a/part",
        ]
    assert sorted(path.name for path in home.iterdir()) == ["k=a", "v-00000000000000aa"]


def test_columns_whose_names_begin_with_an_underscore_are_seen(tmp_path):
    home = tmp_path / "t-0123456789abcdef"
    new = home / "v-00000000000000aa"
    fill(home, "_k=a/_h=1/old", "_k=a/_h=2/kept", "_k=b/_SUCCESS", "_k=b/old", "v-00000000000000aa/_k=a/_h=1/part")
    fill(home, "_k=b/.part.onager-job", "v-00000000000000aa/_SUCCESS")
    (new / "_replaced").write_text(json.dumps(["_k=a/_h=1/old", "_k=b/old"]))
    remove_table_folder(str(new / "_replaced"), NO_PATHS)
    assert files(home) == [
        "_k=a/_h=2/kept",
        "_k=b/.part.onager-job",  # of a job that publishes
        "_k=b/_SUCCESS",
        "v-00000000000000aa/_SUCCESS",
        "v-00000000000000aa/_k=a/_h=1/part",
    ]


def test_a_damaged_list_and_one_in_another_folder_remove_nothing(tmp_path):
    for folder in ("t/v-00000000000000aa", "t/mine"):
        fill(tmp_path, f"{folder}/k=a/part")
        (tmp_path / folder / "_replaced").write_text('["mine/k=a/part"' + ("" if "v-" in folder else "]"))
        remove_table_folder(str(tmp_path / folder / "_replaced"), NO_PATHS)
        assert (tmp_path / folder / "k=a" / "part").exists()


def test_a_folder_with_a_list_of_its_own_stays_until_that_was_worked_off(tmp_path):
    home = tmp_path / "t-0123456789abcdef"
    fill(home, "k=a/first", "v-00000000000000aa/k=a/second", "v-00000000000000bb/k=a/third")
    for folder, listed in (("aa", "k=a/first"), ("bb", "v-00000000000000aa/k=a/second")):
        (home / f"v-00000000000000{folder}" / "_replaced").write_text(json.dumps([listed]))
    for folder in ("bb", "aa"):
        remove_table_folder(f"{home}/v-00000000000000{folder}/_replaced", NO_PATHS)
    assert files(home) == ["v-00000000000000bb/k=a/third"]
    assert [path.name for path in home.iterdir()] == ["v-00000000000000bb"]


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


def test_a_missing_directory_is_reported(tmp_path):
    with pytest.raises(ExchangeNotWritableError, match=f"{tmp_path}/no is not there: mount the volume there"):
        check_exchange_dir(f"{tmp_path}/no")


def test_a_file_is_reported(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(ExchangeNotWritableError, match="not a directory"):
        check_exchange_dir(f"{tmp_path}/f")


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [(28, ExchangeFullError, "is full"), (30, ExchangeNotWritableError, "Read-only file system")],
)
def test_a_full_or_read_only_directory_is_reported(tmp_path, monkeypatch, number, error, message):
    def refuse(self, _):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(error, match=message):
        check_exchange_dir(str(tmp_path))


@pytest.mark.parametrize("call", ["stat", "unlink"])
def test_a_file_system_that_fails_while_it_is_looked_at_is_reported(tmp_path, monkeypatch, call):
    def fail(self, **_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, call, fail)
    with pytest.raises(ExchangeNotWritableError, match=r"cannot be written .*: check its permissions and its mount"):
        check_exchange_dir(str(tmp_path))


def test_job_data_goes_and_can_be_removed_again(tmp_path):
    fill(tmp_path, "job-1/1/0-a.rows", "job-1/2/.0-b.rows.tmp", "job-2/1/0-c.rows")
    remove_job_data(str(tmp_path), "job-1")
    remove_job_data(str(tmp_path), "job-1")
    assert files(tmp_path) == ["job-2/1/0-c.rows"]
    assert [p.name for p in tmp_path.iterdir()] == ["job-2"]


def test_what_a_killed_remover_left_goes_with_the_job(tmp_path):
    fill(tmp_path, ".job-1.gone/1/0-a.rows", "job-1/1/1-b.rows", ".job-2.gone/1/0-c.rows")
    remove_job_data(str(tmp_path), "job-1")
    assert files(tmp_path) == [".job-2.gone/1/0-c.rows"]
    fill(tmp_path, "job-2/1/0-d.arrow")
    remove_job_data(str(tmp_path), "job-2", keep=["1/0-d.arrow"])
    assert files(tmp_path) == ["job-2/1/0-d.arrow"]


def test_a_writer_that_comes_in_between_leaves_nothing(tmp_path, monkeypatch):
    """The directory is gone by name before anything in it goes: a task that is late finds none to write to."""
    fill(tmp_path, "job-1/1/0-a.rows", "job-1/1/1-b.rows")
    unlink = Path.unlink
    seen = []

    def write_late(path):
        try:
            (tmp_path / "job-1/1/2-late.rows").write_text("late")
        except FileNotFoundError:
            seen.append(path.name)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", write_late)
    remove_job_data(str(tmp_path), "job-1")
    assert len(seen) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_job_whose_directory_comes_back_for_ever_is_reported(tmp_path, monkeypatch):
    fill(tmp_path, "job-1/f")
    rename = Path.rename

    def rename_and_write(path, target):
        rename(path, target)
        fill(tmp_path, "job-1/f")

    monkeypatch.setattr(Path, "rename", rename_and_write)
    with pytest.raises(ExchangeNotWritableError, match="again and again"):
        remove_job_data(str(tmp_path), "job-1")


def test_unfinished_files_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    dead, alive = "0123456789abcdef", "fedcba9876543210"
    mine = f"job-1/1/.0-a.rows.{dead}.tmp"
    others = [f"job-1/1/.1-b.rows.{alive}.tmp", f"job-1/1/2-{dead}.rows", f"job-2/1/.0-a.rows.{dead}.tmp"]
    fill(tmp_path, mine, *others)
    assert remove_unfinished(str(tmp_path), "job-1", [dead]) == 1
    assert files(tmp_path) == sorted(others)
    assert remove_unfinished(str(tmp_path), "job-1", [dead]) == 0


def test_the_output_of_one_execution_goes(tmp_path):
    fill(tmp_path, "job-1/1/0-a.rows", "job-1/1/0-b.rows", "job-1/1/10-a.rows")
    remove_output(str(tmp_path), "job-1", 1, 0, "a")
    remove_output(str(tmp_path), "job-1", 7, 0, "a")
    assert files(tmp_path) == ["job-1/1/0-b.rows", "job-1/1/10-a.rows"]


def test_a_look_finds_sizes_jobs_and_writers(tmp_path):
    fill(tmp_path, "job-1/1/0-a.rows", "job-1/1/.1-b.rows.0123456789abcdef.tmp", ".job-2.gone/1/0-c.rows", "README")
    seen = look_through(f"file:{tmp_path}")
    assert (seen.files, seen.bytes) == (3, sum(len(name) for name in files(tmp_path)) - len("README"))
    assert {job_id: (job.files, job.writers) for job_id, job in seen.jobs.items()} == {
        "job-1": (2, {"0123456789abcdef"}),
        "job-2": (1, set()),
    }
    assert 0 < seen.free_bytes <= seen.total_bytes
    before = seen.jobs["job-1"].latest_ns
    os.utime(tmp_path / "job-1/1", ns=(before + 1, before + 1))
    assert look_through(str(tmp_path)).jobs["job-1"].latest_ns == before + 1


@pytest.mark.parametrize("ahead_s", [0, 7200, -7200])
def test_a_look_takes_old_probes_away_whatever_the_machines_clock_says(tmp_path, monkeypatch, ahead_s):
    fill(tmp_path, *(f".onager-probe-{name}" for name in ("new", "recent", "old")))
    now_s = (tmp_path / ".onager-probe-new").stat().st_mtime
    for name, age_s in (("recent", 300), ("old", 601)):
        os.utime(tmp_path / f".onager-probe-{name}", (now_s - age_s, now_s - age_s))
    own_s = time.time  # noqa: TID251 - the machine's clock
    monkeypatch.setattr(time, "time", lambda: own_s() + ahead_s)
    look_through(str(tmp_path))
    assert files(tmp_path) == [".onager-probe-new", ".onager-probe-recent"]


def test_a_look_at_a_full_directory_leaves_probes_there(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fill(tmp_path, ".onager-probe-a", "job-1/1/0-a.rows")
    monkeypatch.setattr(Path, "touch", full)
    assert look_through(str(tmp_path)).files == 1
    assert files(tmp_path) == [".onager-probe-a", "job-1/1/0-a.rows"]


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


def test_a_result_is_read_batch_by_batch(tmp_path):
    path = tmp_path / "0-a.arrow"
    schema = write_stream(path, 3)
    content, checksum = sealed(path.read_bytes())
    path.write_bytes(content)
    batches = list(read_result(str(tmp_path), path.name, checksum))
    rows = [pa.ipc.read_record_batch(pa.BufferReader(m), schema).column(0).to_pylist() for m in batches]
    assert rows == [[0], [1], [2]]
    assert list(split_messages(content))[1:] == batches


def test_a_result_of_an_older_executor_is_read_without_checksums(tmp_path):
    path = tmp_path / "0-a.arrow"
    write_stream(path, 3)
    _, *batches = split_messages(path.read_bytes())
    assert list(read_result(str(tmp_path), path.name, "")) == batches
    assert list(read_result(str(tmp_path), path.name, "", 2)) == batches[2:]


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_missing_or_cut_result_is_a_fetch_failure(tmp_path, is_sealed):
    with pytest.raises(FetchFailedError, match="missing"):
        list(read_result(str(tmp_path), "no.arrow", ""))
    path = tmp_path / "0-a.arrow"
    write_stream(path, 2)
    content, checksum = sealed(path.read_bytes()) if is_sealed else (path.read_bytes(), "")
    path.write_bytes(content[:-200])
    with pytest.raises(FetchFailedError, match="damaged"):
        list(read_result(str(tmp_path), path.name, checksum))


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "x/../y", "x/y", "a.b", "a\x00", "a\n", "-a"])
def test_no_path_is_made_of_what_is_no_name(name):
    with pytest.raises(ValueError, match="is no job id"):
        stage_directory(name, 1)
    with pytest.raises(ValueError, match="is no job id"):
        staging_directory("/data/out", name)
    with pytest.raises(ValueError, match="is not the name of an execution"):
        result_file("job-1", 1, 0, name)
