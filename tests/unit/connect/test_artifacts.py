"""Files that clients add: what they are called, that none is replaced, and that they go once nobody reads them."""

import errno
import os
import uuid
import zlib
from pathlib import Path

import pytest

from onager.clock import SystemClock
from onager.exchange_layout import CONNECT_ARTIFACTS, connect_artifact, connect_unpacked
from onager.program_files import files_digest, program_file
from onager.protocol.spark_connect import request_of
from onager.scheduler.connect import artifacts as module
from onager.scheduler.connect.artifacts import Artifacts
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.sessions import Sessions

ANN = SessionKey("ann", str(uuid.UUID(int=1)))
DAY_S = 24 * 3_600


@pytest.fixture
def sessions(backend, clock):
    return Sessions(backend, clock, retention_s=3600)


@pytest.fixture
def artifacts(sessions, tmp_path):
    return Artifacts(sessions, str(tmp_path), lambda: None)


async def nothing():
    for request in ():
        yield request


def added(**files):
    """Return the request of a client that adds *files*: contents by name, with __ for /."""
    request = request_of("AddArtifacts")(session_id=ANN.session_id)
    for name, content in files.items():
        data = request.batch.artifacts.add(name=name).data
        data.data, data.crc = content, zlib.crc32(content)
    return request


async def add(artifacts, sessions, files):
    answer = await artifacts.add(await sessions.open(ANN), added(**files), nothing())
    return [(each.name, each.is_crc_successful) for each in answer.artifacts]


async def names(sessions, key=ANN):
    return {each.name: each.digest[:2] for each in (await sessions.find(key)).record.artifacts}


@pytest.mark.parametrize(
    ("artifact", "file"),
    [
        ("pyfiles/mod.py", ("pyfiles", "mod.py", "mod.py")),
        ("files/a b#c.txt", ("files", "a b#c.txt", "a b#c.txt")),
        ("archives/env.tar.gz", ("archives", "env.tar.gz", "env.tar.gz")),
        ("archives/env.zip#environment", ("archives", "env.zip", "environment")),
        ("archives/env.zip#", ("archives", "env.zip", "env.zip")),
        ("archives/env.rar", None),
        ("archives/env.zip#..", None),
        ("archives/env.zip#a/b", None),
        ("pyfiles/sub/mod.py", None),
        ("pyfiles/", None),
        ("cache/x", None),
        ("jars/x.jar", None),
        (f"files/{'ä' * 128}", None),
    ],
)
def test_what_python_finds_a_file_by(artifact, file):
    assert program_file(artifact) == file


def test_the_same_files_have_one_digest_and_others_another_one():
    files = [("pyfiles/a.py", "1"), ("files/b", "2")]
    assert files_digest(files) == files_digest([*reversed(files), ("cache/x", "x")])
    other = [[("pyfiles/a.py", "2"), files[1]], files[:1], [("files/a.py", "1"), files[1]]]
    assert len({files_digest(each) for each in (files, *other)}) == 4
    assert files_digest([("cache/x", "x")]) == ""


async def test_files_lie_by_their_content_and_what_is_damaged_is_left_out(artifacts, sessions, tmp_path):
    request = added(**{"pyfiles/a.py": b"A = 1", "files/b": b"b"})
    request.batch.artifacts[1].data.crc += 1
    answer = await artifacts.add(await sessions.open(ANN), request, nothing())
    assert [each.is_crc_successful for each in answer.artifacts] == [True, False]
    (artifact,) = (await sessions.find(ANN)).record.artifacts
    assert (artifact.name, artifact.size_bytes) == ("pyfiles/a.py", 5)
    assert (tmp_path / connect_artifact(artifact.digest)).read_bytes() == b"A = 1"
    assert [path.name for path in (tmp_path / CONNECT_ARTIFACTS).iterdir()] == [artifact.digest]


async def test_a_file_is_not_replaced_and_the_others_of_the_call_are_added(artifacts, sessions):
    await add(artifacts, sessions, {"pyfiles/a.py": b"1", "archives/e.zip#env": b"z"})
    before = await names(sessions)
    with pytest.raises(ConnectError, match=r"ARTIFACT_ALREADY_EXISTS.* pyfiles/a\.py, files/env") as raised:
        await add(artifacts, sessions, {"pyfiles/a.py": b"2", "files/env": b"z", "files/new": b"3"})
    assert (raised.value.error_class, raised.value.sql_state) == ("ARTIFACT_ALREADY_EXISTS", "42713")
    after = await names(sessions)
    assert after.pop("files/new")
    assert after == before
    same = {"pyfiles/a.py": b"1", "archives/e.zip#other": b"z"}  # as Spark: the first name stays
    assert await add(artifacts, sessions, same) == [("pyfiles/a.py", True), ("archives/e.zip#other", True)]
    assert (await names(sessions)).keys() == {"pyfiles/a.py", "archives/e.zip#env", "files/new"}


