"""Archives of programs are unpacked in a process of its own: what one contains harms neither the agent nor its disk."""

import errno
import gzip
import io
import json
import os
import resource
import stat
import tarfile
import zipfile

import pytest

from onager.errors import PlanningError
from onager.executor import archives, unpacking

MIB = 1024**2


def member(name, kind=tarfile.REGTYPE, link="", content=b"", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, len(content), mode
    return info, io.BytesIO(content)


def tarred(*members, mode="w"):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:
        for info, data in members:
            archive.addfile(info, data)
    return content.getvalue()


def zipped(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def zeros(mib):
    """Return a gzip file of *mib* MiB of zeros, as many files in one, so that making it takes no time."""
    return gzip.compress(bytes(16 * MIB)) * (mib // 16)


def long_name(mib):
    """Return an archive whose first name has *mib* MiB."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, mib * MIB
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT)) + zeros(mib)


@pytest.fixture
def unpack(tmp_path):
    def unpack(name, content):
        (tmp_path / "archive").write_bytes(content)
        folder = tmp_path / "folder"
        folder.mkdir()
        archives.unpack(tmp_path / "archive", name, folder)
        return folder

    return unpack


def test_an_archive_is_there_as_it_was_packed(unpack):
    folder = unpack(
        "env.tar.gz",
        tarred(
            member("./bin", tarfile.DIRTYPE),
            member("bin/run", content=b"#!/bin/sh", mode=0o777),
            member("bin/again", tarfile.LNKTYPE, "bin/run", mode=0o755),
            member("lib/deep/data.txt", content=b"old"),
            member("lib/deep/data.txt", content=b"data", mode=0o400),
            member("lib64", tarfile.SYMTYPE, "lib"),
            member("lib/nowhere", tarfile.SYMTYPE, "gone"),
            mode="w:gz",
        ),
    )
    assert (folder / "bin" / "again").read_bytes() == b"#!/bin/sh"
    assert stat.S_IMODE((folder / "bin" / "run").stat().st_mode) == 0o755
    assert (folder / "lib64" / "deep" / "data.txt").read_text() == "data"
    assert stat.S_IMODE((folder / "lib" / "deep" / "data.txt").stat().st_mode) == 0o600
    assert str((folder / "lib" / "nowhere").readlink()) == "gone"


def test_a_zip_is_there_as_it_was_packed(unpack):
    folder = unpack("env.zip", zipped(**{"a/": "", "a/b.txt": "b", "c": b"c" * MIB}))
    assert (folder / "a" / "b.txt").read_text() == "b"
    assert (folder / "c").stat().st_size == MIB


def test_memory_that_an_archive_takes_is_not_the_agents(unpack):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PlanningError, match=r"env\.tar\.gz cannot be unpacked: it takes more than .* memory"):
        unpack("env.tar.gz", long_name(608))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.tar", tarred(member("../astray")), "'../astray' leads outside"),
        ("a.tar", tarred(member("a/../../astray")), "leads outside"),
        ("a.tar", tarred(member("/astray")), "'/astray' leads outside"),
        ("a.tar", tarred(member("x" * 2000)), "leads outside"),
        ("a.tar", tarred(member("l", tarfile.SYMTYPE, "/etc")), "the link 'l' leads outside"),
        ("a.tar", tarred(member("l", tarfile.SYMTYPE, "../astray")), "the link 'l' leads outside"),
        (
            "a.tar",
            tarred(member("a/l", tarfile.SYMTYPE, ".."), member("m", tarfile.SYMTYPE, "a/l/../astray")),
            "the link 'm' leads outside",
        ),
        ("a.tar", tarred(member("l", tarfile.SYMTYPE, "d"), member("l/astray")), "leads through a file, or a link"),
        ("a.tar", tarred(member("f"), member("f/astray")), "leads through a file, or a link"),
        ("a.tar", tarred(member("p", tarfile.FIFOTYPE)), "'p' is neither a file nor a directory"),
        ("a.tar", tarred(member("d", tarfile.CHRTYPE)), "'d' is neither a file nor a directory"),
        ("a.tar", tarred(member("d", tarfile.BLKTYPE)), "'d' is neither a file nor a directory"),
        ("a.tar", tarred(member("h", tarfile.LNKTYPE, "gone")), "cannot be unpacked"),
        ("a.tar", b"no archive", "cannot be unpacked"),
        ("a.tar.gz", tarred(member("f", content=os.urandom(MIB)), mode="w:gz")[:-1000], "cannot be unpacked"),
        ("a.tar", b"", "cannot be unpacked"),
        ("a.zip", zipped(**{"../astray": "x"}), "leads outside"),
        ("a.zip", zipped(a=os.urandom(1000))[:500], "cannot be unpacked"),
    ],
)
def test_an_archive_that_leads_elsewhere_or_is_damaged_is_refused(tmp_path, unpack, name, content, says):
    with pytest.raises(PlanningError, match=f"the archive {name} .*{says}"):
        unpack(name, content)
    assert not [path for path in tmp_path.rglob("*") if path.name == "astray"]


def test_an_archive_that_becomes_too_large_is_refused_before_it_is_written(unpack, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 20 * MIB)
    info = tarfile.TarInfo("large")
    info.size = 32 * MIB
    with pytest.raises(PlanningError, match="1 files of 33,554,432 bytes or more"):
        unpack("a.tar.gz", gzip.compress(info.tobuf()) + zeros(32))
    assert not [path for path in (tmp_path / "folder").iterdir() if path.is_file()]


TELLS_LIMITS = """
import json, os, resource, sys
sys.path.insert(0, os.path.dirname({program!r}))
import unpacking

def tell(archive, folder):
    limits = {{name: resource.getrlimit(getattr(resource, f"RLIMIT_{{name}}"))[0] for name in {names!r}}}
    raise unpacking.RefusedError(json.dumps([limits, sorted(os.environ)]))

unpacking.untar = tell
sys.exit(unpacking.main(*sys.argv[1:]))
"""
"""Runs the program, and tells in place of unpacking what limits it has by then, and what variables."""


def test_whoever_unpacks_has_limits_and_no_variable_of_ours(unpack, tmp_path, monkeypatch):
    limits = {"AS": 512 * MIB, "FSIZE": 20 * MIB, "CPU": 300, "CORE": 0, "NOFILE": 64}
    program = tmp_path / "tells.py"
    program.write_text(TELLS_LIMITS.format(program=unpacking.__file__, names=list(limits)))
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", limits["FSIZE"])
    monkeypatch.setattr(archives.unpacking, "__file__", str(program))
    monkeypatch.setenv("ONAGER_ETCD_PASSWORD", "secret")
    monkeypatch.setenv("USERS_VARIABLE", "kept")
    with pytest.raises(PlanningError, match=r"a\.tar") as raised:
        unpack("a.tar", b"")
    found, variables = json.loads(str(raised.value).partition("a.tar ")[2])
    assert found == limits
    assert "USERS_VARIABLE" in variables
    assert not [name for name in variables if name.startswith("ONAGER_")]


def test_links_to_one_large_file_count_as_what_they_become(unpack, monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 3 * MIB)
    links = [member(f"l{n}", tarfile.LNKTYPE, "f") for n in range(9)]
    with pytest.raises(PlanningError, match="files of 4,194,304 bytes"):
        unpack("a.tar", tarred(member("f", content=bytes(MIB)), *links))


def test_unpacking_that_takes_too_long_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "UNPACKED_WITHIN_S", 0.5)
    os.mkfifo(tmp_path / "archive")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlanningError, match=r"a\.zip was not unpacked within 0\.5 s"):
        archives.unpack(tmp_path / "archive", "a.zip", tmp_path / "folder")


def test_an_error_of_the_disk_is_not_the_archives(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="No such file") as raised:
        archives.unpack(tmp_path / "gone", "a.zip", tmp_path / "folder")
    assert raised.value.errno == errno.ENOENT


def test_the_program_needs_nothing_but_the_standard_library():
    with open(unpacking.__file__) as file:  # noqa: PTH123
        assert "onager" not in file.read().replace("Onager", "")
