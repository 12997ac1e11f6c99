"""What tells a directory from another one lies in files, which several processes make, and which are cleaned up."""

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from onager import place_files
from onager.ids import Incarnation, new_incarnation, new_nonce
from onager.place_files import FOLDER, Seen

LIFE = Incarnation("0123456789abcdef")
ID, OTHER = "a" * 16, "b" * 16


def names(directory):
    return sorted(path.name for path in (directory / FOLDER / ID).iterdir())


def test_a_directory_has_an_id_once_it_is_made_and_those_of_other_clusters_beside_it(tmp_path):
    path = str(tmp_path)
    assert place_files.look(path, "") == place_files.look(path, ID) == Seen()
    place_files.make_id(path, ID)
    place_files.make_id(path, ID)
    place_files.make_id(path, OTHER)
    assert place_files.look(f"file://{path}", ID) == Seen(ID, 1)
    place_files.make_generation(path, ID, 3)
    assert place_files.look(path, ID) == Seen(ID, 3)
    assert place_files.look(path, OTHER) == Seen(OTHER, 1)
    assert place_files.look(path, "c" * 16) == Seen()
    place_files.write_mark(path, LIFE, OTHER)
    place_files.remove_id(path, OTHER, LIFE)
    place_files.remove_id(path, ID, LIFE)  # it is in use
    assert place_files.has_id(path, ID)
    assert not place_files.has_id(path, OTHER)


@pytest.mark.parametrize(
    ("mode", "made"),
    [
        (0o700, 0o700),
        (0o755, 0o755),
        (0o2770, 0o2770),
        (0o2775, 0o2775),
        (0o1777, 0o1777),
        (0o711, 0o755),
        (0o570, 0o770),
        (0o4750, 0o750),
    ],
)
def test_who_may_enter_the_place_reads_its_id_and_marks_and_who_may_write_there_leaves_marks(tmp_path, mode, made):
    tmp_path.chmod(mode)
    before = os.umask(0o077)
    try:
        place_files.make_id(str(tmp_path), ID)
        mark = place_files.write_mark(str(tmp_path), LIFE, ID)
    finally:
        os.umask(before)
    for folder in (tmp_path / FOLDER, tmp_path / FOLDER / ID):
        assert stat.S_IMODE(folder.stat().st_mode) == made
    assert stat.S_IMODE((tmp_path / FOLDER / ID / mark).stat().st_mode) == 0o644


def test_marks_of_other_users_that_may_not_be_removed_hold_up_nothing(tmp_path, monkeypatch):
    path = str(tmp_path)
    place_files.make_id(path, ID)
    place_files.make_generation(path, ID, 1)
    own, other, dead = (place_files.write_mark(path, new_incarnation(), ID) for _ in range(3))
    for mark in (other, dead):
        os.utime(tmp_path / FOLDER / ID / mark, (0, 0))
    unlink = Path.unlink

    def refused(at, **options):
        if at.name in (other, "generation-1"):
            raise PermissionError(errno.EPERM, "the sticky bit is set", str(at))
        unlink(at, **options)

    monkeypatch.setattr(Path, "unlink", refused)
    assert place_files.remove_old_marks(path, own, ID) == 1
    place_files.make_generation(path, ID, 2)
    assert place_files.look(path, ID).generation == 2


@pytest.mark.parametrize("path", ["/data", "/data/", "//data", "///data//", "file:/data", "file:///data/", "/data/."])
def test_a_root_has_one_name_however_it_is_spelled(path):
    assert place_files.plain_path(path) == "/data"
    assert place_files.root_name(path) == place_files.root_name("/data")


def test_a_root_with_steps_back_is_where_they_lead(tmp_path):
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    assert place_files.plain_path(f"{tmp_path}/a/../data") == f"{tmp_path}/data"
    assert place_files.plain_path(f"{tmp_path}/link/../data") == f"{tmp_path}/elsewhere/data"
    assert place_files.plain_path("/..") == "/"


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("file:/data/x does not exist", True),
        ("cannot read file:///data", True),
        ("'/data': no such file", True),
        ("nothing is in /data.", True),
        ("/database/x", False),
        ("/data-2/x", False),
        ("/data.bak/x", False),
        ("/mnt/data/x", False),
        ("/mnt./data", False),
        ("/data, /other", True),
    ],
)
def test_a_directory_is_named_where_its_whole_name_is(text, is_named):
    assert place_files.is_named("/data", text) is is_named


