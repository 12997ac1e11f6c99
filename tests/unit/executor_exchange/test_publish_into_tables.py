"""Rows that are added to tables, or replace some of theirs, go to partitions, and can be taken back."""

import contextlib
import json
from pathlib import Path

import pytest

from onager.errors import SinkError
from onager.executor.exchange import remove_staging, take_back
from onager.executor.exchange.partitions import HeldPartitions
from onager.executor.exchange.publish import carry_out, plan_publish
from onager.executor.exchange.table_folders import REPLACED
from onager.ids import Nonce
from onager.manifests import Manifest
from onager.protocol import onager_pb2 as pb
from tests.unit.executor_exchange.staged import JOB, Crash, Stopping, stage

pytestmark = pytest.mark.usefixtures("nothing_is_synced")

TABLE = pb.SinkTable(key="tables/default/t", table_id="0" * 16)


def stage_partitions(
    base: Path, replaces: str = "nothing", within: str = "", held: HeldPartitions | None = None
) -> tuple[Manifest, Path]:
    """Stage rows for two partitions of a table, of which one is there and lies elsewhere in the table's folder."""
    home = base / "t"
    for name in ("v-1/k=a", "k=c") if held is None else ():
        (home / name).mkdir(parents=True)
        (home / name / "part-00000-old.parquet").write_text("old")
    sink = pb.Sink(path=str(home), format="parquet", mode="append", partition_by=["k"], table=TABLE)
    sink.table.location, sink.table.replaces, sink.table.within = f"file:{home}", replaces, within
    if replaces != "nothing":
        sink.path, sink.mode = f"{home}/v-2", "error"
    staging = Path(sink.path).with_name(f".{Path(sink.path).name}.onager-{JOB}")
    outputs = []
    for nonce, name in (("n0", "k=a/part-new.parquet"), ("n1", "k=b/part-new.parquet")):
        (staging / nonce / name).parent.mkdir(parents=True)
        (staging / nonce / name).write_text(name[2])
        outputs.append(pb.TaskOutput(nonce=nonce, rows=1, files=[f"{nonce}/{name}"]))
    lie = {"k=a": f"file:{home}/v-1/k=a", "k=c": f"file:{home}/k=c"}
    held = held or HeldPartitions(lie, f"file:{home}/v-0")
    return plan_publish(JOB, sink, outputs, Nonce("abc"), held=held), home


def files_of(home: Path) -> dict[str, str]:
    return {
        str(path.relative_to(home)): path.read_text()
        for path in home.rglob("*")
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(home).parts)
    }


OLD_ROWS = {"v-1/k=a/part-00000-old.parquet": "old", "k=c/part-00000-old.parquet": "old"}


def test_added_rows_go_to_where_their_partitions_lie_and_are_taken_back(tmp_path):
    stopped_after, is_stopped = 0, True
    while is_stopped:
        base = tmp_path / str(stopped_after)
        manifest, home = stage_partitions(base, "nothing")
        try:
            carry_out(Manifest.from_bytes(manifest.to_bytes()), Stopping(stopped_after))
            is_stopped = False
        except Crash:
            carry_out(manifest)
        assert files_of(home) == OLD_ROWS | {"v-1/k=a/part-new.parquet": "a", "v-0/k=b/part-new.parquet": "b"}
        for _ in range(2):
            take_back(str(home), JOB)
            assert files_of(home) == OLD_ROWS
        remove_staging(str(home), JOB)
        with contextlib.suppress(SinkError):
            carry_out(manifest)  # a late process
        assert files_of(home) == OLD_ROWS
        stopped_after += 1
    assert stopped_after > 8


def test_rows_are_taken_back_wherever_their_publishing_was_left(tmp_path):
    for left in range(40):
        manifest, home = stage_partitions(tmp_path / str(left), "nothing")
        with contextlib.suppress(Crash):
            carry_out(manifest, Stopping(left))
        take_back(str(home), JOB)
        remove_staging(str(home), JOB)
        assert files_of(home) == OLD_ROWS
        assert not [path for path in home.rglob("*") if JOB in path.name]


def test_rows_for_a_table_without_a_folder_go_to_their_partitions_and_are_taken_back(tmp_path):
    for left in range(40):
        base = tmp_path / str(left)
        held = HeldPartitions({}, f"file:{base}/t/v-0")
        manifest, home = stage_partitions(base, held=held)
        with contextlib.suppress(Crash):
            carry_out(manifest, Stopping(left))
        if left == 39:
            assert files_of(home) == {"v-0/k=a/part-new.parquet": "a", "v-0/k=b/part-new.parquet": "b"}
        take_back(str(home), JOB)
        remove_staging(str(home), JOB)
        assert files_of(home) == {}


def test_rows_that_made_their_dataset_are_taken_back_and_those_of_others_stay(tmp_path):
    for left in range(20):
        base = tmp_path / str(left)
        manifest, target = stage(base, "append", old=False)
        with contextlib.suppress(Crash):
            carry_out(manifest, Stopping(left))
        target.mkdir(exist_ok=True)
        (target / "of-another").write_text("")
        take_back(str(target), JOB)
        remove_staging(str(target), JOB)
        assert list(files_of(target)) == ["of-another"]


@pytest.mark.parametrize(
    ("location", "why"),
    [("s3a://bucket/x", "no file can be moved"), ("file:/warehouse/../x", "no file"), ("file:/dev/shm/x", "another")],
)
def test_no_rows_go_to_a_partition_to_which_no_file_can_be_moved(tmp_path, location, why):
    with pytest.raises(SinkError, match=rf"partition k=a lies at {location}.*{why}.*give it a place"):
        stage_partitions(tmp_path, held=HeldPartitions({"k=a": location}))


@pytest.mark.parametrize(
    ("replaces", "within", "gone"),
    [
        ("written", "", {"v-1/k=a/part-00000-old.parquet"}),
        ("matching", "k=a", {"v-1/k=a/part-00000-old.parquet"}),
        ("matching", "", {"v-1/k=a/part-00000-old.parquet", "k=c/part-00000-old.parquet"}),
    ],
)
def test_rows_that_replace_others_lie_beside_them_until_those_are_removed(tmp_path, replaces, within, gone):
    manifest, home = stage_partitions(tmp_path, replaces, within)
    carry_out(Manifest.from_bytes(manifest.to_bytes()))
    new = {"v-2/k=a/part-new.parquet": "a", "v-2/k=b/part-new.parquet": "b"}
    assert files_of(home) == OLD_ROWS | new
    assert set(json.loads((home / "v-2" / REPLACED).read_text())) == gone
