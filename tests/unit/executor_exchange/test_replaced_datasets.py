"""What an output may replace: an empty directory, or a dataset and nothing else."""

from pathlib import Path

import pytest

from onager.errors import SinkError
from onager.executor.exchange import HeldPartitions, carry_out, check_target, plan_publish
from onager.ids import Nonce
from onager.place_files import FOLDER, make_id
from onager.private_paths import PrivatePaths
from onager.protocol import onager_pb2 as pb

DATASETS = {
    "of this system": ["_SUCCESS", "_onager.json", "part-00000-0a1b.parquet", "part-00001-0a1b.parquet"],
    "of Spark": ["_SUCCESS", "._SUCCESS.crc", "part-00000-4e1c-c000.snappy.parquet", ".part-00000-4e1c-c000.csv.crc"],
    "of MapReduce": ["_SUCCESS", "part-r-00000", "_metadata", "_common_metadata"],
    "with partitions": ["_SUCCESS", "day=2026-03-01/k=%3A/part-00000-0a.csv.gz", "day=__NONE__/part-00000-0a.csv"],
    "with buckets": ["part-00000-4e1c_00001.c000.zstd.orc"],
    "with replaced partitions": ["v-0123456789abcdef/day=1/part-00000-0a.csv", "v-0123456789abcdef/_replaced"],
    "left by a job that was killed": ["part-00000-4e1c.json", "_temporary/0/_temporary/attempt/part-00000.json"],
    "being added to": [".part-00000-0a1b.parquet.onager-job-7"],
    "empty": [],
}  # fmt: skip
OTHERS = {
    "keys": ["id_rsa"],
    "a dataset and a note": ["_SUCCESS", "part-00000-0a1b.parquet", "README"],
    "a directory": ["photos/part-00000-0a1b.parquet"],
    "files of another writer": ["data_0.parquet"],
    "a hidden file": ["_SUCCESS", ".bashrc"],
    "something deep": ["day=1/part-00000-0a.csv", "day=1/secret.txt"],
    "an empty directory": ["photos/"],
    "tables of a database": ["sales-0123456789abcdef/_SUCCESS", "sales-0123456789abcdef/part-00000-0a1b.parquet"],
}


def made(directory: Path, names: list[str]) -> Path:
    directory.mkdir()
    for name in names:
        path = directory / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(name)
    return directory


@pytest.mark.parametrize("names", DATASETS.values(), ids=DATASETS)
def test_a_dataset_is_replaced(tmp_path, names):
    check_target(pb.Sink(path=str(made(tmp_path / "out", names)), mode="overwrite"))


@pytest.mark.parametrize("names", OTHERS.values(), ids=OTHERS)
def test_what_is_no_dataset_stays_unless_it_is_forced(tmp_path, names):
    target = made(tmp_path / "out", names)
    for act in (check_target, lambda sink: plan_publish("job-1", sink, [], Nonce("n"))):
        with pytest.raises(SinkError, match=r"is no dataset, since it holds .*--conf onager.overwrite.anything=true"):
            act(pb.Sink(path=str(target), mode="overwrite", format="csv"))
    check_target(pb.Sink(path=str(target), mode="overwrite", replaces_anything=True))


@pytest.mark.parametrize("names", [[], ["_SUCCESS", "part-00000-0a1b.parquet"]])
def test_a_root_in_another_one_is_replaced_though_executors_have_left_marks_there(tmp_path, names):
    target = made(tmp_path / "out", names)
    make_id(str(target), "a" * 16)
    private = PrivatePaths((), roots=[str(tmp_path), str(target)], tables=str(tmp_path / "warehouse"))
    sink = pb.Sink(path=str(target), mode="overwrite", format="parquet")
    manifest = plan_publish("job-1", sink, [], Nonce("n"), private)
    carry_out(manifest)
    assert not (target / FOLDER).exists()
    assert (target / "_SUCCESS").exists()


@pytest.mark.parametrize("roots", [None, ["/data"]])
def test_a_shared_directory_that_is_no_root_is_not_replaced(tmp_path, roots):
    target = made(tmp_path / "warehouse", [])
    make_id(str(target), "a" * 16)
    private = PrivatePaths((), roots=roots and [str(tmp_path), str(target)], tables=str(target))
    with pytest.raises(SinkError, match=f"is no dataset, since it holds {FOLDER}"):
        check_target(pb.Sink(path=str(target), mode="overwrite"), private)


def test_a_link_is_no_file_of_a_dataset(tmp_path):
    target = made(tmp_path / "out", ["part-00000-a.csv"])
    (target / "part-00001-a.csv").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SinkError, match=r"is no dataset, since it holds part-00001-a\.csv"):
        check_target(pb.Sink(path=str(target), mode="overwrite"))


def test_what_cannot_be_looked_through_is_not_replaced(tmp_path, monkeypatch):
    target = made(tmp_path / "out", ["k=1/part-00000-a.csv"])

    def walk(top, onerror):
        onerror(PermissionError(13, "Permission denied", str(top)))
        yield from ()

    monkeypatch.setattr("onager.executor.exchange.datasets.os.walk", walk)
    with pytest.raises(SinkError, match="cannot be looked through before it is overwritten"):
        check_target(pb.Sink(path=str(target), mode="overwrite"))


def test_where_roots_are_set_an_output_lies_below_one_whatever_is_forced(tmp_path):
    for name in ("data", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "out").symlink_to(tmp_path / "home")
    private = PrivatePaths([tmp_path / "exchange"], roots=[str(tmp_path / "data")])
    check_target(pb.Sink(path=str(tmp_path / "data" / "new"), mode="overwrite"), private)
    for path, why in {
        "home": "it is in none of the directories that jobs may use",
        "data/out": "it is in none of the directories that jobs may use",
        "data": "it is a root itself",
    }.items():
        with pytest.raises(SinkError, match=why):
            check_target(pb.Sink(path=str(tmp_path / path), mode="overwrite", replaces_anything=True), private)


@pytest.mark.parametrize("is_forced", [False, True])
def test_the_folder_of_a_partition_is_replaced_by_the_same_rule(tmp_path, is_forced):
    home = made(tmp_path / "home", [".ssh/id_rsa"])
    held = HeldPartitions({"k=1": (home / ".ssh").as_uri()})
    table = pb.SinkTable(
        key="tables/default/t", table_id="1", location=home.as_uri(), replaces="matching", within="k=1"
    )
    sink = pb.Sink(
        path=str(home / "t-0123456789abcdef"), mode="error", format="csv", table=table, partition_by=["k"],
        replaces_anything=is_forced,
    )  # fmt: skip
    outputs = [pb.TaskOutput(rows=1, files=["n/k=1/part-00000-n.csv"])]
    if is_forced:
        assert plan_publish("job-1", sink, outputs, Nonce("abc"), held=held).moves
        return
    with pytest.raises(SinkError, match="holds id_rsa"):
        plan_publish("job-1", sink, outputs, Nonce("abc"), held=held)
