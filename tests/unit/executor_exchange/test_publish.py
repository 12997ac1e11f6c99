"""Publishing is stopped after every single file system call, repeated, done by two at once: it ends whole."""

import contextlib
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from onager.errors import SinkError, TargetExistsError, VersionMismatchError
from onager.executor.exchange import remove_staging, take_back
from onager.executor.exchange.directory import remove_tree
from onager.executor.exchange.publish import Files, carry_out, check_target, plan_publish
from onager.executor.spark import failures
from onager.ids import Nonce, new_nonce
from onager.manifests import Manifest, Move
from onager.private_paths import PrivatePaths
from onager.protocol import onager_pb2 as pb
from tests.support.waiting import HANGS_S
from tests.unit.executor_exchange.staged import JOB, NEW, OLD, Crash, Stopping, stage

pytestmark = pytest.mark.usefixtures("nothing_is_synced")


class Turns(Stopping):
    """Makes its calls only in its turns: two of them run as one chosen interleaving."""

    def __init__(self, baton: "Baton", me: int) -> None:
        self.baton, self.me = baton, me

    def _step(self) -> None:
        self.baton.wait(self.me)


class Baton:
    """Lets process 0 make *first* calls, then process 1 *second*, then 0 the rest, then 1 the rest."""

    def __init__(self, first: int, second: int) -> None:
        self.plan = [0] * first + [1] * second
        self.done = set()
        self.changed = threading.Condition()

    def _turn(self) -> int:
        while self.plan and self.plan[0] in self.done:
            self.plan.pop(0)
        if self.plan:
            return self.plan[0]
        return 1 if 0 in self.done else 0

    def wait(self, me: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self._turn() == me, HANGS_S)
            if self.plan:
                self.plan.pop(0)
            self.changed.notify_all()

    def finish(self, me: int) -> None:
        with self.changed:
            self.done.add(me)
            self.changed.notify_all()


def content(target: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in target.iterdir() if not p.name.startswith(".") and p.name != "_SUCCESS"}


def expected(mode: str, *, old: bool) -> dict[str, str]:
    before = {name: text for name, text in OLD.items() if name != "_SUCCESS"} if old and mode == "append" else {}
    return before | NEW


def assert_whole(base: Path, target: Path, mode: str, *, old: bool) -> None:
    assert content(target) == expected(mode, old=old)
    assert (target / "_SUCCESS").exists()
    if mode == "append":
        remove_staging(str(target), JOB)  # which goes with the job
    assert sorted(p.name for p in base.iterdir()) == ["out"]
    assert not [p.name for p in target.iterdir() if p.name.startswith(".")]


CASES = [("error", False), ("overwrite", False), ("overwrite", True), ("append", False), ("append", True)]


def calls_of(base: Path, mode: str, *, old: bool) -> int:
    manifest, _ = stage(base, mode, old=old)
    counting = Stopping(10_000)
    carry_out(manifest, counting)
    return 10_000 - counting.left


@pytest.mark.parametrize(("mode", "old"), CASES)
def test_ends_whole_when_killed_before_any_two_calls(tmp_path, mode, old):
    calls = calls_of(tmp_path / "count", mode, old=old)
    assert calls >= 5
    for first in range(calls + 1):
        for second in range(calls + 1):
            base = tmp_path / f"{first}-{second}"
            manifest, target = stage(base, mode, old=old)
            for after in (first, second):
                try:
                    carry_out(manifest, Stopping(after))
                except Crash:
                    if mode != "append" and target.exists():
                        assert content(target) in ({"part-00000-old.parquet": "old"}, NEW)
            carry_out(Manifest.from_bytes(manifest.to_bytes()))
            assert_whole(base, target, mode, old=old)
            carry_out(manifest)
            assert_whole(base, target, mode, old=old)