async def test_one_name_in_two_places_is_one_file(artifacts, sessions):
    await add(artifacts, sessions, {"pyfiles/a.py": b"1"})
    with pytest.raises(ConnectError, match=r"another files/a\.py"):
        await add(artifacts, sessions, {"files/a.py": b"2"})
    await add(artifacts, sessions, {"files/a.py": b"1"})
    assert len(await names(sessions)) == 2


@pytest.mark.parametrize(
    ("name", "word"),
    [("jars/x.jar", "executors"), ("classes/X.class", "executors"), ("forward_to_fs/x", "copyFromLocalToFs")],
)
async def test_what_is_not_for_python_is_refused_by_name(artifacts, sessions, name, word):
    with pytest.raises(ConnectError, match=word) as raised:
        await add(artifacts, sessions, {name: b"x"})
    assert raised.value.error_class == "UNSUPPORTED_FEATURE"


async def test_a_session_has_only_so_many_files(artifacts, sessions, monkeypatch):
    monkeypatch.setattr(module, "MAX_ARTIFACTS", 1)
    await add(artifacts, sessions, {"pyfiles/a.py": b"1"})
    with pytest.raises(ConnectError, match="CONNECT_LIMIT_EXCEEDED"):
        await add(artifacts, sessions, {"pyfiles/b.py": b"1"})
    assert (await names(sessions)).keys() == {"pyfiles/a.py"}


async def test_a_clone_has_the_files_of_its_model(artifacts, sessions):
    await add(artifacts, sessions, {"pyfiles/a.py": b"1"})
    clone = SessionKey("ann", str(uuid.UUID(int=2)))
    await sessions.clone(await sessions.find(ANN), clone, lambda _: b"")
    assert await names(sessions, clone) == await names(sessions)


def folder_of(tmp_path, artifacts):
    """Make the folder of a program's files, with an archive, as executors do; return all that lies there."""
    (archive,) = (each for each in artifacts if each.name.startswith("archives/"))
    (tmp_path / connect_unpacked(archive.digest)).mkdir()
    folder = tmp_path / connect_artifact(files_digest((each.name, each.digest) for each in artifacts))
    folder.mkdir()
    (folder / "__pycache__").mkdir()
    for each in artifacts:
        target = connect_unpacked(each.digest) if each is archive else connect_artifact(each.digest)
        (folder / program_file(each.name).alias).symlink_to(f"../{Path(target).name}")
    return folder


async def test_files_of_no_session_go_a_day_after_their_last_use(artifacts, sessions, tmp_path):
    await add(artifacts, sessions, {"pyfiles/a.py": b"1", "archives/e.zip#env": b"z"})
    folder = folder_of(tmp_path, (await sessions.find(ANN)).record.artifacts)
    there = sorted(folder.parent.iterdir())
    assert len(there) == 4
    old = SystemClock().now_ms() / 1000 - 2 * DAY_S
    for path in there:
        os.utime(path, (old, old))
    await artifacts.sweep(await sessions.sweep())
    assert sorted(folder.parent.iterdir()) == there, "a session has them"
    await sessions.close(ANN)
    os.utime(folder)
    await artifacts.sweep(await sessions.sweep())
    assert sorted(folder.parent.iterdir()) == there, "a job may still use them"
    os.utime(folder, (old, old))
    await artifacts.sweep(await sessions.sweep())
    assert not list(folder.parent.iterdir())


async def test_a_file_that_cannot_be_removed_keeps_no_other(artifacts, sessions, tmp_path, monkeypatch):
    await add(artifacts, sessions, {f"pyfiles/{name}.py": name.encode() for name in "abc"})
    folder = (tmp_path / connect_artifact("0" * 64)).parent
    there = list(folder.iterdir())
    assert len(there) == 3
    old = SystemClock().now_ms() / 1000 - 2 * DAY_S
    for path in there:
        os.utime(path, (old, old))
    await sessions.close(ANN)
    unlink = Path.unlink

    def refused(path, *args, **kwargs):
        if path == there[0]:
            raise PermissionError(errno.EACCES, "not yours", str(path))
        return unlink(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        await artifacts.sweep(await sessions.sweep())
    assert list(folder.iterdir()) == there[:1]
    await artifacts.sweep(await sessions.sweep())
    assert not list(folder.iterdir())
