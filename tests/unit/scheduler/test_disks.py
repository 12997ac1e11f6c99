"""Whatever a disk does (it fails, hangs, loses files), it costs a call or a round, and never the scheduler."""

import ast
import asyncio
import contextlib
import errno
import os
import threading
import uuid
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from onager.errors import DiskError, OnagerError
from onager.exchange_layout import CHECKPOINTS, CONNECT_ARTIFACTS, result_file
from onager.ids import JobId
from onager.private_paths import PrivatePaths
from onager.protocol.spark_connect import request_of
from onager.scheduler import timing
from onager.scheduler.connect.artifacts import Artifacts
from onager.scheduler.connect.checkpoints import GRACE_MS, Checkpoints
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.sessions import Sessions
from onager.scheduler.disk import EXCHANGE, Disk
from onager.scheduler.jobs.archive import HistoryArchive
from onager.scheduler.jobs.places import check_place_apart
from onager.scheduler.jobs.results import ResultStore, stream_result
from onager.scheduler.loops import every, whenever
from onager.scheduler.main import make_exchange_dir
from tests.support.damage import sealed
from tests.support.disks import HANG, FaultyDisk, settled
from tests.support.waiting import HANGS_S, eventually
from tests.unit.scheduler.test_results import graph, output, stream

ANN = SessionKey("ann", str(uuid.UUID(int=1)))
OLD_S = 1_000_000_000


class LostError(Exception):
    """The client of an upload is gone."""


async def cut():
    yield request_of("AddArtifacts")(session_id=ANN.session_id, chunk={"data": b"b", "crc": zlib.crc32(b"b")})
    raise LostError


async def nothing():
    for request in ():
        yield request


class Scheduler:
    """The parts of a scheduler that touch a disk, each with something to do there."""

    def __init__(self, directory, backend, clock):
        self.directory = directory
        self.backend = backend
        self.clock = clock
        self.sessions = Sessions(backend, clock, retention_s=3600)
        self.artifacts = Artifacts(self.sessions, str(directory), lambda: None)

    async def upload(self):
        """A file that comes whole, and one that is damaged."""
        request = request_of("AddArtifacts")(session_id=ANN.session_id)
        for name in ("files/a", "files/b"):
            request.batch.artifacts.add(name=name).data.data = b"content"
        request.batch.artifacts[0].data.crc = zlib.crc32(b"content")
        await self.artifacts.add(await self.sessions.open(ANN), request, nothing())

    async def cut_upload(self):
        request = request_of("AddArtifacts")(session_id=ANN.session_id)
        request.begin_chunk.name, request.begin_chunk.num_chunks = "files/c", 3
        with contextlib.suppress(LostError):
            await self.artifacts.add(await self.sessions.open(ANN), request, cut())

    async def sweep_of_artifacts(self):
        folder = self.directory / CONNECT_ARTIFACTS
        (folder / "program").mkdir(parents=True, exist_ok=True)
        (folder / "program" / "a.py").symlink_to("../digest")
        for name in ("digest", "other"):
            (folder / name).write_bytes(b"x")
        for path in (*folder.iterdir(),):
            os.utime(path, (OLD_S, OLD_S))
        yield
        await self.artifacts.sweep({"program"})

    async def sweep_of_checkpoints(self):
        names = ("connect-1", "connect-2")
        for name in names:
            (self.directory / CHECKPOINTS / name / "part-0").mkdir(parents=True)
        heads = SimpleNamespace(active=list, get=lambda _: "a head")
        checkpoints = Checkpoints(str(self.directory), heads, self.clock)
        await checkpoints.sweep(set())
        self.clock.advance(2 * GRACE_MS)
        yield
        await checkpoints.sweep({"connect-2"})

    async def result(self):
        content, checksum = sealed(stream([1], [2], [3]))
        path = self.directory / result_file("job-1", 3, 0, "0123456789abcdef0123456789abcdef")
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        of_job = graph(output("0123456789abcdef0123456789abcdef", is_inline=False, checksum=checksum))
        yield
        async for _ in stream_result(of_job, ResultStore(self.backend), str(self.directory), partition=0, batch=0):
            pass

    async def history(self):
        archive = HistoryArchive(self.backend, self.directory / "histories")
        head = SimpleNamespace(job_id=JobId("job-1"), ended_ms=1, submitted_ms=0, model_dump_json=lambda: "{}")
        await archive.write(head)

    async def place(self):
        private = PrivatePaths([self.directory / "state"])
        await check_place_apart(str(self.directory / "out" / "deep"), private)

    async def start(self):
        await EXCHANGE.call(make_exchange_dir, str(self.directory / "exchange"))