@pytest.mark.parametrize(("mode", "old"), [*CASES, ("overwrite", None)])
def test_two_at_once_end_whole_in_every_order_of_calls(tmp_path, mode, old):
    calls = calls_of(tmp_path / "count", mode, old=bool(old))
    for first in range(calls + 1):
        for second in range(calls + 1):
            base = tmp_path / f"{first}-{second}"
            manifest, target = stage(base, mode, old=bool(old))
            if old is None:
                target.mkdir()  # an empty directory to be overwritten
            baton = Baton(first, second)
            errors = []

            def work(me, baton=baton, manifest=manifest, errors=errors):
                try:
                    carry_out(manifest, Turns(baton, me))
                except Exception as e:  # noqa: BLE001
                    errors.append(e)
                finally:
                    baton.finish(me)

            threads = [threading.Thread(target=work, args=(me,)) for me in (0, 1)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(HANGS_S)
            assert not errors, (first, second, errors)
            assert_whole(base, target, mode, old=bool(old))


def test_an_existing_target_is_refused_without_a_mode(tmp_path):
    with pytest.raises(TargetExistsError, match="--mode overwrite"):
        stage(tmp_path, "error", old=True)


def test_a_target_that_appears_meanwhile_is_refused_and_kept(tmp_path):
    manifest, target = stage(tmp_path, "error", old=False)
    target.mkdir()
    (target / "theirs").write_text("theirs")
    with pytest.raises(TargetExistsError) as refused:
        carry_out(manifest)
    assert failures.from_exception(None, refused.value).kind == "user_error"
    assert content(target) == {"theirs": "theirs"}


def test_a_target_that_another_fills_while_it_is_overwritten_is_reported_to_the_user(tmp_path):
    manifest, target = stage(tmp_path, "overwrite", old=True)

    class Meanwhile(Files):
        def rename(self, source, to):
            if to == target:
                target.mkdir()
                (target / "theirs").write_text("theirs")
            super().rename(source, to)

    kept = tmp_path / f".out.replaced-by-{JOB}"
    with pytest.raises(SinkError, match=f"was written by another job.*the rows before are kept in {kept}") as refused:
        carry_out(manifest, Meanwhile())
    assert failures.from_exception(None, refused.value).kind == "user_error"
    fail(target)
    assert content(target) == {"theirs": "theirs"}
    assert content(kept) == {"part-00000-old.parquet": "old"}
    assert {path.name for path in tmp_path.iterdir()} == {"out", kept.name}


def fail(target: Path) -> None:
    """Clean up after the job has failed."""
    take_back(str(target), JOB)
    remove_staging(str(target), JOB)


def test_the_old_dataset_is_back_when_the_job_fails_wherever_its_publishing_was_left(tmp_path):
    calls = calls_of(tmp_path / "count", "overwrite", old=True)
    for left in range(calls + 1):
        base = tmp_path / str(left)
        manifest, target = stage(base, "overwrite", old=True)
        with contextlib.suppress(Crash):
            carry_out(manifest, Stopping(left))
        is_published = (target / "part-00000-n0.parquet").exists()
        for _ in range(2):
            fail(target)
            assert content(target) == (NEW if is_published else {"part-00000-old.parquet": "old"})
            assert [path.name for path in base.iterdir()] == ["out"]
        if not is_published:
            with pytest.raises(SinkError):
                carry_out(manifest)  # a late process
            assert content(target) == {"part-00000-old.parquet": "old"}


def test_a_rename_that_is_held_up_until_the_job_has_failed_takes_nothing_away(tmp_path, monkeypatch):
    manifest, target = stage(tmp_path, "overwrite", old=True)

    class DiesBefore(Files):
        def rename(self, source, to):
            if to == target:
                raise Crash
            super().rename(source, to)

    with pytest.raises(Crash):
        carry_out(manifest, DiesBefore())
    taken = []

    def remove(path):
        if path.name.startswith("assembled-"):
            taken.append(target.rename(path.with_name("replaced-abc")))  # had been looked up before
        remove_tree(path)

    monkeypatch.setattr("onager.executor.exchange.taking_back.remove_tree", remove)
    fail(target)
    assert taken
    assert content(target) == {"part-00000-old.parquet": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_dataset_that_was_replaced_does_not_come_back(tmp_path):
    manifest, target = stage(tmp_path, "overwrite", old=True)

    class DiesRemoving(Files):
        def remove_tree(self, path):
            raise Crash(path)

    with pytest.raises(Crash):
        carry_out(manifest, DiesRemoving())
    assert list(tmp_path.glob(f".out.onager-{JOB}.done-*/replaced-*"))
    target.rename(tmp_path / "moved")  # by its owner, before the job is cleaned up
    fail(target)
    assert [path.name for path in tmp_path.iterdir()] == ["moved"]


def test_append_meets_a_target_that_appeared_meanwhile(tmp_path):
    manifest, target = stage(tmp_path, "append", old=False)

    class Meanwhile(Files):
        def rename(self, source, to):
            if to == target and not target.exists():
                target.mkdir()
                (target / "theirs").write_text("theirs")
            super().rename(source, to)

    carry_out(manifest, Meanwhile())
    assert content(target) == NEW | {"theirs": "theirs"}


def test_lost_staged_files_are_reported_and_the_old_dataset_is_kept(tmp_path):
    manifest, target = stage(tmp_path, "overwrite", old=True)
    (tmp_path / f".out.onager-{JOB}" / "n1" / "part-00001-n1.parquet").unlink()
    with pytest.raises(SinkError, match=r"part-00001-n1\.parquet"):
        carry_out(manifest)
    assert content(target) == {"part-00000-old.parquet": "old"}


def test_files_without_rows_are_left_out_but_one_stays_when_all_are_empty():
    sink = pb.Sink(path="/nowhere/out", format="parquet")
    some = [pb.TaskOutput(rows=r, files=[f"n{i}/part-{i}"]) for i, r in enumerate((0, 2, 0))]
    assert [m.name for m in plan_publish(JOB, sink, some, Nonce("x")).moves] == ["part-1"]
    none = [pb.TaskOutput(rows=0, files=["n0/part-0"]), pb.TaskOutput(rows=0)]
    assert [m.name for m in plan_publish(JOB, sink, none, Nonce("x")).moves] == ["part-0"]


@pytest.mark.parametrize(
    ("path", "message"),
    [("s3a://bucket/out", "not known to be atomic"), ("out", "full path"), ("/", "cannot be replaced")],
)
def test_targets_that_can_never_be_published_are_refused(path, message):
    with pytest.raises(SinkError, match=message):
        check_target(pb.Sink(path=path, mode="overwrite"))


def test_a_file_as_target_is_refused(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(SinkError, match="is a file"):
        check_target(pb.Sink(path=str(tmp_path / "f"), mode="overwrite"))


def test_a_manifest_for_another_catalog_is_refused_by_those_who_know_none(tmp_path):
    manifest, _ = stage(tmp_path, "error", old=False)
    assert b"foreign" not in manifest.to_bytes()
    written = replace(manifest, foreign="{}").to_bytes()
    assert json.loads(written)["version"] == 4
    assert Manifest.from_bytes(written).foreign == "{}"


def test_a_newer_manifest_is_refused(tmp_path):
    manifest, _ = stage(tmp_path, "error", old=False)
    text = manifest.to_bytes().replace(b'"version": 1', b'"version": 5')
    with pytest.raises(VersionMismatchError, match="version 5"):
        Manifest.from_bytes(text)


class HeldUpInRename(Files):
    """Looks up where the old dataset goes, and is held up there until another publisher is done."""

    def rename(self, source, target):
        if target.name.startswith("replaced-"):
            carry_out(self.manifest)
            retired = target.parent.with_name(f"{target.parent.name}.done-abc")
            retired.mkdir(exist_ok=True)  # it would not have been removed, since we hold it
            target = retired / target.name
        super().rename(source, target)


def test_a_late_move_that_takes_the_new_dataset_gives_it_back(tmp_path):
    manifest, target = stage(tmp_path, "overwrite", old=True)
    files = HeldUpInRename()
    files.manifest = manifest
    carry_out(manifest, files)
    assert {path.name: path.read_text() for path in target.iterdir() if path.name != "_SUCCESS"} == NEW


@pytest.mark.parametrize("name", ["../x", "n/../../x", "/etc/passwd", "n//x", "", "n/a\nb"])
def test_nothing_is_published_from_or_to_elsewhere(tmp_path, name):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet")
    with pytest.raises(SinkError, match="cannot be the name of a staged file"):
        plan_publish("job-1", sink, [pb.TaskOutput(rows=1, files=[name])], new_nonce())
    made = plan_publish("job-1", sink, [pb.TaskOutput(rows=1, files=["n/part-0"])], new_nonce())
    for moves in ((Move(name, "part-0"),), (Move("n/part-0", name),)):
        with pytest.raises(SinkError, match="cannot be the name of a staged file"):
            Manifest.from_bytes(replace(made, moves=moves).to_bytes())
    for changed in (replace(made, staging=str(tmp_path)), replace(made, nonce="../n"), replace(made, target="/else")):
        with pytest.raises(SinkError, match="not one that this Onager made"):
            Manifest.from_bytes(changed.to_bytes())


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
@pytest.mark.parametrize("path", ["{0}/exchange", "{0}/exchange/job-2/1", "{0}", "file:{0}/exchange", "{0}/link/out"])
def test_no_dataset_is_published_among_our_own_files(tmp_path, mode, path):
    (tmp_path / "exchange" / "job-2").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "exchange")
    sink = pb.Sink(path=path.format(tmp_path), mode=mode)
    with pytest.raises(SinkError, match="where Onager keeps files of its own"):
        check_target(sink, PrivatePaths([tmp_path / "exchange"]))
    with pytest.raises(SinkError, match="where Onager keeps files of its own"):
        plan_publish(JOB, sink, [], Nonce("n"), PrivatePaths([tmp_path / "exchange"]))


def test_a_target_that_steps_back_is_refused_at_once(tmp_path):
    with pytest.raises(SinkError, match=r"has '\.\.' or '\.' in it"):
        check_target(pb.Sink(path=f"{tmp_path}/missing/../../out", mode="overwrite"))
