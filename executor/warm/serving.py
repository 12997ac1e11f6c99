"""A warm process, from which others are forked: it has imported what they need, and has one thread.

It is a fresh interpreter, not a fork of the agent, whose threads and connections would not survive a fork. It serves
one socket: each byte on it comes with the three file descriptors for a new child. When the socket closes, because the
agent has ended for whatever reason, the warm process ends, and its children with it.
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import warnings
from pathlib import Path
from typing import Any, Final

REQUEST: Final = b"f"
DESCRIPTORS: Final = 3
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def serve(control: socket.socket) -> socket.socket:
    """Fork for each request, and report how each child ends; in a child, return its channel to the agent."""
    warm = os.getpid()
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the agent
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # adopts processes that children leave behind
    children: dict[int, socket.socket] = {}
    killed: set[int] = set()
    while True:
        killed &= children.keys()
        sources: list[Any] = [control, woken, *(child for pid, child in children.items() if pid not in killed)]
        ready, _, _ = select.select(sources, [], [])
        for pid, child in children.items():
            if child in ready and _is_closed(child):
                _kill(pid)  # the agent closed its end: it no longer wants the child
                killed.add(pid)
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1000)
        _tell_of_ends(children)
        if control not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, 1, DESCRIPTORS)
        if not request:
            _end(children)
        channel, news, output = descriptors
        pid = _fork(news)
        if pid == 0:
            _become(
                warm, libc, output, [control.detach(), woken, wakes, news, *(c.detach() for c in children.values())]
            )
            os.set_inheritable(channel, False)
            return socket.socket(fileno=channel)
        os.close(channel)
        os.close(output)
        if pid > 0:
            children[pid] = socket.socket(fileno=news)


def _is_closed(child: socket.socket) -> bool:
    """Return whether the agent closed its end; a reset counts, since the agent may have left data unread."""
    try:
        return not child.recv(1)
    except OSError:
        return True


def _fork(news: int) -> int:
    """Fork a child into its own process group; return its pid, 0 in the child, or -1 when forking failed."""
    try:
        pid = os.fork()
    except OSError as e:
        with contextlib.suppress(OSError):
            os.write(news, f"{e}\n".encode())
        os.close(news)
        return -1
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # in both processes, since either may run first
    if pid:
        with contextlib.suppress(OSError):
            os.write(news, f"{pid}\n".encode())
    return pid


def _kill(pid: int) -> None:
    """Kill a child, which may have left its process group, and what it started."""
    _kill_group(pid)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _tell_of_ends(children: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            break
        news = children.pop(pid, None)
        if news is None:
            continue  # a process that a child left behind
        _kill_group(pid)  # what the child started may outlive it
        with contextlib.suppress(OSError):
            news.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        news.close()
    if not children:
        _kill_strays()


def _kill_strays() -> None:
    """Kill processes that children left outside their groups; only safe when no child runs, since it kills all."""
    try:
        left = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:
        return  # not Linux
    for pid in map(int, left):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _end(children: dict[int, socket.socket]) -> None:
    for pid in children:
        _kill(pid)
    os._exit(0)


def _become(warm: int, libc: ctypes.CDLL, output: int, others: list[int]) -> None:
    """Drop everything of the warm process but its imported modules, and die when it dies."""
    if sys.platform == "linux":
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warm:
        os._exit(0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for descriptor in others:
        os.close(descriptor)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    gc.enable()


def serve_warm(control: int) -> socket.socket:
    """Serve the socket *control* once everything is imported; in a child, return its channel to the agent."""
    # The warning also counts the threads of libraries, which are fork-safe.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    gc.collect()
    gc.disable()
    gc.freeze()
    return serve(socket.socket(fileno=control))