WORK = [name for name in vars(Scheduler) if not name.startswith("_")]


async def run(scheduler, name, begin=lambda: None):
    """Do *name*; what it prepares is done before *begin*."""
    work = getattr(scheduler, name)()
    if hasattr(work, "__anext__"):
        await anext(work)
        begin()
        await anext(work, None)
    else:
        begin()
        await work


@pytest.fixture
def watched(tmp_path, monkeypatch):
    found = FaultyDisk(tmp_path, monkeypatch)
    yield found
    found.mend()


async def tried(name, watched, backend, clock, directory, fault=None, first=2**31):
    """Do *name* with a disk that has *fault* from call *first* on; return how many calls there were, and the error."""
    scheduler = Scheduler(directory / str(first), backend, clock)
    scheduler.directory.mkdir(parents=True)
    error = None
    try:
        async with asyncio.timeout(HANGS_S):
            await run(scheduler, name, lambda: watched.fail(fault, first))
    except OnagerError as raised:
        error = raised
    watched.mend()
    await settled()
    # None at all, if a thread began later than its caller waited.
    assert {thread.partition("-")[0] for _, thread in watched.calls} <= {"disk"}, watched.calls
    return len(watched.calls), error


@pytest.mark.parametrize("name", WORK)
async def test_errors_of_a_disk_are_errors_of_ours(name, watched, backend, clock, tmp_path):
    calls, error = await tried(name, watched, backend, clock, tmp_path)
    assert (calls > 0, error) == (True, None)
    for fault in (errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOENT, errno.ETIMEDOUT):
        for first in range(calls):
            await tried(name, watched, backend, clock, tmp_path / str(fault), fault, first)
    assert (await tried(name, watched, backend, clock, tmp_path / "mended"))[1] is None


@pytest.mark.parametrize("name", WORK)
async def test_a_disk_that_hangs_ends_a_call_and_nothing_else(name, watched, backend, clock, tmp_path, monkeypatch):
    calls, error = await tried(name, watched, backend, clock, tmp_path)
    assert (calls > 0, error) == (True, None)
    with monkeypatch.context() as patch:
        patch.setattr(timing, "DISK_S", 0.05)
        patch.setattr(timing, "DISK_LONG_S", 0.05)
        for first in range(calls):
            _, error = await tried(name, watched, backend, clock, tmp_path, HANG, first)
            assert first or error is not None or name == "cut_upload"
    assert (await tried(name, watched, backend, clock, tmp_path / "mended"))[1] is None


@pytest.fixture
async def given_up(monkeypatch):
    """Return what gives calls up that hang, once so many have begun: the loop's clock jumps past their time."""
    monkeypatch.setattr(timing, "DISK_S", HANGS_S)
    loop = asyncio.get_running_loop()
    time = loop.time

    async def give_up(disk, begun, calls):
        tasks = [asyncio.create_task(call) for call in calls]
        await eventually(lambda: len(disk._running.begun_s) == begun)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: time() + HANGS_S + 1)
            return await asyncio.gather(*tasks, return_exceptions=True)

    return give_up


async def test_as_many_calls_wait_as_there_are_threads_and_later_ones_are_refused_at_once(given_up, monkeypatch):
    dead, is_back = Disk("the disk", 2), threading.Event()
    errors = await given_up(dead, 2, [dead.call(is_back.wait) for _ in range(3)])
    assert [(error.hangs, error.is_begun) for error in errors] == [(True, True), (True, True), (True, False)]
    monkeypatch.setattr(timing, "DISK_S", 0)  # they have run for longer
    with pytest.raises(DiskError, match="the disk does not answer: 2 earlier calls have not returned yet"):
        await dead.call(is_back.wait, within_s=HANGS_S)
    is_back.set()
    await eventually(lambda: not dead._running.begun_s)
    assert await dead.call(lambda: "back", within_s=HANGS_S) == "back"