def test_mounts_differ_and_directories_on_one_do_not(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to("/proc")
    here = place_files.mount_of(str(tmp_path))
    assert here == place_files.mount_of(f"file:{tmp_path}/below") != ""
    assert place_files.mount_of("/proc") == place_files.mount_of(str(tmp_path / "link")) not in ("", here)
    assert place_files.mount_of(str(tmp_path / "missing")) == ""


def test_an_old_generation_written_late_changes_nothing(tmp_path):
    path = str(tmp_path)
    place_files.make_id(path, ID)
    place_files.make_generation(path, ID, 3)
    place_files.make_generation(path, ID, 2)
    assert place_files.look(path, ID).generation == 3
    place_files.make_generation(path, ID, 12)
    assert names(tmp_path) == ["generation-12"]


@pytest.mark.parametrize("place_id", ["", ".", "..", "../x", "A" * 16, "a" * 15])
def test_what_is_no_id_is_none(tmp_path, place_id):
    (tmp_path / FOLDER).mkdir()
    assert place_files.look(str(tmp_path), place_id) == Seen()
    place_files.remove_id(str(tmp_path), place_id, LIFE)
    assert (tmp_path / FOLDER).is_dir()


def test_a_directory_that_is_not_there_or_cannot_be_read_is_a_problem_not_an_error(tmp_path, monkeypatch):
    assert place_files.look(str(tmp_path / "no"), ID).problem == "it is not there"
    (tmp_path / "file").touch()
    assert place_files.look(str(tmp_path / "file"), ID).problem == "it is no directory"

    def stale(*_args, **_kwargs):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "open", stale)
    assert place_files.look(str(tmp_path), ID).problem == "it cannot be read (Stale file handle)"


def test_a_mark_is_found_by_its_name_and_only_beside_its_id(tmp_path):
    path = str(tmp_path)
    place_files.make_id(path, ID)
    place_files.make_id(path, OTHER)
    mark = place_files.write_mark(path, LIFE, ID)
    assert mark != place_files.write_mark(path, LIFE, ID)
    assert place_files.has_mark(path, mark, ID)
    assert not place_files.has_mark(path, mark, OTHER)
    assert not place_files.has_mark(path, f"{LIFE}.{new_nonce()}", ID)
    place_files.remove_mark(path, mark, ID)
    assert not place_files.has_mark(path, mark, ID)


@pytest.mark.parametrize("name", ["..", "../id", "", "/etc/passwd", f"{LIFE}.{LIFE}/../id", "generation-1"])
def test_what_is_no_mark_is_neither_looked_for_nor_removed(tmp_path, name):
    path = str(tmp_path)
    place_files.make_id(path, ID)
    place_files.make_generation(path, ID, 1)
    assert not place_files.has_mark(path, name, ID)
    place_files.remove_mark(path, name, ID)
    assert names(tmp_path) == ["generation-1"]


def test_marks_that_nobody_touches_any_more_go_by_the_clock_of_the_disk(tmp_path):
    path = str(tmp_path)
    place_files.make_id(path, ID)
    place_files.make_generation(path, ID, 1)
    own, other, dead = (place_files.write_mark(path, new_incarnation(), ID) for _ in range(3))
    folder = tmp_path / FOLDER / ID
    now_s = (folder / own).stat().st_mtime
    os.utime(folder / own, (now_s - 10 * 86_400, now_s - 10 * 86_400))  # it is touched first
    os.utime(folder / other, (now_s - 80_000, now_s - 80_000))
    os.utime(folder / dead, (now_s - 90_000, now_s - 90_000))
    os.utime(folder / "generation-1", (0, 0))
    assert place_files.remove_old_marks(path, own, ID) == 1
    assert names(tmp_path) == sorted(["generation-1", own, other])


def test_a_copy_has_what_was_there_and_nothing_that_came_later(tmp_path):
    first, copy = str(tmp_path / "a"), str(tmp_path / "b")
    (tmp_path / "a").mkdir()
    place_files.make_id(first, ID)
    before = place_files.write_mark(first, LIFE, ID)
    shutil.copytree(first, copy)
    after = place_files.write_mark(copy, LIFE, ID)
    assert place_files.has_mark(copy, before, ID)
    assert not place_files.has_mark(first, after, ID)
