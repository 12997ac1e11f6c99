"""The processes of functions, without Spark: forking, killing, reporting, and ending with their agent."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from onager.errors import FunctionLostError
from onager.executor.spark.functions.calls import _tell_end
from onager.executor.spark.functions.processes import FunctionProcess, FunctionProcesses
from onager.executor.warm import processes as warm_processes
from onager.executor.warm import serving
from onager.protocol import onager_pb2 as pb
from tests.support.processes.cluster import lives
from tests.support.waiting import HANGS_S, until


@pytest.fixture(scope="module")
def processes():
    made = FunctionProcesses()
    yield made
    made.close()


def warm(processes: FunctionProcesses) -> psutil.Process:
    return psutil.Process(processes._process.pid)


def ask(processes: FunctionProcesses, directory) -> dict:
    """Have a process begin without what it needs to know of Spark, and return what it says to that."""
    request = {"port": 1, "token": "", "ids": "o1 o2 o3 o4", "directory": str(directory), "context": {}}
    with processes.fork() as process:
        process.ask(json.dumps(request).encode(), pb.JobSpec().SerializeToString())
        return json.loads(process.answer(HANGS_S, lambda _: None))


def test_many_processes_at_a_time_answer_and_leave_nothing(processes, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(processes, tmp_path), range(40)))
    assert {answer["kind"] for answer in answers} == {"broken"}
    assert all("KeyError: 'environment'" in answer["message"] for answer in answers)
    assert warm(processes).children() == []
    assert warm(processes).num_fds() < 12


def test_the_warm_process_has_nothing_of_grpc(processes, tmp_path):
    ask(processes, tmp_path)
    mapped = {entry.path for entry in warm(processes).memory_maps()}
    assert any("pandas" in path for path in mapped)
    assert not any("grpc" in path for path in mapped)


def test_a_process_that_does_not_answer_is_killed_in_time(processes):
    with processes.fork() as process, pytest.raises(TimeoutError):
        process.answer(0.2, lambda _: None)
    assert process.exit_code == -9


def test_a_process_that_prints_without_pause_is_killed_in_time(processes):
    """There is always something to be read; `yes` prints for it, and still does when it is killed."""
    with processes.fork() as process:
        process._take_news()
        theirs = Path(f"/proc/{process._pid}/fd/1")
        until(lambda: theirs.stat().st_ino == os.fstat(process._output).st_ino, "its output")
        with theirs.open("wb") as output:
            printer = subprocess.Popen(["timeout", f"{HANGS_S:g}", "yes"], stdout=output, stderr=subprocess.DEVNULL)
        with pytest.raises(TimeoutError):
            process.answer(0.2, lambda _: time.sleep(0.005))
        assert printer.poll() is None
    assert process.exit_code == -9
    printer.wait()


def test_a_process_may_take_a_month(processes):
    with processes.fork() as process:
        killer = threading.Timer(0.2, process.kill)
        killer.start()
        assert process.answer(40 * 86_400.0, lambda _: None) is None
        killer.join()


def test_a_process_that_answers_without_end_is_killed():
    channel, theirs = socket.socketpair()
    reported, warm_end = socket.socketpair()
    output, written = os.pipe()
    os.close(written)

    def answer_and_end() -> None:
        with warm_end, theirs:
            warm_end.sendall(b"1000000000\n")
            theirs.sendall(b"\x7f" * (1 << 20) + b"more")
            assert not warm_end.recv(1)
            warm_end.sendall(b"-9\n")

    answering = threading.Thread(target=answer_and_end, daemon=True)
    answering.start()
    with FunctionProcess(channel, reported, output) as process:
        assert process.answer(5.0, lambda _: None) is None
        assert process.exit_code == -9
    answering.join()


def test_a_process_is_killed_by_another_thread_at_any_time(processes):
    with processes.fork() as process:
        killer = threading.Timer(0.1, process.kill)
        killer.start()
        assert process.answer(None, lambda _: None) is None
        killer.join()
    process.kill()
    assert process.exit_code == -9


def test_when_the_warm_process_dies_its_children_do_and_another_takes_its_place(processes, tmp_path):
    before = warm(processes)
    with processes.fork() as process:
        (child,) = until(before.children, "a child")
        before.kill()
        assert process.answer(None, lambda _: None) is None
        assert process.exit_code is None
    until(lambda: not lives(child.pid), "the end of the child")
    assert ask(processes, tmp_path)["kind"] == "broken"
    assert warm(processes).pid != before.pid


def test_an_agent_that_dies_without_reading_ends_the_warm_process(processes):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = processes._start_warm(theirs)
        made = warm_processes._fork(ours, FunctionProcess)
        made._news_socket.recv(1, socket.MSG_PEEK)
        made._news_socket.close()
        until(lambda: not psutil.Process(process.pid).children() or process.poll(), "the end of the child")
        theirs.close()
        ours.close()
        assert process.wait(HANGS_S) == 0
        made._channel.close()
        os.close(made._output)


def test_a_warm_process_that_cannot_be_started_is_started_when_it_can(monkeypatch, tmp_path):
    monkeypatch.setattr("onager.executor.warm.processes._START_S", 0.2)
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        made = FunctionProcesses()
        with pytest.raises(FunctionLostError, match=r"No such file or directory: '/nowhere/python'.*pids"):
            until(made.fork, "an error")
    monkeypatch.setattr("onager.executor.warm.processes._START_S", HANGS_S)
    assert ask(made, tmp_path)["kind"] == "broken"
    made.close()


def test_why_no_process_could_be_forked_is_reported(monkeypatch):
    channel, unused = socket.socketpair()
    reported, theirs = socket.socketpair()
    output, written = os.pipe()
    unused.close()
    os.close(written)

    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    assert serving._fork(theirs.detach()) == -1
    with FunctionProcess(channel, reported, output) as process:
        assert process.answer(None, lambda _: None) is None
    with pytest.raises(FunctionLostError, match=r"Resource temporarily unavailable.*pids"):
        _tell_end(process)


def test_after_the_end_there_is_none():
    made = FunctionProcesses()
    process = made.fork()
    pid = warm(made).pid
    made.close()
    until(lambda: not lives(pid), "the end of the warm process")
    with process:
        assert process.answer(None, lambda _: None) is None
    with pytest.raises(FunctionLostError):
        made.fork()