async def test_what_a_late_call_gives_is_given_back_in_its_thread(given_up):
    slow, is_back, closed = Disk("the disk", 1), threading.Event(), asyncio.Event()
    loop, threads = asyncio.get_running_loop(), []

    def opened():
        is_back.wait()
        return "a file"

    def close(file):
        threads.append((file, threading.current_thread().name))
        loop.call_soon_threadsafe(closed.set)

    (error,) = await given_up(slow, 1, [slow.call(opened, late=close)])
    assert isinstance(error, DiskError)
    is_back.set()
    async with asyncio.timeout(HANGS_S):
        await closed.wait()
    assert threads == [("a file", "disk-1")]
    assert await slow.call(lambda: "another", late=close) == "another"
    assert len(threads) == 1


async def test_a_disk_that_hangs_stops_neither_shared_threads_nor_other_disks(given_up):
    dead, other, is_back = Disk("the disk", 16), Disk("another disk", 16), threading.Event()
    await given_up(dead, 16, [dead.call(is_back.wait) for _ in range(16)])
    async with asyncio.timeout(HANGS_S):
        assert await asyncio.to_thread(lambda: "metrics") == "metrics"
    assert await other.call(lambda: "here") == "here"
    is_back.set()


@pytest.mark.parametrize("has_to_be_woken", [False, True])
async def test_an_error_of_the_system_costs_a_loop_one_round(has_to_be_woken, monkeypatch):
    monkeypatch.setattr(timing, "STORE_AGAIN_S", 0)
    rounds, wake = [], asyncio.Event()
    wake.set()  # once, and after the error it is due again by itself

    async def act():
        rounds.append(len(rounds))
        if len(rounds) == 1:
            raise OSError(errno.ESTALE, "Stale file handle")
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(HANGS_S):
            await (whenever(wake, act) if has_to_be_woken else every(0, act))
    assert rounds == [0, 1]


async def test_files_that_others_remove_meanwhile_are_no_error(watched, sessions, tmp_path, monkeypatch):
    artifacts = Artifacts(sessions, str(tmp_path), lambda: None)
    folder = tmp_path / CONNECT_ARTIFACTS
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (OLD_S, OLD_S))
    listed = os.listdir

    def races(path):
        found = listed(path)
        (folder / "a").unlink()
        return found

    monkeypatch.setattr(os, "listdir", races)
    await artifacts.sweep(set())
    assert listed(folder) == []


@pytest.fixture
def sessions(backend, clock):
    return Sessions(backend, clock, retention_s=3600)


# -------------------------------------------------------------------- that there is no other way

SOURCES = Path(timing.__file__).parent
MODULES = {"os", "shutil", "tempfile", "glob", "pathlib", "io"}
OF_MODULES = {"os.getpid", "os.strerror", "io.BytesIO", "io.StringIO"}
"""These touch no disk."""
METHODS = {
    *("absolute", "chmod", "exists", "expanduser", "glob", "hardlink_to", "is_dir", "is_file", "is_mount"),
    *("is_symlink", "iterdir", "lstat", "mkdir", "read_bytes", "read_text", "readlink", "rename", "resolve", "rglob"),
    *("rmdir", "samefile", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text"),
}
FUNCTIONS = {"open", "make_private_directory"}
SHARED = {"to_thread", "run_in_executor"}
ELSEWHERE = {
    "http/page.py": "the page, which is part of the program, is read once",
    "http/messages.py": "so is the protocol",
    "engine/webhooks.py": "the secret is read before the scheduler serves anything",
    "metrics/process.py": "certificates, like tokens, are on a disk of the machine; threads for metrics read them",
}
"""Files that read what lies on a disk of the machine itself, and why they may."""
SHARED_THREADS = {
    "connect/responses.py": "loads pyarrow, and makes a batch without rows",
    "disk.py": "threads of its own",
    "main.py": "loads a module",
    "http/application.py": "makes the OpenAPI document, once",
    "http/probes.py": "writes down metrics",
    "api/tracing.py": "sends traces to a collector, with a time limit",
}


def _name(call):
    parts, node = [], call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def _touches_disks(call):
    name = _name(call)
    module, _, last = name.rpartition(".")
    if module.partition(".")[0] in MODULES:
        return name not in OF_MODULES and not name.startswith("os.path.join")
    if not module:
        return name in FUNCTIONS
    return last in METHODS or (last == "open" and not call.args) or (last == "replace" and len(call.args) == 1)


def _functions(tree):
    """Yield each outermost function, with the class that it belongs to."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if hasattr(each, "args"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node


def _given_to_threads(tree):
    """Return the names that are given to `Disk.call` or `Disk.post`, and the nodes that are given."""
    names, nodes = set(), set()
    ways = {f"{disk}.{way}" for disk in ("EXCHANGE", "OUTPUTS", "HISTORIES") for way in ("call", "post")}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _name(node) not in ways:
            continue
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            nodes.update(ast.walk(argument))
            names.update(each.id for each in ast.walk(argument) if isinstance(each, ast.Name))
            names.update(each.attr for each in ast.walk(argument) if isinstance(each, ast.Attribute))
    return names, nodes


def _strays(trees):
    """Return the calls to disks, and to functions that make such, that are not given to the threads of a disk."""
    given = {file: _given_to_threads(tree) for file, tree in trees.items()}
    functions = {(file, name): function for file, tree in trees.items() for name, function in _functions(tree)}
    calls = {key: [node for node in ast.walk(found) if isinstance(node, ast.Call)] for key, found in functions.items()}
    called = {key: {_name(node).rpartition(".")[2] for node in nodes} for key, nodes in calls.items()}
    in_threads, more = set(), {file: names for file, (names, _) in given.items()}
    while any(more.values()):
        anywhere = set().union(*more.values())
        found = {
            (file, name)
            for (file, name), function in functions.items()
            if not isinstance(function, ast.AsyncFunctionDef)
            and (set(name.split(".")) & more.get(file, set()) if "." in name else name in anywhere)
        } - in_threads
        in_threads |= found
        more = {file: set().union(*(called[key] for key in found if key[0] == file)) for file, _ in found}
    touching = set()
    while True:
        names = {name for _, name in touching}
        found = {
            key
            for key in in_threads - touching
            if "." not in key[1] and (called[key] & names or any(_touches_disks(node) for node in calls[key]))
        }
        if not found:
            break
        touching |= found
    return [
        f"{file}:{node.lineno}: {name} calls {_name(node)}"
        for (file, name), nodes in calls.items()
        if (file, name) not in in_threads
        for node in nodes
        if node not in given[file][1] and (_touches_disks(node) or _name(node) in names)
    ]


def test_schedulers_call_disks_by_their_threads_alone():
    files = {str(path.relative_to(SOURCES)): path for path in SOURCES.rglob("*.py")}
    trees = {name: ast.parse(path.read_text()) for name, path in files.items() if name not in ELSEWHERE}
    assert _strays(trees) == []
    assert files.keys() >= ELSEWHERE.keys() | SHARED_THREADS.keys()


def test_nothing_that_may_hang_runs_in_shared_threads():
    found = set()
    for path in SOURCES.rglob("*.py"):
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        if any(_name(call).rpartition(".")[2] in SHARED for call in calls):
            found.add(str(path.relative_to(SOURCES)))
    assert found == SHARED_THREADS.keys()


@pytest.mark.parametrize(
    ("source", "stray"),
    [
        ("async def f(path):\n    path.mkdir()", "path.mkdir"),
        ("async def f(path):\n    await EXCHANGE.call(path.mkdir)", None),
        ("async def f(path):\n    await EXCHANGE.call(g, path)\ndef g(path):\n    path.mkdir()", None),
        ("async def f(path):\n    g(path)\ndef g(path):\n    path.mkdir()", "path.mkdir"),
        ("async def f(p):\n    await EXCHANGE.call(g, p)\n    g(p)\ndef g(p):\n    os.stat(p)", "g"),
        ("async def f(p):\n    await EXCHANGE.call(g, p)\ndef g(p):\n    h(p)\ndef h(p):\n    os.stat(p)", None),
        ("async def f(path):\n    os.stat(path)", "os.stat"),
        ("async def f(path):\n    with open(path): pass", "open"),
        ("class C:\n    async def f(self, path):\n        shutil.rmtree(path)", "shutil.rmtree"),
        ("async def f(text):\n    text.replace('a', 'b')", None),
        ("async def f(path, to):\n    path.replace(to)", "path.replace"),
    ],
)
def test_a_call_beside_the_threads_is_found(source, stray):
    found = _strays({"module.py": ast.parse(source)})
    assert [each.rpartition(" ")[2] for each in found] == ([] if stray is None else [stray])
